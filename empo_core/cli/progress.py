"""Progress of a run on standard error, with the time left, where no tracker shows it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from empo_core.protocols import RunStatus
from empo_core.types import Histogram

PLAIN_INTERVAL_S = 5.0


class ProgressBars:
    """Moving bars on a terminal; elsewhere now and then a plain line, and one at a task's end."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars: Progress | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._bars = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                redirect_stdout=False,
            )
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}
        self._printed: dict[str, float] = {}

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Show the bars, empty as yet."""
        if self._bars is not None:
            self._bars.start()

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Metrics are not progress."""

    def progress(self, task: str, done: float, total: float) -> None:
        """Move a task's bar, or print a line if the last one is old."""
        if self._bars is not None:
            if task not in self._tasks:
                self._tasks[task] = self._bars.add_task(task, total=total)
            self._bars.update(self._tasks[task], completed=done, total=total)
            return
        now = time.monotonic()
        started = self._started.setdefault(task, now)
        finished = done >= total
        if not finished and now - self._printed.setdefault(task, now) < PLAIN_INTERVAL_S:
            return
        if finished and self._printed.get(task) == float("inf"):
            return
        self._printed[task] = float("inf") if finished else now
        elapsed = now - started
        line = f"{task}: {done / total if total else 1:.0%} after {elapsed:.1f} s"
        if not finished and done > 0:
            line += f", {elapsed * (total - done) / done:.0f} s left"
        print(line, file=sys.stderr, flush=True)

    def finish(self, status: RunStatus) -> None:
        """Leave the bars as they are and stop moving them."""
        if self._bars is not None:
            self._bars.stop()
