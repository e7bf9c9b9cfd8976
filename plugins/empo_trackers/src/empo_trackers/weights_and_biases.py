"""Metrics on Weights & Biases, or in a form that it takes later."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Protocol

from empo_core.errors import ConfigError, PluginLoadError
from empo_core.protocols import RunStatus, Tracker
from empo_core.runs.atomic import write_file
from empo_core.runs.files import open_regular
from empo_core.types import Histogram
from empo_trackers.bins import finite_edges
from empo_trackers.plugin import WandbParams

MAX_BINS = 512
"""More than that, W&B refuses to draw."""
STEP = "step"


class _Run(Protocol):
    """The part of a run of W&B that is used here."""

    def define_metric(self, name: str, *, step_metric: str) -> object:
        """Draw some metrics over another one."""

    def log(self, data: Mapping[str, object]) -> None:
        """Send a point."""

    def finish(self, exit_code: int) -> None:
        """Wait until everything is sent."""


class WandbTracker(Tracker):
    """Logs everything to a run of W&B whose files lie in ``wandb`` in the run directory.

    Metrics are drawn over ``step``, a metric of its own, because W&B's built-in step can only
    grow. A resumed run goes on with the same run of W&B, and draws the steps after its checkpoint
    a second time: what was sent cannot be taken back.
    """

    _open: ClassVar[int] = 0

    def __init__(self, params: WandbParams) -> None:
        self._params = params
        self._run: _Run | None = None
        with _surroundings(None, quiet=params.mode == "offline"):
            self._wandb = _imported()

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Begin a run of W&B, or go on with the one that this directory knows.

        Raises:
            ConfigError: if W&B refuses the run, e.g. because of a missing login.
        """
        params, folder = self._params, directory / "wandb"
        folder.mkdir(exist_ok=True)
        settings = self._wandb.Settings(
            console="off",  # Standard output and error are not to be listened to.
            disable_code=True,
            disable_git=True,
            symlink=False,
            x_disable_stats=True,
            silent=_is_unheard(),
        )
        _wait_for_another_second(folder)
        with _surroundings(folder, quiet=params.mode == "offline"):
            try:
                self._run = self._wandb.init(
                    project=params.project,
                    entity=params.entity,
                    name=params.name or directory.resolve().name,
                    group=params.group,
                    tags=params.tags,
                    mode=params.mode,
                    dir=str(directory),
                    config=dict(config),
                    id=_identity(folder),
                    resume="allow",
                    reinit="create_new",  # A run that the caller has open stays as it is.
                    settings=settings,
                )
            except self._wandb.Error as error:
                raise ConfigError(
                    f"the tracker 'wandb' cannot start: {error} Run 'wandb login', or set its mode "
                    "to 'offline'"
                ) from error
        WandbTracker._open += 1
        self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Send one point per metric.

        Raises:
            ValueError: if a metric is called ``step``, or the tracker has not started.
        """
        if self._run is None:
            raise ValueError("log needs a started tracker: call start first, finish last")
        if STEP in metrics:
            raise ValueError("a metric cannot be called 'step'; use a key such as 'progress/step'")
        point: dict[str, object] = {STEP: step}
        for key, value in metrics.items():
            point[key] = self._drawn(value) if isinstance(value, Histogram) else value
        self._run.log(point)

    def finish(self, status: RunStatus) -> None:
        """Wait until everything is sent or written."""
        if self._run is None:
            return
        self._run.finish(exit_code=0 if status == "finished" else 1)
        self._run = None
        WandbTracker._open -= 1
        if WandbTracker._open == 0 and self._wandb.run is None:
            self._wandb.teardown()  # Its process is not needed any more.

    def _drawn(self, histogram: Histogram) -> object:
        """A W&B histogram of given counts; ``wandb.Histogram(counts)`` would count the counts."""
        counts, edges = _at_most(MAX_BINS, histogram.counts, finite_edges(histogram.edges))
        drawn: object = self._wandb.Histogram(np_histogram=(counts, edges))
        return drawn


def _imported() -> ModuleType:
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise PluginLoadError(
            f"the tracker 'wandb' needs the package wandb, which cannot be imported: {error}. "
            "Install it with: python -m pip install 'empo-trackers[wandb]'"
        ) from error


@contextlib.contextmanager
def _surroundings(folder: Path | None, *, quiet: bool) -> Iterator[None]:
    """Settings that W&B takes only from environment variables: log directory and quietness.

    Its process inherits them; afterwards they are as they were.
    """
    variables = {} if folder is None else {"WANDB_CACHE_DIR": str(folder / "cache")}
    if quiet:  # Nothing is to leave this machine, be it a report of an error.
        variables["WANDB_ERROR_REPORTING"] = "false"
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_unheard() -> bool:
    """True if only errors are shown, as after ``empo run -q``."""
    levels = [
        handler.level
        for handler in logging.getLogger().handlers
        if not isinstance(handler, logging.FileHandler)
    ]
    return bool(levels) and min(levels) > logging.WARNING


def _identity(folder: Path) -> str:
    """Id of this run on W&B, also when it is resumed."""
    path = folder / "id"
    if not path.exists():
        write_file(path, uuid.uuid4().hex[:12])
    with open_regular(path) as file:
        return file.read(1000).decode().strip()


def _wait_for_another_second(folder: Path) -> None:
    """Wait for another second, since parts of one run within a second would share a folder."""
    deadline = time.monotonic() + 1.0  # A clock that was set back is not waited for.
    while time.monotonic() < deadline:
        if not list(folder.glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-*")):
            return
        time.sleep(0.01)


def _at_most(
    limit: int, counts: Sequence[int], edges: Sequence[float]
) -> tuple[list[int], list[float]]:
    """The same histogram with neighbouring bins merged until there are few enough."""
    width = -(-len(counts) // limit)
    merged = [sum(counts[at : at + width]) for at in range(0, len(counts), width)]
    return merged, [*edges[:-1:width], edges[-1]]
