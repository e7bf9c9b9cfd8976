"""Pages of learned runs: learned values, exact ones beside them, and what does not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from pages import Learned, Open, world_of

from empo_inspector.container import unpack
from empo_inspector.decision import OneStep
from empo_inspector.explanation import explain
from empo_inspector.page import container, page
from empo_theory.inspection import InspectionScope

VIEWS = ("robot", "next", "why", "human", "find", "play", "about", "errors")
DECIDE = """places => places.map(([s, t]) => {
  const found = m.decision(s, t), right = m.right.decision(s, t);
  return {pi_r: [...found.pi_r], q_r: [...found.q_r], ahead: [...found.ahead], v_r: found.v_r,
    u_r: found.u_r, remainder: m.remainder(s, t), right: [...right.q_r]};
})"""


def places(learned: Learned, number: int) -> list[tuple[int, int]]:
    times, states = np.nonzero(~np.isnan(learned.inspection.v_r))
    chosen = np.random.default_rng(0).permutation(len(times))[:number]
    return [(int(states[i]), int(times[i])) for i in chosen]


def test_learned_decisions_are_those_of_python(open_page: Open, learned: Learned) -> None:
    here, kept = places(learned, 40), learned.inspection
    assert kept.right is not None
    step = OneStep(kept)
    exact = OneStep(replace(kept, v_r=kept.right.v_r, v_e=kept.right.v_e, q_r=None, x_h_floor=0.0))
    found = open_page(learned.file).ask(DECIDE, here)
    for (state, time), there in zip(here, found, strict=True):
        states = torch.tensor([state])
        policies = step.policies(states, time)
        outcomes = step.outcomes(states, time, policies)
        remainder = step.bellman_remainder(states, time, policies)
        for name, right in (
            ("pi_r", policies.pi_r[0]),
            ("q_r", policies.q_r[0]),
            ("ahead", policies.lookahead[0]),
            ("v_r", outcomes.v_r[0]),
            ("u_r", outcomes.u_r[0]),
            ("right", exact.policies(states, time).q_r[0]),
        ):
            np.testing.assert_allclose(there[name], right.numpy(), 1e-12, 1e-14)
        scale = abs(float(outcomes.v_r[0]))
        assert there["remainder"] == pytest.approx(float(remainder[0]), abs=1e-12 * scale)


TELL = """async ([s, t]) => {
  inspector.goTo(s, t, false);
  inspector.view = "robot"; inspector.show();
  const rest = () => new Promise((done) => setTimeout(done));
  while (document.querySelector("#panel [data-busy]")) await rest();
  return document.getElementById("sentence").textContent;
}"""


def test_sentences_name_the_bellman_remainder_as_in_python(
    open_page: Open, learned: Learned
) -> None:
    opened, world = open_page(learned.file), world_of("multigrid/trivial", max_steps=5)
    for place in places(learned, 30):
        told = " ".join(explain(learned.inspection, world, *place).sentences())
        assert opened.ask(TELL, place) == told


COUNTS = """() => [...document.querySelectorAll("#panel tbody")].slice(0, 2).map((table) =>
  [...table.rows].reduce((total, row) => total + +row.cells[1].firstChild.value, 0))"""
LEGEND = "() => [...document.querySelectorAll('#legend span')].map((each) => each.textContent)"


def test_learned_exact_and_difference_stand_side_by_side(open_page: Open, learned: Learned) -> None:
    opened = open_page(learned.file)
    opened.show(view="robot")
    text = opened.tab.inner_text("#panel")
    for words in ("Q_r one step ahead", "Q_r, exact", "learned − exact", "Bellman remainder"):
        assert words in text
    opened.show(view="why")
    assert "Bellman remainder" in opened.tab.inner_text("#reasons")
    opened.show(view="errors")
    text = opened.tab.inner_text("#panel")
    assert "Relative errors of V_r" in text
    assert "Largest errors × occupancy" in text
    right, kept = learned.inspection.right, learned.inspection
    assert right is not None
    errors = (right.v_r - kept.v_r, right.v_e - kept.v_e)
    assert opened.ask(COUNTS) == [int((~np.isnan(each)).sum()) for each in errors]
    opened.show(map="error")
    assert "learned − exact" in opened.tab.inner_text("#picks")
    worst = max(map(float, opened.ask(LEGEND)))
    assert 0 < worst < 0.5
    assert opened.said == []


@pytest.mark.parametrize("width", [320, 1280])
def test_pages_of_learned_runs_stay_in_their_width(
    open_page: Open, learned: Learned, width: int
) -> None:
    opened = open_page(learned.file, viewport={"width": width, "height": 800})
    for view in VIEWS:
        opened.show(view=view)
        assert opened.ask("() => document.documentElement.scrollWidth") <= width
    assert opened.said == []


def written(learned: Learned, directory: Path, **options: object) -> tuple[Path, bytes]:
    asked = InspectionScope(**options)  # type: ignore[arg-type]
    world = world_of("multigrid/trivial", max_steps=5)
    packed = container(learned.inspection, world, asked, directory)
    file = directory / "part.html"
    file.write_text(page(packed, world.spec.name, "at the start"), "utf-8")
    return file, packed


def test_rounded_values_are_said_to_be(open_page: Open, learned: Learned, tmp_path: Path) -> None:
    file, packed = written(learned, tmp_path, compact=True)
    opened = open_page(file)
    opened.show(view="about")
    assert "rounded to 6e-8" in opened.tab.inner_text("#panel")
    opened.show(view="robot")
    shown = opened.ask("() => [...document.querySelectorAll('#panel data')].map((x) => x.value)")
    assert max(len(text.strip("-0.").replace(".", "").split("e")[0]) for text in shown) <= 7
    header, _ = unpack(packed)
    assert header.precision == "compact"


def test_times_that_are_not_kept_are_named(
    open_page: Open, learned: Learned, tmp_path: Path
) -> None:
    file, _ = written(learned, tmp_path, times=(0, 3))
    opened = open_page(file)
    assert opened.ask("() => inspector.path.length") == 2
    opened.tab.press("#pause", "ArrowRight")
    assert "of this time, or of the next, are not kept" in opened.tab.inner_text("#panel")
    state = int(np.flatnonzero(~np.isnan(learned.inspection.v_r[3]))[5])
    opened.ask("([s]) => inspector.goTo(s, 3)", [state])
    opened.show(view="robot")
    assert "Q_r one step ahead" in opened.tab.inner_text("#panel")
    assert opened.said == []
