"""Storage of a replay's arrays: RAM, page-locked RAM, or a memory-mapped file."""

from __future__ import annotations

import contextlib
import errno
import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import DTypeLike
from torch import Tensor

from empo_core.errors import ConfigError, StorageError
from empo_core.runs.files import refuse_gone

StorageKind = Literal["ram", "pinned", "mapped"]
GIB = 1 << 30
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


class ArrayStorage:
    """Allocates arrays of zeros: in RAM, in page-locked RAM, or in a file.

    Mapped arrays lie in files that have no name any more, so that they vanish with the process,
    however it ends. Their disk space is reserved, because running out of it later would kill
    the process.

    Args:
        kind: RAM, page-locked RAM, or memory-mapped files.
        directory: Folder of the files of mapped arrays.

    Raises:
        ConfigError: if there is no CUDA device to pin memory for, or no directory to map files in.
    """

    def __init__(self, kind: StorageKind, directory: Path | None) -> None:
        if kind == "pinned" and not torch.cuda.is_available():
            raise ConfigError(
                "replay.storage: 'pinned' speeds up copies to a CUDA device, and torch finds none; "
                "use 'ram' or 'mapped'"
            )
        if kind == "mapped" and directory is None:
            raise ConfigError("replay.storage: 'mapped' needs a directory for its files; got none")
        self.kind = kind
        self._directory = directory

    @property
    def pinned(self) -> bool:
        """True where tensors on the way to a device are page-locked."""
        return self.kind == "pinned"

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Shaped[np.ndarray, "*shape"]:
        """A new array of zeros; RAM is only taken where it is written to.

        Raises:
            ConfigError: if the array is larger than this machine's RAM.
            StorageError: if the disk has no room for it.
        """
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if self.kind == "mapped" and size:
            return self._mapped(shape, np.dtype(dtype), size)
        if size > machine_bytes():
            raise ConfigError(
                f"replay: one of its arrays takes {size / GIB:.1f} GiB and this machine has "
                f"{machine_bytes() / GIB:.1f} GiB; lower replay.capacity or use storage: mapped"
            )
        if self.kind == "pinned" and size:
            pinned = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
            return pinned.numpy().view(dtype).reshape(shape)
        if size:
            # Mapped on its own: the heap of a learner writes the zeros, and keeps what is freed.
            return np.frombuffer(mmap.mmap(-1, size), dtype).reshape(shape)
        return np.zeros(shape, dtype)

    def enlarged(
        self, array: Shaped[np.ndarray, "_row ..."], length: int
    ) -> Shaped[np.ndarray, "{length} ..."]:
        """A copy with zeros behind it."""
        longer = self.zeros((length, *array.shape[1:]), array.dtype)
        longer[: len(array)] = array
        return longer

    def room(
        self, shape: tuple[int, ...], dtype: DTypeLike
    ) -> tuple[Shaped[np.ndarray, "*shape"], Shaped[Tensor, "*shape"]]:
        """Uninitialised memory as an array and a tensor to send, page-locked where ``pinned``."""
        if self.pinned:
            tensor = torch.empty(shape, dtype=_torch_dtype(dtype), pin_memory=True)
            return tensor.numpy(), tensor
        array = np.empty(shape, dtype)  # A third of the time that a tensor takes.
        return array, torch.from_numpy(array)

    def send(
        self, tensor: Shaped[Tensor, "*shape"], device: torch.device
    ) -> Shaped[Tensor, "*shape"]:
        """A tensor on a device; page-locked ones are copied without waiting."""
        # Asking torch takes three times as long where there is nothing to do.
        return tensor if device == tensor.device else tensor.to(device, non_blocking=self.pinned)

    def _mapped(
        self, shape: Sequence[int], dtype: np.dtype[np.generic], size: int
    ) -> Shaped[np.ndarray, "*shape"]:
        assert self._directory is not None
        refuse_gone(self._directory)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            # Asked first, because some file systems reserve space by filling it.
            if size > shutil.disk_usage(self._directory).free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with tempfile.TemporaryFile(dir=self._directory) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                return np.asarray(np.memmap(file, dtype, mode="r+", shape=tuple(shape)))
        except OSError as error:
            raise StorageError(
                f"{self._directory}: {size / GIB:.1f} GiB of the replay do not fit: "
                f"{error.strerror}; lower replay.capacity or use another disk"
            ) from error


def _torch_dtype(dtype: DTypeLike) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def machine_bytes() -> int:
    """Bytes of RAM of this machine or container."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # A container may allow less than the machine has; "max" means that it does not.
    with contextlib.suppress(OSError, ValueError):
        size = min(size, int(CGROUP_LIMIT.read_text()))
    return size
