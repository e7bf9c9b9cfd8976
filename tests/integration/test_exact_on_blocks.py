"""Exact solutions of the blocks world: sizes, symmetric robots, and the trap of crushing."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from empo_benchmarks.blocks.board import Board
from empo_benchmarks.blocks.params import BlocksParams, GreedyDistanceParams
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_core.errors import SolveError
from empo_core.types import Successors
from empo_exact.algorithm import Exact
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

THEORY = {"gamma_h": 0.95, "gamma_r": 0.95, "beta_r": 30.0}


def exact(**params: Any) -> ExactParams:
    theory = {**THEORY, **params.pop("theory", {})}
    return ExactParams.model_validate({"preset": "paper", "theory": theory, **params})


def start_policy(world: BlocksWorld, ties: str | None = None) -> Mapping[str, float]:
    """Probabilities of the robot's actions at the start; Phase 1 without a prior."""
    prior = None
    if ties is not None:
        prior = GreedyDistance(GreedyDistanceParams.model_validate({"ties": ties}), world)
    result = solve(world, exact(keep="none"), Assumptions(human_prior=prior))
    policy = np.asarray(result.at(world.initial_state(), 0).pi_r).ravel().tolist()
    return dict(zip(world.spec.agents[1].actions, policy, strict=True))


def never_reached(boxes: int) -> int:
    """States with a box on the human and on all cells around: it came from none of them."""
    return sum(
        places * comb(25 - 1 - around, boxes - 1 - around)
        for places, around in ((4, 2), (12, 3), (9, 4))
        if boxes > around
    )


@pytest.mark.parametrize(
    ("boxes", "states"),
    [
        (2, 7_500),
        (3, 57_500),
        pytest.param(4, 316_250, marks=pytest.mark.slow),
        pytest.param(5, 1_328_250, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_all_states_are_reached_but_those_that_have_no_past(boxes: int, states: int) -> None:
    world = load_world(BlocksParams(boxes=boxes))
    assert states == 25 * comb(25, boxes)
    graph = build_graph(world, None)
    assert graph.num_states == states - never_reached(boxes)
    assert graph.num_transitions == graph.num_states * 5 * (4 * boxes + 1)


@pytest.mark.parametrize("ties", [None, "even"])
def test_a_robot_that_frees_a_corner_favours_no_side(ties: str | None) -> None:
    policy = start_policy(load_world(BlocksParams(size=4, max_steps=20)), ties)
    across = "box 1 right", "box 1 down"
    down = "box 2 down", "box 2 right"
    for one, other in zip(across, down, strict=True):
        assert abs(policy[one] - policy[other]) < 1e-12
    assert abs(policy["box 1 left"] - policy["box 2 up"]) < 1e-12
    assert max(policy, key=policy.__getitem__) in (*across, *down)


def test_all_corners_are_freed_alike() -> None:
    found = [
        sorted(start_policy(load_world(BlocksParams(size=4, max_steps=20, corner=c))).values())
        for c in range(4)
    ]
    assert np.abs(np.array(found) - found[0]).max() < 1e-12


@pytest.mark.parametrize("ties", [None, "even"])
def test_a_robot_that_frees_the_middle_has_all_eight_symmetries(ties: str | None) -> None:
    world = load_world(BlocksParams(size=5, boxes=4, start="center", max_steps=4))
    policy = start_policy(world, ties)
    moves: dict[str, set[float]] = {}
    # In reading order the boxes lie above, to the left, to the right and below.
    outwards = ("up", "left", "right", "down")
    for box, outward in enumerate(outwards, start=1):
        inward = outwards[len(outwards) - box]
        for direction in outwards:
            kind = {outward: "out", inward: "in"}.get(direction, "aside")
            moves.setdefault(kind, set()).add(policy[f"box {box} {direction}"])
    for values in moves.values():
        assert max(values) - min(values) < 1e-12
    assert min(moves["out"]) > max(moves["in"])


class EndsWhenCrushed(BlocksWorld):
    """The trap: a crushed human ends the episode."""

    def available(self, states: Tensor) -> Tensor:
        return super().available(states) & ~self.is_crushed(states)[:, None, None]

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = super().transitions(states, actions)
        goes_on = ~self.is_crushed(states)
        happens = goes_on.repeat_interleave(found.num_pairs // max(1, len(states)))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), happens.cumsum(0)])
        return Successors(offsets, found.states[happens], found.prob[happens])


def test_a_robot_crushes_the_human_where_that_ends_the_episode_and_is_warned_of() -> None:
    board, start = Board(3, 2), [0, 1, 3]
    trap, params = EndsWhenCrushed(board, start, 10), exact(keep="all")
    assert "terminal state is better than every other" in str(Exact(params).check(trap)["warning"])
    result = solve(trap, params)
    assert "terminal state is better" in result.summary()["warnings"][0]
    crushing = [trap.spec.agents[1].actions.index(name) for name in ("box 1 left", "box 2 up")]
    assert np.asarray(result.at(trap.initial_state(), 0).pi_r).ravel()[crushing].sum() > 0.999
    world = BlocksWorld(board, start, 10)
    assert "warning" not in Exact(params).check(world)
    result = solve(world, params)
    assert result.summary()["warnings"] == []
    assert np.asarray(result.at(world.initial_state(), 0).pi_r).ravel()[crushing].sum() < 0.01


def test_one_solution_serves_several_starts() -> None:
    worlds = [load_world(BlocksParams(size=4, max_steps=6, corner=corner)) for corner in range(4)]
    rows = torch.stack([world.initial_state() for world in worlds])
    params = exact(keep="all")
    together = solve(worlds[0], params, start=rows.numpy())
    policies = together.robot_policies(rows, 6)
    for row, world, policy in zip(rows, worlds, policies, strict=True):
        alone = solve(world, params)
        assert together.at(row, 0).V_r == alone.at(row, 0).V_r
        assert torch.equal(policy, alone.robot_policies(row[None], 6)[0])


@pytest.mark.slow
def test_more_boxes_than_memory_holds_are_refused_long_before_it_is_full() -> None:
    world = load_world(BlocksParams(boxes=10))
    # Half a GiB more than this process holds already.
    limit = psutil.Process().memory_info().rss / 2**30 + 0.5
    params = exact(compute={"ram_limit_gb": limit, "workers": 1})
    with pytest.raises(SolveError, match=r"(?s)10 boxes.*(needs|holds) \d+\.\d+ GiB.*states"):
        solve(world, params)
