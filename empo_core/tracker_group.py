"""Several trackers as one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from torch import Tensor

from empo_core.best_effort import best_effort
from empo_core.errors import ConfigError, TrackerError
from empo_core.exits import event, exits_are_errors
from empo_core.protocols import EpisodeMetric, RunStatus, Tracker
from empo_core.stages import KernelStage
from empo_core.trees import JsonData, StateDict
from empo_core.types import Histogram

OnError = Literal["fail", "warn"]

log = logging.getLogger("empo_core.trackers")


class TrackerGroup(Tracker):
    """Passes every hook on to several trackers, and adds their episode metrics to every log.

    Between start and finish it also tells them when kernels are compiled or loaded.

    What a tracker raises becomes a ``TrackerError``, which ends the run; with
    ``on_error="warn"`` that tracker is finished, left out from then on, and one warning says so.
    What one raises in ``finish`` is always a warning: the run is over by then.

    Attributes:
        has_begun: Whether there was anything to report yet.
    """

    def __init__(self, trackers: Sequence[Tracker], *, on_error: OnError = "fail") -> None:
        self._trackers = trackers
        self._on_error = on_error
        self._started: list[Tracker] = []
        self.has_begun = False
        self._metrics = _EpisodeMetrics(self._guarded)
        self._kernels = KernelStage(self._progress)

    @property
    def episode_metric(self) -> EpisodeMetric | None:
        """The metrics of the trackers that have started, as one; None where there is none."""
        return self._metrics if self._metrics.members else None

    def start(self, directory: Path, config: Mapping[str, JsonData]) -> None:
        """Start every tracker; what one raises here is raised as it is, or is a warning."""
        self._kernels.start()
        for place, tracker in enumerate(self._trackers):
            with self._rescued(tracker, "start"):
                tracker.start(directory, config)
                self._started.append(tracker)
                if (metric := tracker.episode_metric) is not None:
                    self._metrics.members[place] = (tracker, metric)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers for every tracker, those of the episode metrics among them."""
        self.has_begun = True
        metrics = {**metrics, **self._metrics.statistics()}
        self._each("log", lambda tracker: tracker.log(step, metrics))

    def progress(self, task: str, done: float, total: float) -> None:
        """Tell every tracker how far a task is."""
        self.has_begun = self.has_begun or done > 0
        self._kernels.end()
        self._progress(task, done, total)

    def _progress(self, task: str, done: float, total: float) -> None:
        self._each("progress", lambda tracker: tracker.progress(task, done, total))

    def status(self, task: str, text: str) -> None:
        """One short line for every tracker."""
        self._each("status", lambda tracker: tracker.status(task, text))

    def truncate(self, step: int) -> None:
        """Have every tracker drop what was logged for later steps."""
        self._each("truncate", lambda tracker: tracker.truncate(step))

    def finish(self, status: RunStatus) -> None:
        """Finish every tracker that was started; one that fails at it is a warning."""
        self._metrics.members.clear()
        self._kernels.stop()
        with contextlib.ExitStack() as stack:
            while self._started:
                stack.callback(self._finish, self._started.pop(), status)

    def _finish(self, tracker: Tracker, status: RunStatus) -> None:
        with best_effort(f"finish of the tracker {type(tracker).__name__}"):
            tracker.finish(status)

    def _rescued(self, tracker: Tracker, hook: str) -> contextlib.AbstractContextManager[None]:
        """As ``_guarded``, but what ends the run is raised as it is, for no result is at stake."""
        if self._on_error == "fail":
            return exits_are_errors(f"the tracker {type(tracker).__name__}, in {hook},")
        return self._guarded(tracker, hook)

    def _each(self, hook: str, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self._started):
            with self._guarded(tracker, hook):
                call(tracker)

    @contextlib.contextmanager
    def _guarded(self, tracker: Tracker, hook: str) -> Iterator[None]:
        """Deal with what a tracker raises in one of its hooks; Ctrl-C is not the tracker's."""
        try:
            yield
        except (KeyboardInterrupt, ConfigError):
            raise  # The person's wish, and the person's config: no fault of the tracker.
        except BaseException as error:
            told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            if isinstance(error, SystemExit):
                told = event(error)
            what = f"the tracker {type(tracker).__name__} failed in {hook}: {told}"
            if self._on_error == "fail":
                raise TrackerError(what) from error
            log.warning("%s; it is switched off, and the run goes on", what)
            self._switch_off(tracker, hook)

    def _switch_off(self, tracker: Tracker, hook: str) -> None:
        self._metrics.drop(tracker)
        if tracker in self._started:
            self._started.remove(tracker)
            if hook != "finish":
                with contextlib.suppress(Exception):
                    tracker.finish("failed")


class _EpisodeMetrics:
    """Several episode metrics as one, by the places of their trackers in the config."""

    def __init__(
        self, guarded: Callable[[Tracker, str], contextlib.AbstractContextManager[None]]
    ) -> None:
        self.members: dict[int, tuple[Tracker, EpisodeMetric]] = {}
        self._guarded = guarded

    def drop(self, tracker: Tracker) -> None:
        """Leave out the metric of a tracker."""
        self.members = {
            place: (owner, metric)
            for place, (owner, metric) in self.members.items()
            if owner is not tracker
        }

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Begin anew in every metric."""
        for tracker, metric in [*self.members.values()]:
            with self._guarded(tracker, "follow"):
                metric.follow(num_envs, reasons)

    def step(
        self,
        rewards: Tensor,
        dones: Tensor,
        reasons: Tensor | None = None,
        active: Tensor | None = None,
    ) -> None:
        """One step of the environments, for every metric."""
        for tracker, metric in [*self.members.values()]:
            with self._guarded(tracker, "step"):
                metric.step(rewards, dones, reasons, active)

    def statistics(self) -> dict[str, float | Histogram]:
        """The numbers of all metrics; of two with one key, the later one's."""
        found: dict[str, float | Histogram] = {}
        for tracker, metric in [*self.members.values()]:
            with self._guarded(tracker, "statistics"):
                found |= metric.statistics()
        return found

    def state_dict(self) -> StateDict:
        """The states of the metrics by their trackers' places in the config."""
        states: StateDict = {}
        for place, (tracker, metric) in [*self.members.items()]:
            with self._guarded(tracker, "state_dict"):
                states[str(place)] = metric.state_dict()
        return states

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned; a metric that had been switched off begins anew."""
        for place, (tracker, metric) in [*self.members.items()]:
            if str(place) in state_dict:
                with self._guarded(tracker, "load_state_dict"):
                    metric.load_state_dict(state_dict[str(place)])
