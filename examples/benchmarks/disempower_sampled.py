"""Layouts with keys: robots solved without them, and sampled episodes of all their variations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from disempower_arrangements import CHOICES, follow, idle_successors
from disempower_course import HUMANS, IDLE, REFERENCES, Score, information, pair, walk
from disempower_lockstep import Asked, LockStep, Robot
from disempower_settings import Settings

from empo_benchmarks.disempower.board import Board
from empo_benchmarks.disempower.params import Layout
from empo_exact.plugin import ExactParams

AT_ONCE = 200_000
"""States whose empowerment is worked out together."""


class GoalCell:
    """A layout with one goal cell, whose key may be anywhere: it matters to no robot here.

    Attributes:
        states: All states, and the policies of both humans and of robots that were solved for.
        empowerment: The exact mc_emp of all states [human state].

    Args:
        settings: The settings.
        layout: The layout; its key is left out.
    """

    def __init__(self, settings: Settings, layout: Layout) -> None:
        self.settings = settings
        self.board = Board(layout.model_copy(update={"key_pos": []}))
        self.states = LockStep(self.board, settings.embodied.plan)
        self.empowerment = self._empowerment()

    def _empowerment(self) -> np.ndarray:
        """Of one arrangement after the other, which humans do not leave while nobody helps."""
        moves, board, steps = self.states.moves, self.board, self.settings.proxies.steps
        found = np.empty((HUMANS, self.states.states))
        begins = np.flatnonzero(np.diff(moves.arrangement, prepend=-1))
        parts = begins[np.flatnonzero(np.diff(begins // AT_ONCE, prepend=-1))]
        for first, end in zip(parts, [*parts[1:], self.states.states], strict=True):
            successor = np.empty((end - first, CHOICES**2), np.int32)
            idle_successors(moves, int(first), successor)
            for human in range(HUMANS):
                where = moves.rows[first:end, human].astype(np.int32)
                *_, later, total = walk(successor, where, board.cells, steps)
                found[human, first:end] = information(successor, human, later, total)
        return found

    def asked(self, robot: str) -> Asked:
        """A robot of the settings, or a reference: a random one by ``beta_r`` 0."""
        solved, primary = self.settings.solved_robots(), self.settings.primary
        chosen: dict[str, Any] = dict(solved.get(robot, solved[primary.proposal]))
        theory = {**chosen["theory"], **next(iter(self.settings.humans.values()))}
        if robot in REFERENCES:
            theory["beta_r"] = 0.0
        params = ExactParams.model_validate({**chosen, "theory": theory})
        return Asked(params, is_idle=robot == IDLE)

    def solve(self, robots: Sequence[str]) -> Iterator[tuple[str, Robot]]:
        """Robots and references by name, in an order in which they can be played one by one."""
        return self.states.solve({robot: self.asked(robot) for robot in robots})

    def play(self, robot: Robot, key: int, seed: int) -> Score:
        """Sampled episodes in which humans fetch the key in a cell and then go to the goal."""
        settings, board, moves = self.settings.embodied, self.board, self.states.moves
        rng, count = np.random.default_rng(seed), settings.episodes
        goal = board.cell(board.layout.goal_pos[0])
        states = np.full(count, self.states.start, np.int32)
        has_key = np.zeros((HUMANS, count), np.bool_)
        emp, steps = np.zeros((HUMANS, count)), np.zeros((HUMANS, count))
        actions = np.zeros((HUMANS + 1, count), np.int32)
        for _ in range(settings.steps):
            chance = rng.random((HUMANS + 1, count))
            distinct, place = np.unique(states, return_inverse=True)
            pi_h, pi_r = self.states.policies(robot, distinct)
            for human in range(HUMANS):
                aim = human * board.cells + np.where(has_key[human], goal, key)
                actions[human] = drawn(pi_h[place, aim], chance[human])
            actions[HUMANS] = drawn(pi_r[place], chance[HUMANS])
            after = np.empty_like(states)
            follow(moves, states, actions, after)
            states = after
            where = moves.rows[states, :HUMANS].T
            has_key |= where == key
            emp += self.empowerment[:, states]
            steps += (where == goal) & has_key
        emp /= settings.steps
        return Score(
            bits=pair(np.log2(robot.x_h)),
            empowerment=pair(emp.mean(1)),
            steps=pair(steps.mean(1)),
            arrives=pair((steps > 0).mean(1)),
            v_r=robot.v_r,
            cpu_seconds=robot.cpu_seconds,
            episodes=(emp[0].round(6).tolist(), emp[1].round(6).tolist()),
        )


def drawn(policy: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """An action of each policy, by a number in [0, 1) each."""
    action: np.ndarray = (policy.cumsum(1) <= chance[:, None] * policy.sum(1)[:, None]).sum(1)
    return action.clip(max=policy.shape[1] - 1)
