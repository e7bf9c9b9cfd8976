"""Trials in a worker process, one after the other, with shared imports."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from empo_core.config import RunConfig, installed
from empo_core.errors import EmpoError, StorageError, WorkerError
from empo_core.experiment import Experiment
from empo_core.interrupts import Termination, interrupt
from empo_core.protocols import Report, Tracker
from empo_core.runs.directory import CONFIG
from empo_core.runs.files import hold
from empo_core.runs.status import status_of
from empo_core.types import Histogram

LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a trial, as its worker reports it.

    Attributes:
        event: The kind of end; ``busy``: another process is at it.
        reason: Why it failed.
    """

    event: Literal["done", "failed", "interrupted", "pruned", "busy"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A trial to run.

    Attributes:
        trial: Its number.
        directory: Its run directory, which may hold what is left of an earlier attempt.
        config: Its resolved config.
        metric: The metric to report, where there is a pruner.
    """

    trial: int
    directory: str
    config: Mapping[str, object]
    metric: str | None


class TrialWorker:
    """Runs trials on the worker of an executor."""

    def __init__(self, folder: Path, threads: int) -> None:
        """Open the sweep's folder and set the number of threads.

        Args:
            folder: Of the sweep.
            threads: Threads of torch.

        Raises:
            WorkerError: if another sweep has taken over the folder.
        """
        self._lock = hold(folder / LOCK, shared=True)
        if self._lock is None:
            raise WorkerError(f"{folder}: another sweep is going on there")
        torch.set_num_threads(threads)
        if hasattr(os, "setpgrp"):
            os.setpgrp()  # Ctrl-C of the terminal is the sweep's, which ends trials in its turn.
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())  # Each run has its log.

    def run(self, report: Report, order: Order) -> Outcome:
        """Run a trial; reports the process and its node first, then steps and values."""
        report((os.getpid(), platform.node()))
        reporter = _Reporter(order, report)
        try:
            with Termination(), contextlib.redirect_stdout(sys.stderr):
                return self._run(order, [reporter] if order.metric else [])
        except KeyboardInterrupt:
            return Outcome("pruned" if reporter.is_pruned else "interrupted")
        except EmpoError as error:
            return Outcome("failed", str(error))
        except BaseException as error:
            return Outcome("failed", f"{type(error).__name__}: {error}")

    def prune(self) -> None:
        """Nothing: a trial ends early because this call waits for the worker."""

    def close(self) -> None:
        """Release the sweep's folder."""
        if self._lock is not None:
            self._lock.close()

    def _run(self, order: Order, watchers: Sequence[Tracker]) -> Outcome:
        directory = Path(order.directory)
        if not directory.parent.is_dir():
            raise StorageError(f"{directory.parent}: was moved or removed while the sweep went on")
        if not (directory / CONFIG).is_file():
            if directory.exists():  # An earlier attempt was killed before it began.
                shutil.rmtree(directory)
            config = RunConfig.model_validate(order.config, context={"registry": installed()})
            Experiment.start(config, place=directory, watchers=watchers, terminal=False)
        elif status_of(directory).status != "finished":
            lock = hold(directory / LOCK)
            if lock is None:
                return Outcome("busy")
            lock.close()
            Experiment.resume(directory, watchers=watchers, terminal=False)
        return Outcome("done")


class _Reporter(Tracker):
    """Sends a metric to the sweep, and stops the run where the sweep prunes it."""

    def __init__(self, order: Order, report: Report) -> None:
        self._metric, self._report = order.metric or "", report
        self.is_pruned = False

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Send the metric, if it is among the logged ones."""
        value = metrics.get(self._metric)
        if not isinstance(value, int | float) or self.is_pruned:
            return
        if self._report((step, float(value))):
            self.is_pruned = True
            interrupt()  # As if by hand, so that the run can be resumed.
