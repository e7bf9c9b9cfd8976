"""Metrics as JSON lines: easy to read, to append to, and to survive a crash."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from empo_core.protocols import RunStatus, Tracker
from empo_core.runs.atomic import write_file
from empo_core.runs.files import append_whole, open_append
from empo_core.trees import StateDict
from empo_core.types import Histogram
from empo_trackers.plugin import JsonlParams

FILE = "metrics.jsonl"


class JsonlTracker(Tracker):
    """Appends one strict JSON object per ``log`` call to ``metrics.jsonl``.

    A line holds ``step`` and then the metrics under their own keys. Numbers that JSON does not
    have are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, which Python's ``float``
    and JavaScript's ``Number`` read back. A histogram is ``{"edges": [...], "counts": [...]}``.

    Each line reaches the operating system before ``log`` returns, so killing the process costs
    no line that was logged; a line cut short by a crash is removed when the run is resumed, and
    so are lines of steps that it logs again. A line that the disk refuses is written later: before
    the next one, or, since checkpoints hold it, when the run is resumed.
    """

    def __init__(self, params: JsonlParams) -> None:
        self._path: Path | None = None
        self._file: BinaryIO | None = None
        self._refused: list[bytes] = []

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Open the file; lines of an interrupted run are kept."""
        self._path = directory / FILE
        self._file = open_append(self._path)
        _drop_torn_line(self._file)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Append one line.

        Raises:
            OSError: if the disk refuses; no part of the line is left, and it is written later.
            ValueError: if a metric is called ``step``, or the tracker has not started.
        """
        if self._file is None:
            raise ValueError("log needs a started tracker: call start first, finish last")
        if "step" in metrics:
            raise ValueError("a metric cannot be called 'step'; use a key such as 'progress/step'")
        record = {"step": int(step)} | {key: _plain(value) for key, value in metrics.items()}
        self._refused.append(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._write(self._file)

    def _write(self, file: BinaryIO) -> None:
        while self._refused:
            append_whole(file, self._refused[0])
            del self._refused[0]

    def state_dict(self) -> StateDict:
        """Lines that the disk has refused; empty without any."""
        return {"refused": [line.decode() for line in self._refused]} if self._refused else {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Write lines that were refused, unless an earlier resumption did.

        Raises:
            OSError: if the disk refuses again.
            ValueError: if the tracker has not started, or a line is none of metrics.
        """
        if self._file is None:
            raise ValueError("load_state_dict needs a started tracker: call start first")
        written = _contents(self._file).splitlines(keepends=True)
        refused = [str(line).encode() for line in state_dict.get("refused", [])]
        for line in refused:
            if line.find(b"\n") != len(line) - 1 or _step(line) < 0:
                raise ValueError(f"{line.decode()[:40]!r} is no line of metrics")
        self._refused = [line for line in refused if line not in written]
        self._write(self._file)

    def truncate(self, step: int) -> None:
        """Drop the lines of later steps; whatever happens meanwhile, the file is whole.

        Raises:
            ValueError: if the tracker has not started.
            StorageError: if the file cannot be written; all lines stay.
        """
        if self._file is None or self._path is None:
            raise ValueError("truncate needs a started tracker: call start first, finish last")
        lines = _contents(self._file).splitlines(keepends=True)
        earlier = [line for line in lines if _step(line) <= step]
        if len(earlier) < len(lines):
            write_file(self._path, b"".join(earlier))
            self._file.close()
            self._file = open_append(self._path)

    def finish(self, status: RunStatus) -> None:
        """Write the file through to the disk and close it."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None


def _plain(value: float | Histogram) -> object:
    if isinstance(value, Histogram):
        return {
            "edges": [_number(edge) for edge in value.edges],
            "counts": [_number(count) for count in value.counts],
        }
    return _number(value)


def _number(value: float) -> int | float | str:
    """A metric may also be a scalar of numpy or torch, which ``json`` does not know."""
    if isinstance(value, int):
        return int(value)
    number = float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _step(line: bytes) -> float:
    """The step of a line, or minus infinity for one that is not ours, which is to stay."""
    try:
        record = json.loads(line)
    except ValueError:
        return -math.inf
    step = record.get("step") if isinstance(record, dict) else None
    return step if isinstance(step, int) else -math.inf


def _drop_torn_line(file: BinaryIO) -> None:
    """Cut the file after its last line end, so that the next line does not join a torn one."""
    file.truncate(_contents(file).rfind(b"\n") + 1)


def _contents(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()
