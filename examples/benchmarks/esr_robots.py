"""Robots of the benchmark: they see the human and the boxes, and never the goal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from esr_settings import EmpoLearned, GoalList, Settings
from simulator import STAY, Robot
from torch import Tensor

from empo_benchmarks.blocks.inference import GoalInference
from empo_benchmarks.blocks.params import (
    BlocksParams,
    GoalInferenceParams,
    GreedyDistanceParams,
)
from empo_benchmarks.blocks.prior import GreedyDistance
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_core.components import build
from empo_core.config import HumanPriorRef
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_phase2.policyfile import load_policy

KEPT_IN_RAM = 3
"""Boxes up to which all values fit into memory (1.2 GB); beyond they go to disk (6 GB for 4)."""


def still(size: int) -> Robot:
    """It does nothing."""
    return lambda human, boxes, step: (np.zeros_like(human), np.full_like(human, STAY))


def random125(size: int, chance: np.ndarray) -> Robot:
    """Any cell, any direction; ``chance`` has a number in [0, 1) per episode and step."""

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        action = (chance[:, step] * size**2 * (STAY + 1)).astype(int)
        return action // (STAY + 1), action % (STAY + 1)

    return robot


def random_effective(chance: np.ndarray) -> Robot:
    """Any box and direction, or nothing: the actions that the world gives to EMPO."""

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        cells = box_cells(boxes)
        action = (chance[:, step] * (1 + STAY * cells.shape[1])).astype(int)
        return pushed(cells, action)

    return robot


def empo(policies: Callable[[Tensor, int], Tensor], chance: np.ndarray) -> Robot:
    """It draws from the policy in each state and with so many steps left."""

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        cells = box_cells(boxes)
        rows = torch.from_numpy(np.concatenate([human[:, None], cells], 1).astype(np.int16))
        policy = policies(rows, chance.shape[1] - step).numpy()
        action = (policy.cumsum(1) < chance[:, step, None]).sum(1)
        return pushed(cells, action.clip(max=policy.shape[1] - 1))

    return robot


def greedy(action: np.ndarray, world: BlocksWorld) -> Robot:
    """It takes one action in each state, by the state's number."""
    ranks = ranks_of(world)

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        cells = box_cells(boxes)
        numbers = ranks.rank(np.concatenate([human[:, None], cells], 1))
        return pushed(cells, action[numbers])

    return robot


class Inferring:
    """It helps the human to the goal that it infers, episode by episode."""

    def __init__(self, inference: GoalInference, listed: np.ndarray) -> None:
        """``listed`` says which goals it holds possible, all alike at first [episode, goal]."""
        self._inference = inference
        self._first = self._belief = listed / listed.sum(1, keepdims=True)
        self._before = torch.empty(0)

    def __call__(
        self, human: np.ndarray, boxes: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cell and direction; ``step`` 0 begins anew."""
        cells = box_cells(boxes)
        rows = torch.from_numpy(np.concatenate([human[:, None], cells], 1).astype(np.int16))
        if step == 0:
            self._belief = self._first
        else:
            self._belief = self._inference.updated(self._belief, self._before, rows)
        self._before = rows
        return pushed(cells, self._inference.actions(self._belief, rows))


def inference(
    human: HumanPriorRef, params: GoalInferenceParams, size: int, boxes: int
) -> GoalInference:
    """All values of a robot that infers the goal."""
    world = load_world(BlocksParams(size=size, boxes=boxes))
    return GoalInference(params, world, build(human, world))


def goal_lists(goals: GoalList, true_goal: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Which goals a robot holds possible [episode, goal]: drawn evenly, but for the true one.

    ``chance`` has a number in [0, 1) per episode and cell, by which cells are drawn.
    """
    order, episode = chance.copy(), np.arange(len(true_goal))
    order[episode, true_goal] = -1 if goals.has_true else 2
    return order.argsort(1).argsort(1) < goals.goals


def box_cells(boxes: np.ndarray) -> np.ndarray:
    """Cells with boxes, ascending [episode, box]."""
    return np.nonzero(boxes.reshape(len(boxes), -1))[1].reshape(len(boxes), -1)


def pushed(cells: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cell and direction of the actions ``still``, ``box 1 left``, ``box 1 down`` and so on."""
    box = (action - 1).clip(0) // STAY
    direction = np.where(action == 0, STAY, (action - 1) % STAY)
    return cells[np.arange(len(cells)), box], direction


def solved(
    size: int,
    boxes: int,
    steps: int,
    humans: str,
    theory: dict[str, object],
    folder: Path,
    preset: str = "paper",
) -> ExactResult:
    """The exact solution for every start; ``humans`` and ``preset`` as in the settings."""
    world = load_world(BlocksParams(size=size, boxes=boxes, max_steps=steps))
    prior = GreedyDistance(GreedyDistanceParams(), world) if humans == "matched" else None
    model = {} if prior else {"robot_model": humans}
    keep = "all" if boxes <= KEPT_IN_RAM else "disk"
    params = ExactParams.model_validate(
        {"preset": preset, "theory": {**theory, **model}, "keep": keep, "rollouts": 0}
    )
    ranks, assumed = ranks_of(world), Assumptions(human_prior=prior)
    everywhere = ranks.unrank(np.arange(ranks.count))
    return solve(world, params, assumed, directory=folder, start=everywhere)


def learned_config(
    settings: Settings, learned: EmpoLearned, boxes: int, values: str
) -> dict[str, Any]:
    """A run that learns in all corners, with further boxes in so many ways."""
    ways = learned.starts if boxes > 2 else 1
    worlds = [
        {
            "name": "blocks",
            "params": {
                "size": settings.size,
                "boxes": boxes,
                "corner": corner,
                "extra_seed": seed,
                "max_steps": settings.steps,
            },
        }
        for seed in range(ways)
        for corner in range(4)
    ]
    # The human is the benchmark's, without a beta_h.
    theory = {key: value for key, value in settings.empo.theory.items() if key != "beta_h"}
    params = {
        **learned.params,
        "human_prior": "greedy-distance",
        "theory": {**theory, "beta_r": learned.beta_r},
        # The numbers of boxes, by which actions go, change as they move; states do not care.
        "values": {"q_r": None, "v_r": values, "v_h_e": values},
        "ensemble": {"worlds": worlds[1:]},
    }
    return {"world_model": worlds[0], "algorithm": {"name": "phase2", "params": params}}


def learned_policies(file: Path, settings: Settings, boxes: int) -> Callable[[Tensor, int], Tensor]:
    """The policy that a run of ``phase2`` left."""
    params = BlocksParams(size=settings.size, boxes=boxes, max_steps=settings.steps)
    policy = load_policy(file, load_world(params))
    return lambda rows, left: policy.policy(rows, torch.full((len(rows),), left))


def ranks_of(world: BlocksWorld) -> Ranks:
    """Numbers of the states of a world."""
    return Ranks(world.board.cells, world.board.boxes)
