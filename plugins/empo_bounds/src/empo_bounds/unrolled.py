"""The part of the unrolled game that was expanded: pairs of states and times, and transitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from empo_bounds.kernels import arrive
from empo_bounds.moments import LandingTable, Layer, MomentTable, StateTable
from empo_bounds.policy_tables import PolicyTables
from empo_bounds.question import Question
from empo_bounds.transitions import Acting, Transitions

ASKED_AT_ONCE = 1 << 16
"""Joint actions of states that are expanded at a time: bounds the memory in flight."""
PARTS = 16
"""Parts of so many joint actions between two looks at the time."""
MOST_AT_ONCE = 1 << 15
"""Pairs between two looks at the time, at most."""
Goes = Callable[[], bool]


class Unrolled:
    """Pairs of states and times, some of them expanded; the others are the frontier.

    Attributes:
        question: The world, and how everybody acts.
        states: States of any time.
        landings: States with the durations of the transitions that lead there.
        policies: Policies in the pairs that were expanded.
        moments: Transitions in these pairs.
        layers: The pairs of each time; there are none behind the horizon.
        pairs: How many pairs were expanded.
        transitions: How many transitions their moments have.
        is_timed: The world says how long its transitions take.
    """

    def __init__(self, question: Question) -> None:
        spec = question.spec
        self.question = question
        self.states, self.landings = StateTable(question), LandingTable()
        self.policies = PolicyTables(question)
        self.moments = MomentTable(len(spec.humans), question.num_actions)
        self.pairs = self.transitions = 0
        self.is_timed = False
        self._transitions = Transitions(question)
        start = self.states.number(question.world.initial_state().numpy()[None])
        self.layers = [Layer(self.landings.number(start, None), np.full(1, -1, np.int32))]

    def steps_left(self, time: int) -> int:
        """Steps left at a time, as policies are asked; 1 where the world has no horizon."""
        horizon = self.question.spec.horizon
        return 1 if horizon is None else horizon - time

    def is_end(self, time: int) -> bool:
        """True where the horizon ends all episodes."""
        return time == self.question.spec.horizon

    def state(self, time: int) -> Int32[np.ndarray, " pair"]:
        """State of each pair of a time."""
        state: Int32[np.ndarray, " pair"] = self.landings.state[self.layers[time].landing]
        return state

    def alive(self, time: int) -> Bool[np.ndarray, " pair"]:
        """Pairs of a time from which episodes go on."""
        alive: Bool[np.ndarray, " pair"] = self.states.alive[self.state(time)]
        return np.zeros_like(alive) if self.is_end(time) else alive

    @property
    def open_pairs(self) -> int:
        """Number of pairs that were not expanded although episodes go on from them."""
        return sum(
            int((self.alive(time) & ~layer.expanded).sum())
            for time, layer in enumerate(self.layers)
        )

    def position(self, time: int) -> Int32[np.ndarray, " landing"]:
        """Position of each landing among the pairs of a time; -1 where it is none of them."""
        position = np.full(self.landings.count, -1, np.int32)
        landing = self.layers[time].landing
        position[landing] = np.arange(len(landing), dtype=np.int32)
        return position

    def expand(self, time: int, pairs: Int64[np.ndarray, " pair"], goes_on: Goes) -> bool:
        """Expand pairs of a time, in this order, for as long as ``goes_on()``.

        Returns:
            False where it did not.

        Raises:
            SolveError: if a policy is none, or acts where it cannot.
            BrokenWorldError: if the world breaks its contract.
        """
        if len(self.layers) == time + 1:
            self.layers.append(Layer(np.zeros(0, np.int32), np.zeros(0, np.int32)))
        first, goes, expanded = 0, True, []
        while first < len(pairs) and goes:
            size = int(
                min(MOST_AT_ONCE, max(1, PARTS * ASKED_AT_ONCE // self._transitions.asked_each))
            )
            part = pairs[first : first + size]
            self.layers[time].moment[part] = self._moments(time, part)
            expanded.append(part)
            first += size
            goes = goes_on() if first < len(pairs) else True
        done = np.concatenate(expanded)
        self.pairs += len(done)
        self._arrive(time + 1, self.layers[time].moment[done])
        return goes

    def _moments(self, time: int, pairs: Int64[np.ndarray, " pair"]) -> Int32[np.ndarray, " pair"]:
        """The moment of each pair; new ones are expanded."""
        state = self.state(time)[pairs]
        rows = np.ascontiguousarray(self.states.rows[state])
        policies = self.policies.numbers(state, rows, self.steps_left(time))
        keys = np.concatenate([state[:, None], policies], 1)
        moments, new = self.moments.find(keys)
        while len(new):
            size = max(1, int(ASKED_AT_ONCE // self._transitions.asked_each))
            self._expand(keys[new[:size]], rows[new[:size]], policies[new[:size]])
            new = new[size:]
            if not len(new):
                moments, _ = self.moments.find(keys)
        return moments

    def _arrive(self, time: int, moment: Int32[np.ndarray, " moment"]) -> None:
        """Add the pairs of a time that moments lead to."""
        layer, position = self.layers[time], self.position(time)
        num_known = len(layer.landing)
        landings = np.zeros(self.landings.count, np.int32)
        landings[:num_known] = layer.landing
        count, distinct = num_known, np.unique(moment)
        for human in range(len(self.question.spec.humans)):
            steps = self.moments.steps(human)
            actions = self.question.num_actions
            count = arrive(steps, actions, distinct, position, landings, count)
        layer.extend(landings[num_known:count])

    def _expand(
        self,
        keys: Int32[np.ndarray, "state key_word"],
        rows: Shaped[np.ndarray, "state word"],
        policies: Int32[np.ndarray, "state policy_word"],
    ) -> None:
        """Add the moments of some states with some policies, and where they lead."""
        humans = range(len(self.question.spec.humans))
        robot = self.policies.robot[policies[:, 0]]
        human = [self.policies.human(index)[policies[:, 1 + index]] for index in humans]
        marginal = np.stack([
            self.policies.marginal(index, policies[:, 1 + index]) for index in humans
        ])  # fmt: skip
        acting = Acting(robot, human, marginal)
        condensed = self._transitions.of(rows, acting, self._landing_numbers)
        self.moments.extend(keys, condensed)
        self.transitions += int(condensed.items.sum())

    def _landing_numbers(
        self,
        states: Shaped[np.ndarray, "outcome word"],
        duration: Float64[np.ndarray, " outcome"] | None,
    ) -> Int32[np.ndarray, " outcome"]:
        """The landings of transitions, which may tell how long they take."""
        self.is_timed |= duration is not None
        return self.landings.number(self.states.number(states), duration)
