"""Numbers of the page equal those of Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pages import Open, Solved, solved_page, world_of

import empo_inspector
from empo_exact.plugin import ExactParams
from empo_inspector.decision import OneStep
from empo_inspector.explanation import explain
from empo_theory.parameters import CompleteTheory

DECISIONS = """(places) => places.map(([s, t, theory]) => {
  const model = m;
  const found = model.decision(s, t, theory ? {...model.theory, ...theory} : undefined);
  const plain = (list) => [...list].map((x) => Number.isNaN(x) ? null : x);
  return {Q_r: plain(found.q_r), pi_r: plain(found.pi_r), V_e: plain(found.v_e), V_r: found.v_r,
    U_r: found.u_r, X_h: plain(found.x_h), pi_h: plain(found.pi_h), Q_m: plain(found.q_m)};
})"""
EXACT = 1e-12


def numbers(values: object) -> np.ndarray:
    """JSON data as numbers, null as NaN."""
    return np.asarray(values, np.float64)


def compare(here: Mapping[str, Any], there: Mapping[str, Any], where: object) -> None:
    for name, value in here.items():
        np.testing.assert_allclose(
            numbers(there[name]), numbers(value), EXACT, 1e-300, err_msg=f"{name} at {where}"
        )


def test_decisions_are_those_of_the_solver(open_page: Open, solved: Solved) -> None:
    places = solved.places(200)
    found = open_page(solved.file).ask(DECISIONS, [[*place, None] for place in places])
    for (state, time), there in zip(places, found, strict=True):
        here = solved.result.at(int(solved.inspection.number[state]), time)
        names = ("Q_r", "pi_r", "V_e", "V_r", "U_r")
        expected = {name: getattr(here, name) for name in names}
        expected |= {"X_h": list(here.X_h.values()), "pi_h": here.pi_h.ravel()}
        compare(expected, there, (state, time))


def theories(number: int) -> list[dict[str, object]]:
    """Other parameters of a decision."""
    draw = np.random.default_rng(3)
    names = {"beta_h": 20, "beta_r": 60, "zeta": 3, "xi": 3, "eta": 3, "nu": 1}
    found: list[dict[str, object]] = []
    for model in itertools.islice(itertools.cycle(("pessimistic", "optimistic")), number):
        changes = {name: float(draw.uniform(0.01, most)) for name, most in names.items()}
        changes |= {name: float(draw.uniform(0.6, 1)) for name in ("gamma_h", "gamma_r")}
        found.append({**changes, "robot_model": model})
    return found


def test_what_if_is_one_step_of_the_equations(open_page: Open, solved: Solved) -> None:
    assumed, places = theories(20), solved.places(20, seed=1)
    asked = [[*place, theory] for place, theory in zip(places, assumed, strict=True)]
    found = open_page(solved.file).ask(DECISIONS, asked)
    for (state, time, theory), there in zip(asked, found, strict=True):
        whole = {**solved.inspection.theory.model_dump(), **theory}
        step = OneStep(solved.inspection, CompleteTheory.model_validate(whole))
        here = torch.tensor([state])
        policies = step.policies(here, time)
        outcomes = step.outcomes(here, time, policies)
        expected = {"Q_r": policies.q_r[0], "pi_r": policies.pi_r[0], "V_e": outcomes.v_e[0]}
        expected |= {"V_r": outcomes.v_r[0], "U_r": outcomes.u_r[0], "X_h": outcomes.x_h[0]}
        expected |= {"pi_h": policies.pi_h[0].ravel(), "Q_m": policies.q_m[0].ravel()}
        expected = {name: value.numpy() for name, value in expected.items()}
        compare(expected, there, (state, time, theory))


SHOWN = """() => [...document.querySelectorAll("#panel tbody tr")].map(
  (row) => [...row.querySelectorAll("data")].map((each) => [each.value, each.textContent]))"""


@pytest.mark.parametrize("number", [10, pytest.param(40, marks=pytest.mark.slow)])
def test_the_page_shows_the_digits_of_the_solver(
    open_page: Open, solved: Solved, number: int
) -> None:
    opened = open_page(solved.file)
    for state, time in solved.places(number, seed=2):
        opened.ask("([s, t]) => inspector.goTo(s, t)", [state, time])
        opened.show(view="robot")
        here = solved.result.at(int(solved.inspection.number[state]), time)
        actions = np.flatnonzero(~np.isnan(here.Q_r)).tolist()
        rows = opened.ask(SHOWN)[: len(actions)]
        right = sorted(zip(here.pi_r[actions], here.Q_r[actions], strict=True))
        for row, pair in zip(sorted(rows, key=lambda row: float(row[0][0])), right, strict=True):
            for (full, text), value in zip(row, pair, strict=False):
                assert float(full) == pytest.approx(value, rel=EXACT)
                assert float(text.replace("−", "-")) == pytest.approx(value, rel=6e-5)


COPIED = """() => {
  const table = document.querySelector("#panel table"), data = new DataTransfer();
  getSelection().selectAllChildren(table);
  table.dispatchEvent(new ClipboardEvent("copy", {clipboardData: data, bubbles: true}));
  return data.getData("text/plain");
}"""


def test_a_table_is_copied_with_all_digits(open_page: Open, free_the_human: Solved) -> None:
    opened = open_page(free_the_human.file)
    lines = [line.split("\t") for line in opened.ask(COPIED).splitlines()]
    right = free_the_human.result.at(0)
    names = free_the_human.result.spec.robot_action_names
    found = {line[0]: line[1:3] for line in lines if line[0] in names}
    for name, pi_r, q_r in zip(names, right.pi_r, right.Q_r, strict=True):
        assert [*map(float, found[name])] == pytest.approx([pi_r, q_r], rel=EXACT)


REASONS = """async (places) => {
  const found = [];
  for (const [s, t] of places) {
    inspector.goTo(s, t, false);
    const pair = inspector.actions();
    if (!pair) { found.push(null); continue; }
    const {gap, parts, ends} = await inspector.reasons(pair, async () => {});
    inspector.view = 'robot'; inspector.show();
    await new Promise((resolve) => setTimeout(resolve));
    found.push({pair, gap, parts: parts.map((part) => [...part]), ends,
      text: document.getElementById('sentence').textContent});
  }
  return found;
}"""


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_reasons_sum_to_the_difference_and_are_told_as_in_python(
    open_page: Open, solved: Solved, number: int
) -> None:
    places = solved.places(number, seed=4)
    found = open_page(solved.file).ask(REASONS, places)
    for (state, time), there in zip(places, found, strict=True):
        if there is None:
            continue
        told = explain(solved.inspection, solved.result.problem.world, state, time)
        reasons, names = told.reasons, solved.result.spec.robot_action_names
        assert [names[action] for action in there["pair"]] == [
            names[reasons.first],
            names[reasons.second],
        ]
        scale = abs(float(reasons.policies.q_r[0, reasons.first]))
        total = sum(map(sum, there["parts"])) + sum(there["ends"])
        assert math.isclose(total, there["gap"], abs_tol=1e-9 * scale)
        np.testing.assert_allclose(there["parts"], reasons.parts, 1e-9, 1e-11 * scale)
        np.testing.assert_allclose(there["ends"], reasons.ends, 1e-9, 1e-11 * scale)
        assert there["text"] == " ".join(told.sentences())


PARTS = """async () => {
  const found = [];
  for (const [s, t] of range(m.S).flatMap((s) => m.header.kept.times.map((t) => [s, t]))) {
    if (!m.known(s, t) || !m.alive(s, t) || !m.decides(s, t)) continue;
    inspector.goTo(s, t, false);
    const pair = inspector.actions(), reasons = await explain(s, t, ...pair, async () => {});
    const {gap, parts, ends, beyond} = reasons;
    found.push([gap, sum(parts.map(sum)) + sum(ends), beyond]);
  }
  inspector.goTo(m.header.kept.start, m.first);
  return found;
}"""


def test_reasons_of_what_is_kept_and_of_what_is_not_sum_to_the_difference(
    open_page: Open, tmp_path: Path
) -> None:
    world = world_of("multigrid/free_the_human", max_steps=8)
    params = ExactParams.model_validate({"preset": "paper", "keep": "all"})
    solved = solved_page(world, params, tmp_path, max_bytes=100_000)
    opened = open_page(solved.file)
    found = np.array(opened.ask(PARTS))
    assert len(found) > 20
    assert (found[:, 2] != 0).any()
    np.testing.assert_allclose(found[:, 1] + found[:, 2], found[:, 0], 1e-9, 1e-9)
    opened.show(view="why")
    told = empo_inspector.explain(solved.result).sentences()
    assert opened.ask("() => document.querySelector('#panel .sentence').textContent") == " ".join(
        told
    )
    assert opened.said == []


def test_the_chance_of_first_reaching_a_goal_sums_to_what_can_be_attained(
    open_page: Open, free_the_human: Solved
) -> None:
    curves = """async (places) => Promise.all(places.map(([s, t, g]) =>
      firstPassage(s, t, g, async () => {})))"""
    places = [(s, t, g) for s, t in free_the_human.places(5) for g in range(4)]
    found = open_page(free_the_human.file).ask(curves, places)
    for (state, time, goal), curve in zip(places, found, strict=True):
        here = free_the_human.result.at(int(free_the_human.inspection.number[state]), time)
        assert sum(curve) == pytest.approx(here.V_e[goal], rel=1e-9, abs=1e-12)
