"""Robots of a layout with keys side by side, many steps back: the humans are worked out once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import disempower_lockstep_kernels as kernels
import numpy as np
from disempower_arrangements import CHOICES, reachable_moves

from empo_benchmarks.disempower.board import BYSTANDER, HUMANS, USER, Board
from empo_exact.game import LANES, aligned
from empo_exact.plugin import ExactParams

ROOM = 10_000_000_000
"""Bytes of values of all states that are kept at a time."""
NAMES = ("user", "bystander")
ASSUMED = {
    "robot_model": "even", "nu": 0.0, "counting": "arrival", "rho": 1, "x_agg": "sum",
    "u_agg": "sum", "accrual": "discrete",
}  # fmt: skip
"""The theory that kernels take for granted."""


@dataclass(frozen=True)
class Asked:
    """A robot to be worked out.

    Attributes:
        params: Its theory, the humans whom it expects, and whose power counts.
        is_idle: It never does anything.
    """

    params: ExactParams
    is_idle: bool = False


@dataclass(frozen=True)
class Robot:
    """A robot that was worked out, and the power of both humans beside it.

    Attributes:
        asked: What was asked for.
        x_h: Power of user and bystander at the start.
        v_r: V_r there.
        later: V_r with one step less to go [state]; where it is idle, of the start's arrangement.
        cpu_seconds: What it took, with those that were worked out beside it.
    """

    asked: Asked
    x_h: tuple[float, float]
    v_r: float
    later: np.ndarray
    cpu_seconds: float


class LockStep:
    """Backward induction for several robots at once, over all states of a layout.

    It exists because ``empo_exact.solve`` would take days for what is asked here. It says the same
    as that with all states as starts, to rounding, where nobody can be frozen and humans expect any
    action of the assistant alike.

    Attributes:
        moves: All states, and who can go where.
        start: The state in which episodes begin.

    Args:
        board: The board; its keys must be left out.
        steps: How many steps robots and humans look ahead.
    """

    def __init__(self, board: Board, steps: int) -> None:
        self.moves, self._steps = reachable_moves(board), steps
        row = board.start_row()
        self.start = int(self.moves.number[0, row[USER] * board.cells + row[BYSTANDER]])
        self.cells, self.actions = board.cells, len(board.assistant_actions)
        self.padded = -(-board.cells // LANES) * LANES
        self.scratch = scratch(board.cells, self.padded, self.actions)
        self._hoped = np.empty((0, HUMANS * self.padded))

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.moves.rows)

    def solve(self, robots: Mapping[str, Asked]) -> dict[str, Robot]:
        """Robots by name, as many at a time as there is room for.

        Raises:
            ValueError: if the theory of one is another than that of these kernels.
        """
        size = 2 * HUMANS * self.padded * 8 * self.states
        at_once = max(1, ROOM // size - 1)
        idle = [name for name in robots if robots[name].is_idle]
        acting = [name for name in robots if name not in idle]
        solved: dict[str, Robot] = {}
        for first in range(0, max(1, len(acting)), at_once):
            names = acting[first : first + at_once]
            groups = [idle if first == 0 else [], names]
            solved |= self._solve([{name: robots[name] for name in group} for group in groups])
        return {name: solved[name] for name in robots}

    def _solve(self, groups: Sequence[Mapping[str, Asked]]) -> dict[str, Robot]:
        """Idle robots and others, in one go."""
        begin, self._hoped = time.process_time(), np.empty((0, 0))
        # States of the start's arrangement, which an idle assistant never leaves, are the first.
        counts = int((self.moves.arrangement == 0).sum()), self.states
        idle, acting = (
            Values(self, [*group.values()], count)
            for group, count in zip(groups, counts, strict=True)
        )
        for _ in range(self._steps - 1):
            idle.step(acting.later.hoped)
            acting.step(acting.later.hoped)
        self._hoped = acting.later.hoped
        solved = {}
        for group, values in zip(groups, (idle, acting), strict=True):
            x_h, v_r = values.at_start(self._hoped)
            for number, (name, asked) in enumerate(group.items()):
                power = float(x_h[number, USER]), float(x_h[number, BYSTANDER])
                later = values.later.v_r[:, number].copy()
                seconds = time.process_time() - begin
                solved[name] = Robot(asked, power, float(v_r[number]), later, seconds)
        return solved

    def policies(self, robot: Robot, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Policies with all steps to go, once robots were solved for.

        Args:
            robot: One of them.
            states: State numbers, those of an arrangement together.

        Returns:
            Those of the humans, for the user's goals first, and the robot's
            [state goal action] and [state action].
        """
        theory, count = theory_of([robot.asked], self.cells, self.padded), len(states)
        later = kernels.Later(self._hoped, np.empty((1, 0, 0)), robot.later[:, None])
        now = kernels.Later(np.empty((count, HUMANS * self.padded)), later.attained, later.v_r)
        pi_h = np.empty((count, CHOICES, HUMANS * self.padded))
        pi_r = np.empty((count, 1, self.actions))
        choices = kernels.Choices(pi_h, pi_r, np.empty((0, 0, 0)))
        order = states.astype(np.int32)
        kernels.sweep(self.moves, theory, later, order, now, choices, self.scratch)
        goals = np.arange(HUMANS)[:, None] * self.padded + np.arange(self.cells)
        return pi_h[:, :, goals.ravel()].transpose(0, 2, 1), pi_r[:, 0]


class Values:
    """Values of some robots in the first states of a layout, from the last step back.

    Attributes:
        later: What states pay a step later; what humans hope for is known of all states.

    Args:
        place: The layout.
        asked: The robots.
        count: How many states.
    """

    def __init__(self, place: LockStep, asked: Sequence[Asked], count: int) -> None:
        self._place, self._theory = place, theory_of(asked, place.cells, place.padded)
        self._order = np.arange(count, dtype=np.int32)
        self.later, self._spare = (values(len(asked), count, place.padded) for _ in range(2))
        self.later.hoped[:], self.later.attained[:] = 0, 0
        for human in range(HUMANS):
            own = human * place.padded + place.moves.rows[:count, human]
            self.later.hoped[self._order, own] = 1
            self.later.attained[:, self._order, own] = 1
        for number, robot in enumerate(asked):
            self.later.v_r[:, number] = robot.params.theory.terminal_value

    def step(self, hoped: np.ndarray) -> None:
        """Go a step back, by what humans hope for in all states a step later."""
        none = kernels.Choices(*(np.empty((0, 0, 0)) for _ in range(3)))
        self._sweep(hoped, self._order, self._spare, none)
        self.later, self._spare = self._spare, self.later

    def at_start(self, hoped: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Powers and V_r at the start, one step earlier [robot human] and [robot]."""
        robots = len(self._theory.beta_r)
        now, none = values(robots, 1, self._place.padded), np.empty((0, 0, 0))
        choices = kernels.Choices(none, none, np.empty((1, robots, HUMANS)))
        self._sweep(hoped, np.array([self._place.start], np.int32), now, choices)
        return choices.x_h[0], now.v_r[0]

    def _sweep(
        self, hoped: np.ndarray, order: np.ndarray, now: kernels.Later, choices: kernels.Choices
    ) -> None:
        later, place = self.later._replace(hoped=hoped), self._place
        kernels.sweep(place.moves, self._theory, later, order, now, choices, place.scratch)


def values(robots: int, states: int, padded: int) -> kernels.Later:
    """Room for values of robots in states."""
    goals = HUMANS * padded
    return kernels.Later(
        hoped=aligned((states, goals)),
        attained=aligned((robots, states, goals)),
        v_r=np.empty((states, robots)),
    )


def theory_of(asked: Sequence[Asked], cells: int, padded: int) -> kernels.Theory:
    """Symbols of some robots.

    Raises:
        ValueError: if the kernels take another theory for granted.
    """
    theories = [robot.params.theory for robot in asked]
    for theory in theories:
        for key, value in ASSUMED.items():
            if getattr(theory, key) != value:
                raise ValueError(
                    f"theory.{key} is {getattr(theory, key)!r}; layouts with keys are solved for "
                    f"{value!r} only"
                )
    shared = ("beta_h", "gamma_h", "gamma_r", "zeta", "eta")
    symbols = {tuple(float(getattr(theory, key)) for key in shared) for theory in theories}
    if len(symbols) > 1:
        raise ValueError(f"robots with different {', '.join(shared)} cannot be solved side by side")
    weight = np.zeros((HUMANS, padded))
    weight[:, :cells] = 1 / cells
    counts = [[name in (robot.params.counts or NAMES) for name in NAMES] for robot in asked]
    return kernels.Theory(
        *next(iter(symbols), (0.0,) * len(shared)),
        beta_r=np.array([theory.beta_r for theory in theories], np.float64),
        xi=np.array([theory.xi for theory in theories], np.float64),
        counts=np.array(counts, np.bool_).reshape(-1, HUMANS),
        is_idle=np.array([robot.is_idle for robot in asked], np.bool_),
        weight=weight.ravel(),
        first_goal=np.arange(HUMANS + 1) * padded,
    )


def scratch(cells: int, padded: int, actions: int) -> kernels.Scratch:
    """Working memory of the kernels."""
    moves, pairs, goals = CHOICES, CHOICES * CHOICES, HUMANS * padded
    items = max(actions + 1, (actions + 1) * moves)
    return kernels.Scratch(
        target=np.zeros((HUMANS, moves), np.int64),
        ways=np.zeros((HUMANS, moves)),
        evenly=np.zeros((HUMANS, moves)),
        move=np.zeros((HUMANS, moves), np.int64),
        moves=np.zeros(HUMANS, np.int64),
        pair=np.zeros(pairs, np.int64),
        cell=np.zeros((HUMANS, pairs), np.int64),
        known=np.zeros(cells * cells, np.int64),
        expected=aligned((cells * cells, goals)),
        known_beside=np.zeros(cells * cells, np.int64),
        expected_beside=aligned((cells * cells, goals)),
        q=aligned((moves, goals)),
        chance=aligned((moves, goals)),
        marginal=np.zeros((HUMANS, moves)),
        profile=np.zeros(pairs),
        reply=np.zeros((actions + 1, pairs), np.int64),
        same=np.zeros(actions, np.int64),
        reply_ways=np.zeros(actions + LANES),
        q_r=np.zeros(actions + LANES),
        pi_r=np.zeros(actions + LANES),
        row=np.zeros(items, np.int64),
        weight=np.zeros(items),
        value=aligned((1, goals)),
    )
