"""Statistics of returns and lengths of whole episodes, by agent or task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from empo_core.errors import CollectError
from empo_core.protocols import EpisodePlayer, PlayedEpisodes
from empo_learning.statistics import interval

NOBODY = "no agent acted in any episode, so there is nothing to evaluate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnSummary:
    """Returns and lengths of some episodes.

    Attributes:
        episodes: How many were played.
        mean_return: Mean sum of rewards.
        standard_error: Of that mean.
        min_return: The least.
        max_return: The greatest.
        mean_length: Mean number of steps.
    """

    episodes: int
    mean_return: float
    standard_error: float
    min_return: float
    max_return: float
    mean_length: float

    def __str__(self) -> str:
        """The mean and its standard error, for a line of a log."""
        return f"mean return {self.mean_return:.6g} ± {self.standard_error:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReturns(ReturnSummary):
    """Returns of the episodes of one group.

    Attributes:
        group: The group by heading, e.g. ``{"agent": "pursuer_0"}``.
        interval: 95 % confidence interval of the mean return, by Student's t distribution; None
            with one episode.
        mean_length_standard_error: Of the mean length; 0 with one episode.
        ends: Share of the episodes that ended for each reason.
        success: Share of successes among the episodes of which the environment says; None: it says
            so of none.
    """

    group: dict[str, str]
    interval: tuple[float, float] | None
    mean_length_standard_error: float
    ends: dict[str, float]
    success: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnEvaluation:
    """Returns of a run in its environments.

    Attributes:
        episodes: Episodes per group that were asked for.
        seed: What they were drawn with.
        groups: Results by agent, or by task and actor.
    """

    episodes: int
    seed: int
    groups: tuple[GroupReturns, ...]


def evaluate_returns(
    player: EpisodePlayer, *, episodes: int, seed: int, max_steps: int | None
) -> ReturnEvaluation:
    """Returns of a run's policy; arguments as of ``EpisodePlayer.play``.

    Raises:
        CollectError: if no agent ever acted, or an environment failed.
    """
    played = player.play(episodes=episodes, seed=seed, max_steps=max_steps)
    if not played:
        raise CollectError(NOBODY)
    groups = tuple(returns_of([group], group.group) for group in played)
    return ReturnEvaluation(episodes=episodes, seed=seed, groups=groups)


def returns_of(played: Sequence[PlayedEpisodes], group: Mapping[str, str]) -> GroupReturns:
    """Returns of the episodes of some groups together, as those of one.

    Raises:
        CollectError: if there are no episodes, because no agent ever acted.
    """
    if not played:
        raise CollectError(NOBODY)
    returns = np.concatenate([part.returns for part in played])
    lengths = np.concatenate([part.lengths for part in played])
    ends = sum((Counter(part.ends) for part in played), Counter[str]())
    mean, error = _mean(returns)
    reported = [part.successes for part in played if part.successes is not None]
    successes = np.concatenate(reported) if reported else np.zeros(0)
    half_width = float(interval(returns)[1])
    length, length_error = _mean(lengths)
    count = len(returns)
    return GroupReturns(
        group=dict(group),
        episodes=count,
        mean_return=mean,
        standard_error=error,
        interval=None if math.isnan(half_width) else (mean - half_width, mean + half_width),
        min_return=float(returns.min()),
        max_return=float(returns.max()),
        mean_length=length,
        mean_length_standard_error=length_error,
        ends={name: number / count for name, number in ends.items()},
        success=float(successes.mean()) if len(successes) else None,
    )


def _mean(values: Float[ndarray, " episode"] | Int[ndarray, " episode"]) -> tuple[float, float]:
    """Mean and standard error."""
    count = len(values)
    error = float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
    return float(values.mean()), error


def rows(evaluation: ReturnEvaluation) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Headings and cells of a table for people."""
    headings = [*evaluation.groups[0].group, "return", "95 % interval", "least to greatest"]
    has_success = any(group.success is not None for group in evaluation.groups)
    headings += ["length", "ended", *["success"] * has_success]
    cells = [_row(group) for group in evaluation.groups]
    if has_success:
        cells = [
            (*row, _share_words(group.success))
            for row, group in zip(cells, evaluation.groups, strict=True)
        ]
    return headings, cells


def _share_words(success: float | None) -> str:
    """A share of successes in a cell; empty where it is not known."""
    return "" if success is None else f"{success:.0%}"


def _row(group: GroupReturns) -> tuple[str, ...]:
    between = (
        "\N{EN DASH}" if group.interval is None else "{:.6g} to {:.6g}".format(*group.interval)
    )
    return (
        *group.group.values(),
        f"{group.mean_return:.6g} ± {group.standard_error:.2g}",
        between,
        f"{group.min_return:.6g} to {group.max_return:.6g}",
        f"{group.mean_length:.2f} ± {group.mean_length_standard_error:.2f}",
        _shares(group.ends),
    )


def _shares(ends: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in ends.items())
