"""Atomic writes, and checked reads of files that may be damaged.

What is written grows beside its final place, is flushed to the disk, and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from empo_core.errors import StorageError
from empo_core.printable import printable
from empo_core.runs.files import open_new, open_regular, reason_of, refuse_gone
from empo_core.trees import JsonData

Body = TypeVar("Body", bound=BaseModel)
MANIFEST = "manifest.json"
MAX_JSON = 2**26


class Disk:
    """Every operation by which files and directories with a manifest are written."""

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


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are missing.

    Raises:
        StorageError: if the disk refuses.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refused(path, error) from error


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


def write_synced(path: Path, data: bytes, *, durable: bool = True) -> FileEntry:
    """Write a file and, if ``durable``, force it to the disk; raises OSError."""
    with open_new(path) as file:
        DISK.write(file, data)
    if durable:
        DISK.sync(path)
    return FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


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


def entry_of(path: Path) -> FileEntry:
    """The entry of a file in a manifest.

    Raises:
        StorageError: if the file cannot be read.
    """
    with open_regular(path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        return FileEntry(bytes=os.fstat(file.fileno()).st_size, sha256=sha256)


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
