"""A least power that is proved of all states, or taken from a run's solution.

A human that is somewhere, and can stay there, has power if being there is a goal. That needs no
values, only what one step may lead to:

**Claim.** Let ``S`` hold the start and, with a state in which an episode goes on, all its
successors under all joint actions. For a human ``h``, a state ``s`` of ``S`` from which episodes go
on, an action ``a`` and a goal ``g`` let ``m(s, a, g)`` be the least probability, over what all
others may do, that the next state is in ``g``. Then at every time at which ``s`` may be met

    X_h(s, t) >= sum_g f_g (sum_a pi_h(a | s, t, g) m(s, a, g)) ^ zeta

whatever the robots do; ``f_g`` is the weight of a goal, or 1.

**Proof.** By equation (6), V_h^e(s, t, g) is an average, over everybody's actions and where these
lead, of 1 where the next state is in ``g``, and else of a discounted V_h^e, which is at least 0.
Leave out the latter. What remains is the average over ``a`` of the probability that the next state
is in ``g``, and that is an average over what all others do of numbers that are at least
``m(s, a, g)``. Equation (7) is increasing. Every state of an episode is in ``S``.

So the least right-hand side, over ``S``, times and humans, is a lower bound of everybody's X_h
wherever a step is left. Where goals cover the states of ``S`` and a human whose goal is achieved
stays in it, as exact humans do whose first action is to stand still, it is the least weight of a
goal, or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float64, Shaped

from empo_bounds.policy_tables import human_policies
from empo_bounds.power import power_bounds
from empo_bounds.question import Question
from empo_bounds.round_off import Bounds, down
from empo_core.errors import EmpoError
from empo_theory.solved_world import SolvedWorld
from empo_worlds.row_table import RowTable
from empo_worlds.samples import joint_actions
from empo_worlds.signatures import expansion

ASKED_AT_ONCE = 1 << 14
"""Joint actions of states that are looked at together: bounds the memory in flight."""
MOST_STATES, MOST_ITEMS, MOST_CHANCES = 1 << 20, 1 << 24, 1 << 29
"""States, their transitions, and chances of actions at all times, beyond which nothing is proved:
half a minute's work."""
ROUNDED = 1e-9
"""Share by which X_h of a solution may be too large by rounding, generously."""


class Proof(NamedTuple):
    """A least power of everybody in all states that can be reached.

    Attributes:
        min_power: The bound.
        states: In how many states it is proved.
    """

    min_power: float
    states: int


def prove(question: Question, goes_on: Callable[[], bool]) -> Proof | None:
    """The least power that follows from single steps; None where that is 0, or too much work.

    Args:
        question: The world and the humans.
        goes_on: False ends the search.
    """
    search, min_power = _Search(question), np.inf
    for time, rows in search.layers():
        if not goes_on():
            return None
        step = search.step(rows)
        if step is None:
            return None
        min_power = min(min_power, search.least_power(rows, step, time))
        if not min_power > 0:
            return None
    return Proof(min_power, search.table.count) if np.isfinite(min_power) else None


def solved_power(question: Question, solution: SolvedWorld) -> float | None:
    """The least X_h of a solution, over all states and times; None where that is 0 or not kept."""
    horizon, min_power = question.spec.horizon, np.inf
    try:
        for left in range(1, (horizon or 1) + 1):
            states = solution.reachable_states(left)
            if len(states):
                v_e = solution.goal_values(states, left).numpy()[:, question.order]
                min_power = min(
                    min_power, float(power_bounds(question, Bounds(v_e, v_e)).low.min())
                )
    except EmpoError:
        return None
    min_power *= 1.0 - ROUNDED
    return min_power if 0 < min_power < np.inf else None


@dataclass(frozen=True)
class _Step:
    """What one step may lead to.

    Attributes:
        reaches: Least probability, over what others do, to reach each goal, goals human by human;
            0 where its human cannot act so [state action goal].
        operations: Operations behind these, at most.
    """

    reaches: Float64[np.ndarray, "state action goal"]
    operations: int


class _Search:
    """All states that can be reached, by breadth-first search.

    Attributes:
        table: The states that were met.
    """

    def __init__(self, question: Question) -> None:
        start = question.world.initial_state().numpy()[None]
        self._question = question
        self.table = RowTable(question.spec.state_words, start.dtype)
        self.table.number(start)
        self._actions = joint_actions(question.spec).numpy()
        self._items = self._chances = 0

    def layers(self) -> Iterator[tuple[int, Shaped[np.ndarray, "state word"]]]:
        """States from which episodes go on, a few at a time, each with the first time it is met."""
        world, horizon, time, done = self._question.world, self._question.spec.horizon, 0, 0
        size = max(1, ASKED_AT_ONCE // len(self._actions))
        while done < self.table.count and time != horizon:
            num_states = self.table.count
            for first in range(done, num_states, size):
                rows = np.ascontiguousarray(self.table.rows[first : min(first + size, num_states)])
                alive = world.available(torch.from_numpy(rows)).flatten(1).any(1).numpy()
                if alive.any():
                    yield time, np.ascontiguousarray(rows[alive])
            done, time = num_states, time + 1

    def step(self, rows: Shaped[np.ndarray, "state word"]) -> _Step | None:
        """What one step leads to from some states; None where that is too much."""
        question = self._question
        world, states = question.world, torch.from_numpy(rows)
        successors = expansion(world, states)
        self.table.number(successors.states.numpy())
        self._items += len(successors.index)
        if self.table.count > MOST_STATES or self._items > MOST_ITEMS:
            return None
        counts = successors.offsets.long().diff()
        pair = torch.repeat_interleave(torch.arange(len(counts)), counts)
        index = successors.index.long()
        achieved = world.achieved(successors.states)[:, question.order].double()
        share = successors.prob.double()[index, None] * achieved[index]
        goals = achieved.shape[1]
        total = torch.zeros(len(counts), goals).double().index_add_(0, pair, share)
        shape = (len(rows), len(self._actions))
        possible = (counts > 0).view(shape).numpy()
        reaches = self._worst(total.view(*shape, goals).numpy(), possible)
        return _Step(reaches, int(counts.max()) + self._fixed)

    @property
    def _fixed(self) -> int:
        """Operations beside those of sums over outcomes; policies sum to 1 up to rounding."""
        spec = self._question.spec
        chances = spec.num_robot_actions + sum(spec.num_actions[human] for human in spec.humans)
        return self._question.sum_operations + self._question.num_actions + chances

    def _worst(
        self,
        total: Float64[np.ndarray, "state joint goal"],
        possible: Bool[np.ndarray, "state joint"],
    ) -> Float64[np.ndarray, "state action goal"]:
        """The least probability to reach each goal by each action of its human."""
        question = self._question
        total = np.where(possible[:, :, None], total, np.inf)
        worst = np.zeros((len(total), question.num_actions, total.shape[2]))
        for position, human in enumerate(question.spec.humans):
            goals = slice(*question.first_goal[position : position + 2])
            for action in range(question.spec.num_actions[human]):
                with_action = self._actions[:, human] == action
                worst[:, action, goals] = total[:, with_action, goals].min(1)
        return np.where(np.isfinite(worst), worst, 0.0)

    def least_power(
        self, rows: Shaped[np.ndarray, "state word"], step: _Step, first_time: int
    ) -> float:
        """The least X_h that follows in some states, at all times from the first one on."""
        question, horizon, min_power = self._question, self._question.spec.horizon, np.inf
        lefts = [1] if horizon is None else range(1, horizon - first_time + 1)
        self._chances += len(rows) * len(lefts) * question.num_actions * len(question.order)
        if self._chances > MOST_CHANCES:
            return 0.0
        for left in lefts:
            chances = np.concatenate(human_policies(question, torch.from_numpy(rows), left), 1)
            v_e = down(np.einsum("sga,sag->sg", chances, step.reaches), step.operations)
            min_power = min(min_power, float(power_bounds(question, Bounds(v_e, v_e)).low.min()))
            if not min_power > 0:
                break
        return min_power
