"""Pairs and policies as a certificate's arrays have them, and whether they can be that at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64

from empo_bounds.assumptions import Assumptions
from empo_bounds.question import Question
from empo_core.errors import WorldError

VALUES = tuple(f"{name}_{side}" for name in ("x_h", "lack", "loss") for side in ("low", "high"))
"""Arrays that a certificate has all of or none of."""


class Contradiction(Exception):
    """A record that contradicts itself, the world, or what is claimed."""


@dataclass(frozen=True)
class Recorded:
    """Pairs, policies and claims.

    Attributes:
        question: The world and the theory.
        arrays: Arrays by name; see ``certificate.arrays_of``.
        assumed: Claims about what was not expanded.
        is_timed: Whether durations other than 1 are allowed for where nothing was expanded.
    """

    question: Question
    arrays: Mapping[str, np.ndarray]
    assumed: Assumptions
    is_timed: bool

    @property
    def times(self) -> int:
        """Number of times."""
        return len(self.arrays["first_pair"]) - 1

    def pairs(self, time: int) -> range:
        """The pairs of a time."""
        first = self.arrays["first_pair"]
        return range(int(first[time]), int(first[time + 1]))

    @cached_property
    def time_of(self) -> Int64[np.ndarray, " pair"]:
        """Time of each pair."""
        time: Int64[np.ndarray, " pair"]
        time = np.repeat(np.arange(self.times), np.diff(self.arrays["first_pair"]))
        return time

    @cached_property
    def expanded(self) -> Bool[np.ndarray, " pair"]:
        """Pairs that were expanded."""
        is_expanded: Bool[np.ndarray, " pair"] = self.arrays["pair_moment"] >= 0
        return is_expanded

    @cached_property
    def goes_on(self) -> Bool[np.ndarray, " pair"]:
        """Pairs from which episodes go on."""
        states = torch.from_numpy(self.arrays["states"].copy())
        alive = self.question.world.available(states).flatten(1).any(1).numpy()
        pair_state = self.arrays["landing_state"][self.arrays["pair_landing"]]
        goes_on: Bool[np.ndarray, " pair"]
        goes_on = alive[pair_state] & (self.time_of != self.question.spec.horizon)
        return goes_on

    def states(self, pairs: Int64[np.ndarray, " pair"]) -> torch.Tensor:
        """The state rows of some pairs [pair word]."""
        landing = self.arrays["pair_landing"][pairs]
        return torch.from_numpy(self.arrays["states"][self.arrays["landing_state"][landing]])

    def robot_policy(
        self, pairs: Int64[np.ndarray, " pair"]
    ) -> Float64[np.ndarray, "pair robot_action"]:
        """The joint policy of the robots in pairs that were expanded."""
        moments = self.arrays["moments"][self.arrays["pair_moment"][pairs]]
        policy: Float64[np.ndarray, "pair robot_action"]
        policy = self.arrays["robot_policy"][moments[:, 1]]
        return policy

    def human_policy(
        self, pairs: Int64[np.ndarray, " pair"]
    ) -> Float64[np.ndarray, "pair goal action"]:
        """The policies of each goal's human in pairs that were expanded."""
        moments = self.arrays["moments"][self.arrays["pair_moment"][pairs]]
        of_humans = [
            self.arrays[f"human_policy_{human}"][moments[:, 2 + human]]
            for human in range(len(self.question.goals))
        ]
        return np.concatenate(of_humans, 1)[:, np.argsort(self.question.order)]

    def require_sense(self) -> None:
        """Refuse arrays in which some pair is not what it is said to be.

        Raises:
            Contradiction: if a pair is not what it is said to be.
        """
        self._require_form()
        self._require_ranges()
        self._require_states()
        arrays, spec = self.arrays, self.question.spec
        state = arrays["landing_state"][arrays["pair_landing"]]
        start = self.question.world.initial_state().tolist()
        if arrays["states"][state[0]].tolist() != start:
            raise Contradiction("it begins in another state than this run's world")
        expanded, goes_on, time = self.expanded, self.goes_on, self.time_of
        _refuse(expanded & ~goes_on, "pair {} was expanded, where all episodes end")
        is_of_state = np.zeros(len(state), np.bool_)
        is_of_state[expanded] = (
            arrays["moments"][arrays["pair_moment"][expanded], 0] == state[expanded]
        )
        _refuse(expanded & ~is_of_state, "pair {} has the transitions of another state")
        if self.assumed.never_ends_early:
            early = ~goes_on & (time != spec.horizon)
            _refuse(early, "an episode may end early in pair {}, and it says that none does")
        if not self.is_timed:
            took = arrays["landing_duration"] != 1.0
            _refuse(took, "landing {} takes another time than 1, and it says that none does")

    def _require_states(self) -> None:
        """Refuse rows that are no states."""
        world, states = self.question.world, torch.from_numpy(self.arrays["states"].copy())
        try:
            world.available(states)
            world.achieved(states)
        except (WorldError, IndexError) as error:
            raise Contradiction(f"not all of its states are those of a world: {error}") from error

    def _require_form(self) -> None:
        """Refuse arrays that are missing, or of another kind or shape."""
        arrays, expected = self.arrays, self._expected()
        missing = sorted(expected.keys() - arrays.keys())
        if set(missing) == set(VALUES):
            missing = []
        surplus = sorted(arrays.keys() - expected.keys())
        if missing or surplus:
            problem = f"{missing[0]} is missing" if missing else f"{surplus[0]} is none of them"
            raise Contradiction(f"of its arrays, {problem}")
        for name, array in arrays.items():
            dtype, shape = expected[name]
            if array.dtype != dtype:
                raise Contradiction(f"array {name} is of {array.dtype}, not of {dtype}")
            if array.shape != shape:
                raise Contradiction(
                    f"array {name} has the shape {list(array.shape)}, and {list(shape)} belongs "
                    "there"
                )

    def _expected(self) -> dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]]:
        """Kind and shape of every array; those of which some have as many as others."""
        question, arrays = self.question, self.arrays
        spec, humans = question.spec, len(question.spec.humans)

        def count(name: str) -> int:
            return len(arrays[name]) if name in arrays and arrays[name].ndim else 0

        long, whole, real = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.float64)
        landings, pairs = count("landing_state"), count("pair_landing")
        shapes: dict[str, tuple[np.dtype[np.generic], tuple[int, ...]]] = {
            "states": (
                question.world.initial_state().numpy().dtype,
                (count("states"), spec.state_words),
            ),
            "landing_state": (whole, (landings,)),
            "landing_duration": (real, (landings,)),
            "moments": (whole, (count("moments"), 2 + humans)),
            "pair_landing": (whole, (pairs,)),
            "pair_moment": (whole, (pairs,)),
            "first_pair": (long, (count("first_pair"),)),
            "robot_policy": (real, (count("robot_policy"), spec.num_robot_actions)),
        }
        for human, goals in enumerate(question.goals):
            name = f"human_policy_{human}"
            shapes[name] = (real, (count(name), len(goals), question.num_actions))
        return shapes | {
            name: (real, (pairs, humans) if name.startswith("x_h") else (pairs,)) for name in VALUES
        }

    def _require_ranges(self) -> None:
        """Refuse numbers that point to nothing, and pairs that belong to no time."""
        arrays, horizon = self.arrays, self.question.spec.horizon
        moments = arrays["moments"]
        pointers = [
            ("landing_state", arrays["landing_state"], 0, "states"),
            ("pair_landing", arrays["pair_landing"], 0, "landing_state"),
            ("pair_moment", arrays["pair_moment"], -1, "moments"),
            ("moments", moments[:, 0], 0, "states"),
            ("moments", moments[:, 1], 0, "robot_policy"),
        ]
        pointers += [
            ("moments", moments[:, 2 + human], 0, f"human_policy_{human}")
            for human in range(moments.shape[1] - 2)
        ]
        for name, array, minimum, to in pointers:
            wrong = (array < minimum) | (array >= len(arrays[to]))
            _refuse(wrong, f"entry {{}} of {name} points to nothing in {to}")
        duration, first = arrays["landing_duration"], arrays["first_pair"]
        _refuse(~((duration > 0) & (duration < np.inf)), "landing {} takes no positive time")
        counts = np.diff(first)
        fits = len(first) > 1 and first[0] == 0 and first[-1] == len(arrays["pair_landing"])
        if not fits or (counts < 0).any() or counts[0] != 1:
            raise Contradiction("its pairs do not begin with one at the start, time by time")
        if horizon is not None and len(counts) > horizon + 1:
            raise Contradiction(f"it has {len(counts)} times, and episodes end at {horizon}")


def _refuse(wrong: Bool[np.ndarray, " entry"], message: str) -> None:
    if wrong.any():
        raise Contradiction(message.format(int(np.flatnonzero(wrong)[0])))
