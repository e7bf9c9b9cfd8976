"""Broadcasts to workers: files written once, each with a version and a digest.

A file gets its name when it is complete, and only then are workers told its version. So no worker
can see half a broadcast, whenever the caller is killed; the digest finds what a disk spoils.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from pathlib import Path

from empo_core.errors import StorageError, WorkerError

_HEADER = struct.Struct("<4sQQ32s")  # Magic, version, length, digest of all but the magic.
_MAGIC = b"EMB1"


class BlobWriter:
    """The caller's side; keeps the newest two broadcasts, since one may be being read."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: list[Path] = []

    def write(self, blob: bytes, version: int) -> None:
        """Write the file of a version.

        Raises:
            StorageError: The disk refuses.
        """
        path = blob_path(self._directory, version)
        new = path.with_suffix(".new")
        try:
            new.write_bytes(pack_blob(blob, version))
            os.replace(new, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)
            raise StorageError(
                f"{path}: broadcast {version} ({len(blob):,} bytes) cannot be given to the "
                f"workers: {error}. Free space there, or let the run's directory be elsewhere "
                "(runs)."
            ) from error
        self._files.append(path)
        for old in self._files[:-2]:
            with contextlib.suppress(OSError):  # Windows keeps a file that is being read.
                old.unlink(missing_ok=True)
                self._files.remove(old)


def blob_path(directory: Path, version: int) -> Path:
    """The file of a version."""
    return directory / f"broadcast-{version}.blob"


def read_blob(directory: Path, version: int) -> memoryview:
    """The broadcast of a version.

    Raises:
        FileNotFoundError: It is not there, or not any more.
        WorkerError: The file is damaged or that of another version.
    """
    path = blob_path(directory, version)
    try:
        return unpack_blob(path.read_bytes(), version)
    except WorkerError as error:
        raise WorkerError(f"{path}: {error}; check the disk") from error


def pack_blob(blob: bytes, version: int) -> bytes:
    """A broadcast with its version, length and digest in front."""
    return _HEADER.pack(_MAGIC, version, len(blob), _digest(version, blob)) + blob


def unpack_blob(data: bytes | memoryview, version: int) -> memoryview:
    """The broadcast that ``pack_blob`` was given; not a copy.

    Raises:
        WorkerError: It is damaged or that of another version.
    """
    if len(data) >= _HEADER.size:
        magic, found, length, digest = _HEADER.unpack_from(data)
        blob = memoryview(data)[_HEADER.size :]
        if (magic, found, length) == (_MAGIC, version, len(blob)) and digest == _digest(
            version, blob
        ):
            return blob
    raise WorkerError(
        f"broadcast {version} is damaged (its digest, version or length is wrong) and was not "
        "loaded"
    )


def _digest(version: int, blob: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(struct.pack("<QQ", version, len(blob)), digest_size=32)
    digest.update(blob)
    return digest.digest()
