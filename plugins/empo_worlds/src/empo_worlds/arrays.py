"""Arrays on disk: safe against crashes, damage and hostile contents.

A stored set of arrays is a directory of ``.npy`` files (never with pickle) and a
``manifest.json`` that lists each with dtype, shape, size and sha256 and has a sha256 of its
own. How it is written is the business of ``empo_worlds.directories``.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Shaped
from pydantic import Field

from empo_core.errors import StorageError
from empo_core.runs.atomic import (
    DISK,
    MANIFEST,
    FileEntry,
    StrictModel,
    entry_of,
    read_sealed,
    sealed_json,
    write_synced,
)
from empo_core.trees import Json, JsonData
from empo_worlds.directories import check_file, found_directory, refuse_surplus, written_directory

FORMAT, VERSION = "empo-arrays", 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_KINDS = "biufc"  # Booleans and numbers; an array of objects would need pickle.

# The head of an ``.npy`` file is Python source, and up to version 3.11.7 Python's parser fails with
# a SystemError where it changes threads while another is in it (python/cpython#106905).
_PARSER = threading.Lock()


class _Entry(FileEntry):
    dtype: str = Field(max_length=8)
    shape: list[Annotated[int, Field(ge=0)]] = Field(max_length=32)


class _Body(StrictModel):
    arrays: dict[str, _Entry]
    metadata: dict[str, Any]


def save_arrays(
    directory: str | Path,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, JsonData] | None = None,
    *,
    durable: bool = True,
) -> None:
    """Store arrays under names, and JSON data with them.

    An older set in the same place stays loadable until the new one is complete; whatever
    happens in between, ``load_arrays`` finds one of the two. What is not ``durable`` may be lost
    when the machine crashes, since nothing is forced to the disk.

    Raises:
        StorageError: if an array or the metadata cannot be stored, or the disk refuses; nothing is
            half-written.
    """
    directory = Path(directory)
    with written_directory(directory, durable=durable) as new:
        entries = {name: _write_array(new, name, array, durable) for name, array in arrays.items()}
        body: dict[str, JsonData] = {"arrays": entries, "metadata": dict(metadata or {})}
        write_synced(new / MANIFEST, sealed_json(directory, FORMAT, VERSION, body), durable=durable)


def load_arrays(
    directory: str | Path, *, mmap: bool = False
) -> tuple[dict[str, Shaped[np.ndarray, "*axes"]], dict[str, Json]]:
    """The arrays that ``save_arrays`` stored, after checking all of them.

    Args:
        directory: Where it was stored.
        mmap: Map the arrays read-only instead of reading them into memory.

    Returns:
        The arrays by name, and the metadata.

    Raises:
        StorageError: if a file is missing, damaged, or was not written by ``save_arrays``.
    """
    directory = found_directory(Path(directory))
    path = directory / MANIFEST
    body = read_sealed(path, FORMAT, VERSION, _Body)
    for name in body.arrays:
        if not _NAME.fullmatch(name):
            raise StorageError(f"{path}: array name {name!r} is not allowed")
    refuse_surplus(directory, {MANIFEST, *(f"{name}.npy" for name in body.arrays)})
    arrays = {
        name: _read_array(directory / f"{name}.npy", entry, mmap=mmap)
        for name, entry in body.arrays.items()
    }
    return arrays, body.metadata


def load_array(path: Path, *, mmap: bool = False) -> Shaped[np.ndarray, "*axes"]:
    """One array of a set, without any check; several threads may load at the same time.

    Raises:
        OSError, ValueError: if there is no plain array file.
    """
    with _PARSER:
        mapped = np.lib.format.open_memmap(path, mode="r")
    if mmap:
        return mapped
    order: Literal["C", "F"] = "C" if mapped.flags.c_contiguous else "F"
    # Read, and not copied from the map, where a disk that fails would end the process.
    values = np.fromfile(path, mapped.dtype, offset=mapped.offset)
    return values.reshape(mapped.shape, order=order)


def _write_array(
    directory: Path, name: str, array: np.ndarray, durable: bool
) -> dict[str, JsonData]:
    path = directory / f"{name}.npy"
    if not _NAME.fullmatch(name):
        raise StorageError(f"array name {name!r} may have letters, digits and _ . + - only")
    if array.dtype.kind not in _KINDS:
        raise StorageError(
            f"array {name!r} has dtype {array.dtype}; only booleans and numbers can be stored"
        )
    with path.open("xb") as file:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        DISK.write(file, b"")  # Where tests have the disk fail, this stands for all of the file.
    if durable:
        DISK.sync(path)
    return {"dtype": array.dtype.str, "shape": list(array.shape), **entry_of(path).model_dump()}


def _read_array(path: Path, entry: _Entry, *, mmap: bool) -> np.ndarray:
    dtype = _dtype(path, entry)
    data_bytes = math.prod(entry.shape) * dtype.itemsize
    check_file(path, entry)
    if entry.bytes < data_bytes:  # A shape may claim more than any memory holds.
        raise StorageError(
            f"{path}: has {entry.bytes:,} bytes, too few for {entry.dtype} {entry.shape}; "
            "it is truncated or replaced"
        )
    try:
        array = load_array(path, mmap=mmap)
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
