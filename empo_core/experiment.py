"""The life of a run: build what its config names, run the algorithm, keep the results."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from pydantic import JsonValue

from empo_core.best_effort import best_effort
from empo_core.components import (
    build,
    build_algorithm,
    build_callbacks,
    build_world,
    exits_of_components,
    require_loadable,
)
from empo_core.config import RunConfig, TrackerRef, installed, suggested_name
from empo_core.config.files import load_config
from empo_core.errors import REFUSALS, ConfigError, EmpoError, StorageError
from empo_core.interrupts import Termination
from empo_core.plugins.registry import Registry
from empo_core.protocols import (
    Callback,
    CheckpointChoice,
    EpisodePlayer,
    HumanPrior,
    Result,
    RobotPolicy,
    RunContext,
    RunStatus,
    Schedule,
    Tracker,
)
from empo_core.random_streams import Stream, seed_globals, stream
from empo_core.run_warnings import LoggedWarnings, with_warnings
from empo_core.runs.atomic import make_folder, strict_json, write_file
from empo_core.runs.directory import (
    CONFIG,
    ENVIRONMENT,
    LOG,
    RESULTS,
    SUMMARY,
    RunDirectory,
    existing_run,
    labels,
    resolved,
    warn_of_silent_end,
)
from empo_core.runs.environment import missing_plugins, peak_memory_bytes
from empo_core.runs.extension import Changes, extended
from empo_core.runs.files import missing_run, refuse_gone
from empo_core.runs.inputs import (
    Inputs,
    checked_inputs,
    note_copies,
    read_manifest,
    refuse_changed,
)
from empo_core.runs.launch import process_rank
from empo_core.stages import stage
from empo_core.suggestions import CONFIG_SUFFIXES, nearest
from empo_core.tracker_group import TrackerGroup
from empo_core.trees import JsonData
from empo_core.world_content import difference, identity

log = logging.getLogger("empo_core")


class RunInterrupted(KeyboardInterrupt):
    """A run was stopped by Ctrl-C, SIGTERM or SIGHUP; its directory can be resumed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(f"interrupted; go on with: empo resume {directory}")
        self.directory = directory


def run(
    config: RunConfig | Mapping[str, object] | str | Path,
    overrides: Sequence[str] = (),
    *,
    registry: Registry | None = None,
    watchers: Sequence[Tracker] = (),
    env: Callable[[], object] | str | None = None,
    callbacks: Sequence[Callback | str | Mapping[str, object]] = (),
    lr_schedule: Schedule | None = None,
    **params: object,
) -> Result:
    """Run a config in a new run directory and return the result; see ``Experiment.start``.

    Args:
        config: A config, also as a dict or as the path of a file; or the name of an algorithm.
        overrides: Changes of a dict or of a file, ``"key.path=value"`` each.
        registry: As for ``Experiment``.
        watchers: As for ``Experiment.start``.
        env: A class of environments, or a function that makes one, as for ``Experiment``; or
            the name of one.
        callbacks: As for ``Experiment.start``; with the name of an algorithm also names of
            components, or ``{"name": ..., "params": {...}}``.
        lr_schedule: As for ``Experiment``.
        **params: With the name of an algorithm its params, e.g. ``total_steps=100_000``, and
            keys of the config, e.g. ``seed=1``.

    Raises:
        ConfigError: if the config is not valid, with one located line per problem.
        EmpoError: as for ``Experiment.start``.
    """
    if env is not None and "environment" in params:
        raise ConfigError("environment=...: env=... says it already; drop one of them")
    if callable(maker := params.get("environment")):
        log.warning("environment=... of run is env=... now, and will be refused one day")
        env = maker
        del params["environment"]
    registry = registry or installed()
    is_name = isinstance(config, str) and config in registry.names("algorithm")
    if is_name and not Path(str(config)).is_file():
        if isinstance(env, str):
            params["environment"], env = env, None
        keys = {key: params.pop(key) for key in RunConfig.model_fields.keys() & params.keys()}
        named = [item for item in callbacks if isinstance(item, str | Mapping)]
        callbacks = [item for item in callbacks if not isinstance(item, str | Mapping)]
        keys |= {"callbacks": named} if named else {}
        config = {**keys, "algorithm": {"name": config, "params": params}}
    elif isinstance(config, str) and (hint := _meant(config, registry)):
        raise ConfigError(f"{config}: there is no such file. {hint}")
    elif params or isinstance(env, str):
        names = ", ".join([*params, *["env"] * isinstance(env, str)])
        raise ConfigError(f"{names}: goes with the name of an algorithm; write it into the config")
    if not isinstance(config, RunConfig):
        config = load_config(config, overrides, registry)
    elif overrides:
        raise ConfigError("overrides: a RunConfig is validated already; give them to load_config")
    return Experiment.start(
        config,
        registry=registry,
        watchers=watchers,
        env=env,
        callbacks=_checked(callbacks),
        lr_schedule=lr_schedule,
    ).result


def _meant(name: str, registry: Registry) -> str | None:
    """What a text that is no file was most likely meant to be; None if nothing is like it."""
    if Path(name).exists() or Path(name).suffix in CONFIG_SUFFIXES:
        return None
    if name.partition("/")[0] in registry.names("world_model"):
        return f"A world goes beside an algorithm: run(ALGORITHM, world_model={name!r})"
    if algorithm := nearest(name, registry.names("algorithm")):
        return f"Did you mean {algorithm!r}?"
    return suggested_name(registry, "world_model", name)


def _config_of(directory: Path, registry: Registry) -> RunConfig:
    """The config of a run.

    Raises:
        ConfigError: if the config is not valid here, e.g. since a plugin is missing that the run
            had, which is named then.
    """
    try:
        return load_config(directory / CONFIG, registry=registry)
    except ConfigError as error:
        missing = missing_plugins(directory / ENVIRONMENT, registry)
        if not missing:
            raise
        raise ConfigError(
            f"{error}\nthe run had plugins that are not installed here: {', '.join(missing)}; "
            "install them"
        ) from error


def _require_callable(environment: object) -> None:
    """Refuse an environment itself instead of what makes one.

    Raises:
        ConfigError: if the argument cannot be called.
    """
    if environment is None or callable(environment):
        return
    kind = type(environment).__name__
    if hasattr(environment, "step"):
        raise ConfigError(
            f"env=...: is an object of class {kind}, and a run makes copies itself; "
            f"give the class ({kind}), or a function that makes one, e.g. lambda: {kind}(...)"
        )
    raise ConfigError(
        f"env=...: is {environment!r:.100}; give a class of environments, e.g. one that "
        "derives from gymnasium.Env, or a function that makes one"
    )


def _checked(callbacks: Sequence[object]) -> list[Callback]:
    """The callbacks of a caller.

    Raises:
        ConfigError: if something else is among them.
    """
    for place, item in enumerate(callbacks):
        if not isinstance(item, Callback):
            subject = f"{item!r:.100} is no object of a class that derives from Callback"
            raise ConfigError(
                f"callbacks.{place}: {subject}; give objects such as MyCallback(), or write names "
                "of components into the config"
            )
    return [item for item in callbacks if isinstance(item, Callback)]


class Experiment:
    """A config, the objects that it names, and the directory of its run.

    ``start`` runs a config in a new directory, ``resume`` goes on with an interrupted run, and
    ``load`` opens a run without running anything.

    Attributes:
        config: The config; its paths are those of the copies in the directory.
        algorithm: The algorithm.
        context: World, seed, directory and tracker, as the algorithm gets them.
        seconds: Duration of the run, results on disk included; 0 of a loaded run.
    """

    context: RunContext

    def __init__(
        self,
        config: RunConfig,
        registry: Registry | None = None,
        env: Callable[[], object] | None = None,
        callbacks: Sequence[Callback] = (),
        lr_schedule: Schedule | None = None,
    ) -> None:
        """Build the world and the algorithm of a config; nothing is written.

        Args:
            config: The config.
            registry: The components that the config may name; default: the installed ones.
            env: A class of environments, or a function that makes one, for algorithms that
                act in one which no installed component provides; it must be picklable where other
                processes need it.
            callbacks: Of the learner, after those of the config.
            lr_schedule: Factor of learning rates as a function of the share of the run that is
                over, instead of a schedule of the config.

        Raises:
            EmpoError: if a component of the config cannot be built.
        """
        self.config = config
        self.seconds = 0.0
        self._registry = registry or installed()
        _require_callable(env)
        self._environment, self._callbacks = env, _checked(callbacks)
        self._lr_schedule = lr_schedule
        self._since = time.monotonic()
        packages = {offer.component.package for offer in self._registry.offers}
        self._warnings = LoggedWarnings({"empo_core", *packages})
        self._world = build_world(config, self._registry)
        self.algorithm = build_algorithm(config, self._registry, env, callbacks, lr_schedule)

    @classmethod
    def start(
        cls,
        config: RunConfig,
        *,
        registry: Registry | None = None,
        watchers: Sequence[Tracker] = (),
        env: Callable[[], object] | None = None,
        callbacks: Sequence[Callback] = (),
        lr_schedule: Schedule | None = None,
        terminal: bool | None = None,
        place: Path | None = None,
    ) -> Experiment:
        """Run a config in a new run directory.

        Of the processes of ``torchrun`` only rank 0 has trackers, and a run directory that stays.
        An unfinished run that this very launch of ``torchrun`` began goes on instead.

        Args:
            config: What to do, e.g. from ``load_config``.
            registry: As for ``Experiment``.
            watchers: Trackers besides those of the config.
            env: As for ``Experiment``.
            callbacks: As for ``Experiment``.
            lr_schedule: As for ``Experiment``.
            terminal: Whether trackers for terminals watch: True adds those that plugins offer,
                False leaves out those of the config; None: what the config says.
            place: The run directory, which must not exist; None: one with a name of its own.

        Raises:
            EmpoError: if the config cannot be run, or the run failed for a reason we know.
            RunInterrupted: if the run was stopped; ``.directory`` can be resumed.
        """
        registry = registry or installed()
        if place is None and (unfinished := RunDirectory.relaunched(config)) is not None:
            return cls._resume(
                unfinished, (), registry, watchers, env, callbacks, lr_schedule, terminal
            )
        with Termination() as termination, exits_of_components(config, registry):
            refuse_changed(config)
            require_loadable(config, registry)
            inputs = Inputs(config)
            seed_everything(config.seed)
            experiment = cls(config, registry, env, callbacks, lr_schedule)
            trackers = experiment._trackers(watchers, terminal)
            experiment._build_callbacks()
            if place is None and not process_rank():
                warn_of_silent_end(config.runs)
            # Only now, so that a config that cannot be built leaves nothing.
            with RunDirectory.create(
                config, registry, place, inputs=inputs, world=experiment._identity(), env=env
            ) as directory:
                if not process_rank():
                    experiment._read_copies(inputs, directory.path)
                experiment._run(directory, trackers, termination)
        return experiment

    @classmethod
    def resume(
        cls,
        path: str | Path,
        overrides: Sequence[str] = (),
        *,
        registry: Registry | None = None,
        watchers: Sequence[Tracker] = (),
        env: Callable[[], object] | None = None,
        callbacks: Sequence[Callback] = (),
        lr_schedule: Schedule | None = None,
        terminal: bool | None = None,
    ) -> Experiment:
        """Go on with a run that was interrupted or failed, or is extended, in its own directory.

        Args:
            path: The run directory.
            overrides: Changed params, e.g. ``total_steps=2000000``, with which a run may go on that
                has finished; which ones, the algorithm says.
            registry: As for ``start``, like what follows.
            watchers: Trackers besides those of the config.
            env: Makes an environment.
            callbacks: Those that the run began with, so that it goes on as it would have.
            lr_schedule: That with which the run began, if any.
            terminal: As for ``start``.

        Raises:
            ConfigError: if the path is no run directory; the run has finished and is not extended,
                or is running; or it cannot go on with other params.
            EmpoError: if the run cannot go on, or failed for a reason we know.
            RunInterrupted: if the run was stopped again.
        """
        registry = registry or installed()
        return cls._resume(
            RunDirectory.reopen(path, extends=bool(overrides)),
            overrides,
            registry,
            watchers,
            env,
            callbacks,
            lr_schedule,
            terminal,
        )

    @classmethod
    def _resume(
        cls,
        directory: RunDirectory,
        overrides: Sequence[str],
        registry: Registry,
        watchers: Sequence[Tracker],
        env: Callable[[], object] | None,
        callbacks: Sequence[Callback],
        lr_schedule: Schedule | None,
        terminal: bool | None,
    ) -> Experiment:
        with directory:
            config = _config_of(directory.source, registry)
            changes: Changes = {}
            if overrides:
                config, changes = extended(config, directory.source, overrides, registry)
            with Termination() as termination, exits_of_components(config, registry):
                config = checked_inputs(config, directory.source)
                seed_everything(config.seed)
                experiment = cls(config, registry, env, callbacks, lr_schedule)
                experiment._require_world_of(directory.source)
                if changes:
                    experiment.algorithm.require_extendable(changes)
                elif directory.has_finished:
                    raise ConfigError(
                        f"{directory.path}: this run has finished with these very params: "
                        f"{', '.join(overrides)}"
                    )
                trackers = experiment._trackers(watchers, terminal)
                experiment._build_callbacks()
                directory.begin_again(config, registry, changes)
                experiment._run(
                    directory, trackers, termination, resume=True, is_extended=bool(changes)
                )
        return experiment

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        registry: Registry | None = None,
        env: Callable[[], object] | None = None,
    ) -> Experiment:
        """Open the run in a directory, without running anything.

        Args:
            path: The run directory.
            registry: As for ``Experiment``.
            env: As for ``Experiment``.

        Raises:
            ConfigError: if the path is no run directory, or its config cannot be used here.
            StorageError: if an input of the run is missing or was changed.
        """
        directory = existing_run(path)
        config = _config_of(directory, registry or installed())
        experiment = cls(checked_inputs(config, directory), registry, env)
        experiment._require_world_of(directory)
        experiment.context = experiment._context(directory, TrackerGroup([]), resume=True)
        return experiment

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.context.directory

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings that the code of the run logged."""
        return self._warnings.messages

    @cached_property
    def result(self) -> Result:
        """The result; that of a loaded run if its algorithm can reopen results.

        Raises:
            ConfigError: if the algorithm cannot reopen results.
            StorageError: if the run left no result, or a damaged one.
        """
        result = self.algorithm.reopen(self.context)
        if result is None:
            raise ConfigError(
                f"algorithm {self.config.algorithm.name!r} keeps no results that can be opened "
                "again; see Algorithm.reopen in docs/reference/protocols/algorithm.md"
            )
        return result

    def policies(
        self, checkpoint: CheckpointChoice = "newest"
    ) -> tuple[RobotPolicy, HumanPrior] | EpisodePlayer:
        """The policies that can play the run, or a player that has them.

        Raises:
            ConfigError: if the algorithm cannot be played.
            StorageError: if the run left nothing that can be loaded.
        """
        policies = self.algorithm.restore(self.context, checkpoint)
        if policies is None:
            raise ConfigError(
                f"algorithm {self.config.algorithm.name!r} cannot be played: its method 'restore' "
                "gives no policies; see Algorithm in docs/reference/protocols/algorithm.md"
            )
        return policies

    def summary(self) -> dict[str, JsonData]:
        """The result's summary, and what every run can say about itself."""
        about = {
            "algorithm": self.config.algorithm.name,
            "world": None if self.config.world_model is None else labels(self.config)[0],
            "run_dir": str(self.directory),
            "peak_memory_bytes": peak_memory_bytes(),
        }
        return {**about, **with_warnings(self.result.summary(), self.warnings)}

    def _trackers(self, watchers: Sequence[Tracker], terminal: bool | None) -> TrackerGroup:
        refs = list(self.config.trackers)
        for name in [] if terminal is None else self._registry.default_trackers("terminal"):
            if not terminal:
                refs = [ref for ref in refs if ref.name != name]
            elif all(ref.name != name for ref in refs):
                refs.append(TrackerRef.model_validate(name, context={"registry": self._registry}))
        trackers = [build(ref, registry=self._registry) for ref in refs]
        members = [] if process_rank() else [*trackers, *watchers]
        return TrackerGroup(members, on_error=self.config.on_tracker_error)

    def _build_callbacks(self) -> None:
        """Put the callbacks of the config before those of the caller."""
        self._callbacks = build_callbacks(
            self.config, self.algorithm, self._registry, self._callbacks
        )

    def _identity(self) -> dict[str, JsonValue] | None:
        """The identity of the world, as the inputs' manifest of rank 0 has it."""
        return None if self._world is None or process_rank() else identity(self._world)

    def _read_copies(self, inputs: Inputs, directory: Path) -> None:
        """Read the copies from now on instead of the originals."""
        copied = inputs.in_run(self.config, directory)
        if copied.algorithm is not self.config.algorithm:
            self.algorithm = build_algorithm(
                copied, self._registry, self._environment, self._callbacks, self._lr_schedule
            )
        self.config = copied

    def _require_world_of(self, directory: Path) -> None:
        """Refuse a run whose world is not the one that it was made in.

        Raises:
            ConfigError: if the world is another.
        """
        recorded, world = read_manifest(directory).world, self._world
        if recorded is None:
            return
        differs = "there is none" if world is None else difference(recorded, identity(world))
        if differs is not None:
            raise ConfigError(
                f"{directory}: was made in another world than its config gives here: {differs}. "
                f"Restore what changed: {CONFIG}, or the code of the world's plugin "
                f"({directory / ENVIRONMENT} has the versions); or start a new run with: "
                f"empo run {directory / CONFIG}"
            )

    def _context(
        self, directory: Path, tracker: TrackerGroup, *, resume: bool, is_extended: bool = False
    ) -> RunContext:
        return RunContext(
            world=self._world,
            seed=self.config.seed,
            directory=directory,
            tracker=tracker,
            resume=resume,
            world_model=self.config.world_model,
            environment=self._environment,
            is_extended=is_extended,
            callbacks=self._callbacks,
            lr_schedule=self._lr_schedule,
        )

    def _run(
        self,
        directory: RunDirectory,
        tracker: TrackerGroup,
        termination: Termination,
        *,
        resume: bool = False,
        is_extended: bool = False,
    ) -> None:
        """Run the algorithm, and leave true records whichever way the run ends."""
        self.context = self._context(
            directory.path, tracker, resume=resume, is_extended=is_extended
        )
        status: RunStatus = "failed"
        reason: str | None = None
        is_refused = False
        with directory.logging(self._warnings):
            try:
                with exits_of_components(self.config, self._registry):
                    log.info("%s in %s", "resumed" if resume else "started", directory.path)
                    tracker.start(directory.path, resolved(self.config))
                    self.result = self.algorithm.run(self.context)
                    with stage(_progress_of(tracker), "saving results"):
                        self._save_result()
                    directory.drop_earlier_results()
                    self._tell_plugins()
                status = "finished"
            except KeyboardInterrupt as error:
                termination.begin()
                status = "interrupted"
                if directory.is_gone:
                    raise missing_run(directory.path) from error
                if directory.is_temporary:
                    raise
                raise RunInterrupted(directory.path) from error
            except Exception as failure:
                reason = f"{type(failure).__name__}: {failure}"
                log.exception("the run failed")
                is_refused = isinstance(failure, EmpoError) and resume and not tracker.has_begun
                if isinstance(failure, REFUSALS) and not (resume or tracker.has_begun):
                    directory.is_temporary = True  # Nothing was run, so nothing is left.
                if directory.is_gone:
                    raise missing_run(directory.path) from failure
                if not process_rank():
                    note_copies(failure, directory.path)
                if not directory.is_temporary:
                    failure.add_note(f"Its log: {directory.path / LOG}")
                raise
            finally:
                log.info("%s", status)
                try:
                    tracker.finish(status)
                finally:
                    self._record_end(directory, status, reason, is_refused=is_refused)
        self.seconds = time.monotonic() - self._since

    def _record_end(
        self, directory: RunDirectory, status: RunStatus, reason: str | None, *, is_refused: bool
    ) -> None:
        """Record how the run ended; where that fails, what ended it is still the error."""
        try:
            if is_refused and not directory.is_gone:
                directory.leave_as_it_was(str(reason))
            else:
                directory.mark(status, reason)
        except StorageError as error:
            if status == "finished":
                raise
            log.warning("%s; that the run is %s is not recorded", error, status)

    def _save_result(self) -> None:
        results = self.directory / RESULTS
        refuse_gone(results)
        make_folder(results)
        self.result.save(results)
        self._write_summary()

    def _write_summary(self) -> None:
        summary = with_warnings(self.result.summary(), self.warnings)
        write_file(self.directory / RESULTS / SUMMARY, strict_json(summary) + "\n")

    def _tell_plugins(self) -> None:
        """Call the hooks of plugins; the results are saved, and no failure ends the run."""
        if process_rank():
            return
        logged = len(self.warnings)
        for hook in self._registry.run_hooks:
            with best_effort(f"empo_run_finished of {hook.provider.distribution}"):
                hook.call(self)
        if len(self.warnings) > logged:
            with best_effort("noting in the summary what failed"):
                self._write_summary()


def seed_everything(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch.

    Our own code uses generators of its own; this is for code that does not.
    """
    seed_globals(stream(seed, Stream.GLOBALS, process_rank()))


def _progress_of(tracker: Tracker) -> Callable[[str, float, float], None]:
    """Progress of what comes after all work: a tracker that fails now costs no result."""

    def show(task: str, done: float, total: float) -> None:
        with best_effort(f"showing {task!r}"):
            tracker.progress(task, done, total)

    return show
