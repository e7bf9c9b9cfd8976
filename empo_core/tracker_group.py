"""Several trackers as one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.best_effort import best_effort
from empo_core.errors import ConfigError, TrackerError, failure
from empo_core.protocols import RunStatus, Tracker
from empo_core.stages import KernelStage
from empo_core.trees import JsonData, StateDict
from empo_core.types import Histogram

OnError = Literal["fail", "warn"]

log = logging.getLogger("empo_core.trackers")


class TrackerGroup(Tracker):
    """Passes every hook on to several trackers, and adds their episode statistics to every log.

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
        self._kernels = KernelStage(self._progress)

    def start(self, directory: Path, config: Mapping[str, JsonData]) -> None:
        """Start every tracker."""
        self._kernels.start()
        for tracker in self._trackers:
            with self._guarded(tracker, "start"):
                tracker.start(directory, config)
                self._started.append(tracker)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers for every tracker, the statistics of episodes among them."""
        self.has_begun = True
        metrics = {**metrics, **self.episode_statistics()}
        self._call_all("log", lambda tracker: tracker.log(step, metrics))

    def progress(self, task: str, done: float, total: float) -> None:
        """Tell every tracker how far a task is."""
        self.has_begun = self.has_begun or done > 0
        self._kernels.end()
        self._progress(task, done, total)

    def _progress(self, task: str, done: float, total: float) -> None:
        self._call_all("progress", lambda tracker: tracker.progress(task, done, total))

    def status(self, task: str, text: str) -> None:
        """One short line for every tracker."""
        self._call_all("status", lambda tracker: tracker.status(task, text))

    def truncate(self, step: int) -> None:
        """Have every tracker drop what was logged for later steps."""
        self._call_all("truncate", lambda tracker: tracker.truncate(step))

    def start_episodes(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Begin the episodes in every tracker."""
        self._call_all("start_episodes", lambda tracker: tracker.start_episodes(num_envs, reasons))

    def step_episodes(
        self,
        rewards: Float[Tensor, " env"],
        dones: Bool[Tensor, " env"],
        reasons: Int[Tensor, " env"] | None = None,
        active: Bool[Tensor, " env"] | None = None,
    ) -> None:
        """One step of the environments, for every tracker."""
        self._call_all(
            "step_episodes",
            lambda tracker: tracker.step_episodes(rewards, dones, reasons, active),
        )

    def episode_statistics(self) -> dict[str, float | Histogram]:
        """The statistics of all trackers; of two with one key, the later tracker's."""
        statistics: dict[str, float | Histogram] = {}
        self._call_all(
            "episode_statistics", lambda tracker: statistics.update(tracker.episode_statistics())
        )
        return statistics

    def state_dict(self) -> StateDict:
        """The states of the trackers that have one, by their places in the config."""
        states: StateDict = {}
        for place, tracker in self._started_by_place():
            with self._guarded(tracker, "state_dict"):
                if state := tracker.state_dict():
                    states[place] = state
        return states

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned; a tracker that was switched off begins anew."""
        for place, tracker in self._started_by_place():
            if place in state_dict:
                with self._guarded(tracker, "load_state_dict"):
                    tracker.load_state_dict(state_dict[place])

    def finish(self, status: RunStatus) -> None:
        """Finish every tracker that was started; one that fails at it is a warning."""
        self._kernels.stop()
        with contextlib.ExitStack() as stack:
            while self._started:
                stack.callback(self._finish, self._started.pop(), status)

    def _finish(self, tracker: Tracker, status: RunStatus) -> None:
        with best_effort(f"finish of the tracker {type(tracker).__name__}"):
            tracker.finish(status)

    def _started_by_place(self) -> list[tuple[str, Tracker]]:
        return [(str(i), t) for i, t in enumerate(self._trackers) if t in self._started]

    def _call_all(self, hook: str, call: Callable[[Tracker], None]) -> None:
        failed: TrackerError | None = None
        for tracker in list(self._started):
            try:
                with self._guarded(tracker, hook):
                    call(tracker)
            except TrackerError as error:  # The others are told all the same.
                failed = failed or error
        if failed is not None:
            raise failed

    @contextlib.contextmanager
    def _guarded(self, tracker: Tracker, hook: str) -> Iterator[None]:
        """Turn what a tracker raises in a hook into a TrackerError or a warning; Ctrl-C passes."""
        try:
            yield
        except (KeyboardInterrupt, ConfigError):
            raise  # The person's wish, and the person's config: no fault of the tracker.
        except BaseException as error:
            problem = f"the tracker {failure(error, tracker, hook)}"
            if self._on_error == "fail":
                raise TrackerError(problem) from error
            log.warning("%s; it is switched off, and the run goes on", problem)
            self._switch_off(tracker, hook)

    def _switch_off(self, tracker: Tracker, hook: str) -> None:
        if tracker in self._started:
            self._started.remove(tracker)
            if hook != "finish":
                with contextlib.suppress(Exception):
                    tracker.finish("failed")
