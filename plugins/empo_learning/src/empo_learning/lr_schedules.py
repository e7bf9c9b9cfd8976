"""Schedules of learning rates: ``constant``, ``linear``, ``cosine``, ``inverse``, any function."""

from __future__ import annotations

import math

from empo_core.components import build
from empo_core.config import Config
from empo_core.errors import ConfigError, failure, written_at
from empo_core.protocols import Schedule
from empo_learning.params import Optimiser
from empo_learning.plugin import EndParams, InverseParams

WHERE = "algorithm.params.optimiser.lr_schedule"
MOST = 1_000_000
"""The greatest factor; learning rates that rise by more are a slip."""


class Constant:
    """1 throughout."""

    def __init__(self, params: Config) -> None: ...

    def __call__(self, progress: float) -> float:
        """The factor."""
        return 1.0


class Linear:
    """``1 - p (1 - end)``, where ``p`` is the progress."""

    def __init__(self, params: EndParams) -> None:
        self._end = params.end

    def __call__(self, progress: float) -> float:
        """The factor."""
        return 1.0 - progress * (1.0 - self._end)


class Cosine:
    """``end + (1 - end) (1 + cos(pi p)) / 2``, where ``p`` is the progress."""

    def __init__(self, params: EndParams) -> None:
        self._end = params.end

    def __call__(self, progress: float) -> float:
        """The factor."""
        return self._end + (1.0 - self._end) * 0.5 * (1.0 + math.cos(math.pi * progress))


class Inverse:
    """``1 / (1 + p (end^(-1/power) - 1))^power``, where ``p`` is the progress.

    Where the rate was constant for the share ``end`` of the run, power 1 is ``t0 / t``, with
    ``t0`` the step at which it begins to fall.
    """

    def __init__(self, params: InverseParams) -> None:
        self._power, self._slope = params.power, params.end ** (-1 / params.power) - 1

    def __call__(self, progress: float) -> float:
        """The factor."""
        return (1 + progress * self._slope) ** -self._power  # type: ignore[no-any-return]


class CheckedSchedule:
    """A schedule whose progress is cut to [0, 1], and whose mistakes are told.

    Attributes:
        name: Of the function or class.
    """

    def __init__(self, schedule: Schedule) -> None:
        """Wrap a schedule, and try it at the beginning, in the middle and at the end.

        Raises:
            ConfigError: if the schedule raises an error, or returns no finite number in
                [0, ``MOST``].
        """
        self._schedule = schedule
        self.name = name_of(schedule)
        for progress in (0.0, 0.5, 1.0):
            self(progress)

    def __call__(self, progress: float) -> float:
        """The factor.

        Raises:
            ConfigError: if the schedule raises an error, or returns no finite number in
                [0, ``MOST``].
        """
        progress = min(max(progress, 0.0), 1.0)
        try:
            value = self._schedule(progress)
        except Exception as error:
            problem = failure(error, self._schedule, f"progress {progress:g}")
            raise ConfigError(f"{WHERE}: the learning-rate schedule {problem}") from error
        try:
            factor = float(value)
        except (TypeError, ValueError, RuntimeError):
            factor = math.nan
        if not 0 <= factor <= MOST:
            raise ConfigError(
                f"{WHERE}: the learning-rate schedule {self.name} returned {value!r:.100} for "
                f"progress {progress:g}; the factor of the learning rate must be a number from 0 "
                f"to {MOST:,}{written_at(self._schedule)}"
            )
        return factor


def name_of(schedule: Schedule) -> str:
    """Name of a function, or of the class of an object."""
    return str(getattr(schedule, "__qualname__", type(schedule).__name__))


def schedule_of(optimiser: Optimiser, function: Schedule | None = None) -> CheckedSchedule:
    """The schedule of a run: a caller's function, or else the component that the config names.

    Raises:
        ConfigError: if there are both.
    """
    named = optimiser.lr_schedule
    if function is None:
        return CheckedSchedule(build(named))
    if "lr_schedule" in optimiser.model_fields_set and named.name != "constant":
        raise ConfigError(
            f"{WHERE}: is {named.name!r}, and the caller gives lr_schedule={name_of(function)} as "
            "well; drop one of them, or set this to 'constant' where a preset says it"
        )
    return CheckedSchedule(function)
