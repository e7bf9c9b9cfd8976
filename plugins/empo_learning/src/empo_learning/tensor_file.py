"""Named tensors in one safetensors file whose size and sha256 are known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.runs.atomic import DISK, FileEntry, entry_of
from empo_worlds.directories import check_file


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> FileEntry:
    """Store tensors of any device and strides under their names in a new file; raises OSError.

    Raises:
        StorageError: if a tensor or its name is of a sort that cannot be stored.
    """
    try:
        safetensors.torch.save_file(_plain(tensors), path)
    except (ValueError, SafetensorError) as error:
        raise StorageError(f"{path}: cannot be written: {error}") from error
    with path.open("r+b") as file:
        DISK.write(file, b"")  # Where tests have the disk fail, this stands for all of the file.
    DISK.sync(path)
    return entry_of(path)


def read_tensors(path: Path, entry: FileEntry) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU, each with memory of its own.

    Raises:
        StorageError: if the file is missing, damaged, or no safetensors file.
    """
    check_file(path, entry)
    try:
        mapped = safetensors.torch.load_file(path)
        return {name: tensor.clone() for name, tensor in mapped.items()}
    except Exception as error:
        raise StorageError(f"{path}: is damaged or not ours: {error}") from error


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, contiguous on the CPU, no two in the same memory."""
    plain: dict[str, Tensor] = {}
    memory: set[int] = set()
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_meta:
            raise StorageError(
                f"tensor {name!r} is {tensor.dtype} in layout {tensor.layout} on {tensor.device}; "
                "only dense tensors can be stored"
            )
        dense = tensor.detach().cpu().contiguous()
        place = dense.untyped_storage().data_ptr()
        plain[name] = dense.clone() if place in memory else dense
        memory.add(place)
    return plain
