"""What an environment has to remember so that its episode can be played again."""

from __future__ import annotations

import numpy as np
import torch

from empo_rollout.vectors.contract import Actions


class History:
    """The actions of the current episode."""

    def __init__(self, actions: Actions, agents: int = 1) -> None:
        """Nothing has been done yet.

        Args:
            actions: What can be done.
            agents: How many do it.
        """
        dtype = np.int64 if actions.is_discrete else np.float32
        self._array: np.ndarray = np.empty((64, agents, actions.size), dtype)
        self._steps = 0

    def __len__(self) -> int:
        """How many steps were taken."""
        return self._steps

    def clear(self) -> None:
        """An episode begins."""
        self._steps = 0

    def append(self, action: np.ndarray) -> None:
        """A step was taken."""
        if self._steps == len(self._array):
            self._array = np.concatenate([self._array, np.empty_like(self._array)])
        self._array[self._steps] = action
        self._steps += 1

    def tensor(self) -> torch.Tensor:
        """The actions, step by step and agent by agent."""
        return torch.from_numpy(self._array[: self._steps].copy())


__all__ = ["History"]
