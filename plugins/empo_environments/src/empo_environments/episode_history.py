"""Seed and actions of an episode, so that it can be played again."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Shaped

from empo_core.protocols.environments import ActionSpec

UNSTATED = 1_000
"""Actions recorded of an episode of an environment that states no most steps of an episode."""
MOST = 100_000
"""Most actions that are recorded of any episode."""
SHOWN = 20
"""Most actions that an error message lists."""


class History:
    """The actions of the current episode, as long as they are few enough to be played again.

    Of a longer episode nothing but the number of steps and the last action is kept: so neither
    memory nor checkpoints grow with the steps of an episode that never ends.
    """

    def __init__(self, actions: ActionSpec, agents: int = 1, steps: int | None = None) -> None:
        """An empty history.

        Args:
            actions: What can be done.
            agents: How many do it.
            steps: Most steps of an episode, as the environment states them; None: not at all.
        """
        self._words = array("q" if actions.is_discrete else "f")
        self._shape = (agents, actions.size)
        self._steps = 0
        self._last = b""
        self.max_steps = UNSTATED
        """Most actions that are recorded."""
        if steps is not None:
            self.keep(steps)

    def keep(self, steps: int) -> None:
        """Record at least so many actions, but no more than ``MOST``."""
        self.max_steps = min(max(self.max_steps, steps), MOST)

    def __len__(self) -> int:
        """Number of steps taken."""
        return self._steps

    def clear(self) -> None:
        """An episode begins."""
        self._steps = 0
        del self._words[:]

    def append(self, action: Shaped[np.ndarray, "*agent number"]) -> None:
        """A step was taken."""
        self._steps += 1
        self._last = action.tobytes()
        if self._steps <= self.max_steps:
            self._words.frombytes(self._last)
        elif self._words:
            del self._words[:]

    def whereabouts(self, episode: int, seed: int) -> str:
        """Episode, step and seed, for error messages."""
        text = (
            f"episode {episode}, step {self._steps}; to see it again, reset the environment with "
        )
        if not self._steps:
            return f"{text}seed {seed}"
        text += f"seed {seed} and repeat the episode's actions"
        actions = self.tensor()
        if actions is not None and self._steps <= SHOWN:
            return f"{text}: {actions.flatten(1).tolist()}"
        last = array(self._words.typecode, self._last).tolist()
        return f"{text}, of which that of step {self._steps} was the last: {last}"

    def tensor(self) -> Shaped[torch.Tensor, "step agent number"] | None:
        """The actions, step by step and agent by agent; None where they are too many."""
        if self._steps > self.max_steps:
            return None
        dtype = np.int64 if self._words.typecode == "q" else np.float32
        return torch.from_numpy(np.array(self._words, dtype).reshape(-1, *self._shape))


def has_unrecorded(state: object) -> bool:
    """True if the state of environments has an episode with more actions than are recorded."""
    if isinstance(state, Mapping):
        # Actions that are known lie beside the number of their episode.
        is_history = "episode" in state and "actions" in state
        if is_history:
            return state["actions"] is None
        return any(map(has_unrecorded, state.values()))
    return isinstance(state, list | tuple) and any(map(has_unrecorded, state))


def why_not_exact(state: object) -> str:
    """Why environments of a state cannot stand where they stood, as part of a message, or nothing.

    Args:
        state: Of a vector of environments, or something around it.
    """
    if not has_unrecorded(state):
        return ""
    return (
        " (an episode had more steps than are recorded to be played again: max_episode_steps where "
        f"that is known, else {UNSTATED:,}, and {MOST:,} at most)"
    )
