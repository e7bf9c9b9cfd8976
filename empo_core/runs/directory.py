"""Run directories: config, versions, status, log and results.

``runs/<date>-<world>-<algorithm>-<task>-<seed>[-n]/`` holds ``config.yaml`` (resolved, runs again
as it is) and the same as ``config.json``, ``env.json``, ``status.json``, ``log.txt``, ``results/``
and whatever trackers write.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import itertools
import json
import logging
import os
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

from pydantic import JsonValue

from empo_core.config import RunConfig
from empo_core.config.yaml import MAX_BYTES, dump_yaml, parse_yaml
from empo_core.errors import ConfigError, StorageError
from empo_core.plugins.registry import Registry
from empo_core.printable import PrintableFormatter
from empo_core.runs.atomic import read_json, refused, strict_json, write_file
from empo_core.runs.environment import record_environment
from empo_core.runs.files import (
    forget_root,
    hold,
    is_gone,
    open_append,
    open_regular,
    refuse_strange_files,
    watch_root,
)
from empo_core.runs.inputs import Inputs, without_place
from empo_core.runs.launch import is_of_this_launch, launch, process_rank
from empo_core.runs.status import STATUS, Status, status_of
from empo_core.trees import JsonData

CONFIG, ENVIRONMENT, LOG = "config.yaml", "env.json", "log.txt"
CONFIG_DATA = "config.json"
RESULTS = "results"
EARLIER_RESULTS = ".results-before"
"""The results of a run that had finished and is trained on, until it has finished again."""
SUMMARY = "summary.json"

log = logging.getLogger("empo_core")


class RunDirectory:
    """One run's directory, held by one process at a time.

    Attributes:
        path: The directory.
        is_temporary: Whether it is gone when it is released.
        source: The directory that has the run's config and inputs, which another process may hold.
        has_finished: Whether the run had finished when the directory was opened again.
    """

    def __init__(self, path: Path, *, is_temporary: bool = False) -> None:
        self.path = path
        self.is_temporary = is_temporary
        self.source = path
        self._lock: BinaryIO | None = None
        self.has_finished = False
        self._earlier: dict[str, bytes] = {}
        self._facts: dict[str, JsonData] = {"started": _now()}
        self._since, self._seconds_before = time.monotonic(), 0.0

    @classmethod
    def create(
        cls,
        config: RunConfig,
        registry: Registry,
        place: Path | None = None,
        *,
        inputs: Inputs | None = None,
        world: Mapping[str, JsonValue] | None = None,
        env: object = None,
    ) -> RunDirectory:
        """A new directory under ``config.runs``, which no other run has or will get.

        Args:
            config: Of the run.
            registry: The components it may name.
            place: The directory, which must not exist; None: one with a name of its own.
            inputs: The files that the config names; None: as they are now.
            world: The identity of the run's world.
            env: What a caller from Python makes environments with, for the run's name.

        Raises:
            StorageError: if the directory cannot be made.
            ConfigError: if a file that the config names was changed since ``inputs`` were listed.
        """
        is_first = not process_rank()
        directory = cls(_new_directory(config, place, env)) if is_first else cls._temporary()
        try:
            directory._hold()
            if not process_rank():
                directory._fill(config, registry, inputs or Inputs(config), world)
            directory._facts["task"] = _task(config, env)
            if launch() is not None:
                directory._facts["launch"] = launch()
            directory.mark("running")
        except BaseException:
            directory.is_temporary = True
            directory.release()
            raise
        return directory

    def _fill(
        self,
        config: RunConfig,
        registry: Registry,
        inputs: Inputs,
        world: Mapping[str, JsonValue] | None,
    ) -> None:
        """Write all that a run has when it begins, but for its status."""
        inputs.copy(self.path, world)
        write_config(self.path, _portable(inputs.in_run(config, self.path), self.path))
        record_environment(self.path / ENVIRONMENT, config, registry)
        (self.path / RESULTS).mkdir()

    @classmethod
    def reopen(cls, path: str | Path, *, extends: bool = False) -> RunDirectory:
        """The directory of a run that stopped before its end, to go on with it.

        Args:
            path: The directory.
            extends: Whether the run goes on with more to do, so that it may have finished.

        Raises:
            ConfigError: if the path is no run's directory, the run has finished, or its process is
                alive.
        """
        directory = cls(existing_run(path))
        if process_rank():
            private = cls._temporary()
            private.source = directory.path
            return private
        before = status_of(directory.path)
        directory.has_finished = before.status == "finished"
        if directory.has_finished and not extends:
            raise ConfigError(
                f"{path}: this run has finished; start a new one with: "
                f"empo run {directory.path / CONFIG}; a run that learned goes on with more "
                f"steps, as in: empo resume {path} total_steps=..."
            )
        owner = f"process {before.pid} on {before.host}"
        # Torchrun has stopped all processes of a launch before it starts them again elsewhere.
        is_ours = before.is_local or (launch() is not None and before.launch == launch())
        if before.status == "running" and not is_ours:
            raise ConfigError(
                f"{path}: this run was started as {owner}, which cannot be seen from here; if it "
                f"is dead, write 'interrupted' for 'running' in {STATUS} and try again"
            )
        if not directory._hold():
            raise ConfigError(
                f"{path}: this run is still going on ({owner}); wait for it or stop it"
            )
        if before.status == "running":  # The lock is ours, so nobody is at work there.
            log.warning("%s: %s", path, before.silent_end)
        started = before.started and before.started.isoformat()
        facts = {"started": started, "task": before.task, "launch": before.launch}
        directory._facts |= {key: value for key, value in facts.items() if value}
        directory._seconds_before = before.seconds or 0.0
        names = (CONFIG, CONFIG_DATA, ENVIRONMENT, *([STATUS] if before.status else []))
        files = (directory.path / name for name in names)
        directory._earlier = {file.name: file.read_bytes() for file in files if file.is_file()}
        return directory

    def begin_again(
        self,
        config: RunConfig,
        registry: Registry,
        changes: Mapping[str, tuple[JsonData, JsonData]] | None = None,
    ) -> None:
        """Record that the run goes on, and warn about changed versions.

        Args:
            config: Of the run from now on.
            registry: The components that it may name.
            changes: The params that are others: the value before and the value now.

        Raises:
            StorageError: if a file cannot be written.
        """
        if process_rank():
            return
        self._facts.setdefault("task", _task(config))
        record_environment(self.path / ENVIRONMENT, config, registry, changes)
        self.mark("running")
        if changes:
            write_config(self.path, _portable(config, self.path))
        if self.has_finished:  # Else the results would be taken for those of the newest weights.
            self._move(RESULTS, EARLIER_RESULTS)

    def leave_as_it_was(self, reason: str) -> None:
        """Restore config, status, results and reason from before, since nothing was run."""
        for name, content in self._earlier.items():
            write_file(self.path / name, content)
        if STATUS not in self._earlier:
            self.mark("failed", reason)
        if self.has_finished:
            self._move(EARLIER_RESULTS, RESULTS)

    def drop_earlier_results(self) -> None:
        """Remove the results of a run that has been trained on, since there are newer ones."""
        shutil.rmtree(self.path / EARLIER_RESULTS, ignore_errors=True)

    def _move(self, name: str, target: str) -> None:
        """Rename a folder of results in the directory, if it is there.

        Raises:
            StorageError: if the disk refuses.
        """
        if not (self.path / name).is_dir():
            return
        try:
            shutil.rmtree(self.path / target, ignore_errors=True)
            (self.path / name).rename(self.path / target)
        except OSError as error:
            raise refused(self.path / name, error) from error

    @classmethod
    def relaunched(cls, config: RunConfig) -> RunDirectory | None:
        """The directory of the unfinished run that processes of this very launch began, if any.

        Raises:
            ConfigError: if the run's process is alive.
        """
        if process_rank() or launch() is None or not config.runs.is_dir():
            return None
        for path in sorted(config.runs.iterdir(), reverse=True):
            try:
                if not is_of_this_launch(status_of(path)):
                    continue
                config_here = _portable(Inputs(config).in_run(config, path), path)
                is_same = read_config(path) == config_here
            except (StorageError, OSError, ValueError) as error:
                log.warning("%s; this run is none to go on with", error)
            else:
                if is_same:
                    return cls.reopen(path)
        return None

    def mark(self, status: Status, error: str | None = None) -> None:
        """Record the run's status."""
        record: dict[str, JsonData] = {
            "status": status,
            **self._facts,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "updated": _now(),
            "seconds": round(self._seconds_before + time.monotonic() - self._since, 3),
        }
        if error is not None:
            record["error"] = error
        if not self.is_gone:  # Else there is nobody to tell.
            write_file(self.path / STATUS, strict_json(record) + "\n")

    @property
    def is_gone(self) -> bool:
        """True if the directory was moved or removed while this process held it."""
        return is_gone(self.path)

    @contextlib.contextmanager
    def logging(self, *listeners: logging.Handler) -> Iterator[None]:
        """Send what Python's ``logging`` is told, from INFO up, to ``log.txt`` as well.

        Where nobody has set up logging, as in a script, warnings go to standard error as before.

        Args:
            listeners: Handlers that are told as well.
        """
        stream = io.TextIOWrapper(open_append(self.path / LOG), "utf-8")
        handler = logging.StreamHandler(stream)
        handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root = logging.getLogger()
        level = root.level
        handlers = (handler, *listeners, *([] if root.handlers else [_shown_warnings()]))
        for log_handler in handlers:
            root.addHandler(log_handler)
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.setLevel(level)
            for log_handler in handlers:
                root.removeHandler(log_handler)
            stream.close()

    def __enter__(self) -> Self:
        """The directory, until it is released at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Release the directory."""
        self.release()

    def release(self) -> None:
        """Let another process hold the directory; the end of this process does it too."""
        forget_root(self.path)
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self.is_temporary:
            shutil.rmtree(self.path, ignore_errors=True)

    @classmethod
    def _temporary(cls) -> RunDirectory:
        return cls(Path(tempfile.mkdtemp(prefix="empo-run-")), is_temporary=True)

    def _hold(self) -> bool:
        self._lock = hold(self.path / ".lock")
        if self._lock is not None:
            watch_root(self.path)
        return self._lock is not None


def write_config(directory: Path, config: dict[str, JsonValue]) -> None:
    """Write a run's config, as YAML for people and as JSON for whoever reads thousands."""
    head = f"# The resolved config of this run; repeat it with: empo run PATH/TO/{CONFIG}\n"
    text = head + dump_yaml(config)
    write_file(directory / CONFIG, text)
    with contextlib.suppress(ValueError):  # JSON has no infinities; then there is YAML alone.
        data = {"yaml_sha256": _sha256(text.encode()), "config": config}
        write_file(directory / CONFIG_DATA, json.dumps(data, allow_nan=False) + "\n")


def read_config(directory: Path) -> JsonValue:
    """A run's config as plain data, fifty times faster where the JSON is of this very YAML.

    Raises:
        ConfigError: if the config is not YAML as this project accepts it.
        StorageError: if the config is missing, or no regular file.
    """
    path = directory / CONFIG
    with open_regular(path) as file:
        raw = file.read(MAX_BYTES + 1)
    with contextlib.suppress(StorageError):
        quick = read_json(directory / CONFIG_DATA)
        if isinstance(quick, dict) and quick.get("yaml_sha256") == _sha256(raw):
            return quick.get("config")
    data: JsonValue = json.loads(json.dumps(parse_yaml(raw, name=str(path)).data))
    return data


def _sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _shown_warnings() -> logging.Handler:
    """What Python itself would do with warnings if no handler were there; errors are raised."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.levelno < logging.ERROR)
    handler.setFormatter(PrintableFormatter("warning: %(message)s"))
    return handler


def existing_run(path: str | Path) -> Path:
    """Absolute path of a run's directory, which may come from elsewhere.

    Raises:
        ConfigError: if the path is no run's directory, or holds a link out of it, a pipe or a
            device.
    """
    directory = Path(path).resolve()
    if not directory.exists():
        raise ConfigError(
            f"{path}: does not exist, so it is no run directory; give one that 'empo run' printed, "
            "e.g. runs/2026-01-31-trivial-exact-0"
        )
    if not (directory / CONFIG).is_file():
        raise ConfigError(f"{path}: is not a run directory: it has no {CONFIG}")
    refuse_strange_files(directory)
    return directory


def _new_directory(config: RunConfig, place: Path | None, env: object) -> Path:
    stem = "-".join([datetime.date.today().isoformat(), *labels(config, env), str(config.seed)])
    for number in itertools.count(1):
        path = place or config.runs / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()  # Fails where it exists, so two runs never share one.
            break
        except OSError as error:
            if isinstance(error, FileExistsError) and place is None and config.runs.is_dir():
                continue
            raise StorageError(
                f"{error.filename}: cannot be made: {error.strerror}; choose another place with "
                "runs=FOLDER"
            ) from error
    return path


def _task(config: RunConfig, env: object = None) -> str:
    """The world and the task, of those that there are."""
    parts = labels(config, env)
    del parts[config.world_model is not None]  # The algorithm.
    return "-".join(parts)


def labels(config: RunConfig, env: object = None) -> list[str]:
    """The world, the algorithm and its task (those that there are), as parts of a file name.

    Params of an algorithm that has a task of its own say so by a property ``task_label``. ``env``
    is the class or function by which a caller from Python makes environments.
    """
    names = []
    if config.world_model is not None:
        file = getattr(config.world_model.params, "file", None)
        names.append(file.stem if isinstance(file, Path) else config.world_model.name)
    names.append(config.algorithm.name)
    parts = [re.sub(r"[^A-Za-z0-9_]+", "_", name)[:60].strip("_") or "x" for name in names]
    maker = env.func if isinstance(env, partial) else env
    task = getattr(config.algorithm.params, "task_label", None) or getattr(maker, "__name__", None)
    task = None if task == "<lambda>" else task
    if task:
        parts.append(re.sub(r"[^A-Za-z0-9_-]+", "_", str(task))[:60].strip("_-") or "x")
    return parts


def resolved(config: RunConfig) -> dict[str, JsonValue]:
    """The config as plain data with every default and absolute paths."""
    # Python callers may put functions into params; a file can only name those.
    return config.model_dump(mode="json", fallback=repr)


def _portable(config: RunConfig, directory: Path) -> dict[str, JsonValue]:
    """A run's config as plain data, right wherever its directory is moved."""
    runs = {"runs": ".."} if config.runs == directory.parent else {}
    return resolved(without_place(config)) | runs


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def warn_of_silent_end(runs: Path) -> None:
    """Warn if the newest run in a folder of runs ended silently."""
    with contextlib.suppress(OSError, StorageError):
        with os.scandir(runs) as entries:
            times = {entry.path: entry.stat().st_mtime for entry in entries if entry.is_dir()}
        newest = Path(max(times, key=lambda path: times[path], default=""))
        status = status_of(newest)
        if status.has_ended_silently:
            log.warning(
                "%s: %s; its log: %s; go on with: empo resume %s",
                newest, status.silent_end, newest / LOG, newest,
            )  # fmt: skip
