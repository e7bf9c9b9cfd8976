"""Robots of a layout with keys side by side, many steps back: the humans are worked out once."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from disempower_arrangements import CHOICES, list_next, reachable_moves
from disempower_course import pair
from disempower_lockstep_arrays import (
    Choices,
    Later,
    Theory,
    scratch,
    sparse_values,
    values,
)
from disempower_lockstep_kernels import sweep

from empo_benchmarks.disempower.board import BYSTANDER, HUMANS, USER, Board
from empo_exact.game import LANES
from empo_exact.plugin import ExactParams

ROOM = 11_000_000_000
"""Bytes of values of all states that are kept at a time."""
EVERYWHERE = (13, 15)
"""Steps from the end up to which all states are worked out, if all robots fit in, or else."""
NAMES = ("user", "bystander")
ASSUMED = {
    "robot_model": "even", "nu": 0.0, "counting": "arrival", "rho": 1, "x_agg": "sum",
    "u_agg": "sum", "accrual": "discrete",
}  # fmt: skip
"""The theory that kernels take for granted."""
SHARED = ("beta_h", "gamma_h", "gamma_r", "zeta", "eta")
"""Symbols that all robots have in common."""


@dataclass(frozen=True)
class Asked:
    """A robot to be worked out.

    Attributes:
        params: Its theory, the humans whom it expects, and whose power counts.
        is_idle: It never does anything.
    """

    params: ExactParams
    is_idle: bool = False

    @property
    def is_fixed(self) -> bool:
        """It acts the same whatever is attained: never, or any action alike."""
        return self.is_idle or self.params.theory.beta_r == 0


@dataclass(frozen=True)
class Robot:
    """A robot that was worked out, and the power of both humans beside it.

    Attributes:
        asked: What was asked for.
        x_h: Power of user and bystander at the start.
        v_r: V_r there.
        cpu_seconds: What it took until the start was known, with what it shares with other robots.
    """

    asked: Asked
    x_h: tuple[float, float]
    v_r: float
    cpu_seconds: float


class LockStep:
    """Backward induction for several robots at once, over the states of a layout with keys.

    It exists because ``empo_exact.solve`` would take 20 to 45 processor hours for what is asked
    here. It says the same as that with all states as starts, to rounding, where nobody can be
    frozen and humans expect any action of the assistant alike. With 3 steps, in variation 89 of
    ``push_only``, it takes 27.8 processor seconds for four robots and an idle assistant where
    ``solve`` takes 109.6 for one robot: a sixteenth.

    Attributes:
        moves: All states, and who can go where.
        start: The state in which episodes begin.

    Args:
        board: The board; its keys must be left out.
        steps: How many steps robots and humans look ahead.
    """

    def __init__(self, board: Board, steps: int) -> None:
        self.moves, self.steps = reachable_moves(board), steps
        row = board.start_row()
        self.start = int(self.moves.number[0, row[USER] * board.cells + row[BYSTANDER]])
        self.cells, self.actions = board.cells, len(board.assistant_actions)
        self.padded = -(-board.cells // LANES) * LANES
        self.scratch = scratch(board.cells, self.padded, self.actions)
        self._is_listed = np.zeros(self.states, np.bool_)
        self._following = np.empty(self.states, np.int32)
        self._like = Asked(ExactParams())
        self._far: Far | None = None

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.moves.rows)

    def following(self, states: np.ndarray) -> np.ndarray:
        """Numbers of all states that may follow some states, ascending."""
        count = list_next(self.moves, states, self._is_listed, self._following)
        found = np.sort(self._following[:count])
        self._is_listed[found] = False
        return found

    def within_reach(self) -> list[np.ndarray]:
        """States that can be reached from the start within 0, 1, ... steps."""
        new = np.array([self.start], np.int32)
        reached = [new]
        while len(reached) <= self.steps:
            new = np.setdiff1d(self.following(new), reached[-1], assume_unique=True)
            reached.append(np.union1d(reached[-1], new))
        return reached

    def solve(self, robots: Mapping[str, Asked]) -> Iterator[tuple[str, Robot]]:
        """Robots by name, those that are fixed first; ``policies`` knows the one that came last.

        Near the end they are worked out side by side, as many as there is room for.

        Raises:
            ValueError: if the theory of one is another than that of the kernels or of the others.
        """
        check(robots)
        self._like = next(iter(robots.values()))
        size = 2 * HUMANS * self.padded * 8 * self.states
        at_once = max(1, ROOM // size - 1)
        order = sorted(robots, key=lambda name: not robots[name].is_fixed)
        groups = [order]
        if len(order) > at_once:
            acting = [name for name in order if not robots[name].is_fixed]
            parts = [acting[i : i + at_once] for i in range(0, len(acting), at_once)]
            groups = [order[: len(order) - len(acting)], *parts]
        reached = self.within_reach()
        for group in groups:
            chosen = {name: robots[name] for name in group}
            yield from self._solve(chosen, EVERYWHERE[len(groups) > 1], reached)

    def _solve(
        self, robots: Mapping[str, Asked], everywhere: int, reached: Sequence[np.ndarray]
    ) -> Iterator[tuple[str, Robot]]:
        begin, self._far = time.process_time(), None
        fixed, acting = (
            {name: asked for name, asked in robots.items() if asked.is_fixed is is_fixed}
            for is_fixed in (True, False)
        )
        near, beside = Near(self, [*acting.values()]), Beside(self, [*fixed.values()], reached[-1])
        everywhere = min(everywhere, self.steps - 1)
        for done in range(1, everywhere + 1):
            beside.step(near.values.hoped, reached[self.steps - done])
            near.step()
        near.forget()
        rest = [reached[self.steps - done] for done in range(everywhere + 1, self.steps)]
        shared = time.process_time() - begin
        if fixed:
            self._far = Far(self, [], near.beside(None))
            for states in rest:
                beside.step(self._far.last.hoped, states)
                self._far.add_level(states)
            after = beside.later._replace(hoped=self._far.last.hoped)
            x_h, v_r = self._at_start([*fixed.values()], after)
            shared = time.process_time() - begin
            del after
        del beside
        for number, (name, asked) in enumerate(fixed.items()):
            yield name, Robot(asked, pair(x_h[number]), float(v_r[number]), shared)
        for number, (name, asked) in enumerate(acting.items()):
            begin, self._far = time.process_time(), None
            self._far = Far(self, [asked], near.beside(number))
            for states in rest:
                self._far.add_level(states)
            x_h, v_r = self._at_start([asked], self._far.last)
            seconds = shared + time.process_time() - begin
            yield name, Robot(asked, pair(x_h[0]), float(v_r[0]), seconds)

    def _at_start(self, asked: Sequence[Asked], later: Later) -> tuple[np.ndarray, np.ndarray]:
        """Powers and V_r at the start [robot human] and [robot]."""
        none, now = np.empty((0, 0, 0)), values(len(asked), 1, self.padded)
        choices = Choices(none, none, np.empty((1, len(asked), HUMANS)))
        self.sweep(asked, later, np.array([self.start], np.int32), now, choices)
        return choices.x_h[0], now.v_r[0]

    def sweep(
        self,
        asked: Sequence[Asked],
        later: Later,
        states: np.ndarray,
        now: Later,
        choices: Choices | None = None,
    ) -> None:
        """One step back in some states; results go to their numbers, or by position if choices do.

        Args:
            asked: The robots.
            later: Values a step later.
            states: State numbers, ascending.
            now: Receives the values.
            choices: Receives policies and powers, if they are wanted.
        """
        theory = theory_of(asked, self._like, self.cells, self.padded)
        places = states if choices is None else np.arange(len(states), dtype=np.int32)
        choices = choices or Choices(*(np.empty((0, 0, 0)) for _ in range(3)))
        sweep(self.moves, theory, later, states, places, now, choices, self.scratch)

    def policies(self, robot: Robot, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Policies with all steps to go.

        Args:
            robot: The robot that came last, or another that is fixed, as that is.
            states: State numbers, ascending.

        Returns:
            Those of the humans, for the user's goals first, and the robot's
            [state goal action] and [state action].

        Raises:
            LookupError: if another robot came last.
        """
        asked = [] if robot.asked.is_fixed else [robot.asked]
        far, count = self._far, len(states)
        if far is None or [*far.asked] != asked:
            raise LookupError("its values are gone, for another robot was worked out since")
        far.require(self.following(states))
        goals = HUMANS * self.padded
        pi_h, pi_r = np.empty((count, CHOICES, goals)), np.empty((count, len(asked), self.actions))
        now = Later(np.empty((0, goals)), np.empty((0, 0)), np.empty((0, len(asked))))
        choices = Choices(pi_h, pi_r, np.empty((0, 0, 0)))
        self.sweep(asked, far.last, states, now, choices)
        columns = np.arange(HUMANS)[:, None] * self.padded + np.arange(self.cells)
        pi_h = pi_h[:, :, columns.ravel()].transpose(0, 2, 1)
        if asked:
            return pi_h, pi_r[:, 0]
        fixed = np.zeros((count, self.actions))
        fixed[:, 0 if robot.asked.is_idle else slice(None)] = 1
        return pi_h, fixed / fixed.sum(1, keepdims=True)


class Near:
    """Values of all states beside some robots, from the last step back.

    Attributes:
        values: The values.

    Args:
        place: The layout.
        asked: The robots; without any, what humans hope for is all.
    """

    def __init__(self, place: LockStep, asked: Sequence[Asked]) -> None:
        self._place, self._asked = place, asked
        self._states = np.arange(place.states, dtype=np.int32)
        self.values, self._spare = (
            values(len(asked), place.states, place.padded) for _ in range(2)
        )
        self.values.hoped[:], self.values.attained[:] = 0, 0
        write_ends(place, asked, self.values, self._states)

    def step(self) -> None:
        """Go a step back."""
        self._place.sweep(self._asked, self.values, self._states, self._spare)
        self.values, self._spare = self._spare, self.values

    def forget(self) -> None:
        """Free the memory of further steps."""
        self._spare = values(0, 0, self._place.padded)

    def beside(self, robot: int | None) -> Later:
        """Values beside one robot, or what humans hope for beside any."""
        states = self._place.states
        first, count = (0, 0) if robot is None else (robot, 1)
        return Later(
            self.values.hoped,
            self.values.attained[first * states : (first + count) * states],
            np.ascontiguousarray(self.values.v_r[:, first : first + count]),
        )


class Far:
    """Values further from the end beside a robot, of the states that somebody asks for.

    They take those of what may follow these states, fewer steps from the end: altogether few, since
    episodes begin in one state.

    Attributes:
        asked: The robot; without any, what humans hope for is all.

    Args:
        place: The layout.
        asked: The robot.
        near: Values of all states, one step nearer to the end.
    """

    def __init__(self, place: LockStep, asked: Sequence[Asked], near: Later) -> None:
        # The place has this, so that both would stay in memory until cycles are collected.
        self._place, self.asked, self._near = weakref.proxy(place), asked, near
        self._levels: list[tuple[Later, np.ndarray]] = []

    @property
    def last(self) -> Later:
        """Values with the most steps to go."""
        return self._levels[-1][0] if self._levels else self._near

    def add_level(self, states: np.ndarray) -> None:
        """Go a step back, in some states."""
        count = self._place.states
        level = sparse_values(len(self.asked), count, self._place.padded)
        self._levels.append((level, np.zeros(count, np.bool_)))
        self.require(states)

    def require(self, states: np.ndarray, level: int | None = None) -> None:
        """Work out values of some states with the most steps to go, unless they are there.

        Args:
            states: State numbers, ascending.
            level: A level with fewer steps to go instead; -1 has all states.
        """
        level = len(self._levels) - 1 if level is None else level
        if level < 0:
            return
        now, is_ready = self._levels[level]
        new = states[~is_ready[states]]
        if len(new):
            is_ready[new] = True
            self.require(self._place.following(new), level - 1)
            later = self._levels[level - 1][0] if level else self._near
            self._place.sweep(self.asked, later, new, now)


class Beside:
    """Values beside robots that are fixed, which matter at the start only.

    Attributes:
        asked: The robots.
        later: Values of states that can be reached until then.

    Args:
        place: The layout.
        asked: The robots.
        states: The states that can be reached until the end.
    """

    def __init__(self, place: LockStep, asked: Sequence[Asked], states: np.ndarray) -> None:
        self._place, self.asked = place, asked
        self.later, self._spare = (
            sparse_values(len(asked), place.states, place.padded) for _ in range(2)
        )
        write_ends(place, asked, self.later, states)

    def step(self, hoped: np.ndarray, states: np.ndarray) -> None:
        """Go a step back, by what humans hope for a step later, in some states."""
        if self.asked:
            later = self.later._replace(hoped=hoped)
            now = self._spare._replace(hoped=np.empty((0, hoped.shape[1])))
            self._place.sweep(self.asked, later, states, now)
            self.later, self._spare = self._spare, self.later


def write_ends(place: LockStep, asked: Sequence[Asked], values: Later, states: np.ndarray) -> None:
    """Write what states pay where the episode is over: goals that are achieved, into zeros."""
    for human in range(HUMANS):
        own = human * place.padded + place.moves.rows[states, human]
        values.hoped[states, own] = 1
        for number in range(len(asked)):
            values.attained[number * place.states + states.astype(np.int64), own] = 1
    for number, robot in enumerate(asked):
        values.v_r[states, number] = robot.params.theory.terminal_value


def theory_of(asked: Sequence[Asked], like: Asked, cells: int, padded: int) -> Theory:
    """Symbols of some robots.

    Args:
        asked: The robots.
        like: One that has the same humans and the same aggregation of power.
        cells: Number of goals of each human.
        padded: The same, with those that fill up a row.
    """
    theory = like.params.theory
    theories = [robot.params.theory for robot in asked]
    weight = np.zeros((HUMANS, padded))
    weight[:, :cells] = 1 / cells
    counts = [[name in (robot.params.counts or NAMES) for name in NAMES] for robot in asked]
    return Theory(
        *(float(getattr(theory, key)) for key in SHARED),
        beta_r=np.array([theory.beta_r for theory in theories], np.float64),
        xi=np.array([theory.xi for theory in theories], np.float64),
        counts=np.array(counts, np.bool_).reshape(-1, HUMANS),
        is_idle=np.array([robot.is_idle for robot in asked], np.bool_),
        weight=weight.ravel(),
        first_goal=np.arange(HUMANS + 1) * padded,
    )


def check(robots: Mapping[str, Asked]) -> None:
    """Refuse robots that cannot be worked out side by side.

    Raises:
        ValueError: if there are some.
    """
    first = next(iter(robots.values())).params.theory
    wanted = ASSUMED | {key: getattr(first, key) for key in SHARED}
    for name, robot in robots.items():
        for key, value in wanted.items():
            if getattr(robot.params.theory, key) != value:
                raise ValueError(
                    f"{name}: theory.{key} is {getattr(robot.params.theory, key)!r}; in layouts "
                    f"with keys it is {value!r} for all robots"
                )
