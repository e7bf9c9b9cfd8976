"""Statistics over episodes, which trackers of a run show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.trees import StateDict
from empo_core.types import Histogram


@runtime_checkable
class EpisodeMetric(Protocol):
    """Statistics over the episodes of many environments, aggregated step by step.

    They go to every tracker of the run whenever something is logged.
    """

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Begin anew with so many environments; episodes end for one of these reasons."""

    def step(
        self,
        rewards: Float[Tensor, " env"],
        dones: Bool[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """Take in one step of the environments.

        Args:
            rewards: Reward of each step.
            dones: Whether the episode ended with it.
            reasons: Why, where it ended, as positions in the reasons of ``follow``; -1: unknown.
            active: Which environments took it; the others' rewards, dones and reasons mean
                nothing, and their episodes do not become longer. None: all.
        """

    def statistics(self) -> dict[str, float | Histogram]:
        """The numbers so far, as a tracker logs them; empty before ``follow``."""

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so: a tree as checkpoints take it."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned, after ``follow``."""
