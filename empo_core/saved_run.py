"""Runs that are on disk: what was asked, how it went, and what came of it."""

from __future__ import annotations

import datetime
import html
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from empo_core.errors import EmpoError, StorageError
from empo_core.runs.atomic import read_json
from empo_core.runs.directory import RESULTS, SUMMARY, existing_run, read_config
from empo_core.runs.inputs import Manifest, read_manifest
from empo_core.runs.status import StatusRecord, read_status
from empo_core.trees import Json

if TYPE_CHECKING:
    from empo_core.protocols import Result
    from empo_core.runs.metrics import Metrics

DAMAGED = "damaged"


@dataclass(frozen=True)
class SavedRun:
    """A run that was started at some time; its metrics and its result are read when asked for.

    Attributes:
        path: Its directory.
        config: Its resolved config as plain data.
        status: ``running``, ``finished``, ``failed`` or ``interrupted``; ``damaged`` where its
            directory does not say.
        reason: Why it failed, or what is wrong with its directory; None where all is well.
        task: The world, or what it is that an algorithm without a world learns; may be empty.
        algorithm: Name of its algorithm; may be empty.
        started: When it was started first; None where that was not recorded.
        seconds: How long it ran, or has been running, interruptions left out; None likewise.
        summary: The result as JSON data; empty where there is none.
    """

    path: Path
    config: dict[str, Json] = field(repr=False)
    status: str
    reason: str | None
    task: str
    algorithm: str
    started: datetime.datetime | None
    seconds: float | None
    summary: dict[str, Json] = field(repr=False)

    def _repr_html_(self) -> str:
        """The run as a table for notebooks."""
        rows = {
            "run": self.path,
            "task": self.task,
            "algorithm": self.algorithm,
            "status": f"{self.status}: {self.reason}" if self.reason else self.status,
            "started": self.started and self.started.strftime("%Y-%m-%d %H:%M"),
            "seconds": self.seconds and f"{self.seconds:.3g}",
        }
        rows |= {key: v for key, v in self.summary.items() if isinstance(v, bool | int | str)}
        rows |= {key: f"{v:.3g}" for key, v in self.summary.items() if isinstance(v, float)}
        cells = (
            f"<tr><th>{html.escape(key)}</th><td>{html.escape(str(value))}</td></tr>"
            for key, value in rows.items()
            if value not in (None, "")
        )
        return f"<table>{''.join(cells)}</table>"

    @cached_property
    def inputs(self) -> Manifest:
        """The copies that it keeps of what its config names, and the digest of its world.

        Raises:
            StorageError: if the copies are damaged.
        """
        return read_manifest(self.path)

    @cached_property
    def metrics(self) -> Metrics:
        """Its curves by metric.

        Raises:
            StorageError: if the metrics are damaged.
        """
        from empo_core.runs.metrics import read_metrics

        return read_metrics(self.path)

    @cached_property
    def result(self) -> Result | dict[str, Json]:
        """The result, where the run's algorithm can reopen it, and otherwise its summary.

        Raises:
            ConfigError: if the config cannot be used here, e.g. because a plugin is not installed.
            StorageError: if the run has no result, or a damaged one.
        """
        from empo_core.experiment import Experiment

        run = Experiment.load(self.path)
        result = run.algorithm.reopen(run.context)
        if result is not None:
            return result
        if not self.summary:
            raise StorageError(f"{self.path}: has no result; its status is {self.status!r}")
        return self.summary


def open_run(path: str | Path) -> SavedRun:
    """The run whose directory is at ``path``.

    Raises:
        ConfigError: if the path is no run directory, or holds a link out of it.
        StorageError: if the run directory is damaged.
    """
    directory = existing_run(path)
    run = read_run(directory)
    if run.status == DAMAGED:
        raise StorageError(f"{path}: {run.reason}")
    return run


def read_run(path: Path) -> SavedRun:
    """The run in a directory that may be damaged or half-written; four files are opened."""
    config: dict[str, Json] = {}
    summary: dict[str, Json] = {}
    status = StatusRecord()
    reasons: list[str] = []
    try:
        config = _object(read_config(path))
        status = read_status(path)
    except EmpoError as error:
        reasons.append(str(error))
    if status.status == "finished":
        try:
            if (path / RESULTS).is_symlink():
                raise StorageError(f"{path / RESULTS}: is a symbolic link")
            summary = _object(read_json(path / RESULTS / SUMMARY))
        except EmpoError as error:
            reasons.append(str(error))
    elif status.has_ended_silently:
        reasons.append(f"{status.silent_end}; go on with: empo resume {path}")
    elif status.error is not None:
        reasons.append(status.error)
    algorithm = _object(config.get("algorithm")).get("name")
    return SavedRun(
        path=path,
        config=config,
        status=status.status or DAMAGED,
        reason=" ".join(reasons) or None,
        task=status.task,
        algorithm=algorithm if isinstance(algorithm, str) else "",
        started=status.started and status.started.astimezone(),
        seconds=_seconds(status),
        summary=summary,
    )


def _object(value: Json) -> dict[str, Json]:
    """The value where it is an object, and otherwise nothing."""
    return value if isinstance(value, dict) else {}


def _seconds(status: StatusRecord) -> float | None:
    """Seconds until the status was written and, of a run that goes on, since then."""
    if status.seconds is None or status.updated is None:
        return None
    if status.status != "running" or status.has_ended_silently:
        return status.seconds
    now = datetime.datetime.now(status.updated.tzinfo)
    return status.seconds + max(0.0, (now - status.updated).total_seconds())
