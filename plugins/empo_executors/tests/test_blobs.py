"""Broadcasts reach the workers whole, or not at all."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from empo_core.errors import StorageError, WorkerError
from empo_executors.blobs import BlobWriter, blob_path, read_blob

BLOB = bytes(range(100))


def test_what_is_read_is_what_was_broadcast(tmp_path: Path) -> None:
    BlobWriter(tmp_path).write(BLOB, 3)
    assert read_blob(tmp_path, 3) == BLOB


def test_a_torn_file_is_refused_wherever_it_was_torn(tmp_path: Path) -> None:
    BlobWriter(tmp_path).write(BLOB, 1)
    path = blob_path(tmp_path, 1)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(WorkerError, match=r"broadcast 1 is damaged"):
            read_blob(tmp_path, 1)
        path.write_bytes(whole[:length] + bytes([whole[length] ^ 1]) + whole[length + 1 :])
        with pytest.raises(WorkerError, match=r"broadcast 1 is damaged"):
            read_blob(tmp_path, 1)


def test_one_version_is_never_taken_for_another(tmp_path: Path) -> None:
    BlobWriter(tmp_path).write(BLOB, 1)
    blob_path(tmp_path, 1).rename(blob_path(tmp_path, 2))
    with pytest.raises(WorkerError, match=r"broadcast 2 is damaged"):
        read_blob(tmp_path, 2)


def test_a_caller_killed_while_it_broadcasts_leaves_nothing_to_read(tmp_path: Path) -> None:
    writer = BlobWriter(tmp_path)
    writer.write(BLOB, 1)
    # What such a caller leaves is a file without its name.
    blob_path(tmp_path, 2).with_suffix(".new").write_bytes(b"EMB1 half of")
    with pytest.raises(FileNotFoundError):
        read_blob(tmp_path, 2)
    writer.write(BLOB, 2)
    assert read_blob(tmp_path, 2) == BLOB


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    writer = BlobWriter(tmp_path)
    for version in range(1, 6):
        writer.write(BLOB, version)
    assert set(tmp_path.iterdir()) == {blob_path(tmp_path, 4), blob_path(tmp_path, 5)}


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StorageError, match=r"broadcast 1 \(.* bytes\) cannot be given.*\(runs"):
            BlobWriter(tmp_path).write(bytes(100_000), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())
