"""Atomic writes, and checked reads of files that may be damaged.

What is written grows beside its final place, is flushed to the disk, and then renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError
from typing_extensions import Buffer

from empo_core.errors import StorageError
from empo_core.printable import printable
from empo_core.runs.files import open_new, open_regular, reason_of, refuse_gone
from empo_core.trees import JsonData

Body = TypeVar("Body", bound=BaseModel)
MANIFEST = "manifest.json"
MAX_JSON = 2**26


class Disk:
    """Every operation by which this module changes the disk."""

    def mkdir(self, path: Path) -> None:
        """Create a directory that does not exist."""
        path.mkdir()

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        """Append to an open file."""
        file.write(data)

    def sync(self, path: Path) -> None:
        """Force a file's contents, or a directory's entries, to the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or directory another name, replacing a file of that name."""
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        """Delete a file or a directory with all it contains."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


DISK = Disk()
"""The disk; tests replace its methods to make any operation fail."""


class StrictModel(BaseModel):
    """Data from a file of ours: frozen, no unknown key, no conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class FileEntry(StrictModel):
    """Entry of a file in a manifest."""

    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Sealed(StrictModel):
    """Data of ours with their format, version and sha256."""

    format: str
    version: int
    sha256: str
    body: dict[str, Any]


def write_file(path: str | Path, data: str | bytes) -> None:
    """Write a small file so that a reader finds the old contents or the new, never a part.

    Raises:
        StorageError: if the file cannot be written, or is a device, pipe or socket; an older file
            is left as it was.
    """
    path = Path(path)
    refuse_gone(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StorageError(f"{path}: is no regular file, so nothing is written in its place")
    temporary = path.with_name(f".{path.name}.new")
    try:
        write_synced(temporary, data.encode() if isinstance(data, str) else data)
        DISK.rename(temporary, path)
        DISK.sync(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise refused(path, error) from error


@contextlib.contextmanager
def written_directory(directory: Path, *, durable: bool = True) -> Iterator[Path]:
    """A fresh directory to fill, which takes the place of ``directory`` at the end.

    An older one in that place, which must have a manifest, stays until the new one is
    complete; ``found_directory`` finds one of the two whatever happens in between. What is not
    ``durable`` may be lost when the machine crashes, since nothing is forced to the disk.

    Raises:
        StorageError: if the directory cannot be written, or something else has its place; nothing
            has changed.
    """
    refuse_gone(directory)
    new, old = _siblings(directory)
    try:
        _recover(directory)
        _refuse_foreign(directory)
        _make_parents(directory.parent, durable=durable)
        DISK.mkdir(new)
        yield new
        if durable:
            DISK.sync(new)
        if directory.exists():
            DISK.rename(directory, old)
        DISK.rename(new, directory)
        if durable:
            DISK.sync(directory.parent)
        _recover(directory)
    except (OSError, StorageError) as error:
        with contextlib.suppress(OSError):  # The first failure is the one to report.
            _recover(directory)
        if isinstance(error, OSError):
            raise refused(directory, error) from error
        raise


def found_directory(directory: Path) -> Path:
    """The complete directory of ``written_directory``, possibly between its two renames."""
    _, old = _siblings(directory)
    return old if (old / MANIFEST).exists() and not directory.exists() else directory


def write_synced(path: Path, data: bytes, *, durable: bool = True) -> FileEntry:
    """Write a file and, if ``durable``, force it to the disk; raises OSError."""
    with open_new(path) as file:
        DISK.write(file, data)
    if durable:
        DISK.sync(path)
    return FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class HashingFile(io.RawIOBase):
    """Passes bytes on and computes their sha256 on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash, self._size = hashlib.sha256(), 0

    def write(self, data: Buffer) -> int:
        """Write all bytes."""
        view = memoryview(data)
        DISK.write(self._file, view)
        self._hash.update(view)
        self._size += view.nbytes
        return view.nbytes

    @property
    def entry(self) -> FileEntry:
        """Entry of the bytes written so far."""
        return FileEntry(bytes=self._size, sha256=self._hash.hexdigest())


def sealed_json(path: Path, form: str, version: int, body: Mapping[str, JsonData]) -> bytes:
    """JSON data with format, version and sha256, for ``read_sealed``."""
    try:
        seal = digest(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"{path}: the metadata is not strict JSON: {error}") from error
    outer = {"format": form, "version": version, "sha256": seal, "body": body}
    return json.dumps(outer, indent=1, sort_keys=True, allow_nan=False).encode()


def read_sealed(path: Path, form: str, version: int, model: type[Body]) -> Body:
    """The body of data made by ``sealed_json``.

    Raises:
        StorageError: if the file is missing, damaged, of another version, or not ours.
    """
    outer = sealed(path, read_json(path), form, version)
    body = validated(path, model, outer.body)
    if digest(outer.body) != outer.sha256:
        raise StorageError(f"{path}: is damaged: its sha256 does not match")
    return body


def sealed(path: Path, data: JsonValue, form: str, version: int) -> Sealed:
    """Data from a file that are of a format and a version; the sha256 is not checked yet.

    Raises:
        StorageError: if the data are of another version, or not ours.
    """
    outer = validated(path, Sealed, data)
    if outer.format != form:
        raise StorageError(
            f"{path}: is damaged or not ours: its format is {outer.format!r}, not {form!r}"
        )
    if outer.version != version:
        raise StorageError(
            f"{path}: has format version {outer.version}; what is installed here reads {version}"
        )
    return outer


def validated(path: Path, model: type[Body], data: object) -> Body:
    """Data from a file as a model.

    Raises:
        StorageError: if the data do not fit; the message names the file and the first key.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        location = ".".join(map(str, first["loc"]))
        reason = f"{location}: {first['msg']}" if location else first["msg"]
        raise StorageError(f"{path}: is damaged or not ours: {reason}") from error


def read_json(path: str | Path, *, max_bytes: int = MAX_JSON) -> JsonValue:
    """Strict JSON from a regular file: no NaN, nothing infinite, no key twice, no symbolic link.

    Raises:
        StorageError: if the file is missing, too large, or not strict JSON.
    """
    path = Path(path)
    with open_regular(path) as file:
        # Python sets aside as many bytes as are asked for, which takes longer than to read a few.
        raw = file.read(min(os.fstat(file.fileno()).st_size, max_bytes) + 1)
    if len(raw) > max_bytes:
        raise StorageError(f"{path}: is larger than {max_bytes:,} bytes")
    return parse_json(path, raw)


def parse_json(path: Path, raw: bytes) -> JsonValue:
    """The data in strict JSON that was read from a file.

    Raises:
        StorageError: if the data are not strict JSON.
    """
    try:
        data: JsonValue = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
        return data
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: is damaged or not ours: {error}") from error


def strict_json(data: object) -> str:
    """Strict JSON text that terminals can show; infinities and NaN, which it lacks, as strings."""
    text = json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False)
    return printable(text, escape=json.dumps)


def _plain(value: object) -> JsonData:
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | int | float):
        return value
    # Scalars and arrays of numpy and torch.
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)


def check_file(path: Path, entry: FileEntry) -> None:
    """Compare a file with its entry in a manifest.

    Raises:
        StorageError: if the file is missing or damaged.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry.bytes:
            raise StorageError(
                f"{path}: has {size:,} bytes where the manifest says {entry.bytes:,}; "
                "it is truncated or replaced"
            )
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise StorageError(f"{path}: is damaged: its sha256 does not match")


def refuse_surplus(directory: Path, expected: set[str]) -> None:
    """Refuse a directory with files that its manifest does not list.

    Raises:
        StorageError: if the directory has other files, or cannot be listed.
    """
    try:
        surplus = sorted({path.name for path in directory.iterdir()} - expected)
    except OSError as error:
        raise StorageError(f"{directory}: cannot be listed: {reason_of(error)}") from error
    if surplus:
        raise StorageError(f"{directory / surplus[0]}: is not in {MANIFEST}; remove this file")


def refused(path: Path, error: OSError) -> StorageError:
    """The error to raise where the disk refuses to write."""
    return StorageError(
        f"{path}: cannot be written: {reason_of(error)} (errno {error.errno}); "
        "nothing is left half-written"
    )


def digest(body: Mapping[str, JsonData]) -> str:
    """The sha256 of JSON data, whatever the order of its keys."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _siblings(directory: Path) -> tuple[Path, Path]:
    """Paths of the directory being written, and of the old one until that is complete."""
    parent, name = directory.parent, directory.name
    return parent / f".{name}.new", parent / f".{name}.old"


def _recover(directory: Path) -> None:
    """Remove what a writer left; the old directory takes its place again where there is no new."""
    new, old = _siblings(directory)
    if (old / MANIFEST).exists() and not directory.exists():
        DISK.rename(old, directory)
    for leftover in (new, old):
        if leftover.exists():
            DISK.remove(leftover)


def _refuse_foreign(directory: Path) -> None:
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise StorageError(f"{directory}: is not a directory; choose another place")
    if directory.exists() and any(directory.iterdir()) and not (directory / MANIFEST).is_file():
        raise StorageError(f"{directory}: holds other files; choose another place or empty it")


def _make_parents(directory: Path, *, durable: bool) -> None:
    """Create the missing parents of a path, and force each to the disk if ``durable``."""
    if not directory.exists():
        _make_parents(directory.parent, durable=durable)
        DISK.mkdir(directory)
        if durable:
            DISK.sync(directory.parent)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _finite(word: str) -> float:
    if math.isinf(number := float(word)):
        raise ValueError(f"{word} is larger than numbers can be")
    return number


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result
