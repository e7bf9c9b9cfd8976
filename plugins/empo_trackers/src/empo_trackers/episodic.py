"""Returns, lengths and end reasons of episodes in many environments at once."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal, TypedDict, get_args

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from empo_trackers.accumulators import Accumulators
from empo_trackers.checks import (
    OTHER,
    Real,
    checked_alpha,
    checked_choice,
    checked_count,
    checked_names,
    checked_reasons,
    flags,
    tensor_of,
    vector,
)
from empo_trackers.ema import EMATracker

EmaUpdate = Literal["batch_mean", "per_episode"]
KeyStyle = Literal["flat", "nested"]


class TerminationReason(IntEnum):
    """Reasons for which an episode ends, where no others are given."""

    TIME_LIMIT = 0
    PROGRESS_COMPLETE = 1
    COLLISION_DEATH = 2


REASONS = tuple(reason.name.lower() for reason in TerminationReason)


class CompletedEpisodes(TypedDict):
    """Episodes that ended with one step, in ascending order of environments.

    Attributes:
        count: How many they are.
        rewards: Sum of rewards of each [episode].
        lengths: Number of steps of each [episode].
        env_indices: Environment of each [episode].
    """

    count: int
    rewards: Shaped[Tensor, " episode"]
    lengths: Int64[Tensor, " episode"]
    env_indices: Int64[Tensor, " episode"]


class StepResult(TypedDict, total=False):
    """Result of a step of all environments; empty where no episode ended."""

    completed_episodes: CompletedEpisodes


class EpisodeOptions(TypedDict, total=False):
    """Keyword arguments of ``EpisodicEMATracker``."""

    reasons: Sequence[str]
    ema_update: EmaUpdate
    bias_correction: bool
    key_style: KeyStyle
    track_extremes: bool
    disable: bool


class EpisodicEMATracker(Accumulators):
    """Moving averages of rewards and lengths of the episodes of many environments.

    Attributes:
        num_envs: Number of environments.
        disable: Whether nothing is stored and nothing done.
        episode_rewards: Sum of rewards of each running episode, float32.
        episode_lengths: Number of steps of each running episode.
        total_steps: Number of steps of all environments together.
        ema_reward_tracker: Average of the sums of rewards of completed episodes.
        ema_length_tracker: Average of their lengths.
        termination_counts: How many ended for each reason.
        other_terminations: How many ended for a reason without a name.
        total_terminations: How many came with a reason, with a name or without.
        episodes_completed: How many ended.
        nan_episodes: How many of them paid NaN, which the average does not survive.
    """

    episode_rewards: Float[Tensor, " env"]
    episode_lengths: Int64[Tensor, " env"]
    total_steps: Int64[Tensor, ""]
    termination_counts: Int64[Tensor, " reason"]
    other_terminations: Int64[Tensor, ""]
    total_terminations: Int64[Tensor, ""]
    episodes_completed: Int64[Tensor, ""]
    nan_episodes: Int64[Tensor, ""]

    def __init__(
        self,
        num_envs: int,
        alpha: Real = 0.01,
        device: torch.device | str | None = None,
        *,
        reasons: Sequence[str] = REASONS,
        ema_update: EmaUpdate = "batch_mean",
        bias_correction: bool = False,
        key_style: KeyStyle = "flat",
        track_extremes: bool = False,
        disable: bool = False,
    ) -> None:
        """Begin an episode in every environment.

        Args:
            num_envs: How many environments there are; 0 is possible.
            alpha: What a new number weighs in the averages, in (0, 1].
            device: Where everything is kept; the CPU by default. Inputs are moved there.
            reasons: Names of the reasons 0, 1, ... for which episodes end.
            ema_update: What the averages take in as one number: the mean of the episodes that
                end with the same step, or each of them, in the order of the environments.
            bias_correction: Whether statistics make up for the start of the averages at 0.
            key_style: Whether keys end in ``termination_<reason>_prob`` or
                ``termination/<reason>_prob``.
            track_extremes: Whether statistics tell the least and the greatest, too.
            disable: Whether to keep nothing and do nothing.

        Raises:
            ValueError: if an argument is out of its range.
        """
        super().__init__()
        self.num_envs = checked_count(num_envs)
        self.disable = disable
        self.alpha = checked_alpha(alpha)
        self.reasons = checked_names(reasons)
        self.ema_update = checked_choice("ema_update", ema_update, get_args(EmaUpdate))
        self.key_style = checked_choice("key_style", key_style, get_args(KeyStyle))
        self.track_extremes = track_extremes
        self._newest: tuple[Tensor, Tensor, Tensor] | None = None
        self.ema_reward_tracker, self.ema_length_tracker = (
            EMATracker(1 - self.alpha, device, bias_correction=bias_correction, disable=disable)
            for _ in ("reward", "length")
        )
        if not disable:
            self._register(device)

    def _register(self, device: torch.device | str | None) -> None:
        rewards = torch.zeros(self.num_envs, dtype=torch.float32, device=device)
        self.register_buffer("episode_rewards", rewards)
        shapes: dict[str, list[int]] = {
            "episode_lengths": [self.num_envs],
            "total_steps": [],
            "termination_counts": [len(self.reasons)],
            "other_terminations": [],
            "total_terminations": [],
            "episodes_completed": [],
            "nan_episodes": [],
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=torch.int64, device=device))
        self.zero_if_missing(["other_terminations", "nan_episodes"])
        self.register_load_state_dict_pre_hook(  # type: ignore[no-untyped-call]
            _without_averages_of_reasons
        )
        if self.track_extremes:
            inf, highest = torch.inf, torch.iinfo(torch.int64).max
            self.register_buffer(
                "reward_extremes", torch.tensor([inf, -inf], dtype=torch.float32, device=device)
            )
            self.register_buffer("length_extremes", torch.tensor([highest, -1], device=device))

    def step_update(
        self,
        rewards: object,
        dones: object,
        termination_reasons: object = None,
        *,
        active: object = None,
        sync: bool = True,
    ) -> StepResult:
        """Take in one step of every environment.

        Args:
            rewards: What each step paid: a tensor, an array or a sequence, of shape (N,).
            dones: Whether the episode ended with this step; anything but 0 says so.
            termination_reasons: Why each episode ended, as a position in ``reasons``; read only
                where one did. All other numbers, e.g. -1, count as ``other``.
            active: Which environments took a step at all; all by default. What is said about
                the others is not read.
            sync: Whether to return what happened. If not, ``newest_episodes`` tells later, and
                nothing waits for a GPU.

        Returns:
            Under ``completed_episodes``, if there are any: their ``count``, and tensors of their
            ``rewards``, ``lengths`` and ``env_indices``, in ascending order of environments.

        Raises:
            ValueError: if an argument has a wrong shape or dtype; nothing was recorded.
        """
        if self.disable:
            return {}
        totals = self.episode_rewards
        rewards = vector(rewards, "rewards", totals)
        dones = flags(dones, "dones", totals)
        reasons = None
        if termination_reasons is not None:
            reasons = checked_reasons(termination_reasons, totals)
        if active is None:
            self.episode_lengths.add_(1)
            self.total_steps.add_(self.num_envs)
        else:
            steps = flags(active, "active", totals)
            dones, rewards = dones & steps, torch.where(steps, rewards, 0)
            self.episode_lengths.add_(steps)
            self.total_steps.add_(steps.sum())
        totals.add_(rewards)
        self._newest = None
        if (sync or dones.is_cpu) and not dones.any():
            return {}
        self._complete(dones, reasons)
        return self.newest_episodes() if sync else {}

    def newest_episodes(self) -> StepResult:
        """The result that the last ``step_update`` with ``sync=False`` would have had with it."""
        if self._newest is None:
            return {}
        dones, rewards, lengths = self._newest
        index = dones.nonzero().squeeze(1)
        if not len(index):
            return {}
        completed = CompletedEpisodes(
            count=len(index), rewards=rewards[index], lengths=lengths[index], env_indices=index
        )
        return {"completed_episodes": completed}

    def reset_env(self, env_indices: object) -> None:
        """Begin a new episode in some environments; their unfinished episodes are not counted.

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

    def get_statistics(self) -> dict[str, float]:
        """Numbers ready to be logged; 0 as long as no episode was completed.

        ``termination_other_prob`` and ``nan`` are there only if they are not 0.
        """
        if self.disable:
            return {}
        statistics: dict[str, float] = {
            "episodes/reward_ema": self.ema_reward_tracker.value,
            "episodes/length_ema": self.ema_length_tracker.value,
        }
        if self.track_extremes:
            for name in ("reward", "length"):
                low, high = self.get_buffer(f"{name}_extremes").tolist()
                has_values = low <= high
                statistics[f"episodes/{name}_min"] = low if has_values else type(low)(0)
                statistics[f"episodes/{name}_max"] = high if has_values else type(high)(0)
        statistics |= _reason_shares(self)
        if nan := int(self.nan_episodes):
            statistics["episodes/nan"] = nan
        statistics["episodes/completed"] = int(self.episodes_completed)
        statistics["episodes/total_steps"] = int(self.total_steps)
        return statistics

    def _complete(self, dones: Bool[Tensor, " env"], reasons: Int64[Tensor, " env"] | None) -> None:
        """Record the episodes that ended with this step, and begin new ones."""
        rewards, lengths = self.episode_rewards.clone(), self.episode_lengths.clone()
        self._newest = dones.clone(), rewards, lengths  # The caller may reuse the tensor of flags.
        self._record(rewards, lengths, dones)
        if reasons is not None:
            self._count_reasons(reasons, dones)
        self.episodes_completed.add_(dones.sum())
        self.episode_rewards.masked_fill_(dones, 0)
        self.episode_lengths.masked_fill_(dones, 0)

    def _record(
        self,
        rewards: Float[Tensor, " env"],
        lengths: Int64[Tensor, " env"],
        dones: Bool[Tensor, " env"],
    ) -> None:
        """Record the episodes of the environments in which one is done."""
        for ema, values in ((self.ema_reward_tracker, rewards), (self.ema_length_tracker, lengths)):
            if self.ema_update == "batch_mean":
                ema.update_mean(values, dones)
            else:
                ema.update_each(values, dones)
        nan = rewards.isnan()
        self.nan_episodes.add_((nan & dones).sum())
        if self.track_extremes:
            _widen(self.get_buffer("reward_extremes"), rewards, dones & ~nan)
            _widen(self.get_buffer("length_extremes"), lengths, dones)

    def _count_reasons(self, reasons: Int64[Tensor, " env"], dones: Bool[Tensor, " env"]) -> None:
        num_reasons = len(self.reasons)
        slot = torch.where((reasons >= 0) & (reasons < num_reasons), reasons, num_reasons)
        counts = torch.zeros(num_reasons + 1, dtype=torch.int64, device=slot.device)
        counts.index_add_(0, slot, dones.to(torch.int64))
        self.termination_counts.add_(counts[:num_reasons])
        self.other_terminations.add_(counts[num_reasons])
        self.total_terminations.add_(counts.sum())

    def extra_repr(self) -> str:
        """The settings that matter most."""
        return f"num_envs={self.num_envs}, alpha={self.alpha}, ema_update={self.ema_update!r}"


def _reason_shares(tracker: EpisodicEMATracker) -> dict[str, float]:
    """The share of each reason among episodes that ended for a reason."""
    total = max(int(tracker.total_terminations), 1)
    counts = dict(zip(tracker.reasons, tracker.termination_counts.tolist(), strict=True))
    if other := int(tracker.other_terminations):
        counts[OTHER] = other
    separator = "_" if tracker.key_style == "flat" else "/"
    return {
        f"episodes/termination{separator}{name}_prob": count / total
        for name, count in counts.items()
    }


def _without_averages_of_reasons(
    module: torch.nn.Module, state_dict: dict[str, Tensor], prefix: str, *_: object
) -> None:
    """Drop averages that the specification has in its state and no use for."""
    for key in [*state_dict]:
        if key.startswith(f"{prefix}ema_termination_trackers."):
            del state_dict[key]


def _widen(
    extremes: Shaped[Tensor, " 2"],
    values: Shaped[Tensor, " item"],
    mask: Bool[Tensor, " item"],
) -> None:
    """Widen the minimum and maximum to cover the values where the mask is True."""
    for side, reduce in ((0, torch.amin), (1, torch.amax)):
        extreme = extremes[side : side + 1]
        # Where nothing counts, the extreme stands in for it and changes nothing.
        candidates = torch.where(mask, values, extreme)
        extreme.copy_(reduce(torch.cat([extreme, candidates]), dim=0))
