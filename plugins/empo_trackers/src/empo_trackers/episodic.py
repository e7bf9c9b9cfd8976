"""Returns, lengths and end reasons of episodes in many environments at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Literal, TypedDict, get_args

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64, Shaped
from torch import Tensor

from empo_trackers.checks import (
    OTHER,
    Real,
    checked_alpha,
    checked_choice,
    checked_names,
    checked_reasons,
    flags,
    vector,
)
from empo_trackers.ema import EMATracker
from empo_trackers.running_episodes import RunningEpisodes

EmaUpdate = Literal["batch_mean", "per_episode"]
KeyStyle = Literal["flat", "nested"]
FEW = 64
"""On a CPU, so many episodes are taken in sooner one by one than by operations on tensors."""


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


class EpisodicEMATracker(RunningEpisodes):
    """Moving averages of rewards and lengths of the episodes of many environments.

    Attributes:
        ema_reward_tracker: Average of the sums of rewards of completed episodes.
        ema_length_tracker: Average of their lengths.
        termination_counts: How many ended for each reason.
        other_terminations: How many ended for a reason without a name.
        total_terminations: How many came with a reason, with a name or without.
        episodes_completed: How many ended.
        nan_episodes: How many of them paid NaN, which the average does not survive.
    """

    _additions = ("other_terminations", "nan_episodes")

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
        super().__init__(num_envs, device, disable=disable)
        self.alpha = checked_alpha(alpha)
        self.reasons = checked_names(reasons)
        self.ema_update = checked_choice("ema_update", ema_update, get_args(EmaUpdate))
        self.key_style = checked_choice("key_style", key_style, get_args(KeyStyle))
        self.track_extremes = track_extremes
        self._newest: StepResult | tuple[Tensor, Tensor, Tensor] = {}
        self.ema_reward_tracker, self.ema_length_tracker = (
            EMATracker(1 - self.alpha, device, bias_correction=bias_correction, disable=disable)
            for _ in ("reward", "length")
        )
        if not disable:
            self._register(device)

    def _register(self, device: torch.device | str | None) -> None:
        counts = torch.zeros(len(self.reasons), dtype=torch.int64, device=device)
        self.register_buffer("termination_counts", counts)
        whole = ("other_terminations", "total_terminations", "episodes_completed", "nan_episodes")
        for name in whole:
            self.register_buffer(name, torch.zeros((), dtype=torch.int64, device=device))
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
        totals = self._stored("episode_rewards")  # Faster than the attribute of a module.
        rewards = vector(rewards, "rewards", totals)
        dones = flags(dones, "dones", totals)
        reasons = None
        if termination_reasons is not None:
            reasons = checked_reasons(termination_reasons, totals)
        steps = None if active is None else flags(active, "active", totals)
        if steps is not None and _plainly_all(steps):
            steps = None
        if steps is not None:
            dones = dones & steps
            rewards = torch.where(steps, rewards, 0)
        self._add_step(steps)
        totals.add_(rewards)
        if not sync and _waits(totals):
            self._complete_unseen(dones, reasons)
            return {}
        result = self._complete(dones, reasons)
        if sync:
            return result
        self.__dict__["_newest"] = result
        return {}

    def newest_episodes(self) -> StepResult:
        """The result that the last ``step_update`` with ``sync=False`` would have had with it."""
        if not isinstance(self._newest, tuple):
            return self._newest
        dones, rewards, lengths = self._newest
        index = dones.nonzero().squeeze(1)
        return _completed(index, rewards[index], lengths[index]) if len(index) else {}

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

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *further: object
    ) -> None:
        # Averages of reasons, which the specification keeps in its state and has no use for.
        for key in [*state_dict]:
            if key.startswith(f"{prefix}ema_termination_trackers."):
                del state_dict[key]
        super()._load_from_state_dict(state_dict, prefix, *further)

    def _complete(
        self, dones: Bool[Tensor, " env"], reasons: Int[Tensor, " env"] | None
    ) -> StepResult:
        """Record the episodes that ended with this step, and return them."""
        positions = dones.numpy().nonzero()[0] if dones.is_cpu else None  # Torch takes longer.
        if positions is not None and len(positions) <= FEW:
            return self._complete_few(positions, reasons) if len(positions) else {}
        index = dones.nonzero().squeeze(1) if positions is None else torch.from_numpy(positions)
        if not len(index):
            return {}
        rewards = self.episode_rewards[index]
        lengths = self._stored("episode_lengths")[index] + self._pending
        self._record(rewards, lengths)
        if reasons is not None:
            _tally(self, reasons[index])
        self.episodes_completed.add_(len(index))
        self._begin_at(index)
        return _completed(index, rewards, lengths)

    def _complete_few(
        self, positions: Int64[np.ndarray, " item"], reasons: Int[Tensor, " env"] | None
    ) -> StepResult:
        """Do as ``_complete`` on a CPU, for environments with these indices."""
        rewards, lengths = self._end_few(positions)
        self._record_few(rewards.tolist(), lengths.tolist())
        if reasons is not None:
            _tally_few(self._array, reasons.numpy()[positions].tolist())
        self._array("episodes_completed")[()] += len(positions)
        return _completed(*map(torch.from_numpy, (positions, rewards, lengths)))

    def _complete_unseen(
        self, dones: Bool[Tensor, " env"], reasons: Int[Tensor, " env"] | None
    ) -> None:
        """Do as ``_complete`` without waiting for the device."""
        rewards, steps = self.episode_rewards.clone(), self._lengths()
        # The caller may use the same tensor of flags again.
        self.__dict__["_newest"] = dones.clone(), rewards, steps
        self._record(rewards, steps, dones)
        if reasons is not None:
            _tally(self, reasons, dones)
        self.episodes_completed.add_(dones.sum())
        self._begin_where(dones)

    def _record(
        self,
        rewards: Shaped[Tensor, " item"],
        lengths: Int[Tensor, " item"],
        mask: Bool[Tensor, " item"] | None = None,
    ) -> None:
        """Record completed episodes: all, or those where the mask is True."""
        for ema, values in ((self.ema_reward_tracker, rewards), (self.ema_length_tracker, lengths)):
            if self.ema_update == "batch_mean":
                ema.update_mean(values, mask)
            else:
                ema.update_each(values, mask)
        nan = rewards.isnan()
        self.nan_episodes.add_((nan if mask is None else nan & mask).sum())
        if self.track_extremes:
            fitting = ~nan if mask is None else mask & ~nan
            _widen(self.get_buffer("reward_extremes"), rewards, fitting)
            _widen(self.get_buffer("length_extremes"), lengths, mask)

    def _record_few(self, rewards: Sequence[float], lengths: Sequence[int]) -> None:
        """Do as ``_record`` without a mask, on a CPU."""
        one_by_one = self.ema_update == "per_episode"
        self.ema_reward_tracker.update_few(rewards, one_by_one=one_by_one)
        self.ema_length_tracker.update_few(lengths, one_by_one=one_by_one)
        fitting = [number for number in rewards if number == number]
        if nan := len(rewards) - len(fitting):
            self._array("nan_episodes")[()] += nan
        if self.track_extremes:
            _widen_few(self._array("reward_extremes"), fitting)
            _widen_few(self._array("length_extremes"), lengths)

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


def _tally(
    tracker: EpisodicEMATracker,
    reasons: Int[Tensor, " item"],
    mask: Bool[Tensor, " item"] | None = None,
) -> None:
    """Count the reasons of episode ends."""
    num_reasons = len(tracker.reasons)
    slot = torch.where((reasons >= 0) & (reasons < num_reasons), reasons, num_reasons)
    ones = torch.ones_like(slot) if mask is None else mask.to(torch.int64)
    counts = torch.zeros(num_reasons + 1, dtype=torch.int64, device=slot.device)
    counts.index_add_(0, slot, ones)
    tracker.termination_counts.add_(counts[:num_reasons])
    tracker.other_terminations.add_(counts[num_reasons])
    tracker.total_terminations.add_(counts.sum())


def _tally_few(array: Callable[[str], Int64[np.ndarray, "*axes"]], reasons: Sequence[int]) -> None:
    """Do as ``_tally`` on a CPU, without a mask, in the arrays of these names."""
    counts = array("termination_counts")
    for reason in reasons:
        if 0 <= reason < len(counts):
            counts[reason] += 1
        else:
            array("other_terminations")[()] += 1
    array("total_terminations")[()] += len(reasons)


def _waits(tensor: Shaped[Tensor, " env"]) -> bool:
    """True if reading the tensor waits for its device."""
    return not tensor.is_cpu


def _plainly_all(active: Bool[Tensor, " env"]) -> bool:
    """True if all are set, as far as one can tell without waiting for the device."""
    if active.device.type != "cpu":
        return False
    array = active.numpy()
    return array.size == 0 or bool(array[array.argmin()])


def _completed(
    index: Int64[Tensor, " episode"],
    rewards: Shaped[Tensor, " episode"],
    lengths: Int64[Tensor, " episode"],
) -> StepResult:
    completed = CompletedEpisodes(
        count=index.numel(), rewards=rewards, lengths=lengths, env_indices=index
    )
    return {"completed_episodes": completed}


def _widen(
    extremes: Shaped[Tensor, " 2"],
    values: Shaped[Tensor, " item"],
    mask: Bool[Tensor, " item"] | None,
) -> None:
    """Widen the minimum and maximum to cover more values."""
    for side, reduce in ((0, torch.amin), (1, torch.amax)):
        extreme = extremes[side : side + 1]
        # Where nothing counts, the extreme stands in for it and changes nothing.
        candidates = values if mask is None else torch.where(mask, values, extreme)
        extreme.copy_(reduce(torch.cat([extreme, candidates]), dim=0))


def _widen_few(extremes: Shaped[np.ndarray, " 2"], values: Sequence[float]) -> None:
    """Do as ``_widen`` on a CPU, without a mask."""
    extremes[:] = min([extremes[0], *values]), max([extremes[1], *values])
