"""The blocks world reduced by the symmetries of its board, against all of its states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from empo_benchmarks.blocks.params import BlocksParams, GreedyDistanceParams
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_core.errors import SolveError
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_worlds.samples import walked_states
from empo_worlds.symmetry_group import SymmetryGroup


def solved(world: BlocksWorld, prior: str | None = None, **params: Any) -> ExactResult:
    """The world solved with the paper's parameters, and with humans of this rule for ties."""
    assumed = None
    if prior is not None:
        ties = GreedyDistanceParams.model_validate({"ties": prior})
        assumed = Assumptions(human_prior=GreedyDistance(ties, world))
    return solve(world, ExactParams.model_validate({"preset": "paper", **params}), assumed)


def assert_same(actual: ExactResult, expected: ExactResult) -> None:
    """Same states, values and policies, to 1e-12."""
    assert np.array_equal(actual.graph.states, expected.graph.states)
    assert actual.times == expected.times
    for time in expected.times:
        for mine, given in zip(actual.store.at(time), expected.store.at(time), strict=True):
            np.testing.assert_allclose(mine, given, rtol=1e-12, atol=1e-12)
    for mine, given in zip(actual.policies(0), expected.policies(0), strict=True):
        np.testing.assert_allclose(mine, given, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("boxes", "states", "orbits"), [(2, 7_500, 989), (3, 57_500, 7_339)])
def test_all_states_have_so_many_orbits_under_the_square(
    boxes: int, states: int, orbits: int
) -> None:
    world, ranks = load_world(BlocksParams(boxes=boxes)), Ranks(25, boxes)
    group = SymmetryGroup(world.symmetries(), walked_states(world, 100)[0], 25)
    rows = ranks.unrank(np.arange(ranks.count))
    least, element = group.smallest_images(rows)
    distinct = np.unique(least, axis=0)
    assert (len(group), len(rows), len(distinct)) == (8, states, orbits)
    assert group.orbit_sizes(distinct).sum() == states
    # The least image of a row is what its element makes of it, and its own least image.
    assert np.array_equal(group.smallest_images(least)[0], least)
    goals = np.take_along_axis(group.goals[element], rows[:, :1].astype(np.int64), 1)
    assert np.array_equal(goals, least[:, :1])


@pytest.mark.parametrize("robot_actions", ["effective", "cells"])
def test_symmetry_changes_no_value(robot_actions: Any) -> None:
    params = BlocksParams(size=4, max_steps=8, robot_actions=robot_actions)
    world = load_world(params)
    found = solved(world, keep="all", reduce=["symmetry"])
    assert_same(found, solved(world, keep="all"))
    assert [(step.before, step.after) for step in found.reductions] == [(1_888, 252)]


def test_a_board_of_five_by_five_has_an_eighth_of_the_states() -> None:
    world = load_world(BlocksParams(max_steps=20))
    found = solved(world, keep="all", reduce=["symmetry"])
    assert_same(found, solved(world, keep="all"))
    assert [(step.before, step.after) for step in found.reductions] == [(7_500, 989)]


def test_the_start_is_known_where_nothing_else_is_kept() -> None:
    world = load_world(BlocksParams(size=4, max_steps=8))
    found = solved(world, keep="none", reduce=["symmetry"]).at(world.initial_state())
    expected = solved(world, keep="none").at(world.initial_state())
    for key in ("V_r", "U_r", "Q_r", "pi_r", "V_m", "V_e", "pi_h"):
        np.testing.assert_allclose(
            getattr(found, key), getattr(expected, key), rtol=1e-12, atol=1e-12
        )


def test_humans_that_break_ties_evenly_have_the_symmetries() -> None:
    world = load_world(BlocksParams(size=4, max_steps=6))
    found = solved(world, "even", keep="all", reduce=["symmetry"])
    expected = solved(world, "even", keep="all")
    for time in expected.times:
        mine, given = found.store.at(time), expected.store.at(time)
        np.testing.assert_allclose(mine.v_e, given.v_e, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(mine.v_r, given.v_r, rtol=1e-12)


def test_humans_that_break_ties_by_the_order_of_actions_are_refused() -> None:
    world = load_world(BlocksParams(size=4, max_steps=6))
    with pytest.raises(SolveError, match=r"(?s)human_prior.*'mirror") as e:
        solved(world, "first", reduce=["symmetry"])
    assert "with goal" in str(e.value)
    assert "H" in str(e.value), "the message shows the state"


def test_images_by_the_kernel_are_those_that_sorting_gives() -> None:
    board, rng = load_world(BlocksParams(size=6, boxes=4)), np.random.default_rng(3)
    ranks = Ranks(36, 4)
    rows = ranks.unrank(rng.integers(ranks.count, size=200))
    for symmetry in board.symmetries():
        cell = np.array(symmetry.goals)  # Goals are cells.
        expected = cell[rows]
        expected[:, 1:].sort(1)
        assert np.array_equal(symmetry.rows(torch.from_numpy(rows)).numpy(), expected)
