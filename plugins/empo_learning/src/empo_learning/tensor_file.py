"""Named tensors in one safetensors file, written and read piece by piece.

The safetensors package builds the whole file in memory; a replay buffer is too large for that,
and reading it here lets one pass over the open file check and load it.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

import torch
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.runs.atomic import (
    FileEntry,
    FileOps,
    HashingFile,
    StrictModel,
    check_size,
    parse_json,
)
from empo_core.runs.files import open_regular

Code = Literal[
    "BOOL", "U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "BF16", "F16", "F32", "F64"
]
_DTYPES: dict[str, torch.dtype] = dict(
    zip(
        get_args(Code),
        (
            torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32,
            torch.int32, torch.uint64, torch.int64, torch.bfloat16, torch.float16,
            torch.float32, torch.float64,
        ),
        strict=True,
    )
)  # fmt: skip
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_MAX_HEADER = 100_000_000  # As in the safetensors package.
Count = Annotated[int, Field(ge=0, lt=2**63)]


class _Place(StrictModel):
    dtype: Code
    shape: list[Count] = Field(max_length=64)
    data_offsets: list[Count] = Field(min_length=2, max_length=2)


_HEADER = TypeAdapter(dict[str, _Place])


def write_tensors(path: Path, tensors: Mapping[str, Tensor], ops: FileOps) -> FileEntry:
    """Store tensors of any device and strides under their names; raises OSError.

    Raises:
        StorageError: if a tensor is of a sort that cannot be stored.
    """
    # Wide numbers first, so that every tensor is aligned; names make the order unique.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, start = {}, 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in _CODES or tensor.layout is not torch.strided or tensor.is_meta:
            raise StorageError(
                f"tensor {name!r} is {tensor.dtype} in layout {tensor.layout} on {tensor.device}; "
                f"only dense tensors of {', '.join(map(str, _CODES))} can be stored"
            )
        stop = start + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    with path.open("xb") as file:
        hashing = HashingFile(file, ops)
        hashing.write(_framed(header))
        for name in order:
            if tensors[name].numel():
                hashing.write(_raw(tensors[name].detach().cpu().contiguous()))
    ops.sync(path)
    return hashing.entry


def read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU, each with memory of its own.

    Raises:
        StorageError: if the file is missing, damaged, or not a safetensors file as above.
    """
    return open_regular(path, lambda file: _read(path, file, entry))


def _framed(header: Mapping[str, object]) -> bytes:
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise StorageError(f"a tensor has a name that is not Unicode: {error.object!r}") from error
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER:
        raise StorageError(f"{len(header):,} tensors are too many for one file; join some")
    return len(text).to_bytes(8, "little") + text


def _raw(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor with at least one element."""
    # An axis of length 1 counts as contiguous with any stride, but its bytes cannot be viewed.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


def _read(path: Path, file: io.BufferedReader, entry: FileEntry) -> dict[str, Tensor]:
    check_size(path, file, entry)
    hashing = hashlib.sha256()
    tensors = {}
    for name, place in _places(path, file, entry, hashing):
        tensor = tensors[name] = torch.empty(place.shape, dtype=_DTYPES[place.dtype])
        if tensor.numel():
            memory = _raw(tensor)
            if file.readinto(memory) != memory.nbytes:
                raise StorageError(f"{path}: became shorter while it was read")
            hashing.update(memory)
    if hashing.hexdigest() != entry.sha256:
        raise StorageError(f"{path}: is damaged: its sha256 does not match")
    for name, tensor in tensors.items():
        # Other bytes than these two would be a boolean that is neither true nor false.
        if tensor.dtype is torch.bool and bool((tensor.view(torch.uint8) > 1).any()):
            raise StorageError(f"{path}: tensor {name!r} holds bytes that are no booleans")
    return tensors


def _places(
    path: Path, file: io.BufferedReader, entry: FileEntry, hashing: hashlib._Hash
) -> list[tuple[str, _Place]]:
    """Entries of the header, in the order of the data, once they fit the file exactly."""
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(entry.bytes - 8, _MAX_HEADER):
        raise StorageError(f"{path}: is not a safetensors file: its header cannot be so long")
    text = file.read(length)
    hashing.update(prefix + text)
    try:
        header = _HEADER.validate_python(parse_json(path, text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise StorageError(f"{path}: has a damaged header: {where}: {first['msg']}") from error
    places = sorted(header.items(), key=lambda item: item[1].data_offsets)
    end = 0
    for name, place in places:
        start, stop = place.data_offsets
        size = math.prod(place.shape) * _DTYPES[place.dtype].itemsize
        # An empty tensor may claim any other axes; torch multiplies them all the same.
        extent = math.prod(max(length, 1) for length in place.shape)
        if start != end or stop - start != size or extent >= 2**59:
            raise StorageError(f"{path}: tensor {name!r} does not fit its place in the file")
        end = stop
    if end != entry.bytes - 8 - length:
        raise StorageError(f"{path}: has {entry.bytes - 8 - length - end:,} bytes of no tensor")
    return places
