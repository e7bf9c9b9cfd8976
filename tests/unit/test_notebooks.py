"""Reports, worlds and states as notebooks show them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from rich.text import Text

from empo_core.config import WorldModelRef
from empo_core.experiment import build
from empo_core.notebooks import MOST_BYTES, NotebookState, as_html
from empo_core.protocols import WorldModel
from empo_exact.plugin import ExactParams
from empo_exact.solver import solve


def world(name: str) -> WorldModel:
    built: WorldModel = build(WorldModelRef.model_validate(name))
    return built


def shown(thing: object) -> str:
    text: str = thing._repr_html_()  # type: ignore[attr-defined]
    assert len(text) <= MOST_BYTES
    assert not re.search(r"<(?!/?(pre|span|img)\b)|https?:|<script| on\w+=", text)
    return text


def test_a_result_is_its_report_and_picture() -> None:
    result = solve(world("multigrid/trivial"), ExactParams())
    assert "Robot" in shown(result)
    assert "data:image/png;base64," in shown(result)
    assert "rather than" in shown(result.explain())


@pytest.mark.parametrize(
    ("name", "is_drawn"), [("multigrid/trivial", True), ("table/belief", False)]
)
def test_worlds_and_states_are_pictures_or_else_text(name: str, is_drawn: bool) -> None:
    built = world(name)
    assert ("data:image/png" in shown(built)) is is_drawn
    assert ("data:image/png" in shown(NotebookState(built, built.initial_state()))) is is_drawn
    assert built.spec.name in shown(built)


def test_names_are_text() -> None:
    assert "&lt;img src=x onerror=alert(1)&gt;" in as_html("<img src=x onerror=alert(1)>")


def test_what_is_too_large_is_cut() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3)).astype(np.uint8)
    assert "<img" not in as_html("a large picture", noise)
    many = Text("many words & more\n" * 50_000)
    assert len(as_html(many)) <= MOST_BYTES
    assert "(and more)" in as_html(many)
