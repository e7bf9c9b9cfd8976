"""The view of who holds the power: what Python measured, in a table and in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from pages import Open, Solved, solved_page, world_of

from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.plugin import ExactParams
from empo_inspector.page import write_page
from empo_tabular.table import Table
from empo_tabular.world import world_of as table_world
from empo_theory.inspection import InspectionScope

PANEL = "() => document.getElementById('panel').innerText"
NUMBERS = """() => [...document.querySelectorAll('#panel table')].map((table) =>
  [...table.tBodies[0].rows].map((row) =>
    [...row.querySelectorAll('data')].map((data) => [+data.value, data.textContent])))"""
CUT_OFF = """() => [...document.querySelectorAll('#panel .wide')]
  .filter((table) => table.scrollWidth > table.clientWidth).length"""
GOLDEN = Path(__file__).parents[1] / "golden"


def test_the_view_has_a_line_for_each_human_and_all_sentences(
    open_page: Open, tmp_path: Path
) -> None:
    params = ExactParams.model_validate({"keep": "all"})
    solved = solved_page(world_of("table/resource_split"), params, tmp_path)
    result = solved.result
    result.diagnostics = diagnose(result)
    inspection = replace(solved.inspection, power=result.diagnostics)
    write_page(inspection, result.world, tmp_path, solved.file, InspectionScope())
    opened = open_page(solved.file)
    opened.show(view="power")
    text = opened.ask(PANEL)
    assert opened.said == []
    assert all(human.name in text for human in result.diagnostics.humans)
    assert all(sentence in text for sentence in result.diagnostics.in_words())
    lengths = opened.ask(
        "() => [...document.querySelectorAll('#panel .fill')].map(e => e.style.width)"
    )
    assert len(set(lengths)) > 1


def test_all_tables_have_the_numbers_of_the_findings_and_room(
    open_page: Open, tmp_path: Path
) -> None:
    games = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (gate,) = (game for game in games if game["name"] == "gate")
    params = ExactParams.model_validate({"preset": "fair", "keep": "all"})
    solved = solved_page(table_world(Table.model_validate(gate)), params, tmp_path)
    measures = ("alone", "vulnerability", "domination", "coalitions", "canonical")
    power = diagnose(solved.result, measures)
    write_page(
        replace(solved.inspection, power=power),
        solved.result.world,
        tmp_path,
        solved.file,
        InspectionScope(),
    )
    opened = open_page(solved.file, viewport={"width": 1280, "height": 900})
    opened.show(view="power")
    humans, coalitions, shares = opened.ask(NUMBERS)
    assert power.coalitions is not None
    for row, human in zip(humans, power.humans, strict=True):
        assert human.alone is not None
        assert human.canonical is not None
        bits = [human.bits, human.maximum, human.alone.bits]
        bits += [*(threat.bits for threat in human.threats), human.canonical.bits]
        assert [value for value, _ in row] == pytest.approx(bits)
        assert all(text == f"{value:.4f}" for value, text in row)
    for row, coalition in zip(coalitions, power.coalitions.coalitions, strict=True):
        pairs = zip(coalition.capability, coalition.best, strict=True)
        together = [number for pair in pairs for number in pair]
        assert [v for v, _ in row] == pytest.approx(
            [*together, coalition.value, coalition.dividend]
        )
    for row, share in zip(shares, power.coalitions.shares, strict=True):
        assert [value for value, _ in row] == pytest.approx([share.mass, share.bits])
    assert opened.ask(CUT_OFF) == 0
    assert opened.said == []


def test_a_page_without_diagnostics_has_no_such_view(
    open_page: Open, free_the_human: Solved
) -> None:
    opened = open_page(free_the_human.file)
    assert opened.ask("() => document.getElementById('power').hidden")
