"""The run loop of all learners: advance, log, evaluate, save; interrupts, errors, resumption."""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from empo_core.errors import (
    CallbackError,
    ConfigError,
    EmpoError,
    NonFiniteError,
    StorageError,
    TrackerError,
)
from empo_core.interrupts import Interrupts
from empo_core.protocols import CheckpointChoice, RunContext, Tracker, Training
from empo_core.runs.atomic import StrictModel
from empo_core.stages import stage
from empo_core.trees import StateDict
from empo_learning.bounded_curve import BoundedCurve
from empo_learning.callback_set import CallbackSet
from empo_learning.checkpoint import Checkpoints
from empo_learning.distributed import Group, RankLostError
from empo_learning.finite import check_finite_state
from empo_learning.learner import EvaluationInterrupted, Learner, Metrics
from empo_learning.lr_schedules import name_of
from empo_learning.params import Reporting
from empo_learning.randomness import capture, restore
from empo_learning.saved_state import SavedState, fitting
from empo_learning.timers import Timers

log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
TASK = "training"
PROGRESS_S = 0.2
"""Seconds between signs of progress."""
LONG_UPDATE_S = 2.0
"""Seconds of an update from which on the status says that one goes on."""


class TrainingRow(NamedTuple):
    """How a run stood at a line of its log: a row of ``training.csv``.

    Attributes:
        steps: Steps so far.
        seconds: Time of all calls of ``Learner.advance`` so far, over all attempts.
        mean_return: Mean return of the newest episodes; None before any has ended.
        mean_length: Their mean number of steps.
    """

    steps: int
    seconds: float
    mean_return: float | None
    mean_length: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What a run left to report, whatever its learner.

    Attributes:
        directory: The run directory.
        seed: The seed of the run.
        steps: Steps so far.
        seconds: Time of all calls of ``Learner.advance``, over all attempts.
        history: A row for each line of the log, thinned out in long runs.
        scores: The scores of all evaluations.
        stop_reason: Why a callback ended the run early; None: none did.
    """

    directory: Path
    seed: int
    steps: int
    seconds: float
    history: Sequence[TrainingRow] = ()
    scores: Sequence[float] = ()
    stop_reason: str | None = None


class Loop:
    """Runs a learner from its start, or from the newest good checkpoint, to its end.

    Attributes:
        seconds: Time of all calls of ``Learner.advance`` so far, over all attempts.
        timers: Where the time goes; learners measure their own parts with it.
    """

    def __init__(
        self,
        learner: Learner,
        context: RunContext,
        reporting: Reporting,
        *,
        timers: Timers | None = None,
        group: Group | None = None,
        is_solved: Callable[[Sequence[float]], bool] | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            learner: What learns.
            context: What the run was given.
            reporting: When to log, evaluate and save, in ``Learner.ticks``.
            timers: The timers that the learner uses, if it does.
            group: The processes that learn together; None: this one alone.
            is_solved: Whether the scores of all evaluations so far are good enough to end the run.
        """
        self._learner, self._context, self._reporting = learner, context, reporting
        learner.interruptible = self._interruptible
        self._group, self._is_solved = group or Group(), is_solved
        self._training = Training(
            directory=context.directory,
            total_steps=learner.total_steps,
            evaluation_interval=reporting.evaluation_interval if learner.evaluates else 0,
        )
        # Of several processes the first one calls them, and all do what they ask for.
        self._callbacks = CallbackSet(context.callbacks, self._training)
        learner.after_rollout = self._begin_update
        if self._callbacks and self._group.is_first:
            learner.after_update = lambda: self._follow(self._callbacks.after_update)
        self._checkpoints = Checkpoints(
            context.directory / CHECKPOINTS, keep=reporting.keep_checkpoints
        )
        self._logged = self._evaluated = self._saved = -1
        self._score: float | None = None
        self._scores: list[float] = []
        self._last_progress = -math.inf
        self._status, self._update_s = "", math.inf
        self._update_began: float | None = None
        self._is_midway = self._is_evaluating = False
        self._interrupts = Interrupts(self._announce_stop)
        self._failure: Exception | None = None
        self._is_agreed = False
        self._lr_schedule = None if context.lr_schedule is None else name_of(context.lr_schedule)
        self.timers = timers or Timers()
        self.seconds = 0.0
        self._history: BoundedCurve[TrainingRow] = BoundedCurve()

    def run(self) -> None:
        """Learn until all is done; with ``context.resume``, from the newest good checkpoint.

        Raises:
            ConfigError: if the run is extended, and nothing is left to do.
            KeyboardInterrupt: if a signal stopped the run; there is a checkpoint to go on from.
            StorageError: if there are checkpoints but none is good; or the disk refuses one.
            RankLostError: if another process has ended; the first one left a checkpoint.
            Exception: if something else ended the run, after a checkpoint that is finite.
        """
        if self._group.is_first:
            self._callbacks.start()
        # The first process alone knows, where torchrun started all of them again.
        if not (self._group.shared(self._context.resume) and self._resume()):
            self._learner.start()
        if self._context.is_extended:
            self._training.stop_reason = None  # Whoever asks for more overrules the callback.
            if self._is_over:
                raise self._nothing_left()
        with self._interrupts as interrupts:
            try:
                if self._group.size > 1 and self._saved < 0:
                    self._save()  # To go on from, should the first process be lost.
                # Whoever estimates the time left learns where this attempt begins.
                self._show_progress()
                if self._is_evaluating:
                    self._evaluate()
                    self._save()
                while not self._is_over:
                    self._agree(stop=interrupts.are_pending)
                    self._advance()
                if self._training.stop_reason is not None:
                    steps = f"{self._learner.steps:,}"
                    log.info("stopped after %s steps: %s", steps, self._training.stop_reason)
                self._finish()
                self._show_progress()
                self._agree(stop=False)
            except StorageError:
                raise  # The disk refused a checkpoint; it would refuse another one.
            except (KeyboardInterrupt, Exception) as error:
                # Several processes may have stopped at different places, and cannot save then.
                is_agreed = self._is_agreed or isinstance(error, EvaluationInterrupted)
                if is_agreed or self._group.size == 1:
                    self._rescue(error)
                if isinstance(error, RankLostError):
                    raise  # Torchrun stops the others by signals.
                if interrupts.are_pending and isinstance(error, Exception):
                    raise KeyboardInterrupt from error  # Workers may have ended by that signal.
                raise
            finally:
                if self._group.is_first:
                    self._callbacks.finish()

    @property
    def record(self) -> RunRecord:
        """The run so far."""
        return RunRecord(
            directory=self._context.directory,
            seed=self._context.seed,
            steps=self._learner.steps,
            seconds=self.seconds,
            history=list(self._history),
            scores=list(self._scores),
            stop_reason=self._training.stop_reason,
        )

    def _nothing_left(self) -> ConfigError:
        """The refusal to train on where nothing is left to do."""
        learner = self._learner
        if learner.is_over:
            return ConfigError(
                f"algorithm.params.total_steps: {learner.total_steps:,} leaves nothing to do, for "
                f"the run has taken {learner.steps:,} steps; give more"
            )
        return ConfigError(
            "algorithm.params.reporting.solved_at: the evaluations of this run have reached it, so "
            f"that nothing is left to do after {learner.steps:,} steps; give a greater one, or null"
        )

    @property
    def _is_over(self) -> bool:
        """True if all is done, the newest evaluations are good enough, or a callback says so."""
        if self._training.stop_reason is not None:
            return True
        is_solved = self._is_solved is not None and self._is_solved(self._scores)
        return self._learner.is_over or is_solved

    def _agree(self, *, stop: bool) -> None:
        """Stop all processes after the same work, if one has to: by a signal, or a failure."""
        if self._group.sum(int(stop or self._failure is not None)):
            self._is_agreed = True
            raise self._failure or KeyboardInterrupt

    def _advance(self) -> None:
        """One unit of work, and what is due after it."""
        learner, reporting = self._learner, self._reporting
        before, self._is_midway = learner.ticks, True
        began = time.perf_counter()
        learner.advance()
        self.seconds += time.perf_counter() - began
        self._is_midway = False
        self._end_update()
        self._show_now_and_then()
        self._heed_callbacks()
        # Of the last steps, what is due comes when all is over: some work may be left to do.
        if learner.steps >= learner.total_steps:
            return
        if _is_due(before, learner.ticks, reporting.log_interval):
            self._log()
        if _is_due(before, learner.ticks, reporting.evaluation_interval):
            self._evaluate()
        if _is_due(before, learner.ticks, reporting.checkpoint_interval):
            self._save()

    def _begin_update(self) -> None:
        """Say that an update goes on, unless the last one was short; callbacks come after it.

        Until the update is over, nothing else is told: the display of progress shows the time.
        """
        if self._update_s > LONG_UPDATE_S:
            last = f"the last one took {self._update_s:.0f} s"
            doing = "first update" if math.isinf(self._update_s) else f"update, {last}"
            self._follow(lambda: self._show_status(doing))
        if self._callbacks and self._group.is_first:
            self._follow(self._callbacks.after_rollout)
        self._update_began = time.perf_counter()

    def _end_update(self) -> None:
        """Note how long an update took, if ``advance`` made one."""
        if self._update_began is None:
            return
        if self._update_s > LONG_UPDATE_S:
            self._report(self._show_status)
        self._update_s = time.perf_counter() - self._update_began
        self._update_began = None

    def _finish(self) -> None:
        """Log, evaluate and save at the end, whatever of it was not just done."""
        if self._logged != self._learner.updates:
            self._log()
        self._evaluate()
        if self._saved != self._learner.updates:
            with stage(self._tell, "saving the last checkpoint"):
                self._save()

    def _log(self) -> None:
        learner = self._learner
        lap = self.timers.lap()
        metrics = dict(learner.metrics(lap))
        _refuse_non_finite(metrics, learner.steps)
        speeds = self._speeds(lap)
        means = (metrics.get(f"episode/{name}_mean") for name in ("return", "length"))
        numbers = (mean if isinstance(mean, float) else None for mean in means)
        self._history.append(TrainingRow(learner.steps, self.seconds, *numbers))
        self._logged = learner.updates
        self._report(lambda: self._context.tracker.log(learner.steps, {**metrics, **speeds}))
        parts = [f"{speeds['time/steps_per_second']:,.0f} steps/s", *learner.status()]
        self._status = " | ".join(parts)
        self._report(self._show_status)

    def _speeds(self, lap: Mapping[str, float]) -> dict[str, float]:
        """Metrics of a new line: speed, and shares of the seconds since the line before."""
        steps = self._learner.steps
        before, began = self._history[-1][:2] if self._history else (0, 0.0)
        whole = sum(part for name, part in lap.items() if "/" not in name)
        return {
            "time/steps_per_second": (steps - before) / max(self.seconds - began, 1e-9),
            "time/steps_per_second_total": steps / max(self.seconds, 1e-9),
            **{f"time/{name}_percent": 100 * part / whole for name, part in lap.items() if whole},
        }

    def _evaluate(self) -> None:
        """Evaluate, unless that was just done."""
        if self._evaluated == self._learner.steps:
            return
        self._is_evaluating = True
        with self.timers("evaluation"):
            evaluated = self._learner.evaluate()
        self._is_evaluating = False
        self._evaluated = self._learner.steps
        if evaluated is not None:
            self._score = evaluated.score
            self._scores += [] if evaluated.score is None else [evaluated.score]
            metrics = evaluated.metrics
            self._report(lambda: self._context.tracker.log(self._learner.steps, metrics))
            if self._group.is_first:
                score = evaluated.score
                self._follow(lambda: self._callbacks.after_evaluation(score, metrics))
            self._heed_callbacks()

    def _follow(self, call: Callable[[], None]) -> None:
        """Call callbacks, or a tracker within an update; one that fails ends the run later.

        Once the unit of work is over, a checkpoint is exact.
        """
        self._training.steps = self._learner.steps
        self._training.scores = tuple(self._scores)
        try:
            call()
        except Exception as error:
            self._failure = self._failure or error

    def _heed_callbacks(self) -> None:
        """Do what callbacks have asked for, in all processes alike."""
        if not self._callbacks:
            return
        training = self._training
        asked_for = training.stop_reason, training.lr_scale, training.is_save_due
        training.stop_reason, training.lr_scale, is_save_due = self._group.shared(asked_for)
        training.is_save_due = False
        self._learner.lr_scale = training.lr_scale
        if training.metrics:
            metrics = dict(training.metrics)
            training.metrics.clear()
            self._report(lambda: self._context.tracker.log(self._learner.steps, metrics))
        if is_save_due:
            self._save()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Work that a signal breaks off at once; random numbers go on as if it had not begun."""
        randomness = capture()
        try:
            with self._interrupts.raising():
                yield
        except KeyboardInterrupt:
            restore(randomness)
            raise

    def _announce_stop(self, number: signal.Signals) -> None:
        log.warning(
            "%s: the run stops as soon as the current step is done and a checkpoint is written; a "
            "second signal stops it at once, after which it may not go on exactly as it would have",
            number.name,
        )

    def _report(self, tell: Callable[[], None]) -> None:
        """Tell the trackers; one that fails ends the run after all that is due at this step.

        What goes on from there would leave that out, and all processes stop at the same place.
        """
        try:
            tell()
        except Exception as error:
            self._failure = self._failure or error

    def _show_now_and_then(self) -> None:
        if time.monotonic() - self._last_progress > PROGRESS_S:
            self._last_progress = time.monotonic()
            self._show_progress()

    def _show_status(self, *doing: str) -> None:
        text = " | ".join(filter(None, (self._status, *doing)))
        self._context.tracker.status(TASK, text)

    def _show_progress(self) -> None:
        done, total = self._learner.progress
        done = total if self._is_over else min(done, total)
        self._tell(TASK, done, total)

    def _tell(self, task: str, done: float, total: float) -> None:
        self._report(lambda: self._context.tracker.progress(task, done, total))

    def _rescue(self, error: BaseException) -> None:
        """Save although the run broke off, if there is no checkpoint of all that was learned."""
        if self._saved == self._learner.updates:
            return
        try:
            self._save(rescuing=True)
        except Exception as refusal:
            is_expected = isinstance(error, KeyboardInterrupt | EmpoError)
            if isinstance(refusal, NonFiniteError) and not is_expected:
                raise refusal from error  # It says why code that expects numbers failed.
            error.add_note(f"There is no checkpoint of this step: {refusal}")

    def _save(self, *, rescuing: bool = False) -> None:
        """Write a checkpoint; while ``rescuing`` without metrics that cannot be saved.

        Raises:
            NonFiniteError: if something in it is not finite.
            StorageError: if the disk refuses.
        """
        learner = self._learner
        learner_state = learner.state_dict(midway=self._is_midway)
        randomness = self._group.gathered(capture())
        if not self._group.is_first:
            self._saved = learner.updates
            return
        state = {
            "learner": learner_state,
            "randomness": randomness,
            "tracker": _tracker_state(self._context.tracker, rescuing),
            "logged": self._logged,
            "evaluated": self._evaluated,
            "is_evaluating": self._is_evaluating,
            "score": self._score,
            "scores": self._scores,
            "lr_scale": self._training.lr_scale,
            "stop_reason": self._training.stop_reason,
            "callbacks": _state_of(self._callbacks, rescuing),
            "lr_schedule": self._lr_schedule,
        }
        _check_state(learner_state, learner.may_be_unknown, "what is to be saved")
        times = {
            "seconds": self.seconds,
            "history": self._history.state_dict(),
            "timers": self.timers.state_dict(),
        }
        score = self._score if self._evaluated == learner.steps else None
        self._checkpoints.save(learner.updates, state, score=score, times=times)
        self._saved = learner.updates

    def _resume(self) -> bool:
        """Go on from the newest good checkpoint; False where there is none at all."""
        group = self._group
        newest = None
        if group.is_first:
            newest = self._checkpoints.newest(_finite(self._learner.may_be_unknown))
        newest = group.shared(newest)
        if newest is None:
            self._context.tracker.truncate(self._learner.steps)
            return False
        self._saved, state = newest
        with fitting(state.source):
            self._restore(state)
        self._context.tracker.truncate(self._learner.steps)
        log.info("going on from step %s", f"{self._learner.steps:,}")
        return True

    def _restore(self, state: SavedState) -> None:
        """Put the learner, and everything that is counted, where a checkpoint was written."""
        group = self._group
        times = group.shared(self._checkpoints.times(self._saved) if group.is_first else {})
        if len(state["randomness"]) != group.size:
            log.warning(
                "%d processes wrote the checkpoint and %d go on from it: the run goes on, but not "
                "as it would have in as many",
                len(state["randomness"]),
                group.size,
            )
        counts = _Counts.model_validate({name: state[name] for name in _Counts.model_fields})
        self._logged, self._evaluated = counts.logged, counts.evaluated
        self._is_evaluating = counts.is_evaluating
        self._score, self._scores = counts.score, counts.scores
        self._training.stop_reason = counts.stop_reason
        self._training.lr_scale = self._learner.lr_scale = counts.lr_scale
        if counts.lr_schedule != self._lr_schedule:
            log.warning(
                "lr_schedule: learning rates followed %s, and follow %s from here on",
                counts.lr_schedule or "the config",
                self._lr_schedule or "the config",
            )
        if group.is_first:
            self._callbacks.load_state_dict(state["callbacks"])
        if times:
            self.seconds = times["seconds"]
            history = times["history"]
            rows = [TrainingRow(*row) for row in history["rows"]]
            self._history.load_state_dict({**history, "rows": rows})
            self.timers.load_state_dict(times["timers"])
        else:
            log.warning("the checkpoint has no times: they count from here on")
        self._context.tracker.load_state_dict(state["tracker"])
        self._learner.load_state_dict(state["learner"])
        if group.rank < len(state["randomness"]):
            restore(state["randomness"][group.rank])


class _Counts(StrictModel):
    """The loop's own part of a checkpoint."""

    logged: int = Field(ge=-1)
    evaluated: int = Field(ge=-1)
    is_evaluating: bool
    score: float | None
    scores: list[float]
    lr_scale: float = Field(gt=0)
    stop_reason: str | None
    lr_schedule: str | None


def _state_of(callbacks: CallbackSet, rescuing: bool) -> list[StateDict]:
    try:
        return callbacks.state_dict()
    except CallbackError:
        if not rescuing:
            raise
        log.warning("the checkpoint does without the states of callbacks", exc_info=True)
        return []


def _tracker_state(tracker: Tracker, rescuing: bool) -> StateDict:
    try:
        return tracker.state_dict()
    except TrackerError:
        if not rescuing:
            raise
        log.warning("the checkpoint does without the numbers of episodes", exc_info=True)
        return {}


@contextmanager
def saved_state(
    directory: Path, checkpoint: CheckpointChoice, may_be_unknown: Collection[str] = ()
) -> Iterator[SavedState]:
    """The learner's state in a checkpoint of a run that is whole and finite, while it is read.

    Args:
        directory: Of the run.
        checkpoint: Which one.
        may_be_unknown: As of the learner.

    Yields:
        What ``Learner.state_dict`` returned.

    Raises:
        StorageError: if there is no such checkpoint; all are damaged or not finite; or the code
            that reads the state fails because a value has another type or shape.
    """
    checkpoints = Checkpoints(directory / CHECKPOINTS)
    if checkpoint == "newest":
        loaded = checkpoints.newest(_finite(may_be_unknown))
    else:
        loaded = checkpoints.best(_finite(may_be_unknown))
    if loaded is None:
        lacks = "no checkpoint" + " with an evaluation" * (checkpoint == "best")
        raise StorageError(
            f"{directory}: this run has learned nothing that could be loaded: it has {lacks}; go "
            f"on with: empo resume {directory}"
        )
    state: SavedState = loaded[1]["learner"]
    with fitting(state.source):
        yield state


def _finite(may_be_unknown: Collection[str]) -> Callable[[Mapping[str, Any]], None]:
    """A check of what checkpoints hold."""
    return lambda state: _check_state(state["learner"], may_be_unknown, "what it holds")


def _check_state(state: Mapping[str, Any], may_be_unknown: Collection[str], subject: str) -> None:
    if not isinstance(state, Mapping):
        raise StorageError(
            f"{subject}: the learner's state is {type(state).__name__}, no dictionary"
        )
    check_finite_state({k: v for k, v in state.items() if k not in may_be_unknown}, subject)


def _is_due(before: int, now: int, interval: int) -> bool:
    """True if a count went past a multiple of the interval; 0 means never."""
    return interval > 0 and now // interval > before // interval


def _refuse_non_finite(metrics: Metrics, steps: int) -> None:
    for name, number in metrics.items():
        if (
            name.startswith(("loss/", "optim/"))
            and isinstance(number, float)
            and not math.isfinite(number)
        ):
            raise NonFiniteError(
                f"after {steps:,} steps {name} is {number}: learning has come apart; go on from an "
                "older checkpoint with a lower optimiser.lr, or look at the rewards of the "
                "environment"
            )
