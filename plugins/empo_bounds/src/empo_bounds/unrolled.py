"""The part of the unrolled game that was expanded: pairs of states and times, and transitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int32, Int64, Shaped

from empo_bounds.kernels import DONE, Batch, Condensed, Scratch, arrive, condense
from empo_bounds.moments import LandingTable, Layer, MomentTable, StateTable
from empo_bounds.policy_tables import PolicyTables
from empo_bounds.question import Question
from empo_core.errors import SolveError
from empo_core.protocols import Expandable
from empo_core.types import Expansion

ASKED_AT_ONCE = 1 << 16
"""Joint actions of states that are expanded at a time: bounds the memory in flight."""
PARTS = 16
"""Parts of so many joint actions between two looks at the time."""
MOST_AT_ONCE = 1 << 15
"""Pairs between two looks at the time, at most."""
SHARE_OF_ALL = 0.5
"""Share of all joint actions from which on a world is asked about all of them, where that pays."""

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
        joint = np.arange(spec.num_joint_actions)
        self._actions = joint[:, None] // np.array(spec.strides) % np.array(spec.num_actions)
        self._joint_robot = _mixed(question, spec.robots, joint)
        self._joint_action = self._actions[:, list(spec.humans)].T.copy()
        self._scratch = Scratch(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros((0, 0, 0)))
        self._asked_each = float(len(joint))
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
        found: Int32[np.ndarray, " pair"] = self.landings.state[self.layers[time].landing]
        return found

    def alive(self, time: int) -> Bool[np.ndarray, " pair"]:
        """Pairs of a time from which episodes go on."""
        alive: Bool[np.ndarray, " pair"] = self.states.alive[self.state(time)]
        return np.zeros_like(alive) if self.is_end(time) else alive

    @property
    def open_pairs(self) -> int:
        """How many pairs were not expanded although episodes go on from them."""
        return sum(
            int((self.alive(time) & ~layer.expanded).sum())
            for time, layer in enumerate(self.layers)
        )

    def position(self, time: int) -> Int32[np.ndarray, " landing"]:
        """Position of each landing among the pairs of a time; -1 where it is none of them."""
        found = np.full(self.landings.count, -1, np.int32)
        landing = self.layers[time].landing
        found[landing] = np.arange(len(landing), dtype=np.int32)
        return found

    def expand(self, time: int, pairs: Int64[np.ndarray, " pair"], goes_on: Goes) -> bool:
        """Expand pairs of a time, in this order, for as long as ``goes_on()``.

        Returns:
            False where it did not.

        Raises:
            SolveError: A policy is none, or acts where it cannot; or the world's probabilities
                do not sum to 1.
        """
        if len(self.layers) == time + 1:
            self.layers.append(Layer(np.zeros(0, np.int32), np.zeros(0, np.int32)))
        first, goes, expanded = 0, True, []
        while first < len(pairs) and goes:
            size = int(min(MOST_AT_ONCE, max(1, PARTS * ASKED_AT_ONCE // self._asked_each)))
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
        moments, new = self.moments.number(keys)
        while len(new):
            size = max(1, int(ASKED_AT_ONCE // self._asked_each))
            self._expand(rows[new[:size]], policies[new[:size]])
            new = new[size:]
        return moments

    def _arrive(self, time: int, moment: Int32[np.ndarray, " moment"]) -> None:
        """Add the pairs of a time that moments lead to."""
        layer, position = self.layers[time], self.position(time)
        known = len(layer.landing)
        landings = np.zeros(self.landings.count, np.int32)
        landings[:known] = layer.landing
        count, distinct = known, np.unique(moment)
        for human in range(len(self.question.spec.humans)):
            steps = self.moments.steps(human)
            actions = self.question.num_actions
            count = arrive(steps, actions, distinct, position, landings, count)
        layer.extend(landings[known:count])

    def _expand(
        self,
        rows: Shaped[np.ndarray, "state word"],
        policies: Int32[np.ndarray, "state policy_word"],
    ) -> None:
        """Add the moments of some states with some policies, and where they lead."""
        humans = range(len(self.question.spec.humans))
        robot = self.policies.robot[policies[:, 0]]
        human = [self.policies.human(each)[policies[:, 1 + each]] for each in humans]
        marginal = np.stack([
            self.policies.marginal(each, policies[:, 1 + each]) for each in humans
        ])  # fmt: skip
        asked = self._possible(robot, human, marginal)
        self._asked_each = max(1.0, float(asked.sum(1).mean()))
        found, is_all = self._ask(rows, asked)
        first = np.concatenate([[0], asked.sum(1).cumsum()]).astype(np.int64)
        offsets, index = _chosen_items(found, is_all, asked)
        duration = None if found.duration is None else found.duration.double().numpy()
        self.is_timed |= duration is not None
        batch = Batch(
            first,
            np.nonzero(asked)[1],
            offsets,
            index,
            found.prob.double().numpy(),
            self.landings.number(self.states.number(found.states.numpy()), duration),
            robot,
            marginal,
            self._joint_robot,
            self._joint_action,
        )
        condensed = self._condense(batch, rows)
        self.moments.extend(condensed)
        self.transitions += int(condensed.items.sum())

    def _possible(
        self,
        robot: Float64[np.ndarray, "state robot_action"],
        humans: Sequence[Float64[np.ndarray, "state _goal action"]],
        marginal: Float64[np.ndarray, "human state action"],
    ) -> Bool[np.ndarray, "state joint"]:
        """Joint actions that matter: all but one human act on average, that one for any goal."""
        likely = [
            marginal[human][:, self._joint_action[human]] > 0 for human in range(len(marginal))
        ]
        possible = np.zeros((len(robot), len(self._joint_robot)), np.bool_)
        for human, policy in enumerate(humans):
            acts: Bool[np.ndarray, "state action"] = np.any(policy > 0, axis=1)
            mine = acts[:, self._joint_action[human]]
            for other, chance in enumerate(likely):
                if other != human:
                    mine = mine & chance
            possible |= mine
        return possible & (robot[:, self._joint_robot] > 0)

    def _ask(
        self, rows: Shaped[np.ndarray, "state word"], asked: Bool[np.ndarray, "state joint"]
    ) -> tuple[Expansion, bool]:
        """Successors under the joint actions; True where the answer is about all of them."""
        world, states = self.question.world, torch.from_numpy(rows)
        if asked.mean() >= SHARE_OF_ALL:
            if isinstance(world, Expandable):
                return world.expand(states), True
            return Expansion.of(world.transitions(states)), True
        state, joint = np.nonzero(asked)
        actions = torch.from_numpy(self._actions[joint])
        return Expansion.of(world.transitions(states[torch.from_numpy(state)], actions)), False

    def _condense(self, batch: Batch, rows: Shaped[np.ndarray, "state word"]) -> Condensed:
        humans, pairs, landings = len(self._joint_action), len(batch.robot), self.landings.count
        actions = self.question.num_actions
        each = batch.offsets[batch.first]
        slots = int(np.diff(each).max(initial=1))
        if len(self._scratch.place) < landings or self._scratch.dense.shape[2] < slots:
            self._scratch = Scratch(
                np.full(2 * landings, -1, np.int32),
                np.zeros(2 * slots, np.int32),
                np.zeros((humans, actions, 2 * slots)),
            )
        room = int(each[-1])
        out = Condensed(
            np.zeros((humans, pairs * actions + 1), np.int64),
            np.zeros((humans, room), np.int32),
            np.zeros((humans, room)),
            np.zeros(pairs, np.int64),
        )
        wrong = condense(batch, out, self._scratch)
        if wrong != DONE:
            self._refuse(batch, wrong, rows)
        return out

    def _refuse(self, batch: Batch, asked: int, rows: Shaped[np.ndarray, "state word"]) -> None:
        """Say what is wrong with a joint action that is taken."""
        spec = self.question.spec
        pair = int(np.searchsorted(batch.first, asked, side="right")) - 1
        actions = self._actions[batch.joint[asked]].tolist()
        names = ", ".join(
            f"{agent.name}: {agent.actions[action]}"
            for agent, action in zip(spec.agents, actions, strict=True)
        )
        row = torch.from_numpy(rows[pair])
        where = f"The state is:\n{self.question.world.describe(row)}"
        items = slice(int(batch.offsets[asked]), int(batch.offsets[asked + 1]))
        if items.start == items.stop:
            available = self.question.world.available(row[None])[0].numpy()
            culprit = next(
                (a for a, action in enumerate(actions) if not available[a, action]), None
            )
            who = "an agent" if culprit is None else spec.agents[culprit].name
            raise SolveError(
                f"{who} acts in a way that is not available in a state of {spec.name!r} ({names}). "
                f"The policy was made for another world, or has a bug. {where}"
            )
        total = float(batch.prob[batch.outcome[items]].sum())
        raise SolveError(
            f"the successors of one state under ({names}) have probabilities that sum to "
            f"{total!r}, not 1. Correct the world model. {where}"
        )


def _mixed(
    question: Question, agents: tuple[int, ...], joint: Int64[np.ndarray, " joint"]
) -> Int64[np.ndarray, " joint"]:
    """The index of some agents' joint action in each joint action of all; the first is fastest."""
    spec, mixed, stride = question.spec, np.zeros_like(joint), 1
    for agent in agents:
        mixed += joint // spec.strides[agent] % spec.num_actions[agent] * stride
        stride *= spec.num_actions[agent]
    return mixed


def _chosen_items(
    found: Expansion, is_all: bool, asked: Bool[np.ndarray, "state joint"]
) -> tuple[Int64[np.ndarray, " offset"], Int64[np.ndarray, " item"]]:
    """Offsets and outcomes of the items of the joint actions that were asked about."""
    offsets, index = found.offsets.long().numpy(), found.index.long().numpy()
    if not is_all or asked.all():
        return offsets, index
    chosen = np.flatnonzero(asked)
    counts = np.diff(offsets)[chosen]
    kept = np.concatenate([[0], counts.cumsum()])
    items = np.arange(kept[-1]) + np.repeat(offsets[chosen] - kept[:-1], counts)
    return kept, index[items]
