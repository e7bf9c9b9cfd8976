"""Metrics as TensorBoard events."""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # type: ignore[import-untyped]
from torch.utils.tensorboard import SummaryWriter

from empo_core.protocols import RunStatus, Tracker
from empo_core.types import Histogram
from empo_trackers.bins import finite_edges
from empo_trackers.plugin import TensorboardParams


class TensorboardTracker(Tracker):
    """Writes scalars, histograms and the config as events into the run directory.

    A resumed run adds an event file of its own. Where it goes on from an earlier step than the
    last one logged, the new file says so, and TensorBoard draws no step twice.
    """

    def __init__(self, params: TensorboardParams) -> None:
        self._params = params
        self._config = ""
        self._writer: SummaryWriter | None = None

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Open an event file and show the config in the text tab."""
        text = json.dumps(config, indent=2, default=str, ensure_ascii=False)
        # Text is read as Markdown, where an indented block is shown as it is.
        self._config = "".join(f"    {line}\n" for line in text.splitlines())
        first = _newest_second(directory) is None
        _wait_for_another_second(directory)
        self._writer = SummaryWriter(
            log_dir=str(directory), flush_secs=math.ceil(self._params.flush_s)
        )
        if first:  # TensorBoard heeds a restart only if it has seen a start.
            _restart(self._writer, 0)
        self._writer.add_text("config", self._config)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Write one event per metric.

        Raises:
            ValueError: if the tracker has not started.
        """
        if self._writer is None:
            raise ValueError("log needs a started tracker: call start first, finish last")
        for key, value in metrics.items():
            if isinstance(value, Histogram):
                _add_histogram(self._writer, key, value, step)
            else:
                self._writer.add_scalar(key, float(value), step)

    def truncate(self, step: int) -> None:
        """Write an event that makes TensorBoard drop later steps.

        Raises:
            ValueError: if the tracker has not started.
        """
        if self._writer is None:
            raise ValueError("truncate needs a started tracker: call start first, finish last")
        _restart(self._writer, step + 1)
        self._writer.add_text("config", self._config)  # It is of step 0.

    def finish(self, status: RunStatus) -> None:
        """Flush pending events and close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _restart(writer: SummaryWriter, step: int) -> None:
    """Write a session start at this step, which voids events written for it before."""
    if writer.file_writer is not None:
        writer.file_writer.add_event(Event(session_log=SessionLog(status=SessionLog.START)), step)


def _newest_second(directory: Path) -> int | None:
    """When the last event file was made, as their names say; None where there is none."""
    names = [path.name for path in directory.glob("events.out.tfevents.*")]
    return max((int(n) for name in names if (n := name.split(".")[3]).isdecimal()), default=None)


def _wait_for_another_second(directory: Path) -> None:
    """TensorBoard reads files in the order of their names, which tell seconds apart, no less."""
    newest = _newest_second(directory)
    deadline = time.monotonic() + 1.0  # A clock that was set back is not waited for.
    while newest is not None and int(time.time()) <= newest and time.monotonic() < deadline:
        time.sleep(0.01)


def _add_histogram(writer: SummaryWriter, key: str, histogram: Histogram, step: int) -> None:
    """Write a histogram's counts; TensorBoard's moments use the centres of the bins."""
    edges = finite_edges(histogram.edges)
    counts = [float(count) for count in histogram.counts]
    middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
    writer.add_histogram_raw(
        key,
        min=edges[0],
        max=edges[-1],
        num=int(sum(counts)),
        sum=sum(c * m for c, m in zip(counts, middles, strict=True)),
        sum_squares=sum(c * m * m for c, m in zip(counts, middles, strict=True)),
        # A bin is named by its upper limit; an empty one in front gives the first its lower.
        bucket_limits=edges,
        bucket_counts=[0.0, *counts],
        global_step=step,
    )
