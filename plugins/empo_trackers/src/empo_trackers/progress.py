"""Progress with the time left, for people who watch a run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from empo_core.printable import printable
from empo_core.protocols import RunStatus, Tracker
from empo_trackers.plugin import ProgressParams


@dataclass
class _Task:
    started: float
    first: float
    """Amount done at the first report, which the ETA leaves out."""
    printed: float = -math.inf
    finished: bool = False
    bar: TaskID | None = None
    done: float = 0.0
    total: float = 1.0
    left: float = math.nan
    """Seconds that the rest takes, as of the newest report; NaN where that is not known."""

    def report(self, done: float, total: float, now: float) -> None:
        """Note how far the task is."""
        self.done, self.total, self.finished = done, total, done >= total
        advance = done - self.first
        is_known = advance > 0 and not self.finished
        self.left = (now - self.started) * (total - done) / advance if is_known else math.nan


class _Bars(Progress):
    """Progress bars with status lines below them, since 80 columns have no room beside."""

    def __init__(self, status: dict[str, str], *columns: ProgressColumn, console: Console) -> None:
        self._status, self.over = status, False
        # Standard output belongs to the result, which may be piped elsewhere.
        super().__init__(*columns, console=console, redirect_stdout=False)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Everything that is shown at a time, from top to bottom."""
        yield self.make_tasks_table(self.tasks)
        for task, text in list(self._status.items()):
            yield Text(f"{printable(task)}: {text}", no_wrap=True, overflow="ellipsis")
        if not self.over:  # The cursor's line: in a full one, the echo of Ctrl-C would shift bars.
            yield Text()


class ProgressTracker(Tracker):
    """Shows each task on standard error: a bar on a terminal, a line per interval elsewhere.

    The time left is that of a task's newest report, and assumes that the task goes on as fast as
    it went on average until then; work of an earlier attempt does not count, nor do tasks that
    began later and are over. Colours follow ``NO_COLOR`` and ``TERM``.
    """

    def __init__(self, params: ProgressParams, clock: Callable[[], float] = time.monotonic) -> None:
        self._params = params
        self._clock = clock
        self._tasks: dict[str, _Task] = {}
        self._status: dict[str, str] = {}
        self._console = Console(stderr=True)
        self._bars: _Bars | None = None
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._repeater: threading.Thread | None = None

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Look where standard error leads and choose bars or lines."""
        self.finish("finished")
        self._tasks = {}
        self._status.clear()
        self._console = Console(stderr=True)
        moving = self._console.is_terminal and not self._console.is_dumb_terminal
        moving |= self._console.is_jupyter and find_spec("ipywidgets") is not None
        if self._params.style == "bar" or (self._params.style == "auto" and moving):
            self._bars = _Bars(
                self._status,
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}", markup=False),
                console=self._console,
            )
            self._bars.start()
            return
        self._over = threading.Event()
        self._repeater = threading.Thread(target=self._repeat, args=(self._over,), daemon=True)
        self._repeater.start()

    def _repeat(self, over: threading.Event) -> None:
        """Print the newest task's progress at intervals in which nothing else prints it."""
        while not over.wait(self._params.interval_s):
            self.repeat()

    def repeat(self) -> None:
        """Print a line about the newest unfinished task, unless there was one just now."""
        with self._lock:
            unfinished = [name for name, task in self._tasks.items() if not task.finished]
            if unfinished:
                task = self._tasks[unfinished[-1]]
                self._print(unfinished[-1], task, self._clock())

    def progress(self, task: str, done: float, total: float) -> None:
        """Show how far a task is; a finished task that goes back starts anew."""
        with self._lock:
            self._progress(task, done, total, self._clock())

    def _progress(self, task: str, done: float, total: float, now: float) -> None:
        state = self._tasks.get(task)
        finished = done >= total
        if state is None or (state.finished and not finished):
            self._tasks.pop(task, None)  # The newest task comes last.
            state = self._tasks[task] = _Task(started=now, first=done)
        elif state.finished:
            return
        state.report(done, total, now)
        if finished:
            self._leave_out(state, now)
        if self._bars is not None:
            if state.bar is None:
                state.bar = self._bars.add_task(task, total=total, left="")
            self._bars.update(state.bar, completed=done, total=total, left=_left(state.left))
        else:
            self._print(task, state, now)

    def _leave_out(self, inner: _Task, now: float) -> None:
        """Subtract a finished task's time from the older tasks that contain it."""
        for outer in self._tasks.values():
            if outer is inner:
                return
            if not outer.finished:
                outer.started += now - inner.started

    def _print(self, name: str, task: _Task, now: float) -> None:
        """A line, if the task is over or its last line was long ago."""
        if not task.finished and now - task.printed < self._params.interval_s:
            return
        task.printed = now
        share = task.done / task.total if task.total > 0 else 1.0
        parts = [
            f"{share:.0%}",
            f"{_time(now - task.started)} elapsed",
            _left(task.left),
            self._status.get(name),
        ]
        line = f"{name}: {', '.join(filter(None, parts))}"
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def status(self, task: str, text: str) -> None:
        """Show a text below the bars, or at the end of the task's next plain line."""
        self._status[task] = printable(text.replace("\n", " "))

    def finish(self, status: RunStatus) -> None:
        """Leave the last state of the bars on the screen and give the cursor back."""
        self._over.set()
        if self._repeater is not None:
            self._repeater.join()
            self._repeater = None
        if self._bars is not None:
            self._bars.over = True
            self._bars.stop()
            self._bars = None


def _left(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{_time(seconds)} left"


def _time(seconds: float) -> str:
    """A duration as people read it, e.g. ``1:02:03``, ``2:03`` or ``4.5 s``."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"
