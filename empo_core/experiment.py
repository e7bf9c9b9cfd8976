"""The only place where a config becomes objects: build what it names, run it, keep the results."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np  # noqa: F401  # Before torch, which would lose a Ctrl-C within its own import.

from empo_core.best_effort import best_effort
from empo_core.config import ComponentRef, RunConfig, installed
from empo_core.config.errors import blamed
from empo_core.config.files import load_config
from empo_core.config.models import references
from empo_core.errors import REFUSALS, ConfigError, EmpoError
from empo_core.exits import exit_error, exits_are_errors, is_exit
from empo_core.interrupts import Termination
from empo_core.plugins.registry import Registry
from empo_core.plugins.signatures import check_call, check_component
from empo_core.protocols import (
    Algorithm,
    CheckpointChoice,
    EpisodePlayer,
    HumanPrior,
    Playable,
    Result,
    RobotPolicy,
    RunContext,
    RunStatus,
    Tracker,
    WorldModel,
)
from empo_core.random_streams import Stream, seed_globals, stream
from empo_core.run_warnings import LoggedWarnings, with_warnings
from empo_core.runs.arrays import write_file
from empo_core.runs.directory import (
    CONFIG,
    ENVIRONMENT,
    LOG,
    RESULTS,
    SUMMARY,
    RunDirectory,
    existing_run,
    labels,
    process_rank,
    resolved,
    strict_json,
    tell_of_silent_end,
)
from empo_core.runs.files import gone, refuse_gone
from empo_core.runs.inputs import (
    Inputs,
    Manifest,
    check_inputs,
    note_copies,
    refuse_changed,
    with_kept_files,
)
from empo_core.stages import stage
from empo_core.tracker_group import TrackerGroup
from empo_core.trees import JsonData
from empo_core.world_content import difference, identity

log = logging.getLogger("empo_core")


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C, SIGTERM or SIGHUP; its directory can be resumed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"interrupted; go on with: empo resume {directory}")
        self.directory = directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run.

    Attributes:
        result: What the algorithm computed.
        directory: Where everything about the run lies.
        algorithm: Name of the algorithm's component.
        world: Short name of the world; None where the config has none.
        seconds: How long the run took, results on disk included.
        warnings: What its code logged as a warning.
    """

    result: Result
    directory: Path
    algorithm: str
    world: str | None
    seconds: float
    warnings: Sequence[str] = ()

    def summary(self) -> dict[str, JsonData]:
        """The result's summary, and what every run can say about itself."""
        about = {
            "algorithm": self.algorithm,
            "world": self.world,
            "run_dir": str(self.directory),
            "peak_memory_bytes": peak_memory_bytes(),
        }
        return {**about, **with_warnings(self.result.summary(), self.warnings)}


def run(
    config: RunConfig,
    *,
    registry: Registry | None = None,
    watchers: Sequence[Tracker] = (),
    environment: Callable[[], object] | None = None,
) -> Result:
    """Build what ``config`` names and run it in a new run directory.

    Args:
        config: What to do, e.g. from ``load_config``.
        registry: The components the config may name; default: the installed ones.
        watchers: Trackers besides those of the config.
        environment: Makes an environment, for algorithms that act in one which no installed
            component provides; it must be picklable where other processes need it.

    Raises:
        EmpoError: The config cannot be run, or the run failed for a reason we know.
        RunInterrupted: It was stopped; ``.directory`` can be resumed.
    """
    return execute(config, registry=registry, watchers=watchers, environment=environment).result


def execute(
    config: RunConfig,
    *,
    registry: Registry | None = None,
    watchers: Sequence[Tracker] = (),
    directory: RunDirectory | None = None,
    environment: Callable[[], object] | None = None,
    quiet: bool = False,
    place: Path | None = None,
) -> Run:
    """As ``run``, but says where; with ``directory`` it goes on with an interrupted run.

    With ``place`` a new run gets that directory, which must not exist. Where it is ``quiet``, the
    config's trackers for terminals are left out.

    Of the processes of ``torchrun`` only rank 0 has trackers, and a run directory that stays.
    """
    registry = registry if registry is not None else installed()
    started = time.monotonic()
    if directory is None and place is None:
        directory = RunDirectory.relaunched(config)
        if directory is not None:
            config = load_config(directory.source / CONFIG, registry=registry)
    resume = directory is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_exits_are_errors(config, registry))
        termination = stack.enter_context(Termination())
        inputs: Inputs | None = None
        manifest: Manifest | None = None
        if directory is not None:
            stack.callback(directory.release)
            manifest = check_inputs(directory.source, config)
            config = with_kept_files(config, directory.source)
        else:
            refuse_changed(config)
            inputs = Inputs(config)
        seed_everything(config.seed)
        world = build_world(config, registry)
        if directory is not None:
            _require_same_world(directory.source, manifest, world)
        algorithm = build_algorithm(config, registry, environment)
        unwanted = registry.default_trackers("terminal") if quiet else []
        refs = [ref for ref in config.trackers if ref.name not in unwanted]
        trackers = [build(ref, registry=registry) for ref in refs]
        trackers = [] if process_rank() else [*trackers, *watchers]
        if directory is None and place is None and not process_rank():
            tell_of_silent_end(config.runs)
        if directory is None:  # Only now, so that a config that cannot be built leaves nothing.
            assert inputs is not None
            about = None if world is None or process_rank() else identity(world)
            directory = RunDirectory.create(config, registry, place, inputs=inputs, world=about)
            stack.callback(directory.release)
            if not process_rank():  # What is read from now on are the copies.
                copied = inputs.in_run(config, directory.path)
                if copied.algorithm is not config.algorithm:
                    algorithm = build_algorithm(copied, registry, environment)
                config = copied
        else:
            directory.begin_again(config, registry)
        context = RunContext(
            world=world,
            seed=config.seed,
            directory=directory.path,
            tracker=TrackerGroup(trackers, on_error=config.on_tracker_error),
            resume=resume,
            world_model=config.world_model,
            environment=environment,
        )
        warnings = LoggedWarnings(_packages(registry))
        result = _supervised(algorithm, context, config, directory, termination, registry, warnings)
    return Run(
        result=result,
        directory=directory.path,
        algorithm=config.algorithm.name,
        world=None if config.world_model is None else labels(config)[0],
        seconds=time.monotonic() - started,
        warnings=warnings.messages,
    )


def resume(
    path: str | Path,
    *,
    registry: Registry | None = None,
    watchers: Sequence[Tracker] = (),
    environment: Callable[[], object] | None = None,
    quiet: bool = False,
) -> Run:
    """Go on with an interrupted or failed run in its own directory; arguments as for ``execute``.

    Raises:
        ConfigError: ``path`` is no run directory, has finished, or is still running.
    """
    directory = RunDirectory.reopen(path)
    try:
        config = load_config(directory.source / CONFIG, registry=registry)
    except BaseException:
        directory.release()  # Its status is as it was.
        raise
    return execute(
        config,
        registry=registry,
        watchers=watchers,
        directory=directory,
        environment=environment,
        quiet=quiet,
    )


def build(ref: ComponentRef, *args: Any, registry: Registry | None = None) -> Any:
    """The object a config's reference stands for.

    Args:
        ref: A validated reference, also one nested in a component's params.
        args: What the factories of this kind take after their params, e.g. the world.
        registry: Where to look the name up; default: the installed plugins.

    Raises:
        PluginLoadError: The component's code does not import, or is not what its kind asks for.
    """
    registry = registry if registry is not None else installed()
    offer = registry.offer(ref.kind, ref.name)
    factory = offer.component.load()
    check_call(offer, factory, 1 + len(args))
    with blamed(ref):
        with exits_are_errors(f"{ref.kind} {ref.name!r}"):
            built = factory(ref.params, *args)
        check_component(offer, built)
    return built


def build_world(config: RunConfig, registry: Registry | None = None) -> WorldModel | None:
    """The config's world, or None where it has none."""
    if config.world_model is None:
        return None
    world: WorldModel = build(config.world_model, registry=registry)
    return world


def build_algorithm(
    config: RunConfig,
    registry: Registry | None = None,
    environment: Callable[[], object] | None = None,
) -> Algorithm:
    """The config's algorithm.

    Raises:
        ConfigError: An environment is given that the algorithm would not act in.
    """
    registry = registry if registry is not None else installed()
    if environment is not None:
        _require_environment(config.algorithm, registry)
    algorithm: Algorithm = build(config.algorithm, registry=registry)
    return algorithm


def load_run(
    path: str | Path,
    registry: Registry | None = None,
    environment: Callable[[], object] | None = None,
) -> tuple[RunConfig, Algorithm, RunContext]:
    """A run's config, its algorithm, and the context in which that loads what the run left.

    Raises:
        ConfigError: It is no run directory, or its config cannot be used here.
    """
    registry = registry if registry is not None else installed()
    directory = existing_run(path)
    config = load_config(directory / CONFIG, registry=registry)
    manifest = check_inputs(directory, config)
    algorithm = build_algorithm(config, registry, environment)
    world = build_world(config, registry)
    _require_same_world(directory, manifest, world)
    context = RunContext(
        world=world,
        seed=config.seed,
        directory=directory,
        tracker=TrackerGroup([]),
        resume=True,
        world_model=config.world_model,
        environment=environment,
    )
    return config, algorithm, context


def saved_policies(
    path: str | Path,
    checkpoint: CheckpointChoice = "newest",
    registry: Registry | None = None,
    environment: Callable[[], object] | None = None,
) -> tuple[RunConfig, RunContext, tuple[RobotPolicy, HumanPrior] | EpisodePlayer]:
    """A run's config and context, and what can play the run.

    Raises:
        ConfigError: As for ``load_run``, or its algorithm cannot be played.
        StorageError: The run left nothing that can be loaded.
    """
    config, algorithm, context = load_run(path, registry, environment)
    if not isinstance(algorithm, Playable):
        raise ConfigError(
            f"algorithm {config.algorithm.name!r} cannot be played: it has no method 'restore', "
            "which gives the policies of a run; see Playable in docs/reference/protocols.md"
        )
    return config, context, algorithm.restore(context, checkpoint)


def _require_environment(algorithm: ComponentRef, registry: Registry) -> None:
    """Refuse an environment that would not be used."""
    takers = [
        name
        for name in registry.names("algorithm")
        if registry.get("algorithm", name).takes_environment
    ]
    if algorithm.name not in takers:
        raise ConfigError(
            f"environment=...: algorithm {algorithm.name!r} does not act in an environment of the "
            f"caller's; those that do: {', '.join(takers) or 'none is installed'}"
        )


def _require_same_world(
    directory: Path, manifest: Manifest | None, world: WorldModel | None
) -> None:
    """Refuse a run whose world is not the one that it was made in.

    Raises:
        ConfigError: It is another.
    """
    if manifest is None or manifest.world is None:
        return
    differs = "there is none" if world is None else difference(manifest.world, identity(world))
    if differs is not None:
        raise ConfigError(
            f"{directory}: was made in another world than its config gives here: {differs}. "
            f"Restore what changed: {CONFIG}, or the code of the world's plugin "
            f"({directory / ENVIRONMENT} has the versions); or start a new run with: "
            f"empo run {directory / CONFIG}"
        )


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch.

    Our own code uses generators of its own; this is for code that does not.
    """
    seed_globals(stream(seed, Stream.GLOBALS, process_rank()))


def peak_memory_bytes() -> int | None:
    """The most memory this process ever held, or None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def _shown(tracker: Tracker) -> Callable[[str, float, float], None]:
    """Progress of what comes after all work: a tracker that fails now costs no result."""

    def show(task: str, done: float, total: float) -> None:
        with best_effort(f"showing {task!r}"):
            tracker.progress(task, done, total)

    return show


def _packages(registry: Registry) -> set[str]:
    """The core and the packages that offer components."""
    targets = (offer.component.target for offer in registry.offers if offer.component)
    return {"empo_core", *(target.partition(":")[0].split(".")[0] for target in targets)}


def component_at(error: BaseException, config: RunConfig, registry: Registry) -> str:
    """The component of a config whose code raised an error, e.g. ``world_model 'mine/maze'``.

    That is the one in whose package the innermost line of all lies that lies in one.
    """
    packages: dict[str, ComponentRef] = {}
    for _, ref in references(config):
        target = registry.get(ref.kind, ref.name).target
        packages.setdefault(target.split(":")[0].split(".")[0], ref)
    modules = [
        str(frame.f_globals.get("__name__", "")).split(".")[0]
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    for module in reversed(modules):
        if module in packages:
            return f"{packages[module].kind} {packages[module].name!r}"
    return "a component"


@contextlib.contextmanager
def _exits_are_errors(config: RunConfig, registry: Registry) -> Iterator[None]:
    """Raise what would end the process as an error that names the component."""
    try:
        yield
    except BaseException as error:
        if is_exit(error):
            raise exit_error(error, component_at(error, config, registry)) from error
        raise


def _supervised(
    algorithm: Algorithm,
    context: RunContext,
    config: RunConfig,
    directory: RunDirectory,
    termination: Termination,
    registry: Registry,
    warnings: LoggedWarnings,
) -> Result:
    """Run the algorithm, and leave true records whichever way it ends."""
    status: RunStatus = "failed"
    reason: str | None = None
    is_refused = False
    with directory.logging(warnings):
        try:
            log.info("%s in %s", "resumed" if context.resume else "started", directory.path)
            context.tracker.start(directory.path, resolved(config))
            result = algorithm.run(context)
            with stage(_shown(context.tracker), "saving results"):
                results = directory.path / RESULTS
                refuse_gone(results)
                results.mkdir(exist_ok=True)
                result.save(results)
                summary = with_warnings(result.summary(), warnings.messages)
                write_file(results / SUMMARY, strict_json(summary) + "\n")
            status = "finished"
        except KeyboardInterrupt as error:
            termination.begin()
            status = "interrupted"
            if directory.is_gone:
                raise gone(directory.path) from error
            if directory.is_temporary:
                raise
            raise RunInterrupted(directory.path) from error
        except BaseException as raised:
            failure = raised
            if is_exit(raised):
                failure = exit_error(raised, component_at(raised, config, registry))
            reason = f"{type(failure).__name__}: {failure}"
            log.exception("the run failed")
            has_begun = isinstance(context.tracker, TrackerGroup) and context.tracker.has_begun
            is_refused = isinstance(failure, EmpoError) and context.resume and not has_begun
            if isinstance(failure, REFUSALS) and not (context.resume or has_begun):
                directory.is_temporary = True  # Nothing was run, so nothing is left.
            if directory.is_gone:
                raise gone(directory.path) from failure
            if not process_rank():
                note_copies(failure, directory.path)
            if not directory.is_temporary:
                failure.add_note(f"Its log: {directory.path / LOG}")
            if failure is raised:
                raise
            raise failure from raised
        finally:
            log.info("%s", status)
            try:
                context.tracker.finish(status)
            finally:
                if directory.is_gone:
                    pass  # There is nothing to write into.
                elif is_refused:
                    directory.leave_as_it_was(str(reason))
                else:
                    directory.mark(status, reason)
    return result
