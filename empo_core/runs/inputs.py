"""Copies of the files that a run's config names, in the run's ``inputs/``.

Whatever a config's ``ConfigPath`` names is copied: a file, a folder with all it holds, or another
run's directory without what only people read. ``inputs/manifest.json`` lists every copy with its
size, its sha256 and where it came from, and has the digest of the run's world.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, Field, JsonValue

from empo_core.config import RunConfig
from empo_core.config.models import Output
from empo_core.errors import ConfigError, StorageError
from empo_core.runs.atomic import (
    DISK,
    MANIFEST,
    FileEntry,
    StrictModel,
    entry_of,
    read_sealed,
    refused,
    sealed_json,
    write_file,
)
from empo_core.runs.files import open_regular, reason_of, refuse_strange_files

INPUTS = "inputs"
CONFIG = "config.yaml"
MOST_FILES = 10_000
LARGE = 256 * 2**20
"""Bytes of copies from which on their size is said."""
_FORMAT, _VERSION = "empo-inputs", 1
_FOR_PEOPLE = (
    ".lock",
    "log.txt",
    "metrics.jsonl",
    "events.out.*",
    "inspector.html",
    "evaluation",
    "certificate",
    "*.gif",
)
"""Names in a run's directory that no other run reads."""

log = logging.getLogger("empo_core")

Model = TypeVar("Model", bound=BaseModel)

if TYPE_CHECKING:
    _Path = Path
else:
    _Path = type(Path())


class Copy(FileEntry):
    """One copy, and the path of its original."""

    original: str


class Manifest(StrictModel):
    """Manifest of a run's copied inputs.

    Attributes:
        world: Its world, as ``empo_core.world_content.identity`` has it; None: no world.
        files: Its copies by their paths in ``inputs/``, with slashes.
    """

    world: dict[str, JsonValue] | None
    files: dict[str, Copy] = Field(default_factory=dict)

    @property
    def world_digest(self) -> str | None:
        """The digest of the world's content; None where the run has no world."""
        return None if self.world is None else str(self.world.get("content"))


class KeptFile(_Path):
    """The path of a copy, pickled together with the file's contents.

    On another machine, which may not see the run's directory, it is the path of a copy of that.
    """

    @property
    def in_run(self) -> Path:
        """The path relative to the run's directory, wherever that is."""
        return Path(INPUTS, str(self).rpartition(f"/{INPUTS}/")[2])

    def __reduce__(self) -> Any:
        """The path, and the file where it is one and not too large to be sent."""
        is_sent = self.is_file() and self.stat().st_size <= LARGE
        return _received, (str(self), self.read_bytes() if is_sent else None)


def _received(path: str, data: bytes | None) -> KeptFile:
    """A path with the given content: the same path, or one in the folder of received files."""
    local = KeptFile(path)
    if data is None or (local.is_file() and local.read_bytes() == data):
        return local
    file = Path(_folder_of_received().name, hashlib.sha256(data).hexdigest(), local.name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return KeptFile(file)


@cache
def _folder_of_received() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process, which is gone at its end."""
    return tempfile.TemporaryDirectory(prefix="empo-inputs-")


class Inputs:
    """The files that a config names, before a run begins.

    Attributes:
        files: The files by their places in ``inputs/``.
    """

    def __init__(self, config: BaseModel) -> None:
        """List all files, and remember their states.

        Raises:
            ConfigError: if a file cannot be read, or a folder has too many files.
        """
        self.files: dict[str, Path] = {}
        self._places: dict[Path, str] = {}
        self._states: dict[str, tuple[int, int, int]] = {}
        for path in _paths_of(config):
            files = [] if path in self._places else _files_at(path)
            if files:
                self._places[path] = self._free_place(path.name)
            for file in files:
                place = PurePosixPath(self._places[path], file.relative_to(path)).as_posix()
                self.files[place], self._states[place] = file, _state(file)

    def copy(self, directory: Path, world: Mapping[str, JsonValue] | None) -> None:
        """Copy all files into a run's directory, and write the manifest.

        Args:
            directory: Of the run.
            world: The identity of the run's world.

        Raises:
            ConfigError: if a file was changed after it was listed.
            StorageError: if a file cannot be read or written.
        """
        copies: dict[str, Copy] = {}
        for place, path in self.files.items():
            entry = _copied(path, directory / INPUTS / place)
            if _state(path) != self._states[place]:
                raise ConfigError(f"{path}: was changed while the run began; start it again")
            copies[place] = Copy(**entry.model_dump(), original=str(path))
        total = sum(entry.bytes for entry in copies.values())
        if total > LARGE:
            largest = max(copies.values(), key=lambda entry: entry.bytes)
            log.warning(
                "%s takes %.1f GB, copies of what the config names (%s has %.1f GB)",
                directory / INPUTS, total / 1e9, largest.original, largest.bytes / 1e9,
            )  # fmt: skip
        manifest = Manifest(world=None if world is None else dict(world), files=copies)
        path = directory / INPUTS / MANIFEST
        path.parent.mkdir(exist_ok=True)
        write_file(path, sealed_json(path, _FORMAT, _VERSION, manifest.model_dump()) + b"\n")

    def in_run(self, config: RunConfig, directory: Path) -> RunConfig:
        """The config with the paths of the copies in a run's directory."""
        return _with_paths(
            config,
            lambda path: (
                KeptFile(directory, INPUTS, self._places[path]) if path in self._places else path
            ),
        )

    def _free_place(self, name: str) -> str:
        tops = {MANIFEST, *(place.partition("/")[0] for place in self._places.values())}
        place, number = name, 1
        while place.partition("/")[0] in tops:
            number += 1
            place = f"{number}/{name}"
        return place


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a run's inputs.

    Raises:
        StorageError: if the manifest is missing or damaged, or leads out of the run.
    """
    path = directory / INPUTS / MANIFEST
    manifest = read_sealed(path, _FORMAT, _VERSION, Manifest)
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts or not parts:
            raise StorageError(f"{path}: names {name!r}, which leads out of the run")
    return manifest


def checked_inputs(config: RunConfig, directory: Path) -> RunConfig:
    """The config of a run whose copies are what they were when the run began.

    Raises:
        StorageError: if a copy is missing or was changed.
        ConfigError: if the config names a file that is no part of the run.
    """
    refuse_changed(config)
    inputs = directory / INPUTS
    copies = [inputs / name for name in read_manifest(directory).files]
    for path in _paths_of(config):
        is_copy = any(copy.is_relative_to(path) for copy in copies)
        if path.exists() and not (is_copy and path.is_relative_to(inputs)):
            raise ConfigError(
                f"{directory / CONFIG}: names {path}, which is none of the run's inputs; start a "
                f"new run with: empo run {directory / CONFIG}"
            )
    return _with_paths(config, lambda path: KeptFile(path) if path.exists() else path)


def refuse_changed(config: RunConfig) -> None:
    """Refuse changed copies of runs that a config names.

    Raises:
        StorageError: if a copy in a run was changed, or the run's manifest is damaged.
    """
    for path in _paths_of(config):
        for folder in path.parents:
            if folder.name == INPUTS and (folder / MANIFEST).is_file():
                for name, entry in read_manifest(folder.parent).files.items():
                    copy = folder / name
                    if copy.is_relative_to(path) and entry_of(copy).sha256 != entry.sha256:
                        raise StorageError(
                            f"{copy}: is not what the run was made from: its sha256 is another "
                            f"than in {MANIFEST}; put the file back (it was copied from "
                            f"{entry.original}), or start a new run with a config that names the "
                            "changed file elsewhere"
                        )


def without_place(model: Model) -> Model:
    """A config or params whose paths of copies are relative to their run, wherever that is."""
    return _with_paths(model, lambda path: path.in_run if isinstance(path, KeptFile) else path)


def in_this_run(data: Any, directory: Path) -> Any:
    """Plain data that a run kept, with the paths of its copies as they are where it is now."""
    if isinstance(data, dict):
        return {key: in_this_run(value, directory) for key, value in data.items()}
    if isinstance(data, list):
        return [in_this_run(value, directory) for value in data]
    if isinstance(data, str) and data.startswith("/"):
        local = directory / KeptFile(data).in_run
        return str(local) if local.exists() else data
    return data


def note_copies(error: BaseException, directory: Path) -> None:
    """Add the originals of copies named in an error's message."""
    with contextlib.suppress(StorageError):  # The error at hand is what matters.
        for name, entry in read_manifest(directory).files.items():
            path = directory / INPUTS / name
            if str(path) in str(error):
                error.add_note(f"{path} is the run's copy of {entry.original}")


def _paths_of(config: BaseModel) -> list[Path]:
    """Every path in a config that is read."""
    paths: list[Path] = []

    def note(path: Path) -> Path:
        paths.append(path)
        return path

    _with_paths(config, note)
    return paths


def _with_paths(model: Model, change: Callable[[Path], Path]) -> Model:
    """A model with other paths of what is read; the same object where none is changed."""
    changed: dict[str, Any] = {}
    for name, field in type(model).model_fields.items():
        old = getattr(model, name)
        if not (_is_output(field.annotation) or _is_output(field)):
            new = _changed(old, change)
            changed |= {} if new is old else {name: new}
    return model.model_copy(update=changed) if changed else model


def _changed(value: Any, change: Callable[[Path], Path]) -> Any:
    if isinstance(value, Path):
        return change(value)
    if isinstance(value, BaseModel):
        return _with_paths(value, change)
    if isinstance(value, dict):
        parts = {key: _changed(part, change) for key, part in value.items()}
        return value if all(parts[key] is value[key] for key in value) else parts
    if type(value) in (list, tuple, set, frozenset):
        items = [_changed(part, change) for part in value]
        unchanged = all(item is old_item for item, old_item in zip(items, value, strict=True))
        return value if unchanged else type(value)(items)
    return value


def _is_output(annotation: Any) -> bool:
    """Whether a type is marked as a path that is written."""
    marks = getattr(annotation, "metadata", ()) or getattr(annotation, "__metadata__", ())
    return any(isinstance(mark, Output) for mark in marks) or any(
        _is_output(part) for part in get_args(annotation)
    )


def _files_at(path: Path) -> list[Path]:
    """The file at a path, or all below the folder there; none where nothing is there.

    Raises:
        ConfigError: if there are more than ``MOST_FILES`` files, or links out of a run.
    """
    if not path.is_dir():
        return [path] if path.is_file() else []
    unread: tuple[str, ...] = ()
    if (path / CONFIG).is_file():
        refuse_strange_files(path)
        unread = _FOR_PEOPLE
    files: list[Path] = []
    for file in path.rglob("*"):
        top = file.relative_to(path).parts[0]
        if file.is_file() and not any(fnmatchcase(top, pattern) for pattern in unread):
            files.append(file)
        if len(files) > MOST_FILES:
            raise ConfigError(
                f"{path}: has more than {MOST_FILES:,} files, too many for a run to keep copies "
                "of; name a smaller folder (params that are written to are declared ConfigOutput)"
            )
    return sorted(files)


def _state(path: Path) -> tuple[int, int, int]:
    """Size, time of change and identity of a file."""
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason_of(error)}") from error
    return status.st_size, status.st_mtime_ns, status.st_ino


def _copied(path: Path, target: Path) -> FileEntry:
    """Copy a file, and return its size and sha256."""
    with open_regular(path.resolve()) as source:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                shutil.copyfileobj(source, file)
            DISK.sync(target)
        except OSError as error:
            raise refused(target, error) from error
    return entry_of(target)
