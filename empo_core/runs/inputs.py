"""Copies of the files that a run's config names, in the run's ``inputs/``.

Whatever a config's ``ConfigPath`` names is copied: a file, a folder with all it holds, or another
run's directory without what only people read. ``inputs/manifest.json`` lists every copy with its
size, its sha256 and where it came from, and has the digest of the run's world.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, Field, JsonValue

from empo_core.config import RunConfig
from empo_core.config.models import Output
from empo_core.errors import ConfigError, StorageError
from empo_core.runs.atomic import (
    DISK,
    MANIFEST,
    FileEntry,
    HashingFile,
    StrictModel,
    read_sealed,
    refused,
    sealed_json,
    write_file,
)
from empo_core.runs.files import (
    open_new,
    open_regular,
    reason_of,
    refuse_strange_files,
)

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
_PIECE = 2**20

log = logging.getLogger("empo_core")

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
        """The digest of the world's content; None where the world has none."""
        return None if self.world is None else str(self.world.get("content"))


@dataclass(frozen=True)
class _File:
    """A file to copy: its place in ``inputs/``, its path, and its state before anything read it."""

    target: str
    path: Path
    state: tuple[int, int, int]


class KeptFile(_Path):
    """The path of a copy, pickled together with the file's contents.

    On another machine, which may not see the run's directory, it is the path of a copy of that.
    """

    def __reduce__(self) -> Any:
        """The path, and the file where it is one and not too large to be sent."""
        try:
            data = self.read_bytes() if self.stat().st_size <= LARGE and self.is_file() else None
        except OSError:
            data = None
        return _received, (str(self), data)


def _received(path: str, data: bytes | None) -> Path:
    """A path with the given content: the same path, or one in the folder of received files."""
    local = Path(path)
    if data is None or (local.is_file() and local.read_bytes() == data):
        return KeptFile(local)
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir(), f"empo-inputs-{user}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != user:
        raise StorageError(f"{folder}: belongs to somebody else; set TMPDIR to a folder of yours")
    file = folder / hashlib.sha256(data).hexdigest() / local.name
    if not (file.is_file() and file.read_bytes() == data):
        file.parent.mkdir(exist_ok=True)
        part = file.with_name(f".{os.getpid()}.{uuid.uuid4().hex}")
        part.write_bytes(data)
        part.replace(file)
    return KeptFile(file)


class Inputs:
    """The files that a config names, before a run begins.

    Attributes:
        names: The place in ``inputs/`` of each path in the config that is copied.
    """

    def __init__(self, config: BaseModel) -> None:
        """List all files, and remember their states.

        Raises:
            ConfigError: if a copy of an earlier run was changed, or a folder has too many files.
        """
        self.names: dict[Path, str] = {}
        self._files: list[_File] = []
        for path, included in _paths_of(config):
            if path not in self.names and (files := _files_at(path, included)):
                self._add(path, files)

    @property
    def files(self) -> dict[str, Path]:
        """The files by their places in ``inputs/``."""
        return {file.target: file.path for file in self._files}

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of each file as it is now, by its place in ``inputs/``."""
        return {file.target: file_digest(file.path.resolve()) for file in self._files}

    def copy(self, directory: Path) -> dict[str, Copy]:
        """Copy all files into a run's directory.

        Raises:
            ConfigError: if a file was changed after it was listed.
            StorageError: if a file cannot be read or written.
        """
        copies = {}
        for file in self._files:
            target = directory / INPUTS / file.target
            entry = _copied(file.path, target)
            if _state(file.path) != file.state:
                raise ConfigError(f"{file.path}: was changed while the run began; start it again")
            copies[file.target] = Copy(**entry.model_dump(), original=str(file.path))
        total = sum(entry.bytes for entry in copies.values())
        if total > LARGE:
            largest = max(copies.values(), key=lambda entry: entry.bytes)
            log.warning(
                "%s takes %.1f GB, copies of what the config names (%s has %.1f GB)",
                directory / INPUTS, total / 1e9, largest.original, largest.bytes / 1e9,
            )  # fmt: skip
        return copies

    def in_run(self, config: RunConfig, directory: Path) -> RunConfig:
        """The config with the paths of the copies."""
        places = {path: KeptFile(directory, INPUTS, name) for path, name in self.names.items()}
        return config if not places else _replaced(config, places)

    def portable(self, config: RunConfig, runs: Path) -> dict[str, JsonValue]:
        """The config as plain data with every default; copies are relative to the run.

        Args:
            config: As it was given.
            runs: The folder that holds the run's directory.
        """
        places = {path: Path(INPUTS, name) for path, name in self.names.items()}
        data = _replaced(config, places) if places else config
        plain = data.model_dump(mode="json", fallback=repr)
        return {**plain, "runs": ".."} if runs == config.runs else plain

    def _add(self, path: Path, files: Mapping[PurePosixPath, Path]) -> None:
        tops = {MANIFEST, *(file.target.partition("/")[0] for file in self._files)}
        number, prefix = 1, ""
        while any(f"{prefix}{relative}".partition("/")[0] in tops for relative in files):
            number += 1
            prefix = f"{number}/"
        for relative, file in files.items():
            self._files.append(_File(f"{prefix}{relative}", file, _state(file)))
        self.names[path] = f"{prefix}{path.name}"


def write_manifest(
    directory: Path, world: Mapping[str, JsonValue] | None, files: Mapping[str, Copy]
) -> None:
    """Write the manifest of a run's inputs.

    Raises:
        StorageError: if the manifest cannot be written.
    """
    path = directory / INPUTS / MANIFEST
    path.parent.mkdir(exist_ok=True)
    body = Manifest(world=None if world is None else dict(world), files=dict(files)).model_dump()
    write_file(path, sealed_json(path, _FORMAT, _VERSION, body) + b"\n")


def read_manifest(directory: Path) -> Manifest | None:
    """The manifest of a run's inputs; None of a run that has none.

    Raises:
        StorageError: if the manifest is damaged, or leads out of the run.
    """
    path = directory / INPUTS / MANIFEST
    if not (directory / INPUTS).exists():
        return None
    manifest = read_sealed(path, _FORMAT, _VERSION, Manifest)
    for name in manifest.files:
        parts = PurePosixPath(name).parts
        if PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name or not parts:
            raise StorageError(f"{path}: names {name!r}, which leads out of the run")
    return manifest


def check_inputs(directory: Path, config: RunConfig) -> Manifest | None:
    """Refuse a run whose copies have changed, or whose config names other files.

    Returns:
        The run's manifest; None of a run that was made before there were copies.

    Raises:
        StorageError: if a copy is missing or was changed.
        ConfigError: if the config names a file that is no part of the run.
    """
    manifest = read_manifest(directory)
    if manifest is None:
        log.warning(
            "%s: has no copies of its inputs, so whether they are what they were is not known",
            directory,
        )
        return None
    inputs = directory / INPUTS
    for name, entry in manifest.files.items():
        _check(inputs / name, entry)
    for path, _ in _paths_of(config):
        if not path.exists():
            continue
        inside = path.relative_to(inputs).as_posix() if path.is_relative_to(inputs) else ""
        if not any(name == inside or name.startswith(f"{inside}/") for name in manifest.files):
            raise ConfigError(
                f"{directory / CONFIG}: names {path}, which is none of the run's inputs; start a "
                f"new run with: empo run {directory / CONFIG}"
            )
    return manifest


def with_kept_files(config: RunConfig, directory: Path) -> RunConfig:
    """The config of a run that goes on, whose copies other machines need, too."""
    inputs = directory / INPUTS
    paths = {path for path, _ in _paths_of(config) if path.is_relative_to(inputs)}
    return _replaced(config, {path: KeptFile(path) for path in paths}) if paths else config


def in_this_run(data: Any, directory: Path) -> Any:
    """Plain data that a run kept, with the paths of its copies as they are where it is now."""
    return _mapped(data, lambda text: _copy_in(text, directory) or text)


def without_place(data: Any) -> Any:
    """Plain data with paths of copies relative to their run, wherever that is."""
    return _mapped(data, lambda text: f"{INPUTS}/{_below(text)}" if _below(text) else text)


def _mapped(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, dict):
        return {key: _mapped(value, change) for key, value in data.items()}
    return [_mapped(value, change) for value in data] if isinstance(data, list) else data


def _copy_in(text: str, directory: Path) -> str | None:
    """The path of a copy in a run's directory, of a path that may be that of a former place."""
    relative = _below(text)
    local = directory / INPUTS / relative
    return str(local) if relative and local.exists() else None


def _below(text: str) -> str:
    """Of an absolute path of a copy its place in ``inputs``; empty of other texts."""
    return text.rpartition(f"/{INPUTS}/")[2] if text[:1] == "/" and f"/{INPUTS}/" in text else ""


def refuse_changed(config: RunConfig) -> None:
    """Refuse changed copies of earlier runs that a config names.

    Raises:
        StorageError: if a copy in a run was changed, or the run's manifest is damaged.
    """
    for path, _ in _paths_of(config):
        for folder in path.parents:
            if folder.name == INPUTS and (folder / MANIFEST).is_file():
                manifest = read_manifest(folder.parent)
                name = path.relative_to(folder).as_posix()
                for listed, entry in manifest.files.items() if manifest else ():
                    if listed == name or listed.startswith(f"{name}/"):
                        _check(folder / listed, entry)


def note_copies(error: BaseException, directory: Path) -> None:
    """Add the originals of copies named in an error's message."""
    manifest: Manifest | None = None
    with contextlib.suppress(StorageError):  # The error at hand is what matters.
        manifest = read_manifest(directory)
    for name, entry in manifest.files.items() if manifest else ():
        path = directory / INPUTS / name
        if str(path) in str(error):
            error.add_note(f"{path} is the run's copy of {entry.original}")


def file_digest(path: Path) -> str:
    """The sha256 of a file.

    Raises:
        StorageError: if the file cannot be read.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(path: Path, entry: Copy) -> None:
    if file_digest(path) != entry.sha256:
        raise StorageError(
            f"{path}: is not what the run was made from: its sha256 is another than in "
            f"{MANIFEST}; put the file back (it was copied from {entry.original}), or start a "
            "new run with a config that names the changed file elsewhere"
        )


def _paths_of(config: BaseModel) -> Iterator[tuple[Path, list[Path]]]:
    """Every path in a config that is read, and further files that the file there includes."""
    for owner, path in _paths(config, None):
        included = getattr(owner, "included_files", None)
        further: Iterable[str | Path] = included() if callable(included) else ()
        files = [Path(os.path.abspath(file)) for file in further]
        folders = [file.parent for _, file in _paths(owner, None)] if files else []
        elsewhere = [folder for folder in folders if folder != path.parent]
        # What lies beside another path of the same model goes with that.
        yield (
            path,
            [
                file
                for file in files
                if file.is_relative_to(path.parent) or not any(map(file.is_relative_to, elsewhere))
            ],
        )


def _paths(value: object, owner: object) -> Iterator[tuple[object, Path]]:
    """Every path below a value, with the model that holds it."""
    if isinstance(value, Path):
        yield owner, value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not (_is_output(field.annotation) or _is_output(field)):
                yield from _paths(getattr(value, name), value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _paths(part, owner)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _paths(part, owner)


def _is_output(annotation: Any) -> bool:
    """Whether a type is marked as a path that is written."""
    marks = getattr(annotation, "metadata", ()) or getattr(annotation, "__metadata__", ())
    return any(isinstance(mark, Output) for mark in marks) or any(
        _is_output(part) for part in get_args(annotation)
    )


def _replaced(value: Any, places: Mapping[Path, Path]) -> Any:
    """A value with other paths; the same object where none is below it."""
    if isinstance(value, Path):
        return places.get(value, value)
    if isinstance(value, BaseModel):
        changed: dict[str, Any] = {}
        for name, field in type(value).model_fields.items():
            old = getattr(value, name)
            if not (_is_output(field.annotation) or _is_output(field)):
                new = _replaced(old, places)
                changed |= {} if new is old else {name: new}
        return value.model_copy(update=changed) if changed else value
    if isinstance(value, dict):
        parts = {key: _replaced(part, places) for key, part in value.items()}
        return value if all(parts[key] is value[key] for key in value) else parts
    if type(value) in (list, tuple, set, frozenset):
        items = [_replaced(part, places) for part in value]
        unchanged = all(item is old_item for item, old_item in zip(items, value, strict=True))
        return value if unchanged else type(value)(items)
    return value


def _files_at(path: Path, included: list[Path]) -> dict[PurePosixPath, Path]:
    """The files at a path, by their places beside each other; none where nothing is there.

    Raises:
        ConfigError: if there are more than ``MOST_FILES`` files, or one lies elsewhere.
    """
    if path.is_file():
        files = {PurePosixPath(path.name): path}
        for other in included:
            if not other.is_relative_to(path.parent):
                raise ConfigError(
                    f"{path}: includes {other}, which is outside of its folder, so that a run "
                    "cannot keep a copy; move it there"
                )
            files[PurePosixPath(other.relative_to(path.parent).as_posix())] = other
        return files
    if not path.is_dir():
        return {}
    if (path / CONFIG).is_file():
        refuse_strange_files(path)
        if not (path / INPUTS).is_dir():
            log.warning(
                "%s: has no copies of its inputs, which are read from where they were; run it "
                "anew to have all in one place",
                path,
            )
    files_by_place: dict[PurePosixPath, Path] = {}
    for place, folders, names in os.walk(path):
        if Path(place) == path and (path / CONFIG).is_file():
            folders[:], names = _read_by_runs(folders), _read_by_runs(names)
        folders.sort()
        for name in sorted(names):
            file = Path(place, name)
            if file.is_file():
                files_by_place[PurePosixPath(path.name, file.relative_to(path).as_posix())] = file
        if len(files_by_place) > MOST_FILES:
            raise ConfigError(
                f"{path}: has more than {MOST_FILES:,} files, too many for a run to keep copies "
                "of; name a smaller folder (params that are written to are declared ConfigOutput)"
            )
    return files_by_place


def _read_by_runs(names: list[str]) -> list[str]:
    """The names in a run's directory that other runs read."""
    return [
        name for name in names if not any(fnmatchcase(name, pattern) for pattern in _FOR_PEOPLE)
    ]


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
            with open_new(target) as file:
                hashing = HashingFile(file)
                shutil.copyfileobj(source, hashing, _PIECE)
            DISK.sync(target)
            return hashing.entry
        except OSError as error:
            raise refused(target, error) from error
