"""What became of the episodes: returns, lengths, and why they ended."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from empo_core.protocols import EpisodeTracker, Tracker
from empo_core.protocols.environments import EnvSpec, TimeStep
from empo_learning.distributed import Group

WINDOW = 100
"""How many of the newest episodes averages are about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What became of episodes, in all processes together.

    Attributes:
        completed: How many ended.
        mean_return: Of the newest; None before any.
        mean_length: Likewise.
        reasons: How many ended for each reason.
    """

    completed: int
    mean_return: float | None
    mean_length: float | None
    reasons: dict[str, int]

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers."""
        if self.mean_return is None or self.mean_length is None:
            return {}
        return {
            "episode/return_mean": self.mean_return,
            "episode/length_mean": self.mean_length,
            "episode/completed": float(self.completed),
        }


class Episodes:
    """Adds up the rewards of each slot until its episode ends, and tells trackers.

    Attributes:
        completed: Episodes so far.
        returns: Sum of rewards of each of the newest episodes.
        lengths: Steps of each of the newest episodes.
        reasons: How many episodes ended for each reason of the env_spec; a ``record`` has these
            numbers for all processes.
    """

    def __init__(self, env_spec: EnvSpec, tracker: Tracker | None = None) -> None:
        """Begin with no episode.

        Args:
            env_spec: Of the environments.
            tracker: Is told of every step, if it follows episodes.
        """
        slots = env_spec.num_agents
        self._spec = env_spec
        self._tracker = tracker if isinstance(tracker, EpisodeTracker) else None
        self._return = np.zeros(slots)
        self._length = np.zeros(slots, np.int64)
        self.completed = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.reasons = np.zeros(len(env_spec.reasons), np.int64)
        if self._tracker is not None:
            self._tracker.follow(slots, env_spec.reasons)

    def observe(self, arrival: TimeStep, acted: Bool[np.ndarray, " slot"]) -> None:
        """Count what a block's previous actions led to; ``acted`` says which were actions."""
        slots = self._spec.agents_of(arrival.block)
        done = acted & (arrival.terminated | arrival.truncated)
        self._return[slots] += np.where(acted, arrival.reward, 0)
        self._length[slots] += acted
        reason = arrival.reasons
        if self._tracker is not None:
            self._tell(slots, arrival, done, reason, acted)
        if done.any():
            rows = np.flatnonzero(done)
            ended = rows + slots.start
            self.completed += len(rows)
            self.returns.extend(self._return[ended].tolist())
            self.lengths.extend(self._length[ended].tolist())
            known = reason[rows]
            self.reasons += np.bincount(known[known >= 0], minlength=len(self.reasons))
        # Not only those that ended here: an episode may also be lost, and begin anew.
        over = np.flatnonzero(done | arrival.starts) + slots.start
        self._return[over] = 0
        self._length[over] = 0

    def record(self, group: Group) -> Record:
        """What all processes that learn together have counted."""
        totals = group.totals(
            {
                "return": math.fsum(self.returns),
                "length": float(sum(self.lengths)),
                "newest": float(len(self.returns)),
                "completed": float(self.completed),
                **{f"reason {i}": float(count) for i, count in enumerate(self.reasons)},
            }
        )
        newest = totals["newest"]
        return Record(
            completed=int(totals["completed"]),
            mean_return=totals["return"] / newest if newest else None,
            mean_length=totals["length"] / newest if newest else None,
            reasons={name: int(totals[f"reason {i}"]) for i, name in enumerate(self._spec.reasons)},
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything counted so far."""
        return {
            "return": torch.from_numpy(self._return.copy()),
            "length": torch.from_numpy(self._length.copy()),
            "completed": self.completed,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "reasons": torch.from_numpy(self.reasons.copy()),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._return[:] = state_dict["return"].numpy()
        self._length[:] = state_dict["length"].numpy()
        self.completed = state_dict["completed"]
        self.returns = deque(state_dict["returns"], maxlen=WINDOW)
        self.lengths = deque(state_dict["lengths"], maxlen=WINDOW)
        self.reasons[:] = state_dict["reasons"].numpy()

    def forget_unfinished(self) -> None:
        """Every environment begins a new episode."""
        self._return[:] = 0
        self._length[:] = 0

    def _tell(
        self,
        slots: slice,
        arrival: TimeStep,
        done: np.ndarray,
        reason: np.ndarray,
        acted: np.ndarray,
    ) -> None:
        """Tell the tracker about a block; the other blocks took no step."""
        assert self._tracker is not None
        if self._spec.num_blocks == 1:
            self._tracker.step(*map(torch.as_tensor, (arrival.reward, done, reason, acted)))
            return
        whole = []
        for part in (arrival.reward, done, reason, acted):
            array = np.zeros(self._spec.num_agents, part.dtype)
            array[slots] = part
            whole.append(torch.from_numpy(array))
        self._tracker.step(*whole)
