"""Layouts with keys: robots solved without them, and sampled episodes of all their variations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from disempower_course import HUMANS, IDLE, RANDOM, Score, information, pair, walk
from disempower_settings import Settings

from empo_benchmarks.disempower.params import DisempowerParams, Layout
from empo_benchmarks.disempower.ranks import Ranks
from empo_benchmarks.disempower.world import DisempowerWorld, load_world
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve

AT_ONCE = 20_000
"""States that are expanded together."""


@dataclass(frozen=True)
class Plan:
    """A robot and the humans whom it expects, as they plan so many steps ahead at any time.

    Attributes:
        result: The solution with every state as a start, of which only the first step counts.
        cpu_seconds: What it took.
    """

    result: ExactResult
    cpu_seconds: float


class GoalCell:
    """A layout with one goal cell, whose key may be anywhere: it matters to no robot here.

    Args:
        settings: The settings.
        layout: The layout; its key is left out.
    """

    def __init__(self, settings: Settings, layout: Layout) -> None:
        self.settings = settings
        layout = layout.model_copy(update={"key_pos": []})
        steps = settings.embodied.plan
        self.world = load_world(DisempowerParams(layout=layout, max_steps=steps))
        self.starts = reached(self.world)
        self._empowerment: np.ndarray | None = None
        self._references: Plan | None = None

    def plan(self, robot: str) -> Plan:
        """A robot of the settings, or the references: a random one by ``beta_r`` 0."""
        settings, begin = self.settings, time.process_time()
        solved = settings.solved_robots()
        chosen: dict[str, Any] = dict(solved.get(robot, solved[settings.primary.proposal]))
        theory = {**chosen["theory"], **next(iter(settings.humans.values()))}
        if robot in (IDLE, RANDOM):
            theory["beta_r"] = 0.0
        params = ExactParams.model_validate(
            {**chosen, "theory": theory, "keep": "none", "inspector": False}
        )
        result = solve(self.world, params, start=self.starts)
        return Plan(result, time.process_time() - begin)

    def empowerment(self, result: ExactResult) -> np.ndarray:
        """The exact mc_emp of all states [human state]."""
        joint = self.world.spec.num_joint_actions
        successor = result.graph.successor.reshape(-1, joint)
        bits = []
        for human in range(HUMANS):
            where = result.graph.states[:, human].astype(np.int32)
            rows = walk(successor, where, self.world.board.cells, self.settings.proxies.steps)
            later = total = next(rows)
            for row in rows:
                later, total = total, row
            bits.append(information(successor, human, later, total))
        return np.stack(bits)

    def play(self, robot: str, plan: Plan, empowerment: np.ndarray, key: int, seed: int) -> Score:
        """Sampled episodes in which humans fetch the key in a cell and then go to the goal."""
        settings, board, result = self.settings.embodied, self.world.board, plan.result
        rng, count = np.random.default_rng(seed), settings.episodes
        goal = board.cell(board.layout.goal_pos[0])
        states = np.zeros(count, np.int64)
        has_key = np.zeros((HUMANS, count), np.bool_)
        emp, steps = np.zeros((HUMANS, count)), np.zeros((HUMANS, count))
        successor = result.graph.successor.reshape(-1, self.world.spec.num_joint_actions)
        for _ in range(settings.steps):
            chance = rng.random((HUMANS + 1, count))
            distinct, place = np.unique(states, return_inverse=True)
            policies = result.policies(0, distinct)
            actions = []
            for human in range(HUMANS):
                aim = human * board.cells + np.where(has_key[human], goal, key)
                actions.append(drawn(policies.pi_h[place, aim], chance[human]))
            robots = np.zeros(count, np.int64)
            if robot != IDLE:
                robots = drawn(policies.pi_r[place], chance[HUMANS])
            joint = actions[0] + 5 * actions[1] + 25 * robots
            states = successor[states, joint].astype(np.int64)
            where = result.graph.states[states, :HUMANS].T
            has_key |= where == key
            emp += empowerment[:, states]
            steps += (where == goal) & has_key
        start = result.at(0)
        bits = (float("nan"),) * 2
        if robot != IDLE:
            bits = pair(np.log2([start.X_h[human] for human in range(HUMANS)]))
        emp /= settings.steps
        return Score(
            bits=bits,
            empowerment=pair(emp.mean(1)),
            steps=pair(steps.mean(1)),
            arrives=pair((steps > 0).mean(1)),
            v_r=float("nan") if robot == IDLE else start.V_r,
            cpu_seconds=plan.cpu_seconds,
            episodes=(emp[0].round(6).tolist(), emp[1].round(6).tolist()),
        )

    def scores(self, robot: str, keys: Sequence[int], seeds: Sequence[int]) -> Iterator[Score]:
        """Scores of a robot with the key in each of some cells; solves for it once.

        All robots have the same states, whose empowerment is worked out for the first of them.
        """
        plan = self._references if robot in (IDLE, RANDOM) else None
        plan = plan or self.plan(robot)
        # References differ in play only, which comes first; nothing else is kept beside a robot's.
        self._references = plan if robot in (IDLE, RANDOM) else None
        if self._empowerment is None:
            self._empowerment = self.empowerment(plan.result)
        empowerment = self._empowerment
        for key, seed in zip(keys, seeds, strict=True):
            yield self.play(robot, plan, empowerment, key, seed)


def drawn(policy: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """An action of each policy, by a number in [0, 1) each."""
    action: np.ndarray = (policy.cumsum(1) <= chance[:, None] * policy.sum(1)[:, None]).sum(1)
    return action.clip(max=policy.shape[1] - 1)


def reached(world: DisempowerWorld) -> np.ndarray:
    """Rows of all states within reach, the start first [state word]."""
    ranks = Ranks(world.board)
    first = ranks.rank(world.initial_state()[None].numpy())
    seen = np.zeros(ranks.count, np.bool_)
    front = first
    while len(front):
        seen[front] = True
        new = np.zeros_like(seen)
        for part in np.array_split(front, -(-len(front) // AT_ONCE)):
            rows = torch.from_numpy(ranks.unrank(part))
            new[ranks.rank(world.transitions(rows).states.numpy())] = True
        front = np.flatnonzero(new & ~seen)
    seen[first] = False
    return ranks.unrank(np.concatenate([first, np.flatnonzero(seen)]))
