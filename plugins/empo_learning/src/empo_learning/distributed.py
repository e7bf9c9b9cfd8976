"""Several processes that learn one policy, each from environments of its own.

Started as ``torchrun --nproc-per-node 2 -m empo_core run config.yaml``. Without ``torchrun`` there
is one process, for which everything here does nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from empo_core.errors import ConfigError

T = TypeVar("T")
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class Group:
    """The processes that learn together, as one of them sees it; as a context it ends with it.

    All of them must call the same methods in the same order. What they get is the same in all of
    them, bit for bit, except where noted.

    Attributes:
        rank: Which of them this is.
        size: How many there are.
        local_rank: Which of those on this machine it is.
    """

    def __init__(self, rank: int = 0, size: int = 1, local_rank: int = 0) -> None:
        self.rank, self.size, self.local_rank = rank, size, local_rank

    def __enter__(self) -> Group:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave; if all went well, together."""
        if kind is None and self.size > 1:
            dist.barrier()  # Who leaves first takes away what the others still talk to.
        self.leave()

    @property
    def is_first(self) -> bool:
        """True in the process that keeps the records."""
        return self.rank == 0

    def device(self, name: str) -> torch.device:
        """The device for this process: of ``cuda`` without a number, one for each process."""
        several = name == "cuda" and self.size > 1
        return torch.device(f"cuda:{self.local_rank}" if several else name)

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors of one dtype and device by their sums over all processes."""
        if self.size == 1:
            return
        tensors = list(tensors)
        # One message for all: each takes its time, however short it is.
        flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
        dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def sum(self, number: int) -> int:
        """The sum of a count over all processes."""
        if self.size == 1:
            return number
        total = torch.tensor([number])
        self.add_up([total])
        return int(total)

    def totals(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sums of numbers by name; all processes must have the same names."""
        if self.size == 1:
            return dict(numbers)
        names = sorted(numbers)
        values = torch.tensor([numbers[name] for name in names], dtype=torch.float64)
        self.add_up([values])
        return dict(zip(names, values.tolist(), strict=True))

    def stacked(self, tensor: Tensor) -> Tensor:
        """The tensors that the processes gave, of equal shapes, by rank: ``[rank, ...]``."""
        table = tensor.new_zeros(self.size, *tensor.shape)
        table[self.rank] = tensor
        self.add_up([table])  # Others are 0 there, so sums are exact.
        return table

    def spread(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        if self.size > 1:
            with torch.no_grad():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def shared(self, value: T) -> T:
        """The value that rank 0 gave; those of the others are not used."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, 0)
        return values[0]

    def gathered(self, value: T) -> list[T]:
        """The value that each process gave, by rank; for rank 0 only, empty for the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        dist.gather_object(value, values, 0)
        return values or []

    def leave(self) -> None:
        """Learn alone from now on; may be called twice."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
        self.rank, self.size = 0, 1


def join(device: str = "cpu") -> Group:
    """Join the processes that ``torchrun`` started, or stay alone where it started none.

    Args:
        device: Where they compute; on CUDA they exchange gradients by NCCL, else by Gloo.

    Raises:
        ConfigError: The environment variables of ``torchrun`` are incomplete or wrong.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        return Group()
    missing = [name for name in _VARIABLES if name not in os.environ]
    if missing:
        raise ConfigError(
            f"the environment variables {', '.join(missing)} are missing, but others that torchrun "
            "sets are there; start with: torchrun --nproc-per-node 2 -m empo_core run CONFIG"
        )
    try:
        rank, size, local = (int(os.environ[name]) for name in _VARIABLES[:3])
    except ValueError as error:
        raise ConfigError(f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers: {error}") from error
    if not 0 <= rank < size:
        raise ConfigError(f"RANK is {rank}, which must be at least 0 and below WORLD_SIZE, {size}")
    if size == 1:
        return Group()
    group = Group(rank, size, local)
    on_cuda = torch.device(device).type == "cuda"
    if on_cuda:
        torch.cuda.set_device(group.device(device))
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo", rank=rank, world_size=size)
    return group
