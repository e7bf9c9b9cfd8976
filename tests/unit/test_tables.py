"""Tables on narrow terminals: what has a name keeps it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from empo_core.tables import FittingTable

WORLD, TITLE = "multigrid/asymmetric_freeing_simple", "A robot frees one of two humans"


def shown(width: int) -> list[str]:
    table = FittingTable(title="Worlds")
    table.add_column("world", overflow="fold")
    table.add_column("title", overflow="fold")
    table.add_column("humans", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_row(WORLD, TITLE, "2", "██")
    table.add_row("", "", "3", "")
    stream = io.StringIO()
    Console(file=stream, width=width).print(table)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [62, 70, 80, 200])
def test_where_every_word_fits_a_table_breaks_lines_between_words(width: int) -> None:
    lines = shown(width)
    assert "┃" in "".join(lines)
    assert any(WORLD in line for line in lines)
    assert all(any(word in line for line in lines) for word in TITLE.split())


@pytest.mark.parametrize("width", [40, 60, 61])
def test_where_a_word_does_not_fit_a_list_names_all_of_it(width: int) -> None:
    lines = shown(width)
    assert lines[:2] == ["Worlds", WORLD]
    assert " ".join(" ".join(lines[2:]).split()) == f"title {TITLE}, humans 2 humans 3"
    assert max(map(len, lines)) <= width
