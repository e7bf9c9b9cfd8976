"""Transitions agree with those of the public implementation, in reference mode."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from public_states import from_reference
from reference_transition import transition

from empo_multigrid.law import kernel
from empo_multigrid.layout import Layout
from empo_multigrid.world import MultigridWorld, world_from_text

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
SOLVED = sorted(GOLDEN.glob("micro_*.json"))
LISTED = [path for path in SOLVED if "transitions" in json.loads(path.read_text())]
SAMPLES = json.loads((GOLDEN / "transition_samples.json").read_text())
assert LISTED
assert SAMPLES

Row = tuple[int, ...]
Law = Callable[[Layout, Row, list[int]], dict[Row, float]]


def by_reference(layout: Layout, row: Row, actions: list[int]) -> dict[Row, float]:
    """The readable law's distribution."""
    successors = transition(layout, row, actions)
    assert len({successor for _, successor in successors}) == len(successors)
    return {successor: p for p, successor in successors}


def by_kernel(layout: Layout, row: Row, actions: list[int]) -> dict[Row, float]:
    """The compiled law's distribution."""
    states, chosen = np.array([row], np.int16), np.array([actions], np.int64)
    _, successors, prob = kernel.transitions(layout, states, chosen)
    return {tuple(s): p for s, p in zip(successors.tolist(), prob.tolist(), strict=True)}


LAWS = pytest.mark.parametrize("law", [by_reference, by_kernel])


def world_of(golden: dict[str, Any]) -> MultigridWorld:
    return world_from_text(golden["yaml"], simultaneity="reference")


def row_of(world: MultigridWorld, state: Any) -> Row:
    return tuple(from_reference(world, state).tolist())


def assert_equal(got: dict[Row, float], expected: dict[Row, float]) -> None:
    assert got.keys() == expected.keys()
    for row, p in expected.items():
        assert abs(got[row] - p) <= 1e-12  # Much faster than pytest.approx.


@LAWS
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_the_golden_successors(law: Law, name: str) -> None:
    world = world_of(SAMPLES[name])
    assert SAMPLES[name]["queries"]
    for query in SAMPLES[name]["queries"]:
        expected = {row_of(world, state): p for p, state in query["successors"]}
        assert len(expected) == len(query["successors"])
        got = law(world.layout, row_of(world, query["state"]), query["actions"])
        assert_equal(got, expected)


@LAWS
@pytest.mark.parametrize("path", LISTED, ids=lambda path: path.stem)
def test_every_listed_transition_has_the_golden_successors(law: Law, path: Path) -> None:
    golden = json.loads(path.read_text())
    world = world_of(golden)
    rows = [row_of(world, entry["state"]) for entry in golden["states"]]
    compared = 0
    for row, entries in zip(rows, golden["transitions"], strict=True):
        for actions, probabilities, successors in entries or []:
            expected = dict(zip((rows[s] for s in successors), probabilities, strict=True))
            assert_equal(law(world.layout, row, actions), expected)
            compared += 1
    assert compared == golden["n_joint_action_entries"]


@LAWS
@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_the_states_reached_in_each_step_are_the_golden_ones(law: Law, path: Path) -> None:
    golden = json.loads(path.read_text())
    if law is by_reference and golden["n_joint_action_entries"] > 5000:
        pytest.skip("the readable law takes several seconds; the compiled one covers it")
    world = world_of(golden)
    expected: dict[int, set[Row]] = {t: set() for t in range(golden["max_steps"] + 1)}
    for entry in golden["states"]:
        expected[entry["state"][0]].add(row_of(world, entry["state"]))
    actions = range(len(world.layout.actions))
    joint = [list(profile) for profile in product(actions, repeat=world.layout.num_agents)]
    layer, transitions = {row_of(world, golden["initial_state"])}, 0
    for t in range(golden["max_steps"]):
        assert layer == expected[t]
        outcomes = [law(world.layout, row, profile) for row in layer for profile in joint]
        transitions += sum(len(outcome) for outcome in outcomes)
        layer = {row for outcome in outcomes for row in outcome}
    assert layer == expected[golden["max_steps"]]
    assert transitions == golden["n_transitions"]
