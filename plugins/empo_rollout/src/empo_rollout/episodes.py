"""Statistics of episodes: returns, lengths, and the reasons of their ends."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool

from empo_core.protocols import Tracker
from empo_core.protocols.environments import EnvSpec, TimeStep
from empo_core.trees import StateDict
from empo_learning.distributed import Group

WINDOW = 100
"""Number of the newest episodes that averages are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Statistics of episodes, over all processes.

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
    """Sums the rewards of each agent over its episode, and passes steps to the episode metric.

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
            tracker: Its episode metric, if it has one, gets every step.
        """
        agents = env_spec.num_agents
        self._spec = env_spec
        self._metric = None if tracker is None else tracker.episode_metric
        self._return = np.zeros(agents)
        self._length = np.zeros(agents, np.int64)
        self.completed = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.reasons = np.zeros(len(env_spec.reasons), np.int64)
        if self._metric is not None:
            self._metric.follow(agents, env_spec.reasons)

    def observe(self, time_step: TimeStep, acted: Bool[np.ndarray, " agent"]) -> None:
        """Count the outcome of a block's previous actions; ``acted``: the agent did act."""
        agents = self._spec.agents_of(time_step.block)
        done = acted & (time_step.terminated | time_step.truncated)
        self._return[agents] += np.where(acted, time_step.reward, 0)
        self._length[agents] += acted
        reason = time_step.reasons
        if self._metric is not None:
            self._tell(agents, time_step, done, reason, acted)
        if done.any():
            rows = np.flatnonzero(done)
            ended = rows + agents.start
            self.completed += len(rows)
            self.returns.extend(self._return[ended].tolist())
            self.lengths.extend(self._length[ended].tolist())
            known = reason[rows]
            self.reasons += np.bincount(known[known >= 0], minlength=len(self.reasons))
        # Not only those that ended here: an episode may also be lost, and begin anew.
        over = np.flatnonzero(done | time_step.starts) + agents.start
        self._return[over] = 0
        self._length[over] = 0

    def record(self, group: Group) -> Record:
        """Statistics over all processes that learn together."""
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

    def state_dict(self) -> StateDict:
        """Everything counted so far."""
        return {
            "return": torch.from_numpy(self._return.copy()),
            "length": torch.from_numpy(self._length.copy()),
            "completed": self.completed,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "reasons": torch.from_numpy(self.reasons.copy()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
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
        agents: slice,
        time_step: TimeStep,
        done: np.ndarray,
        reason: np.ndarray,
        acted: np.ndarray,
    ) -> None:
        """Pass a block's step to the tracker; the other blocks took none."""
        assert self._metric is not None
        if self._spec.num_blocks == 1:
            self._metric.step(*map(torch.as_tensor, (time_step.reward, done, reason, acted)))
            return
        whole = []
        for part in (time_step.reward, done, reason, acted):
            array = np.zeros(self._spec.num_agents, part.dtype)
            array[agents] = part
            whole.append(torch.from_numpy(array))
        self._metric.step(*whole)
