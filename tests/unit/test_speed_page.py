"""Every row of the page on speed has a command that measures it again."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from rich.console import Console
from rich.table import Table


@pytest.fixture
def overview(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    """The script that measures the whole page."""
    monkeypatch.syspath_prepend(str(request.config.rootpath / "tests/benchmarks"))
    return importlib.import_module("overview")


def test_every_row_is_measured_by_one_command(overview: ModuleType) -> None:
    rows = [row for row, _ in overview.page_rows()]
    measured = [figure.row for figures in overview.FIGURES.values() for figure in figures]
    assert sorted(rows) == sorted(measured)
    assert len(set(rows)) == len(rows) > 50


def test_rows_name_the_command_that_measures_them(overview: ModuleType) -> None:
    page = dict(overview.page_rows())
    named = [
        (page[figure.row].command, command)
        for command, figures in overview.FIGURES.items()
        for figure in figures
        if page[figure.row].command
    ]
    assert len(named) > 25
    assert [pair for pair in named if pair[0] != pair[1]] == []


def test_scripts_print_the_columns_that_are_read(overview: ModuleType) -> None:
    missing = [
        (command, figure.column)
        for command, figures in overview.FIGURES.items()
        for figure in figures
        if f'"{figure.column}"' not in (overview.HERE / command.split()[0]).read_text("utf-8")
    ]
    assert missing == []


def test_numbers_are_read_from_all_rows_that_match(overview: ModuleType) -> None:
    table = Table("world", "what", "ratio")
    table.add_row("one", "fair", "1.02 x")
    table.add_row("two", "fair", "0.9")
    table.add_row("two", "paper", "1")
    console = Console(width=80, record=True, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(table)
    figure = overview.Figure("", (".*", "fair"), "ratio")
    numbers = figure.numbers(capture.get())
    assert numbers == [1.02, 0.9]
    assert overview.PageRow("", "≤ 1.05", "").verdict(numbers) == "reached"
    assert overview.PageRow("", "≥ 1", "").verdict(numbers) == "missed"
    assert overview.PageRow("", "≤ 1", "").verdict([]) == "left out"
