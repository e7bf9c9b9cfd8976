"""The only place where a config becomes objects: build what it names, run it, keep the results."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from empo_core.config import ComponentRef, RunConfig, WorldModelRef, installed
from empo_core.config.loading import load_config
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Registry
from empo_core.protocols import (
    Algorithm,
    EpisodeTracker,
    Narrator,
    Result,
    Rewindable,
    RunStatus,
    Tracker,
    WorldModel,
)
from empo_core.storage.arrays import write_file
from empo_core.storage.run_directory import (
    CONFIG,
    LOG,
    RESULTS,
    SUMMARY,
    RunDirectory,
    labels,
    process_rank,
    resolved,
    strict_json,
)
from empo_core.types import Histogram

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger("empo_core")


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C or SIGTERM; its directory can be resumed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"interrupted; go on with: empo resume {directory}")
        self.directory = directory


@dataclass(slots=True, kw_only=True)
class Context:
    """What an algorithm is given besides its params."""

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool
    world_model: WorldModelRef | None = None
    environment: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run.

    Attributes:
        result: What the algorithm computed.
        directory: Where everything about the run lies.
        algorithm: Name of the algorithm's component.
        world: Short name of the world; None where the config has none.
        seconds: How long the run took, results on disk included.
    """

    result: Result
    directory: Path
    algorithm: str
    world: str | None
    seconds: float

    def summary(self) -> dict[str, Any]:
        """The result's summary, and what every run can say about itself."""
        about = {
            "algorithm": self.algorithm,
            "world": self.world,
            "run_dir": str(self.directory),
            "peak_memory_bytes": peak_memory_bytes(),
        }
        return about | self.result.summary()


class Trackers:
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers
        self._started: list[Tracker] = []
        # Found out once: to look at a protocol takes longer than what they do at each step.
        self._episodic: list[EpisodeTracker] = []

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Start every tracker."""
        for tracker in self._trackers:
            tracker.start(directory, config)
            self._started.append(tracker)
            if isinstance(tracker, EpisodeTracker):
                self._episodic.append(tracker)

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Tell every tracker, and with it what those found that follow episodes."""
        metrics = {**metrics, **self.statistics()}
        for tracker in self._started:
            tracker.log(step, metrics)

    def progress(self, task: str, done: float, total: float) -> None:
        """Tell every tracker."""
        for tracker in self._started:
            tracker.progress(task, done, total)

    def rewind(self, step: int) -> None:
        """Tell every tracker that keeps records."""
        for tracker in self._started:
            if isinstance(tracker, Rewindable):
                tracker.rewind(step)

    def narrate(self, task: str, text: str) -> None:
        """Tell every tracker that shows words."""
        for tracker in self._started:
            if isinstance(tracker, Narrator):
                tracker.narrate(task, text)

    def follow(self, num_envs: int, reasons: Sequence[str]) -> None:
        """Tell every tracker that follows episodes."""
        for tracker in self._episodic:
            tracker.follow(num_envs, reasons)

    def step(
        self,
        rewards: Tensor,
        dones: Tensor,
        reasons: Tensor | None = None,
        active: Tensor | None = None,
    ) -> None:
        """Tell every tracker that follows episodes."""
        for tracker in self._episodic:
            tracker.step(rewards, dones, reasons, active)

    def statistics(self) -> dict[str, float | Histogram]:
        """What those found that follow episodes; of two that found the same, the later one's."""
        found: dict[str, float | Histogram] = {}
        for tracker in self._episodic:
            found |= tracker.statistics()
        return found

    def state_dict(self) -> dict[str, Any]:
        """What those remember that follow episodes, in the order of the config."""
        return {str(i): tracker.state_dict() for i, tracker in enumerate(self._episodic)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        for i, tracker in enumerate(self._episodic):
            tracker.load_state_dict(state_dict[str(i)])

    def finish(self, status: RunStatus) -> None:
        """Finish every tracker that was started, also when another one fails at it."""
        self._episodic.clear()
        with contextlib.ExitStack() as stack:
            while self._started:
                stack.callback(self._started.pop().finish, status)


def run(
    config: RunConfig, *, registry: Registry | None = None, watchers: Sequence[Tracker] = ()
) -> Result:
    """Build what ``config`` names and run it in a new run directory.

    Args:
        config: What to do, e.g. from ``load_config``.
        registry: The components the config may name; default: the installed ones.
        watchers: Trackers besides those of the config.

    Raises:
        EmpoError: The config cannot be run, or the run failed for a reason we know.
        RunInterrupted: It was stopped; ``.directory`` can be resumed.
    """
    return execute(config, registry=registry, watchers=watchers).result


def execute(
    config: RunConfig,
    *,
    registry: Registry | None = None,
    watchers: Sequence[Tracker] = (),
    directory: RunDirectory | None = None,
) -> Run:
    """As ``run``, but says where; with ``directory`` it goes on with an interrupted run.

    Of the processes of ``torchrun`` only rank 0 has trackers, and a run directory that stays.
    """
    registry = registry if registry is not None else installed()
    started = time.monotonic()
    resume = directory is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_terminable())
        if directory is not None:
            stack.callback(directory.release)
        seed_everything(config.seed)
        world = build_world(config, registry)
        algorithm = build_algorithm(config, registry)
        trackers = [build(ref, registry=registry) for ref in config.trackers]
        trackers = [] if process_rank() else [*trackers, *watchers]
        if directory is None:  # Only now, so that a config that cannot be built leaves nothing.
            directory = RunDirectory.create(config, registry)
            stack.callback(directory.release)
        context = Context(
            world=world,
            seed=config.seed,
            directory=directory.path,
            tracker=Trackers(trackers),
            resume=resume,
            world_model=config.world_model,
        )
        result = _supervised(algorithm, context, config, directory)
    return Run(
        result=result,
        directory=directory.path,
        algorithm=config.algorithm.name,
        world=None if config.world_model is None else labels(config)[0],
        seconds=time.monotonic() - started,
    )


def resume(
    path: str | Path, *, registry: Registry | None = None, watchers: Sequence[Tracker] = ()
) -> Run:
    """Go on with an interrupted or failed run in its own directory.

    Raises:
        ConfigError: ``path`` is no run directory, has finished, or is still running.
    """
    directory = RunDirectory.reopen(path)
    try:
        config = load_config(directory.path / CONFIG, registry=registry)
    except ConfigError as error:
        directory.mark("failed", str(error))
        directory.release()
        raise
    return execute(config, registry=registry, watchers=watchers, directory=directory)


def build(ref: ComponentRef, *args: Any, registry: Registry | None = None) -> Any:
    """The object a config's reference stands for.

    Args:
        ref: A validated reference, also one nested in a component's params.
        args: What the factories of this kind take after their params, e.g. the world.
        registry: Where to look the name up; default: the installed plugins.

    Raises:
        PluginLoadError: The component's code does not import.
    """
    registry = registry if registry is not None else installed()
    return registry.get(ref.kind, ref.name).load()(ref.params, *args)


def build_world(config: RunConfig, registry: Registry | None = None) -> WorldModel | None:
    """The config's world, or None where it has none."""
    if config.world_model is None:
        return None
    world: WorldModel = build(config.world_model, registry=registry)
    return world


def build_algorithm(config: RunConfig, registry: Registry | None = None) -> Algorithm:
    """The config's algorithm."""
    algorithm: Algorithm = build(config.algorithm, registry=registry)
    return algorithm


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch.

    Our own code uses generators of its own; this is for code that does not.
    """
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def peak_memory_bytes() -> int | None:
    """The most memory this process ever held, or None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _supervised(
    algorithm: Algorithm, context: Context, config: RunConfig, directory: RunDirectory
) -> Result:
    """Run the algorithm, and leave true records whichever way it ends."""
    status: RunStatus = "failed"
    reason: str | None = None
    with directory.logging():
        try:
            log.info("%s in %s", "resumed" if context.resume else "started", directory.path)
            context.tracker.start(directory.path, resolved(config))
            result = algorithm.run(context)
            (directory.path / RESULTS).mkdir(exist_ok=True)
            result.save(directory.path / RESULTS)
            write_file(directory.path / RESULTS / SUMMARY, strict_json(result.summary()) + "\n")
            status = "finished"
        except KeyboardInterrupt as error:
            status = "interrupted"
            if directory.is_temporary:
                raise
            raise RunInterrupted(directory.path) from error
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"
            log.exception("the run failed")
            if not directory.is_temporary:
                error.add_note(f"Its log: {directory.path / LOG}")
            raise
        finally:
            log.info("%s", status)
            try:
                context.tracker.finish(status)
            finally:
                directory.mark(status, reason)
    return result


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that a run stopped by a scheduler leaves true records."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may set handlers.
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
