"""Values and policies of a solved world, at every reachable state and time.

Values are kept; policies are worked out again, by one sweep, for the states that are asked about.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, SupportsIndex

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int32, Int64
from torch import Tensor

from empo_core.errors import SolveError, WorldError
from empo_core.types import WorldSpec
from empo_exact.game import Block, Floats, Policies, Values, make_scratch
from empo_exact.graph import StateGraph
from empo_exact.payoffs import Payoffs
from empo_exact.problem import Problem
from empo_exact.reach import reachable_masks
from empo_exact.sweep import (
    REMEMBERED,
    MeanPolicies,
    Workspace,
    empty_policies,
    end_values,
    room,
    sweep_block,
    terminal_values,
)
from empo_exact.values import Store
from empo_theory.bits import Bits, bits_of
from empo_theory.solved_world import SolvedWorld
from empo_worlds.row_table import RowTable
from empo_worlds.rows import integer_rows, state_row

AT_ONCE = 8192
"""States whose policies are worked out at the same time."""
KEPT = 512
"""Single states whose policies are kept for the next episode that comes by."""

State = Int[Tensor, " word"] | Int[np.ndarray, " word"] | Sequence[int] | SupportsIndex


@dataclass(frozen=True)
class StateValues:
    """Values and policies of one state at one time; goals in the order of ``spec.goals``.

    Attributes:
        terminal: The episode is over there; then only ``V_r`` means anything.
        V_r: The robot's value, negative.
        U_r: The robot's intrinsic reward, negative.
        Q_r: Value of each joint robot action, robot 0 fastest; NaN where unavailable [robot].
        pi_r: The robot's policy [robot].
        X_h: Power of each human, by agent index.
        V_m: What each human hopes for, V_h^m; NaN where a human prior was given [goal].
        V_e: What each human can attain, V_h^e [goal].
        pi_h: Policy of each goal's human [goal action].
        norms: Norms ``E[Y^k]^(1/k)`` of the robot's cost Y of what follows, for the orders k from 1
            to ``theory.rho``; the first is -V_r [order].
    """

    terminal: bool
    V_r: float
    U_r: float
    Q_r: Floats
    pi_r: Floats
    X_h: dict[int, float]
    V_m: Floats
    V_e: Floats
    pi_h: Floats
    norms: Floats


class StatePolicies(NamedTuple):
    """Policies in some states, with Q_r, X_h and U_r; goals in the order of ``spec.goals``.

    Attributes:
        pi_h: Policy of each goal's human [state goal action].
        pi_r: The robot's policy [state robot].
        q_r: Value of each joint robot action; NaN where unavailable [state robot].
        x_h: Power of each human, in the order of ``spec.humans`` [state human].
        u_r: The robot's intrinsic reward [state].
    """

    pi_h: Float64[np.ndarray, "state goal action"]
    pi_r: Float64[np.ndarray, "state robot"]
    q_r: Float64[np.ndarray, "state robot"]
    x_h: Float64[np.ndarray, "state human"]
    u_r: Float64[np.ndarray, " state"]


class TimeValues(NamedTuple):
    """The values at one time, by state number; goals in the order of ``spec.goals``.

    Attributes:
        v_m: What each human hopes for, V_h^m; NaN where a human prior was given [state goal].
        v_e: What each human can attain, V_h^e [state goal].
        v_r: The robot's value [state].
        norms: Norms of the robot's cost, from order 1 on; see ``StateValues`` [state order].
    """

    v_m: Float64[np.ndarray, "state goal"]
    v_e: Float64[np.ndarray, "state goal"]
    v_r: Float64[np.ndarray, " state"]
    norms: Float64[np.ndarray, "state order"]


class Solution(SolvedWorld):
    """Values and policies at every reachable state and time; see ``empo_theory.solved_world``.

    Attributes:
        problem: The problem that was solved.
        store: Its values as the sweep orders goals; ``values`` has them in that of ``spec.goals``.
        failed: The same states where robots have failed; None where robots do not fail.
    """

    def __init__(
        self,
        problem: Problem,
        store: Store,
        failed: Solution | None = None,
        means: Mapping[int, tuple[Int64[np.ndarray, " state"], MeanPolicies]] = {},
    ) -> None:
        """Take over what a solve has found.

        Args:
            problem: The problem that was solved.
            store: Its values.
            failed: The same where robots have failed.
            means: By time, numbers of states and policies there that need not be worked out again.
        """
        self.problem = problem
        self.store = store
        self.failed = failed
        self._later = lru_cache(maxsize=2)(self._payoffs)
        self._means = dict(means)
        self.policies_in = lru_cache(maxsize=KEPT)(self._policies_in)

    @property
    def spec(self) -> WorldSpec:
        """The world's specification."""
        return self.problem.graph.spec

    @property
    def graph(self) -> StateGraph:
        """The state graph."""
        return self.problem.graph

    @property
    def horizon(self) -> int | None:
        """Steps per episode; None where the world ends by itself (all times are then 0)."""
        return self.problem.horizon

    @property
    def start(self) -> Float64[np.ndarray, " start"]:
        """Chances of the first states to be where episodes begin."""
        return self.problem.start

    @property
    def times(self) -> list[int]:
        """Times whose values were kept."""
        return self.store.times

    # States.

    @cached_property
    def _table(self) -> RowTable:
        return RowTable.of(self.graph.states)

    def index(self, state: State) -> int:
        """The number of a state, given as a row or as its number.

        Raises:
            WorldError: if the state cannot be reached, or what was given is neither.
        """
        if isinstance(state, SupportsIndex) and not getattr(state, "ndim", 0):
            try:
                number = operator.index(state)
            except TypeError as error:  # E.g. an array that holds one float.
                raise WorldError(f"{state!r} is no number of a state: {error}") from None
            if not 0 <= number < self.graph.num_states:
                raise WorldError(
                    f"there is no state number {number}; {self.spec.name!r} has "
                    f"{self.graph.num_states} states, numbered from 0"
                )
            return number
        row = state_row(self.spec, state)
        number = int(self._table.find(row)[0])
        if number < 0:
            raise WorldError(f"{self.spec.name!r} cannot reach the state {row[0].tolist()}")
        return number

    def find_rows(self, rows: Int[np.ndarray, "state word"]) -> Int32[np.ndarray, " state"]:
        """The number of each state row; -1 where it cannot be reached [state].

        Raises:
            WorldError: if the rows have another length, or are no integers.
        """
        return self._table.find(integer_rows(self.spec.name, self.spec.state_words, rows))

    def reachable(self, time: int) -> Int64[np.ndarray, " reached"]:
        """Numbers of the states that can be reached after exactly this many steps."""
        if self.horizon is None:
            return np.arange(self.graph.num_states)
        return np.flatnonzero(reachable_masks(self.graph, time)[time])

    def alive(self, states: Int64[np.ndarray, " state"], time: int) -> Bool[np.ndarray, " state"]:
        """States (given by number) from which the episode goes on at a time [state]."""
        if self.horizon is not None and time >= self.horizon:
            return np.zeros(len(states), np.bool_)
        alive: Bool[np.ndarray, " state"] = self.graph.alive[states]
        return alive

    # Values and policies by state number and time.

    def at(self, state: State, time: int = 0) -> StateValues:
        """Values and policies in one state at one time.

        Raises:
            WorldError: if the state cannot be reached within ``time`` steps.
            SolveError: if the values of that time, or of the next, were not kept.
        """
        number = self.index(state)
        self._check_time(time)
        order = np.array([number], np.int32)
        terminal = not self.alive(np.array([number]), time)[0]
        if terminal:
            policies, values = end_values(self.problem, order, self._steps_left(time))
        else:
            if self.horizon is not None and number >= self.graph.within(time):
                raise WorldError(f"{self.spec.name!r} cannot reach that state within {time} steps")
            policies, values = self._sweep(order, time)
        goals = self.problem.places
        return StateValues(
            terminal=terminal,
            V_r=float(values.v_r[0]),
            U_r=float(policies.u_r[0]),
            Q_r=policies.q_r[0],
            pi_r=policies.pi_r[0],
            X_h=dict(zip(self.spec.humans, policies.x_h[0].tolist(), strict=True)),
            V_m=values.v_m[0, goals],
            V_e=values.v_e[0, goals],
            pi_h=policies.pi_h[0][:, goals].T,
            norms=np.append(-values.v_r[:1], values.norms[0]),
        )

    def at_start(self) -> StateValues:
        """Values and policies when an episode begins, in expectation over the initial states.

        ``Q_r`` and ``V_m`` are NaN where they are in some initial state, which matters to nobody
        where there is only one.
        """
        if len(self.start) == 1:
            return self.at(0)
        parts = [self.at(state) for state in range(len(self.start))]

        def mean(part: Callable[[StateValues], Floats | float]) -> Floats:
            return np.tensordot(self.start, np.array([part(values) for values in parts]), 1)

        orders = 1.0 + np.arange(self.problem.rho)
        powers = mean(lambda values: np.array([values.X_h[human] for human in self.spec.humans]))
        return StateValues(
            terminal=all(values.terminal for values in parts),
            V_r=float(mean(lambda values: values.V_r)),
            U_r=float(mean(lambda values: values.U_r)),
            Q_r=mean(lambda values: values.Q_r),
            pi_r=mean(lambda values: values.pi_r),
            X_h=dict(zip(self.spec.humans, powers.tolist(), strict=True)),
            V_m=mean(lambda values: values.V_m),
            V_e=mean(lambda values: values.V_e),
            pi_h=mean(lambda values: values.pi_h),
            norms=mean(lambda values: values.norms**orders) ** (1.0 / orders),
        )

    def bits(self, values: StateValues) -> Bits:
        """The powers in a state in bits, from the values there."""
        spec, problem = self.spec, self.problem
        return bits_of(
            problem.symbols,
            list(values.X_h.values()),
            [[spec.goals[goal].weight for goal in spec.goals_of(human)] for human in spec.humans],
            values.U_r,
            float(values.norms[-1]),
            problem.theory.num_counted,
        )

    def values(self, time: int) -> TimeValues:
        """The values at a time, of all states reachable within ``time`` steps [state ...].

        Raises:
            SolveError: if the values of that time were not kept.
        """
        self._check_time(time)
        tables, places = self._values(time), self.problem.places
        norms = np.column_stack([-tables.v_r, tables.norms])
        return TimeValues(tables.v_m[:, places], tables.v_e[:, places], tables.v_r.copy(), norms)

    def goal_values_in(
        self, states: Int64[np.ndarray, " state"], time: int
    ) -> Float64[np.ndarray, "state goal"]:
        """V_h^e of states, given by number, at a time [state goal]."""
        values: Float64[np.ndarray, "state goal"]
        values = self._values(time).v_e[states[:, None], self.problem.places]
        return values

    def policies(
        self, time: int, states: Int64[np.ndarray, " state"] | None = None
    ) -> StatePolicies:
        """Policies in many states at one time [state ...].

        Args:
            time: The time.
            states: State numbers; None means all states reachable within ``time`` steps.
        """
        self._check_time(time)
        if states is None:
            last = self.graph.num_states if self.horizon is None else self.graph.within(time)
            states = np.arange(min(last, self.graph.num_expanded))
        swept = self._sweep(states.astype(np.int32), time)[0]
        pi_h = swept.pi_h[:, :, self.problem.places].transpose(0, 2, 1)
        return StatePolicies(pi_h, swept.pi_r, swept.q_r, swept.x_h, swept.u_r)

    def mean_policies(self, time: int, states: Int64[np.ndarray, " state"]) -> MeanPolicies:
        """Policies in many states at one time, which are remembered for whoever asks again.

        Args:
            time: The time.
            states: State numbers, ascending.
        """
        means = self._remembered(time, states)
        if means is None:
            means = self._mean_policies(time, states)
            self._means.pop(time, None)
            self._means[time] = states, means
            sizes = [sum(part.size for part in policies) for _, policies in self._means.values()]
            while len(sizes) > 1 and sum(sizes) > REMEMBERED:  # The newest are kept anyway.
                del self._means[next(iter(self._means))], sizes[0]
        return means

    def _remembered(self, time: int, states: Int64[np.ndarray, " state"]) -> MeanPolicies | None:
        """The mean policies of some states, if those of all of them are remembered."""
        if time not in self._means:
            return None
        numbers, means = self._means[time]
        place = np.searchsorted(numbers, states)
        if (place == len(numbers)).any() or (numbers[place] != states).any():
            return None
        return MeanPolicies(means.pi_r[place], means.humans[:, place], means.u_r[place])

    def _mean_policies(self, time: int, states: Int64[np.ndarray, " state"]) -> MeanPolicies:
        """Policies in many states; those over goals, which are large, stay in the cache."""
        problem, order, count = self.problem, states.astype(np.int32), len(states)
        game, size, later = problem.game, min(count, problem.block), self._later(time)
        policies = empty_policies(problem, size)
        space = Workspace(0, make_scratch(game, problem.rho), policies)
        out, left = room(problem, int(order.max(initial=-1)) + 1), self._steps_left(time)
        means = MeanPolicies.empty(game, count)
        for first in range(0, count, max(1, size)):
            block = Block(order, first, min(first + size, count))
            sweep_block(problem, block, later, out, space, left)
            means.take(game, policies, block.first, block.last)
        return means

    def _policies_in(self, state: int, time: int) -> StatePolicies:
        """Policies in one state, given by number, at a time; ``policies_in`` keeps the last."""
        return self.policies(time, np.array([state]))

    def robot_policy(self, time: int = 0) -> Floats:
        """The robot's policy in all states reachable within ``time`` steps [state robot]."""
        return self.policies(time).pi_r

    # Values and policies by state row and remaining steps: ``empo_theory.solved_world``.

    def reachable_states(self, steps_left: int) -> Int[Tensor, "state word"]:
        """Non-terminal states that an episode can be in with so many steps left, sorted."""
        time = self.time_of(steps_left)
        numbers = self.reachable(time)
        rows = self.graph.states[numbers[self.alive(numbers, time)]]
        return torch.from_numpy(rows[np.lexsort(rows.T[::-1])])

    def robot_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, " state"]:
        """V_r of each state."""
        numbers = self.numbers_of(states, steps_left)
        return torch.from_numpy(self._values(self.time_of(steps_left)).v_r[numbers])

    def robot_policies(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state robot_action"]:
        """The robots' policy in each state."""
        numbers, time = self.numbers_of(states, steps_left), self.time_of(steps_left)
        means = self._remembered(time, numbers) or self._mean_policies(time, numbers)
        return torch.from_numpy(means.pi_r)

    def goal_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal"]:
        """V_h^e of each state and goal."""
        numbers = self.numbers_of(states, steps_left)
        return torch.from_numpy(self.goal_values_in(numbers, self.time_of(steps_left)))

    def time_of(self, steps_left: int) -> int:
        """The time at which so many steps are left; 0 where the world has no horizon.

        Raises:
            WorldError: if there is none.
        """
        last = 1 if self.horizon is None else self.horizon
        if not 1 <= steps_left <= last:
            name = repr(self.spec.name)
            limit = (
                f"{name} has no horizon, so it is 1"
                if self.horizon is None
                else f"in {name} it goes from 1 to {last}"
            )
            raise WorldError(f"steps_left is {steps_left}; {limit}")
        return last - steps_left

    def numbers_of(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Int64[np.ndarray, " state"]:
        """The numbers of states from which an episode goes on with so many steps left [state].

        Raises:
            SolveError: if a state is terminal, or cannot be reached by then.
        """
        time = self.time_of(steps_left)
        numbers = self.find_rows(states.cpu().numpy()).astype(np.int64)
        num_valued = self.graph.num_states if self.horizon is None else self.graph.within(time)
        wrong = (numbers < 0) | (numbers >= num_valued)
        wrong[~wrong] = ~self.graph.alive[numbers[~wrong]]
        if wrong.any():
            raise SolveError(
                f"{self.spec.name!r} is never in state {states[int(wrong.argmax())].tolist()} with "
                f"{steps_left} steps left, or is over there; so nothing is known about it"
            )
        return numbers

    def policies_of(
        self,
        states: Int[Tensor, "state word"],
        steps_left: int,
        part: Callable[[StatePolicies], Floats],
    ) -> Floats:
        """A part of the policies in states from which an episode goes on [state ...]."""
        numbers, time = self.numbers_of(states, steps_left), self.time_of(steps_left)
        pieces = range(0, max(1, len(numbers)), AT_ONCE)  # At least one, for the shape.
        return np.concatenate(
            [part(self.policies(time, numbers[first : first + AT_ONCE])) for first in pieces]
        )

    def _sweep(self, order: Int32[np.ndarray, " state"], time: int) -> tuple[Policies, Values]:
        """Both phases again in some states; values by position."""
        problem = self.problem
        policies = empty_policies(problem, len(order))
        out = room(problem, int(order.max(initial=0)) + 1)
        space = Workspace(0, make_scratch(problem.game, problem.rho), policies)
        block, left = Block(order, 0, len(order)), self._steps_left(time)
        sweep_block(problem, block, self._later(time), out, space, left)
        return policies, Values(*(array[order] for array in out))

    def _steps_left(self, time: int) -> int:
        """Steps left at a time; 1 where the world has no horizon."""
        return 1 if self.horizon is None else self.horizon - time

    def _payoffs(self, time: int) -> Payoffs:
        """What reaching a state pays one step after ``time``."""
        after = 0 if self.horizon is None else time + 1
        failed = None if self.failed is None else self.failed._values_after(after)
        return Payoffs.of(self.problem, self._values_after(after), failed)

    def _values_after(self, time: int) -> Values:
        """The values at a time, which may be the horizon."""
        if self.horizon is not None and time == self.horizon:
            return terminal_values(self.problem, self.graph.num_states)
        return self._values(time)

    def _values(self, time: int) -> Values:
        """The values at a time, of the states that can be reached by then."""
        try:
            return self.store.at(time)
        except KeyError:
            raise SolveError(
                f"the values at time {time} were not kept; solve with keep: all or disk"
            ) from None

    def _check_time(self, time: int) -> None:
        if time < 0 or (self.horizon is not None and time > self.horizon):
            last = "on" if self.horizon is None else f"to {self.horizon}"
            raise WorldError(f"there is no time {time}; times go from 0 {last}")
