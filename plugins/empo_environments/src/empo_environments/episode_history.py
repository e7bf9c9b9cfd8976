"""Seed and actions of an episode, so that it can be played again."""

from __future__ import annotations

from array import array

import numpy as np
import torch
from jaxtyping import Shaped

from empo_core.protocols.environments import ActionSpec


class History:
    """The actions of the current episode."""

    def __init__(self, actions: ActionSpec, agents: int = 1) -> None:
        """An empty history.

        Args:
            actions: What can be done.
            agents: How many do it.
        """
        self._words = array("q" if actions.is_discrete else "f")
        self._shape = (agents, actions.size)

    def __len__(self) -> int:
        """Number of steps taken."""
        return len(self._words) // (self._shape[0] * self._shape[1])

    def clear(self) -> None:
        """An episode begins."""
        del self._words[:]

    def append(self, action: Shaped[np.ndarray, "*agent number"]) -> None:
        """A step was taken."""
        self._words.frombytes(action.tobytes())

    def whereabouts(self, episode: int, seed: int) -> str:
        """Episode, step and seed, for error messages."""
        steps = len(self)
        text = f"episode {episode}, step {steps}; to see it again, reset the environment with "
        if not steps:
            return f"{text}seed {seed}"
        last = list(self._words[-self._shape[0] * self._shape[1] :])
        return f"{text}seed {seed} and repeat the episode's actions up to step {steps}: {last}"

    def tensor(self) -> Shaped[torch.Tensor, "step agent number"]:
        """The actions, step by step and agent by agent."""
        dtype = np.int64 if self._words.typecode == "q" else np.float32
        return torch.from_numpy(np.array(self._words, dtype).reshape(-1, *self._shape))
