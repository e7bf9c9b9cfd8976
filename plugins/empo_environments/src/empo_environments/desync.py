"""Environments whose episodes do not all end together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from empo_environments.single_env import SingleEnv, StepBuffers

_LONGEST = 1000


class DesyncEnv:
    """An environment whose first episode is cut off after a random number of steps."""

    def __init__(self, environment: SingleEnv, longest: int | None = None) -> None:
        """Wrap an environment.

        Args:
            environment: It.
            longest: Most steps of the first episode, at least 1; None takes what the environment
                says of its episodes (``max_episode_steps``), or else 1000.
        """
        known = getattr(environment, "max_episode_steps", None)
        self._longest = longest or known or _LONGEST
        self._environment = environment
        self._left = 0
        self.observations, self.actions = environment.observations, environment.actions
        self.agents, self.masks = environment.agents, environment.masks
        self.reasons = environment.reasons

    def start(self, outbox: StepBuffers, seed: int, number: int) -> None:
        """Begin the first episode."""
        self._outbox = outbox
        generator = np.random.default_rng((seed, number))
        self._left = int(generator.integers(1, self._longest, endpoint=True))
        self._environment.start(outbox, seed, number)

    def begin(self) -> None:
        """Begin the next episode."""
        self._left = 0
        self._environment.begin()

    def step(self, action: Shaped[np.ndarray, "agent number"]) -> None:
        """Let the agents act, and cut the first episode off when it is time."""
        self._environment.step(action)
        if not self._left:
            return
        self._left -= 1
        if self._outbox.starts.any():
            self._left = 0
        elif not self._left:
            self._cut_off()

    def state_dict(self) -> dict[str, Any]:
        """That of the environment, and how many steps are left."""
        return {"environment": self._environment.state_dict(), "left": self._left}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        """Go on from there."""
        self._left = state_dict["left"]
        exact = self._environment.load_state_dict(state_dict["environment"])
        if not exact:
            self._left = 0
        return exact

    def close(self) -> None:
        """End it."""
        self._environment.close()

    def _cut_off(self) -> None:
        outbox = self._outbox
        # The dead had their end before.
        alive = outbox.acts.copy()
        outbox.truncated[alive] = outbox.has_final[alive] = True
        outbox.final_observation[alive] = outbox.observation[alive]
        if "truncated" in self.reasons:
            outbox.reason[alive] = self.reasons.index("truncated")
        self._environment.begin()


__all__ = ["DesyncEnv"]
