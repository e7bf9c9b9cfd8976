"""Arrays and small files on disk: safe against crashes, damage and hostile contents.

A stored set of arrays is a directory of ``.npy`` files (never with pickle) and a
``manifest.json`` that lists each with dtype, shape, size and sha256 and has a sha256 of its
own. Everything is written beside its final place, flushed to the disk, and renamed.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from empo_core.errors import StorageError

Read = TypeVar("Read")
MANIFEST = "manifest.json"
VERSION = 1
_MAX_MANIFEST = 2**26
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_KINDS = "biufc"  # Booleans and numbers; an array of objects would need pickle.


class FileOps:
    """Every operation that changes the disk, so that tests can make each one fail."""

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


DISK = FileOps()


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Entry(_Strict):
    dtype: str = Field(max_length=8)
    shape: list[Annotated[int, Field(ge=0)]] = Field(max_length=32)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class _Body(_Strict):
    arrays: dict[str, _Entry]
    metadata: dict[str, Any]


class _Manifest(_Strict):
    format: Literal["empo-arrays"]
    version: Literal[1]
    sha256: str
    body: _Body


def save_arrays(
    directory: str | Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, Any] | None = None,
    *,
    ops: FileOps = DISK,
) -> None:
    """Store arrays under names, and JSON data with them.

    An older set in the same place stays loadable until the new one is complete; whatever
    happens in between, ``load_arrays`` finds one of the two.

    Raises:
        StorageError: Something cannot be stored, or the disk refuses; nothing is half-written.
    """
    directory = Path(directory)
    new, old = _siblings(directory)
    try:
        _recover(directory, ops)
        _refuse_foreign(directory)
        directory.parent.mkdir(parents=True, exist_ok=True)
        ops.mkdir(new)
        entries = {name: _write_array(new, name, array, ops) for name, array in arrays.items()}
        body = {"arrays": entries, "metadata": dict(metadata or {})}
        _write_synced(new / MANIFEST, _manifest(directory, body), ops)
        ops.sync(new)
        if directory.exists():
            ops.rename(directory, old)
        ops.rename(new, directory)
        ops.sync(directory.parent)
        if old.exists():
            ops.remove(old)
    except OSError as error:
        _put_back(directory)
        raise _refused(directory, error) from error
    except StorageError:
        _put_back(directory)
        raise


def load_arrays(
    directory: str | Path, *, mmap: bool = False
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """What ``save_arrays`` stored, after checking all of it.

    Args:
        directory: Where it was stored.
        mmap: Map the arrays read-only instead of reading them into memory.

    Returns:
        The arrays by name, and the metadata.

    Raises:
        StorageError: Something is missing, damaged, or was not written by ``save_arrays``.
    """
    directory = Path(directory)
    _, old = _siblings(directory)
    if not directory.exists() and old.exists():
        directory = old  # A writer stopped between its two renames.
    manifest = _read_manifest(directory / MANIFEST)
    expected = {MANIFEST, *(f"{name}.npy" for name in manifest.body.arrays)}
    try:
        surplus = sorted({path.name for path in directory.iterdir()} - expected)
    except OSError as error:
        raise StorageError(f"{directory}: cannot be listed: {_reason(error)}") from error
    if surplus:
        raise StorageError(f"{directory / surplus[0]}: is not in {MANIFEST}; remove this file")
    arrays = {
        name: _read_array(directory / f"{name}.npy", entry, mmap=mmap)
        for name, entry in manifest.body.arrays.items()
    }
    return arrays, manifest.body.metadata


def write_file(path: str | Path, data: str | bytes, *, ops: FileOps = DISK) -> None:
    """Write a small file so that a reader finds the old contents or the new, never a part.

    Raises:
        StorageError: The disk refuses; an older file is left as it was.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.new")
    try:
        _write_synced(temporary, data.encode() if isinstance(data, str) else data, ops)
        ops.rename(temporary, path)
        ops.sync(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _refused(path, error) from error


def read_json(path: str | Path, *, max_bytes: int = _MAX_MANIFEST) -> Any:
    """Strict JSON from a regular file: no NaN, no key twice, no symbolic link.

    Raises:
        StorageError: The file is missing, too large, or not strict JSON.
    """
    path = Path(path)
    raw = _open_regular(path, lambda file: file.read(max_bytes + 1))
    if len(raw) > max_bytes:
        raise StorageError(f"{path}: is larger than {max_bytes:,} bytes")
    try:
        return json.loads(
            raw.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique
        )
    except (ValueError, RecursionError) as error:
        raise StorageError(f"{path}: is damaged or not ours: {error}") from error


def _siblings(directory: Path) -> tuple[Path, Path]:
    """Where a new set grows, and where the old one waits until that is complete."""
    parent, name = directory.parent, directory.name
    return parent / f".{name}.new", parent / f".{name}.old"


def _recover(directory: Path, ops: FileOps) -> None:
    """Clear away what an interrupted writer left."""
    new, old = _siblings(directory)
    if old.exists() and not directory.exists():
        ops.rename(old, directory)
    for leftover in (new, old):
        if leftover.exists():
            ops.remove(leftover)


def _put_back(directory: Path) -> None:
    """After a failure: the old set in its place again, and no half of a new one."""
    try:
        _recover(directory, DISK)
    except OSError:
        return  # The first failure is the one to report; the next save tries again.


def _refuse_foreign(directory: Path) -> None:
    if not directory.exists() and not directory.is_symlink():
        return
    if directory.is_symlink() or not directory.is_dir():
        raise StorageError(f"{directory}: is not a directory; choose another place")
    if any(directory.iterdir()) and not (directory / MANIFEST).is_file():
        raise StorageError(f"{directory}: holds other files; choose another place or empty it")


def _refused(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"{path}: cannot be written: {_reason(error)} (errno {error.errno}); "
        "nothing is left half-written"
    )


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


class _HashingFile(io.RawIOBase):
    """Passes bytes on and computes their sha256 on the way."""

    def __init__(self, file: BinaryIO, ops: FileOps) -> None:
        self._file, self._ops = file, ops
        self.digest, self.size = hashlib.sha256(), 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._ops.write(self._file, view)
        self.digest.update(view)
        self.size += view.nbytes
        return view.nbytes


def _write_array(directory: Path, name: str, array: np.ndarray, ops: FileOps) -> dict[str, Any]:
    path = directory / f"{name}.npy"
    if not _NAME.fullmatch(name):
        raise StorageError(f"array name {name!r} may have letters, digits and _ . + - only")
    if array.dtype.kind not in _KINDS:
        raise StorageError(
            f"array {name!r} has dtype {array.dtype}; only booleans and numbers can be stored"
        )
    with path.open("xb") as file:
        hashing = _HashingFile(file, ops)
        np.lib.format.write_array(hashing, np.asarray(array), allow_pickle=False)
    ops.sync(path)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "bytes": hashing.size,
        "sha256": hashing.digest.hexdigest(),
    }


def _write_synced(path: Path, data: bytes, ops: FileOps) -> None:
    with path.open("wb") as file:
        ops.write(file, data)
    ops.sync(path)


def _manifest(directory: Path, body: dict[str, Any]) -> bytes:
    try:
        digest = _digest(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(f"{directory}: the metadata is not strict JSON: {error}") from error
    outer = {"format": "empo-arrays", "version": VERSION, "sha256": digest, "body": body}
    return json.dumps(outer, indent=1, sort_keys=True, allow_nan=False).encode()


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is given twice")
    return result


def _open_regular(path: Path, read: Callable[[io.BufferedReader], Read]) -> Read:
    """Apply ``read`` to a file that is no link, pipe or device.

    Raises:
        StorageError: It is one of these, or cannot be opened or read.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise StorageError(f"{path}: is not a regular file")
            return read(file)
    except OSError as error:
        reason = "is a symbolic link" if path.is_symlink() else _reason(error)
        raise StorageError(f"{path}: cannot be read: {reason}") from error
    except ValueError as error:  # A NUL byte in the path.
        raise StorageError(f"{path}: cannot be read: {error}") from error


def _read_manifest(path: Path) -> _Manifest:
    data = read_json(path)
    if isinstance(data, dict) and data.get("format") == "empo-arrays":
        version = data.get("version")
        if version != VERSION:
            raise StorageError(f"{path}: has format version {version!r}; this core reads {VERSION}")
    try:
        manifest = _Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise StorageError(f"{path}: is damaged or not ours: {reason}") from error
    if _digest(data["body"]) != manifest.sha256:
        raise StorageError(f"{path}: is damaged: its sha256 does not match")
    for name in manifest.body.arrays:
        if not _NAME.fullmatch(name):
            raise StorageError(f"{path}: array name {name!r} is not allowed")
    return manifest


def _read_array(path: Path, entry: _Entry, *, mmap: bool) -> np.ndarray:
    dtype = _dtype(path, entry)
    data_bytes = math.prod(entry.shape) * dtype.itemsize

    def check(file: io.BufferedReader) -> None:
        size = os.fstat(file.fileno()).st_size
        # Sizes first: a shape may claim more than any memory holds.
        if size != entry.bytes or size < data_bytes:
            raise StorageError(
                f"{path}: has {size:,} bytes where the manifest says {entry.bytes:,}; "
                "it is truncated or replaced"
            )
        if hashlib.file_digest(file, "sha256").hexdigest() != entry.sha256:
            raise StorageError(f"{path}: is damaged: its sha256 does not match")

    _open_regular(path, check)
    try:
        array: np.ndarray = np.load(
            path, mmap_mode="r" if mmap and data_bytes else None, allow_pickle=False
        )
    except Exception as error:
        raise StorageError(f"{path}: is not a plain array file: {error}") from error
    if array.dtype != dtype or list(array.shape) != entry.shape:
        raise StorageError(
            f"{path}: holds {array.dtype.str} {list(array.shape)} where the manifest says "
            f"{entry.dtype} {entry.shape}"
        )
    return array


def _dtype(path: Path, entry: _Entry) -> np.dtype[Any]:
    try:
        dtype = np.dtype(entry.dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise StorageError(f"{path}: dtype {entry.dtype!r} does not exist") from error
    if dtype.kind not in _KINDS:
        raise StorageError(f"{path}: dtype {entry.dtype!r} is not a boolean or number")
    return dtype
