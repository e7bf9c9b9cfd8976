"""Moments: states together with everybody's policies there, and the transitions that follow.

Pairs of the same state at different times share a moment where all policies are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64, Shaped, UInt8

from empo_bounds.growth import Grown
from empo_bounds.kernels import Condensed, Steps
from empo_bounds.question import Question
from empo_worlds.contract import achieved_in, available_in
from empo_worlds.row_table import RowTable, distinct


class StateTable:
    """States of any time, each once, with the goals that they attain and whether one goes on."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._dtype = question.world.initial_state().numpy().dtype
        self._table = RowTable(question.spec.state_words, self._dtype)
        self._achieved = Grown(np.uint8, len(question.order))
        self._alive = Grown(np.bool_)

    @property
    def rows(self) -> Shaped[np.ndarray, "state word"]:
        """All states."""
        return self._table.rows

    @property
    def achieved(self) -> UInt8[np.ndarray, "state goal"]:
        """1 where a state belongs to a goal, goals human by human."""
        return self._achieved.array

    @property
    def alive(self) -> Bool[np.ndarray, " state"]:
        """False where a state is terminal."""
        return self._alive.array

    def number(self, rows: Shaped[np.ndarray, "state word"]) -> Int32[np.ndarray, " state"]:
        """The number of each state; new ones are looked at."""
        numbers = self._table.find(rows)
        if (numbers < 0).any():
            new = distinct(rows[numbers < 0].astype(self._dtype))
            # States are entered once the world has told all about them: it may raise.
            states, world = torch.from_numpy(np.ascontiguousarray(new)), self._question.world
            achieved = achieved_in(world, states).numpy()[:, self._question.order]
            alive = available_in(world, states).flatten(1).any(1).numpy()
            self._achieved.extend(achieved)
            self._alive.extend(alive)
            self._table.number(new)
            numbers = self._table.find(rows)
        return numbers


class LandingTable:
    """States together with how long it took to reach them, each once."""

    def __init__(self) -> None:
        self._durations = RowTable(1, np.dtype(np.float64))
        self._table = RowTable(2, np.dtype(np.int32))

    @property
    def count(self) -> int:
        """Number of landings."""
        return self._table.count

    @property
    def state(self) -> Int32[np.ndarray, " landing"]:
        """State of each landing."""
        return np.ascontiguousarray(self._table.rows[:, 0])

    def duration(self, landing: Int32[np.ndarray, " chosen"]) -> np.ndarray:
        """Duration of the transitions that lead to some landings [chosen]."""
        duration: np.ndarray = self._durations.rows[self._table.rows[landing, 1], 0]
        return duration

    def number(
        self, state: Int32[np.ndarray, " outcome"], duration: np.ndarray | None
    ) -> Int32[np.ndarray, " outcome"]:
        """The number of each landing; durations are 1 where None is given."""
        times = np.ones((len(state), 1)) if duration is None else duration[:, None]
        return self._table.number(np.stack([state, self._durations.number(times)], 1))


class MomentTable:
    """Moments that were expanded, and their condensed transitions for each human."""

    def __init__(self, humans: int, actions: int) -> None:
        # State, policies of the robots and of each human.
        self._keys = RowTable(2 + humans, np.dtype(np.int32))
        self._offsets = [Grown(np.int64) for _ in range(humans)]
        for offsets in self._offsets:
            offsets.extend(np.zeros(1, np.int64))
        self._landing = [Grown(np.int32) for _ in range(humans)]
        self._weight = [Grown(np.float64) for _ in range(humans)]
        self._items = Grown(np.int64)
        self._actions = actions

    @property
    def keys(self) -> Int32[np.ndarray, "moment key_word"]:
        """State, row of the robots' policy and of each human's policy in their tables."""
        return np.ascontiguousarray(self._keys.rows)

    @property
    def items(self) -> Int64[np.ndarray, " moment"]:
        """Number of transitions that are summed up in each moment."""
        return self._items.array

    def find(
        self, keys: Int32[np.ndarray, "pair key_word"]
    ) -> tuple[Int32[np.ndarray, " pair"], Int64[np.ndarray, " new"]]:
        """The moment of each pair, -1 where it is new; and the first pairs of these, in order."""
        moments = self._keys.find(keys)
        new = np.flatnonzero(moments < 0)
        fresh = RowTable(keys.shape[1], keys.dtype)
        _, first = np.unique(fresh.number(keys[new]), return_index=True)
        return moments, new[first]

    def extend(self, keys: Int32[np.ndarray, "new key_word"], condensed: Condensed) -> None:
        """Add moments that are not there, with their transitions."""
        self._keys.number(keys)
        for human, (offsets, landing, weight) in enumerate(
            zip(self._offsets, self._landing, self._weight, strict=True)
        ):
            used = int(condensed.offsets[human, -1])
            offsets.extend(len(landing) + condensed.offsets[human, 1:])
            landing.extend(condensed.landing[human, :used])
            weight.extend(condensed.weight[human, :used])
        self._items.extend(condensed.items)

    def steps(self, human: int) -> Steps:
        """The transitions of a human (position in ``spec.humans``) as kernels read them."""
        return Steps(
            self._offsets[human].array,
            self._landing[human].array,
            self._weight[human].array,
            np.ascontiguousarray(self._keys.rows[:, 2 + human]),
        )

    @property
    def entries(self) -> Int64[np.ndarray, " moment"]:
        """The most entries that a human has in each moment."""
        counts = [np.diff(offsets.array[:: self._actions]) for offsets in self._offsets]
        largest: Int64[np.ndarray, " moment"] = np.max(counts, axis=0)
        return largest


@dataclass
class Layer:
    """The pairs of one time.

    Attributes:
        landing: Where each pair was reached [pair].
        moment: Its moment; -1 where it was not expanded [pair].
    """

    landing: Int32[np.ndarray, " pair"]
    moment: Int32[np.ndarray, " pair"]

    @property
    def expanded(self) -> Bool[np.ndarray, " pair"]:
        """Pairs that were expanded."""
        return self.moment >= 0

    def extend(self, landing: Int32[np.ndarray, " new"]) -> None:
        """Add pairs."""
        self.landing = np.concatenate([self.landing, landing])
        missing = np.full(len(landing), -1, np.int32)
        self.moment = np.concatenate([self.moment, missing])
