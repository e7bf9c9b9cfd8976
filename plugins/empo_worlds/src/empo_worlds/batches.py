"""Expansion of many states at once by ``transitions_batch``, as arrays.

A model of ``empo_worlds.enumeration`` whose states are tuples of equally many integers may
have a method ``transitions_batch`` in place of ``transition_probabilities``: the same answers, an
order of magnitude sooner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from empo_core.errors import WorldError
from empo_worlds.expansion import SUM_TOLERANCE, Expander, Expansion

BATCH = 4096
"""States per call of ``transitions_batch``."""

PairNamer = Callable[[int], str]
"""Says in words which state and joint action a pair is."""


@dataclass(frozen=True, slots=True)
class PairItems:
    """Successors of a list of (state, joint action) pairs, pair by pair.

    Attributes:
        counts: Number of successors of each pair.
        items: What follows: positions in a list of distinct rows.
        prob: Probability of each.
        duration: Duration of each transition; None where each takes one step.
    """

    counts: Int[np.ndarray, " pair"]
    items: Int[np.ndarray, " item"]
    prob: Float[np.ndarray, " item"]
    duration: Float[np.ndarray, " item"] | None

    @property
    def pairs(self) -> Int[np.ndarray, " item"]:
        """The pair of each item."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def at(self, chosen: np.ndarray) -> PairItems:
        """Some of the items, ascending."""
        duration = None if self.duration is None else self.duration[chosen]
        counts = np.bincount(self.pairs[chosen], minlength=len(self.counts))
        return PairItems(counts, self.items[chosen], self.prob[chosen], duration)


class BatchExpander(Expander):
    """Expands lists of states by ``transitions_batch``."""

    def _expand(self, states: Sequence[Hashable], goes_on: bool) -> Expansion:
        if not goes_on:
            return super()._expand(states, goes_on)
        rows = self._rows(states)
        joint = self._spec.num_joint_actions
        ask: Any = self._batch
        answer = self._answer(lambda: "transitions_batch(...)", ask, rows)
        counts, successors, prob, duration = self._arrays(answer, len(rows) * joint, rows.shape[1])

        def name(pair: int) -> str:
            actions = self._all_joint_actions[pair % joint][1]
            return self._call(states[pair // joint], actions, "transitions_batch")

        pair_items = possible(PairItems(counts, np.arange(len(prob)), prob, duration), name)
        successors = successors[pair_items.items]
        first, items = number_rows(successors)
        pair_items = rescale(merge_equal(replace(pair_items, items=items), name), name)
        return Expansion(
            list(map(tuple, successors[first].tolist())),
            pair_items.items,
            pair_items.counts,
            pair_items.prob,
            pair_items.duration,
            self._availability(states, pair_items.counts, name),
            self._achieved(states),
        )

    @staticmethod
    def _rows(states: Sequence[Hashable]) -> Int[np.ndarray, "state word"]:
        try:
            rows = np.array(states)
        except ValueError:  # They have different lengths.
            rows = np.empty(0)
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            raise WorldError(
                f"transitions_batch needs states that are tuples of equally many integers; one is "
                f"{states[0]!r}"
            )
        return rows.astype(np.int64)

    def _arrays(
        self, answer: Any, pairs: int, words: int
    ) -> tuple[
        Int[np.ndarray, " pair"],
        Int[np.ndarray, "item word"],
        Float[np.ndarray, " item"],
        Float[np.ndarray, " item"] | None,
    ]:
        """The result of ``transitions_batch``, with the right shapes and types."""
        timed = self._durations is not None or (isinstance(answer, tuple) and len(answer) == 4)
        parts = "(counts, successors, prob, durations)" if timed else "(counts, successors, prob)"
        try:
            counts, successors, prob, *durations = (np.asarray(part) for part in answer)
            (duration,) = durations if timed else (None,)
        except (TypeError, ValueError) as error:
            raise WorldError(f"transitions_batch returned {answer!r:.200}, not {parts}") from error
        items = int(counts.sum()) if counts.dtype.kind in "iu" else -1
        shapes = [prob.shape, (items,) if duration is None else duration.shape]
        if (
            (counts.size, successors.shape, *shapes) != (pairs, (items, words), (items,), (items,))
            or successors.dtype.kind not in "iu"
            or prob.dtype.kind not in "fiu"
        ):
            raise WorldError(
                f"transitions_batch returned arrays of shapes {counts.shape}, {successors.shape} "
                f"and {prob.shape}; for {pairs} pairs of state and joint action it must return "
                f"integers {pairs}, integers [item, {words}] and numbers [item], where the counts "
                "sum to the number of items"
            )
        times = None if duration is None else duration.astype(np.float64)
        return counts.ravel(), successors.astype(np.int64), prob.astype(np.float64), times

    def _availability(
        self, states: Sequence[Hashable], counts: Int[np.ndarray, " pair"], name: PairNamer
    ) -> Bool[np.ndarray, "state agent action"]:
        """The available actions of each agent, checked against the pairs that have successors."""
        spec = self._spec
        possible = counts.reshape(len(states), -1) > 0
        alive = possible.any(1)
        available = np.zeros((len(states), len(spec.agents), max(spec.num_actions)), dtype=bool)
        expected = np.zeros_like(possible)
        if self._available is None:
            available[alive] = np.arange(available.shape[2]) < np.array(spec.num_actions)[:, None]
            expected[alive] = True
        else:
            for row in np.flatnonzero(alive).tolist():
                choices = self._choices(states[row])
                for agent, chosen in enumerate(choices):
                    available[row, agent, chosen] = True
                expected[row, [index for index, _ in self._joint_actions(choices)]] = True
        wrong = (possible != expected).ravel()
        if wrong.any():
            pair = int(wrong.argmax())
            quantity, verb = ("no", "are") if expected.ravel()[pair] else ("some", "are not")
            raise WorldError(
                f"{name(pair)} has {quantity} successors, but these actions {verb} available"
            )
        return available


def number_rows(
    rows: Int[np.ndarray, "item word"],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " item"]]:
    """The first position of each distinct row, and the index of each row's distinct row."""
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, first, index = np.unique(_row_keys(rows), return_index=True, return_inverse=True)
    order = first.argsort()
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[index]


def _row_keys(rows: Int[np.ndarray, "item word"]) -> Int[np.ndarray, " item"]:
    """A number for each row, the same for equal rows."""
    lowest = rows.min(0)
    sizes = [
        high - low + 1 for high, low in zip(rows.max(0).tolist(), lowest.tolist(), strict=True)
    ]
    if math.prod(sizes) >= 2**63:
        return np.unique(rows, axis=0, return_inverse=True)[1]
    strides = np.array([math.prod(sizes[:word]) for word in range(len(sizes))])
    keys: np.ndarray = ((rows - lowest) * strides).sum(1)
    return keys


def possible(pair_items: PairItems, name: PairNamer) -> PairItems:
    """The items whose probabilities are positive.

    Args:
        pair_items: Items as an author gave them.
        name: Says which pair is wrong.

    Raises:
        WorldError: if a probability is negative, infinite or NaN, or a duration is not positive and
            finite.
    """
    prob, duration = pair_items.prob, pair_items.duration
    _refuse(~((prob >= 0) & (prob < math.inf)), pair_items, prob, name, "a probability of {}")
    if duration is not None:
        wrong = ~((duration > 0) & (duration < math.inf))
        _refuse(wrong, pair_items, duration, name, "a duration of {}")
    return pair_items if pair_items.prob.all() else pair_items.at(pair_items.prob > 0)


def rescale(pair_items: PairItems, name: PairNamer) -> PairItems:
    """Items whose probabilities sum to 1 in each pair.

    Raises:
        WorldError: if the probabilities of a pair differ from a sum of 1 by more than
            ``SUM_TOLERANCE``.
    """
    total = precise_sums(pair_items.prob, pair_items.counts)
    wrong = (abs(total - 1) > SUM_TOLERANCE) & (pair_items.counts > 0)
    if wrong.any():
        pair = int(wrong.argmax())
        raise WorldError(f"{name(pair)}: the probabilities sum to {float(total[pair])!r}, not to 1")
    return replace(pair_items, prob=pair_items.prob / total[pair_items.pairs])


def _refuse(
    wrong: Bool[np.ndarray, " item"],
    pair_items: PairItems,
    numbers: Float[np.ndarray, " item"],
    name: PairNamer,
    description: str,
) -> None:
    if wrong.any():
        item = int(wrong.argmax())
        raise WorldError(
            f"{name(int(pair_items.pairs[item]))} gives {description.format(numbers[item])}"
        )


def merge_equal(pair_items: PairItems, name: PairNamer) -> PairItems:
    """Merge items of one pair that lead to the same state, at the place of the first.

    Raises:
        WorldError: if equal items of one pair have different durations.
    """
    if pair_items.counts.max(initial=0) <= 1:
        return pair_items
    key = pair_items.pairs * (pair_items.items.max() + 1) + pair_items.items
    first, index = number_rows(key[:, None])
    if len(first) == len(key):
        return pair_items
    if pair_items.duration is not None:
        clash = pair_items.duration != pair_items.duration[first[index]]
        description = "one state two durations, one {}"
        _refuse(clash, pair_items, pair_items.duration, name, description)
    prob = np.zeros(len(first))
    np.add.at(prob, index, pair_items.prob)  # One after the other, as the plain road adds them.
    return replace(pair_items.at(first), prob=prob)


def precise_sums(
    values: Float[np.ndarray, " item"], counts: Int[np.ndarray, " pair"]
) -> Float[np.ndarray, " pair"]:
    """The sum of each pair's items, as ``precise_sum`` computes it."""
    start = counts.cumsum() - counts
    total, lost = np.zeros(len(counts)), np.zeros(len(counts))
    for place in range(int(counts.max(initial=0))):
        longer = counts > place
        value, before = values[start[longer] + place], total[longer]
        after = before + value
        part = after - before
        lost[longer] += (before - (after - part)) + (value - part)
        total[longer] = after
    return total + lost
