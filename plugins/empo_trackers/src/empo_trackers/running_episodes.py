"""Rewards and lengths of the running episodes of many environments."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from empo_trackers.accumulators import Accumulators
from empo_trackers.checks import checked_count, tensor_of


class RunningEpisodes(Accumulators):
    """Sums of rewards and steps since each environment's episode began.

    Attributes:
        num_envs: Number of environments.
        disable: Whether to keep nothing and do nothing.
        episode_rewards: Sum of rewards of each running episode, float32.
    """

    episode_rewards: Float[Tensor, " env"]

    def __init__(self, num_envs: int, device: torch.device | str | None, *, disable: bool) -> None:
        super().__init__()
        self.num_envs = checked_count(num_envs)
        self.disable = disable
        # Lengths as they are stored lack the last so many steps, which all environments took:
        # a pass over all of them in every step would cost more than the rest.
        self._pending = 0
        if not disable:
            rewards = torch.zeros(self.num_envs, dtype=torch.float32, device=device)
            self.register_buffer("episode_rewards", rewards)
            lengths = torch.zeros(self.num_envs, dtype=torch.int64, device=device)
            self.register_buffer("episode_lengths", lengths)
            self.register_buffer("total_steps", torch.zeros((), dtype=torch.int64, device=device))

    @property
    def episode_lengths(self) -> Int64[Tensor, " env"]:
        """Number of steps of each running episode."""
        self._settle()
        return self._stored("episode_lengths")

    @property
    def total_steps(self) -> Int64[Tensor, ""]:
        """Number of steps all environments took together."""
        self._settle()
        return self._stored("total_steps")

    def reset_env(self, env_indices: object) -> None:
        """Begin a new episode in some environments; what they did so far is not counted.

        Raises:
            ValueError: if the indices are no integers.
            IndexError: if there is no environment of such an index.
        """
        if self.disable:
            return
        index = tensor_of(env_indices, "env_indices").reshape(-1)
        if len(index) and (index.is_floating_point() or index.dtype is torch.bool):
            raise ValueError(f"env_indices must be integers, got {index.dtype}")
        index = index.to(self.episode_rewards.device, torch.int64)
        wrong = index[(index < 0) | (index >= self.num_envs)]
        if len(wrong):
            raise IndexError(
                f"env_indices has {int(wrong[0])}; environments are 0 to {self.num_envs - 1}"
            )
        self.episode_rewards.index_fill_(0, index, 0)
        self.episode_lengths.index_fill_(0, index, 0)

    def _lengths(self) -> Int64[Tensor, " env"]:
        """Number of steps of each running episode, in a new tensor."""
        return self._stored("episode_lengths") + self._pending

    def _add_step(self, active: Bool[Tensor, " env"] | None) -> None:
        """Count one step of the environments, or of the active ones."""
        if active is None:
            self.__dict__["_pending"] += 1  # torch.nn.Module makes setting attributes slow.
        else:
            self.episode_lengths.add_(active)
            self.total_steps.add_(active.sum())

    def _begin_at(self, index: Int[Tensor, " item"]) -> None:
        """Begin a new episode in the environments of these numbers."""
        self.episode_rewards.index_fill_(0, index, 0)
        self._stored("episode_lengths").index_fill_(0, index, -self._pending)

    def _end_few(
        self, positions: Int64[np.ndarray, " item"]
    ) -> tuple[Float[np.ndarray, " item"], Int64[np.ndarray, " item"]]:
        """Rewards and lengths of episodes on a CPU; new ones begin in their environments."""
        totals, steps = self._array("episode_rewards"), self._array("episode_lengths")
        rewards, lengths = totals[positions], steps[positions] + self._pending
        totals[positions], steps[positions] = 0, -self._pending
        return rewards, lengths

    def _begin_where(self, dones: Bool[Tensor, " env"]) -> None:
        """Begin a new episode in the environments that are marked."""
        self.episode_rewards.masked_fill_(dones, 0)
        self._stored("episode_lengths").masked_fill_(dones, -self._pending)

    def _settle(self) -> None:
        """Write down the steps that all environments took since the last time."""
        if steps := self._pending:
            self.__dict__["_pending"] = 0
            self._stored("episode_lengths").add_(steps)
            self._stored("total_steps").add_(steps * self.num_envs)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """As for any module, with every step written down."""
        self._settle()
        return super().named_buffers(prefix, recurse, remove_duplicate)

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        self._settle()
        super()._save_to_state_dict(destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *further: object
    ) -> None:
        self._settle()  # What was pending belongs to what is replaced now.
        super()._load_from_state_dict(state_dict, prefix, *further)
