"""Execution of a sweep's trials on an executor."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import queue
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

from empo_core.best_effort import best_effort
from empo_core.components import build
from empo_core.config.yaml import dump_yaml, read_yaml
from empo_core.errors import ConfigError, LostError, StorageError, WorkerError
from empo_core.protocols import Executor, RunStatus, Tracker
from empo_core.runs.atomic import write_file
from empo_core.runs.directory import resolved
from empo_core.runs.files import hold
from empo_executors.replaced_worker import ReplacedWorker
from empo_sweep.arms import Sweep, Trial
from empo_sweep.trial_worker import LOCK, Order, Outcome, TrialWorker
from empo_sweep.trials import Trials, summary_of

SWEEP = "sweep.yaml"
_TICK_S = 0.2
_ORPHANS_S = 10.0
"""Seconds in which workers of a sweep that was killed are gone."""
_WINDING_UP_S = 30.0
"""Seconds that trials have to save what they did, once the sweep is interrupted."""
_TRIALS = "trials"
_MOST_LOSSES = 2


@contextlib.contextmanager
def opened(sweep: Sweep, fixed: Sequence[Trial]) -> Iterator[Trials]:
    """The trials of a sweep, with exclusive use of the sweep's folder.

    Args:
        sweep: The sweep.
        fixed: The trials that are known in advance.

    Raises:
        ConfigError: if another process runs this sweep, or the folder belongs to another sweep.
        StorageError: if the folder cannot be used, or a record in it is damaged.
    """
    folder = sweep.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{folder}: cannot be made: {error.strerror}; choose another place (sweeps=...)"
        raise StorageError(reason) from error
    deadline = time.monotonic() + _ORPHANS_S
    while (lock := hold(folder / LOCK)) is None:
        if time.monotonic() > deadline:
            raise ConfigError(f"{folder}: this sweep is going on in another process")
        time.sleep(_TICK_S)
    lock.close()
    lock = hold(folder / LOCK, shared=True)  # Workers share it, and outlive a killed sweep a bit.
    if lock is None:
        raise ConfigError(f"{folder}: this sweep is going on in another process")
    with lock:
        _keep_config(sweep, sweep.sealed(fixed))
        yield Trials(sweep, fixed)


def _keep_config(sweep: Sweep, digest: str) -> None:
    """Write ``sweep.yaml``, or refuse the folder if its ``sweep.yaml`` has other trials."""
    path = sweep.folder / SWEEP
    digests = [sweep.config.digest]
    if path.exists():
        saved = read_yaml(path).data
        digests.append(str(saved.get("digest")) if isinstance(saved, dict) else "")
    if any(other not in (None, digest) for other in digests):
        raise ConfigError(
            f"{path}: a sweep with other trials has this folder, or its world or another file that "
            "its config names was changed since; change that back, or give this sweep another name "
            "(name=...), or remove the folder"
        )
    data = sweep.config.model_dump(mode="json")
    data |= {"name": sweep.name, "digest": digest}
    if isinstance(sweep.config.base, str):
        data["base"] = str(Path(sweep.base.name).resolve())
    head = f"# A sweep as it was resolved; go on with it by: empo sweep {path}\n"
    write_file(path, head + dump_yaml(data))


class Runner:
    """Runs the unfinished trials of a sweep."""

    def __init__(self, sweep: Sweep, trials: Trials, tracker: Tracker, *, retry: bool) -> None:
        """Collect the unfinished trials.

        Args:
            sweep: The sweep.
            trials: Its trials.
            tracker: Records progress.
            retry: Whether trials that failed are run again.
        """
        self._sweep, self._trials, self._tracker = sweep, trials, tracker
        left = [
            state
            for state in trials.states
            if not state.is_over or (retry and state.status == "failed")
        ]
        self._waiting = deque(state.trial for state in left)
        self._over, self._failed = len(trials.states) - len(left), 0
        self._running: dict[int, Trial] = {}
        """By worker; each has one trial at a time."""
        self._processes: dict[int, tuple[int, str]] = {}
        """Process and node of each worker that runs a trial."""
        self._slots: list[ReplacedWorker] = []
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._losses: dict[int, int] = {}
        self._busy: list[Trial] = []
        self._stopped: set[int] = set()
        self._is_known = False
        self._threads = max(1, int(sweep.config.needs.cpus))
        pruner = sweep.config.search.pruner if sweep.config.search else None
        self._metric = None if pruner is None else pruner.metric

    def run(self) -> list[Trial]:
        """Run the unfinished trials, and return those that another process runs.

        Raises:
            KeyboardInterrupt: if the sweep is interrupted; running trials are interrupted, too.
            WorkerError: if no worker is left.
            ConfigError: if no trial has the objective, or a point makes no valid config.
        """
        status: RunStatus = "failed"
        self._tracker.start(self._sweep.folder, {})
        try:
            if self._is_left:
                self._run()
            self._show()
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        finally:
            self._tracker.finish(status)
        return self._busy

    @property
    def _is_left(self) -> bool:
        """True if a trial waits, or is to be planned once a worker has none."""
        return bool(self._waiting) or len(self._trials.states) < self._trials.total

    def _run(self) -> None:
        config = self._sweep.config
        executor: Executor = build(config.executor)
        workers = min(config.workers, self._trials.total - len(self._trials.in_state("done")))
        make = partial(TrialWorker, self._sweep.folder, self._threads)
        losses = _MOST_LOSSES * self._trials.total  # Beyond that it is not the trials.
        self._slots = [
            ReplacedWorker(executor, make, losses, config.needs.needs()) for _ in range(workers)
        ]
        try:
            while self._is_left or self._running:
                self._submit()
                self._show()
                self._take(_TICK_S)
                if all(slot.given_up for slot in self._slots):
                    failure = self._slots[0].last_failure
                    raise WorkerError(f"no worker is left; the last failure: {failure}")
        except KeyboardInterrupt:
            self._wind_up()
            raise
        finally:
            with best_effort("ending the workers"):
                executor.shutdown()

    def _submit(self) -> None:
        """Submit trials to idle workers."""
        for number, slot in enumerate(self._slots):
            if not slot.is_running() or number in self._running or not self._is_left:
                continue
            if not self._waiting:
                self._waiting += [planned.trial for planned in self._trials.more()]
            if not self._waiting:
                return
            trial = self._waiting.popleft()
            config = self._sweep.config_of(trial.arm, trial.seed)
            directory = str(self._sweep.folder / trial.run)
            order = Order(trial.number, directory, resolved(config), self._metric)
            self._running[number] = trial
            note = partial(self._note, number)
            slot.call("run", order, on_report=note).add_done_callback(note)

    def _note(self, number: int, event: Any) -> None:
        """Thread of the executor: pass on a report, or the end of a trial."""
        self._events.put((number, event))

    def _take(self, timeout_s: float) -> None:
        """Deal with the next report or end of a trial, if one comes in time."""
        with contextlib.suppress(queue.Empty):
            number, event = self._events.get(timeout=timeout_s)
            if isinstance(event, Future):
                self._close(number, event)
            elif isinstance(event[1], str):
                self._processes[number] = event
            else:
                self._report(number, *event)

    def _close(self, number: int, answer: Future[Outcome]) -> None:
        trial, error = self._running.pop(number), answer.exception()
        self._processes.pop(number, None)
        if isinstance(error, LostError):
            self._lose(trial, str(error))
        elif error is not None:
            raise WorkerError(f"a worker cannot be built: {error}") from error
        else:
            self._slots[number].has_delivered = True
            self._end(trial, answer.result())

    def _report(self, number: int, step: int, value: float) -> None:
        trial = self._running[number]
        if trial.number in self._stopped or not math.isfinite(value):
            return
        if self._trials.report(trial.number, step, value):
            self._stopped.add(trial.number)
            self._slots[number].call("prune")

    def _lose(self, trial: Trial, how: str) -> None:
        """Plan a trial of a dead worker again, within a limit of attempts."""
        self._losses[trial.number] = self._losses.get(trial.number, 0) + 1
        if self._losses[trial.number] < _MOST_LOSSES:
            self._waiting.appendleft(trial)
        else:
            self._end(trial, Outcome("failed", how))

    def _end(self, trial: Trial, outcome: Outcome) -> None:
        if outcome.event == "busy":
            self._busy.append(trial)
            self._trials.end(trial, "interrupted")
            return
        if outcome.event == "done" and not self._is_known:
            self._check_objective(trial)
        self._trials.end(trial, outcome.event, outcome.reason)
        if outcome.event != "interrupted":
            self._over += 1
            self._failed += outcome.event == "failed"

    def _check_objective(self, trial: Trial) -> None:
        """Check that the first trial that is done has the objective.

        Raises:
            ConfigError: if the trial's summary has no such key.
        """
        goal = self._sweep.config.goal
        summary = summary_of(self._sweep.folder / trial.run)
        if goal is not None and goal.key not in summary:
            numbers = [key for key, number in summary.items() if isinstance(number, int | float)]
            raise ConfigError(
                f"objective.key: {trial.run} has no result {goal.key!r}; it has "
                f"{', '.join(numbers[:20])}"
            )
        self._is_known = True

    def _wind_up(self) -> None:
        """Interrupt the running trials, which save checkpoints as after Ctrl-C."""
        for process in self._processes.values():
            _interrupt(*process)
        deadline = time.monotonic() + _WINDING_UP_S
        while self._running and time.monotonic() < deadline:
            self._take(_TICK_S)

    def _show(self) -> None:
        parts = [f"{len(self._running)} running"] + [f"{self._failed} failed"] * bool(self._failed)
        self._tracker.status(_TRIALS, ", ".join(parts))
        self._tracker.progress(_TRIALS, self._over, self._trials.total)


def _interrupt(pid: int, node: str) -> None:
    """Interrupt the run of a worker of this machine; those of others cannot be reached."""
    if node == platform.node():
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGTERM)
