"""Policies as they are certified: read once, checked, rescaled to sum to 1, and kept as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int32, Int64, Shaped
from torch import Tensor

from empo_bounds.growth import Grown
from empo_bounds.question import Question
from empo_bounds.round_off import SMALLEST
from empo_core.errors import SolveError
from empo_worlds.policy_checks import human_policy, robot_policy
from empo_worlds.row_table import RowTable

UNKNOWN = -1
NO_TEST, ONCE, AT_THE_END = range(3)
DRAWN = 64
"""States, drawn at random, in which a policy that should not depend on time is asked once more."""
SEED = 20_231
"""Seeds the draws."""
AT_ONCE = 4096
"""States that policies are asked about at a time."""


@runtime_checkable
class Stationary(Protocol):
    """A robot policy or human prior that may say that it is the same at all times; optional."""

    @property
    def is_stationary(self) -> bool:
        """True if it never depends on how many steps are left."""


class PolicyTable:
    """Distinct policies of the robots or of one human, numbered; many states share one."""

    def __init__(self, words: int) -> None:
        self._table = RowTable(words, np.dtype(np.float64))

    @property
    def rows(self) -> Float64[np.ndarray, "policy word"]:
        """All policies."""
        return np.ascontiguousarray(self._table.rows)

    def number(self, policies: Float64[np.ndarray, "state word"]) -> Int32[np.ndarray, " state"]:
        """The row of each policy."""
        return self._table.number(policies + 0.0)  # Which makes -0 equal to 0.


class PolicyTables:
    """Policies of the robots and of all humans in the pairs that were asked about."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._robot = PolicyTable(question.spec.num_robot_actions)
        self._human = [PolicyTable(len(goals) * question.num_actions) for goals in question.goals]
        # Without a horizon there is one answer in each state: none of them depends on time.
        has_times = question.spec.horizon is not None
        robots, humans = (
            not has_times or _is_stationary(policy) for policy in (question.robots, question.humans)
        )
        self._robots = _Numbers(1, robots, has_times)
        self._humans = _Numbers(len(self._human), humans, has_times)

    @property
    def robot(self) -> Float64[np.ndarray, "policy robot_action"]:
        """The robots' policies, jointly."""
        policy: Float64[np.ndarray, "policy robot_action"] = self._robot.rows
        return policy

    def human(self, human: int) -> Float64[np.ndarray, "policy goal action"]:
        """Policies of a human (position in ``spec.humans``) for each of its goals."""
        shape = (-1, len(self._question.goals[human]), self._question.num_actions)
        policy: Float64[np.ndarray, "policy goal action"] = self._human[human].rows.reshape(shape)
        return policy

    def marginal(
        self, human: int, chosen: Int32[np.ndarray, " policy"] | None = None
    ) -> Float64[np.ndarray, "policy action"]:
        """The policies of a human averaged over its goals, as computed; positive where they are.

        Args:
            human: Its position in ``spec.humans``.
            chosen: The rows that are asked for; None: all.
        """
        weight, policies = self._question.weights[human], self.human(human)
        policies = policies if chosen is None else policies[chosen]
        mixed: Float64[np.ndarray, "policy action"]
        mixed = np.einsum("g,sga->sa", weight, policies)
        mixed /= weight.sum()
        possible = (policies[:, weight > 0] > 0).any(1)
        mixed = np.maximum(mixed, SMALLEST * possible)
        return mixed

    def numbers(
        self,
        state: Int32[np.ndarray, " state"],
        rows: Shaped[np.ndarray, "state word"],
        steps_left: int,
    ) -> Int32[np.ndarray, "state policy_word"]:
        """The rows of the tables that hold the policies in some states that are not terminal.

        Args:
            state: Numbers of the states; one may come several times, after several durations.
            rows: Their rows.
            steps_left: Steps left in all of them.

        Returns:
            That of the robots' policy, then that of each human's.

        Raises:
            SolveError: if a policy says something that is no probability distribution, or is not
                the same at all times although it says so.
        """
        return np.concatenate(
            [
                self._robots.of(state, rows, steps_left, self._of_robots),
                self._humans.of(state, rows, steps_left, self._of_humans),
            ],
            1,
        )

    def _of_robots(self, states: Tensor, steps_left: int) -> Int32[np.ndarray, "state policy_word"]:
        question = self._question
        table = robot_policy(question.world, question.robots, states, steps_left).numpy()
        return self._robot.number(table / table.sum(-1, keepdims=True))[:, None]

    def _of_humans(self, states: Tensor, steps_left: int) -> Int32[np.ndarray, "state policy_word"]:
        policies = human_policies(self._question, states, steps_left)
        numbers = [
            table.number(policy.reshape(len(policy), -1))
            for table, policy in zip(self._human, policies, strict=True)
        ]
        return np.stack(numbers, 1)


def human_policies(
    question: Question, states: Tensor, steps_left: int
) -> list[Float64[np.ndarray, "state _goal action"]]:
    """Each human's policies for its goals, as they are certified.

    Args:
        question: The world and the humans.
        states: State rows.
        steps_left: Steps left in all of them.

    Raises:
        SolveError: if the prior says something that is no probability distribution, or was made for
            another world.
    """
    of_all = human_policy(question.world, question.humans, states, steps_left).numpy()
    policies = []
    for goals in question.goals:
        of_human = np.zeros((len(states), len(goals), question.num_actions))
        of_human[:, :, : of_all.shape[2]] = of_all[:, goals, : question.num_actions]
        of_human /= of_human.sum(-1, keepdims=True)
        policies.append(of_human)
    return policies


Ask = Callable[[Tensor, int], Int32[np.ndarray, "state policy_word"]]


class _Numbers:
    """Rows of tables by state; of policies that are the same at all times they are kept.

    Such a policy is asked again about every state: when the state comes a second time, and with
    one step left. In between some states are drawn.
    """

    def __init__(self, words: int, is_stationary: bool, has_times: bool) -> None:
        self._is_stationary, self._has_times = is_stationary, has_times
        self._random = np.random.default_rng(SEED)
        self._numbers = Grown(np.int32, words)
        self._tests = Grown(np.int8)

    def of(
        self,
        state: Int32[np.ndarray, " state"],
        rows: Shaped[np.ndarray, "state word"],
        steps_left: int,
        ask: Ask,
    ) -> Int32[np.ndarray, "state policy_word"]:
        """Rows of the tables in some states, as ``PolicyTables.numbers`` has them."""
        if not self._is_stationary:
            return _in_parts(rows, steps_left, ask)
        missing = int(state.max(initial=-1)) + 1 - len(self._numbers)
        if missing > 0:
            unknown = np.full((missing, self._numbers.array.shape[1]), UNKNOWN, np.int32)
            self._numbers.extend(unknown)
            self._tests.extend(np.full(missing, NO_TEST, np.int8))
        numbers, tests = self._numbers.array, self._tests.array
        is_new = numbers[state, 0] == UNKNOWN
        required_tests = AT_THE_END if steps_left == 1 else ONCE
        if self._has_times:
            again = ~is_new & (tests[state] < required_tests)
            others = np.flatnonzero(~is_new & ~again)
            again[self._random.permutation(others)[:DRAWN]] = True
            self._test(state, rows, np.flatnonzero(again), steps_left, ask)
            tests[state[again]] = required_tests
        if is_new.any():
            numbers[state[is_new]] = _in_parts(rows[is_new], steps_left, ask)
        state_numbers: Int32[np.ndarray, "state policy_word"] = numbers[state]
        return state_numbers

    def _test(
        self,
        state: Int32[np.ndarray, " state"],
        rows: Shaped[np.ndarray, "state word"],
        chosen: Int64[np.ndarray, " chosen"],
        steps_left: int,
        ask: Ask,
    ) -> None:
        """Refuse policies that differ from what they were with more steps left."""
        if len(chosen) == 0:
            return
        now = _in_parts(rows[chosen], steps_left, ask)
        if (now != self._numbers.array[state[chosen]]).any():
            raise SolveError(
                "a policy says that it is the same at all times (is_stationary), but it differs "
                f"from what it was before when {steps_left} steps are left. Correct the policy."
            )


def _in_parts(
    rows: Shaped[np.ndarray, "state word"], steps_left: int, ask: Ask
) -> Int32[np.ndarray, "state policy_word"]:
    parts = [
        ask(torch.from_numpy(rows[first : first + AT_ONCE]), steps_left)
        for first in range(0, len(rows), AT_ONCE)
    ]
    return np.concatenate(parts)


def _is_stationary(policy: object) -> bool:
    return isinstance(policy, Stationary) and policy.is_stationary
