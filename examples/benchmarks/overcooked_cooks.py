"""Cooks of the benchmark: policies of robots and of humans, from states to probabilities."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from empo_benchmarks.overcooked import kernel
from empo_benchmarks.overcooked.kitchen import ACTIONS
from empo_benchmarks.overcooked.params import KitchenPlannerParams, OvercookedParams
from empo_benchmarks.overcooked.prior import KitchenPlanner
from empo_benchmarks.overcooked.world import OvercookedWorld, load_world
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_phase2.policyfile import load_policy as load_learned
from empo_rollout.policyfile import load_policy
from empo_rollout.world_policies import LearnedRobots, chances
from empo_worlds.row_table import RowTable

Cook = Callable[[Tensor, int], Tensor]
"""From states and the number of the step to the probability of each action."""
GOAL = "soup 1 served"


def kitchen(params: dict[str, Any], steps: int | None) -> OvercookedWorld:
    """A kitchen in which soups count for nothing once they are served."""
    return load_world(OvercookedParams.model_validate({**params, "soups": 1, "max_steps": steps}))


def prior(world: OvercookedWorld, noise: float) -> KitchenPlanner:
    """Humans who plan, with each of the goals."""
    return KitchenPlanner(KitchenPlannerParams(noise=noise), world)


def planner(world: OvercookedWorld, noise: float) -> Cook:
    """A human who wants a soup served."""
    goal = [goal.name for goal in world.spec.goals].index(GOAL)
    human = prior(world, noise)
    return lambda states, step: human.policy(states, torch.full((len(states),), 1))[:, goal]


def random(states: Tensor, step: int) -> Tensor:
    """A robot that acts evenly at random."""
    return torch.full((len(states), len(ACTIONS)), 1 / len(ACTIONS), dtype=torch.float64)


def fixed(*actions: str) -> Cook:
    """A robot that does one thing after the other, and then stays."""

    def policy(states: Tensor, step: int) -> Tensor:
        name = actions[step] if step < len(actions) else "stay"
        certain = torch.zeros(len(states), len(ACTIONS), dtype=torch.float64)
        certain[:, ACTIONS.index(name)] = 1
        return certain

    return policy


def trained(world: OvercookedWorld, file: Path, cook: int) -> Cook:
    """The robot (0) or the human (1) of a run of ``rollout``."""
    policy = load_policy(file).policy

    def act(states: Tensor, step: int) -> Tensor:
        views = world.views(states)[:, cook]
        return chances(policy, views, torch.ones(len(views), len(ACTIONS), dtype=torch.bool), cook)

    return act


def learned(world: OvercookedWorld, file: Path) -> Cook:
    """The robot of a run of ``phase2`` in a kitchen without end."""
    policy = load_learned(file, world)
    return lambda states, step: policy.policy(states, torch.ones(len(states)).long())


def paid_for_power(world: OvercookedWorld, file: Path) -> Cook:
    """The robot of a run of ``rollout`` in a kitchen without end."""
    policy = LearnedRobots(world, load_policy(file).policy)
    return lambda states, step: policy.policy(states, torch.ones(len(states)).long())


@cache
def solved(params: str, horizon: int, noise: float, theory: str) -> tuple[RowTable, Tensor, float]:
    """All states of a kitchen, the robot's exact policy in them, and the seconds that it took."""
    begin = time.process_time()
    world = kitchen(json.loads(params), horizon)
    rows = build_graph(world, None).states.copy()
    exact = ExactParams.model_validate(
        {"preset": "paper", "theory": json.loads(theory), "keep": "none"}
    )
    assumed = Assumptions(human_prior=prior(world, noise))
    with tempfile.TemporaryDirectory() as folder:
        result = solve(world, exact, assumed, directory=Path(folder), start=rows)
        policy = torch.as_tensor(result.robot_policies(torch.from_numpy(rows), horizon))
    return RowTable.of(rows), policy.float(), time.process_time() - begin


def exact_robot(world: OvercookedWorld, table: RowTable, policy: Tensor) -> Cook:
    """It does not see what lies on counters, and acts at random in states that were not solved."""
    counters = slice(world.kitchen.first_counter, world.kitchen.first_pot)
    even = torch.full((1, len(ACTIONS)), 1 / len(ACTIONS))
    known = torch.cat([policy, even])

    def act(states: Tensor, step: int) -> Tensor:
        blind = states.clone()
        blind[:, counters] = 0
        return known[torch.from_numpy(table.find(blind.numpy())).long()].double()

    return act


def soups(world: OvercookedWorld, robot: Cook, human: Cook, chance: np.ndarray) -> np.ndarray:
    """Soups served in each episode; ``chance`` has numbers in [0, 1) [step, episode, cook]."""
    states = world.initial_state().repeat(chance.shape[1], 1)
    served = np.zeros(chance.shape[1], np.int64)
    for step, numbers in enumerate(chance):
        actions = np.empty(numbers.shape, np.int64)
        for cook, policy in enumerate((robot, human)):
            reached = policy(states, step).cumsum(1).numpy() < numbers[:, cook, None]
            actions[:, cook] = reached.sum(1).clip(max=len(ACTIONS) - 1)
        rows, events = kernel.successors(world.kitchen, states.numpy(), actions)
        served += (events == kernel.SOUP_SERVED).sum(1)
        rows[:, -1] = 0
        states = torch.from_numpy(rows)
    return served
