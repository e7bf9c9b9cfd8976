"""The view of who holds the power: what Python measured, in a table and in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pages import Open, Solved, solved_page, world_of

from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.plugin import ExactParams
from empo_inspector.page import write_page
from empo_theory.inspection import InspectionScope

PANEL = "() => document.getElementById('panel').innerText"


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


def test_a_page_without_diagnostics_has_no_such_view(
    open_page: Open, free_the_human: Solved
) -> None:
    opened = open_page(free_the_human.file)
    assert opened.ask("() => document.getElementById('power').hidden")
