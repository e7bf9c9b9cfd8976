"""Trials of a sweep and their states, as their run directories have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from empo_compare.run_table import leaves
from empo_core.errors import StorageError
from empo_core.runs.atomic import StrictModel, make_folder, read_json, write_file
from empo_core.runs.directory import RESULTS, SUMMARY
from empo_core.runs.status import status_of
from empo_core.trees import Json
from empo_sweep.arms import Arm, Sweep, Trial

if TYPE_CHECKING:
    from empo_sweep.study import Study

RECORD = "trial.json"
Status = Literal["planned", "interrupted", "done", "failed", "pruned"]


class TrialRecord(StrictModel):
    """The end of a trial that has no results, in ``trial.json`` of its run directory.

    Attributes:
        status: Whether the trial failed or was stopped early.
        reason: Why a trial failed.
    """

    status: Literal["failed", "pruned"]
    reason: str | None = None


@dataclass
class TrialState:
    """A trial and its state.

    Attributes:
        trial: The trial.
        status: ``planned`` until the trial ends.
        value: The objective of a trial that is done; None where it is no finite number.
        reason: Why a trial failed.
    """

    trial: Trial
    status: Status = "planned"
    value: float | None = None
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        """True if the trial has ended, unless it is retried."""
        return self.status in ("done", "failed", "pruned")


class Trials:
    """All trials of a sweep: fixed in advance, or chosen as others end.

    Attributes:
        states: The trials by number, as far as they are chosen.
        total: Number of trials there will be.
    """

    def __init__(self, sweep: Sweep, fixed: Sequence[Trial]) -> None:
        """Read the states of trials that earlier processes chose or ran.

        Args:
            sweep: The sweep.
            fixed: The trials that are known in advance.

        Raises:
            StorageError: if a record of the sweep is damaged.
        """
        self._sweep, self._seeds = sweep, sweep.seeds
        search = sweep.config.search
        self.total = len(fixed) if fixed or search is None else search.trials * len(self._seeds)
        self._study: Study | None = None
        if search is not None and (not fixed or search.pruner is not None):
            from empo_sweep.study import Study

            self._study = Study(search, sweep.folder)
        self.states = [self._read(trial) for trial in fixed]
        if self._study is not None and not fixed:
            for arm in self._study.points:
                self._add(arm)
        for point in range(len(self._study.points) if self._study is not None else 0):
            self._tell(point)

    def in_state(self, *status: Status) -> list[TrialState]:
        """The trials in one of these states."""
        return [state for state in self.states if state.status in status]

    def more(self) -> list[TrialState]:
        """Choose the next point, and return its trials; none where no point is left.

        Raises:
            ConfigError: if the point makes no valid config.
        """
        if self._study is None or len(self.states) >= self.total:
            return []
        if (arm := self._study.ask()) is None:
            self.total = len(self.states)
            return []
        return self._add(arm)

    def report(self, number: int, step: int, value: float) -> bool:
        """Record an intermediate value of a trial; True if the trial should be stopped."""
        if self._study is None:
            return False
        point = number // len(self._seeds)
        self._include(self._study, point)
        return self._study.report(point, step, value)

    def end(self, trial: Trial, status: Status, reason: str | None = None) -> None:
        """Record how a trial ended."""
        state = self.states[trial.number]
        if status in ("failed", "pruned"):
            run = self._sweep.folder / trial.run
            make_folder(run)
            record = TrialRecord.model_validate({"status": status, "reason": reason})
            write_file(run / RECORD, record.model_dump_json() + "\n")
        state.status, state.reason = status, reason
        state.value = self._value(trial) if status == "done" else None
        self._tell(trial.number // len(self._seeds))

    def _add(self, arm: Arm) -> list[TrialState]:
        begin = len(self.states)
        trials = [self._sweep.trial(begin + i, arm, seed) for i, seed in enumerate(self._seeds)]
        self.states += [self._read(trial) for trial in trials]
        return self.states[begin:]

    def _include(self, study: Study, point: int) -> None:
        """Have the study know the points of a grid up to this one."""
        for place in range(len(study.points), point + 1):
            study.add(self.states[place * len(self._seeds)].trial.arm)

    def _tell(self, point: int) -> None:
        """Tell the study how a point ended, once its seeds have; of failures it learns nothing."""
        states = self.states[point * len(self._seeds) : (point + 1) * len(self._seeds)]
        if self._study is None or not all(state.is_over for state in states):
            return
        values = [state.value for state in states if state.value is not None]
        is_pruned = any(state.status == "pruned" for state in states)
        if is_pruned or len(values) == len(states):
            self._include(self._study, point)
            self._study.tell(point, None if is_pruned else sum(values) / len(values))

    def _read(self, trial: Trial) -> TrialState:
        """The state of a trial by its run directory."""
        run = self._sweep.folder / trial.run
        if status_of(run).status == "finished":
            return TrialState(trial, "done", self._value(trial))
        if not (run / RECORD).exists():
            return TrialState(trial)
        try:
            record = TrialRecord.model_validate(read_json(run / RECORD))
        except ValidationError as error:
            raise StorageError(f"{run / RECORD}: is damaged or not ours") from error
        return TrialState(trial, record.status, reason=record.reason)

    def _value(self, trial: Trial) -> float | None:
        goal = self._sweep.config.goal
        if goal is None:
            return None
        return number_in(summary_of(self._sweep.folder / trial.run), goal.key)


def summary_of(run: Path) -> dict[str, Json]:
    """The entries of the summary of a run that has finished, by their dotted paths.

    Raises:
        StorageError: if the summary is missing or damaged.
    """
    summary = read_json(run / RESULTS / SUMMARY)
    if not isinstance(summary, dict):
        raise StorageError(f"{run / RESULTS / SUMMARY}: is damaged or not ours")
    return leaves(summary)


def number_in(summary: dict[str, Json], key: str) -> float | None:
    """A finite number of a summary; None where the summary has none of that name."""
    value = summary.get(key)
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number and isinstance(value, int | float) else None
