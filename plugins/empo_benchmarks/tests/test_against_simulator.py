"""World and prior do what the simulator does, which was written from the rules alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import simulator
import torch
from boards import NAMES, as_grid, as_rows, random_states, stepped

from empo_benchmarks.blocks.params import BlocksParams, GreedyDistanceParams
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.world import BlocksWorld, load_world

GOLDEN = json.loads(Path(__file__).with_name("golden_transitions.json").read_text())
BOARDS = [(5, 2), (5, 3), (3, 5), (6, 10), (2, 3), (4, 1)]
WALK = 4
"""Steps before new random states are drawn, as crushed humans end what can be seen."""


def joint_actions(world: BlocksWorld, count: int, rng: np.random.Generator) -> torch.Tensor:
    choices = rng.integers(world.spec.num_actions, size=(count, 2))
    return torch.from_numpy(choices)


@pytest.mark.parametrize(
    "steps", [20_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
@pytest.mark.parametrize("robot_actions", ["effective", "cells"])
def test_random_steps_are_the_simulators(steps: int, robot_actions: str) -> None:
    rng, copies = np.random.default_rng(0), steps // (len(BOARDS) * WALK) + 1
    moved = crushed = 0
    for size, boxes in BOARDS:
        params = {"size": size, "boxes": boxes, "robot_actions": robot_actions}
        world = load_world(BlocksParams.model_validate(params))
        states = random_states(world, copies, rng)
        for _ in range(WALK):
            actions = joint_actions(world, copies, rng)
            after = world.step(states, actions, torch.Generator())
            assert torch.equal(after, stepped(world, states, actions))
            moved += int((after != states).any(1).sum())
            crushed += int((world.is_crushed(after) & ~world.is_crushed(states)).sum())
            states = after
    assert moved > steps / 5
    assert crushed > steps / 1000


def test_world_and_simulator_have_the_golden_transitions() -> None:
    assert len(GOLDEN) == 200
    for size, human, boxes, move, cell, direction, human_after, boxes_after in GOLDEN:
        params = {"size": size, "boxes": len(boxes), "robot_actions": "cells"}
        world = load_world(BlocksParams.model_validate(params))
        state = torch.tensor([[human, *boxes]], dtype=torch.int16)
        column, row = cell % size, cell // size
        actions = torch.tensor(
            [
                [
                    world.spec.agents[0].actions.index(move),
                    world.spec.agents[1].actions.index(f"({column},{row}) {direction}"),
                ]
            ]
        )
        assert world.transitions(state, actions).states.tolist() == [[human_after, *boxes_after]]
        assert stepped(world, state, actions).tolist() == [[human_after, *boxes_after]]


@pytest.mark.parametrize("boxes", [1, 2, 6])
@pytest.mark.parametrize("size", [3, 5, 8])
def test_humans_choose_as_in_the_simulator(size: int, boxes: int) -> None:
    world = load_world(BlocksParams(size=size, boxes=boxes))
    states = random_states(world, 2000, np.random.default_rng(1))
    policy = GreedyDistance(GreedyDistanceParams(), world).policy(
        states, torch.full((len(states),), 1)
    )
    moves = [NAMES.index(name) for name in world.spec.agents[0].actions]
    human, grid = as_grid(world, states)
    for goal in range(world.board.cells):
        choice = simulator.human_choice(human, grid, np.full_like(human, goal))
        stays = (human == goal) | simulator.holds_box(human, grid)
        expected = np.full((len(human), 5), 0.2 / 5)
        expected[np.arange(len(human)), choice] += 0.8
        expected[stays] = np.arange(5) == simulator.STAY
        assert np.abs(policy[:, goal].numpy() - expected[:, moves]).max() < 1e-15


@pytest.mark.parametrize("kind", ["corner", "corner_hard", "center"])
@pytest.mark.parametrize("corner", range(4))
def test_starts_are_the_simulators_where_chance_has_no_part(kind: str, corner: int) -> None:
    boxes = 4 if kind == "center" else 2
    where = {} if kind == "center" else {"corner": corner}
    params = BlocksParams.model_validate({"start": kind, "boxes": boxes, "size": 5, **where})
    found = simulator.started(kind, corner, 5, boxes, 1, np.arange(3))
    assert torch.equal(
        as_rows(found.human, found.boxes), load_world(params).initial_state().repeat(3, 1)
    )
