"""Statistics of training episodes: returns, lengths, and why they ended."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from jaxtyping import Bool

from empo_core.protocols import Tracker
from empo_core.trees import StateDict
from empo_latent.environments.task_vector import TaskStep

WINDOW = 20
"""Newest episodes that averages are about: an agent gets better within few."""
REASONS = ("terminated", "truncated")


class Episodes:
    """Adds up rewards until episodes end, and passes steps on to the run's episode metric.

    Attributes:
        completed: Episodes so far.
        returns: Sum of rewards of each of the newest episodes.
        lengths: Steps of each of the newest episodes.
        successes: Whether they succeeded, of those of which the environment says.
    """

    def __init__(self, envs: int, tracker: Tracker | None = None) -> None:
        """Begin with no episode; the episode metric of ``tracker``, if any, takes in every step."""
        self._metric = None if tracker is None else tracker.episode_metric
        self._return = np.zeros(envs)
        self._length = np.zeros(envs, np.int64)
        self._success = np.full(envs, np.nan)
        self.completed = 0
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.lengths: deque[int] = deque(maxlen=WINDOW)
        self.successes: deque[float] = deque(maxlen=WINDOW)
        if self._metric is not None:
            self._metric.follow(envs, REASONS)

    def observe(self, step: TaskStep) -> None:
        """Count a step of all environments."""
        done = step.terminated | step.truncated
        self._return += step.reward
        self._length += 1
        self._success = np.fmax(self._success, step.success)
        if self._metric is not None:
            reason = np.where(step.terminated, 0, np.where(step.truncated, 1, -1))
            parts = (step.reward, done, reason)
            self._metric.step(*map(torch.as_tensor, parts))
        if done.any():
            self.completed += int(done.sum())
            self.returns.extend(self._return[done].tolist())
            self.lengths.extend(self._length[done].tolist())
            told = self._success[done]
            self.successes.extend(told[~np.isnan(told)].tolist())
            self._clear(done)

    def _clear(self, rows: Bool[np.ndarray, " env"]) -> None:
        self._return[rows] = 0
        self._length[rows] = 0
        self._success[rows] = np.nan

    @property
    def mean_return(self) -> float | None:
        """Of the newest episodes; None before any."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def metrics(self) -> dict[str, float]:
        """Numbers for trackers."""
        if self.mean_return is None:
            return {}
        found = {
            "episode/return_mean": self.mean_return,
            "episode/length_mean": sum(self.lengths) / len(self.lengths),
            "episode/completed": float(self.completed),
        }
        if self.successes:
            found["episode/success"] = sum(self.successes) / len(self.successes)
        return found

    def state_dict(self) -> StateDict:
        """Everything counted so far."""
        return {
            "return": torch.from_numpy(self._return.copy()),
            "length": torch.from_numpy(self._length.copy()),
            "success": torch.from_numpy(np.nan_to_num(self._success)),
            "success_known": torch.from_numpy(~np.isnan(self._success)),
            "completed": self.completed,
            "returns": list(self.returns),
            "lengths": list(self.lengths),
            "successes": list(self.successes),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._return[:] = state_dict["return"].numpy()
        self._length[:] = state_dict["length"].numpy()
        known = state_dict["success_known"].numpy()
        self._success[:] = np.where(known, state_dict["success"].numpy(), np.nan)
        self.completed = state_dict["completed"]
        self.returns = deque(state_dict["returns"], maxlen=WINDOW)
        self.lengths = deque(state_dict["lengths"], maxlen=WINDOW)
        self.successes = deque(state_dict["successes"], maxlen=WINDOW)

    def forget_unfinished(self) -> None:
        """Every environment begins a new episode."""
        self._clear(np.ones(len(self._return), bool))
