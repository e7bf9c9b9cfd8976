"""Several processes that learn one policy, each from environments of its own.

Started as ``torchrun --nproc-per-node 2 -m empo_core run config.yaml``. Without ``torchrun`` there
is one process, for which everything here does nothing. Where one of them ends, the others notice
within seconds, and each goes on alone to save what it knows.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from empo_core.errors import ConfigError, WorkerError

T = TypeVar("T")
_NOTICE_S = 3.0
"""Seconds in which all processes that are left notice that one is not."""
_NOTICE_SILENCE_S = 10.0
"""The same where one is silent, which each has waited for since it came there."""
_PATIENCE_S = 1800.0
"""Seconds that processes wait for each other where nobody says it."""
_MEETING_S = 300.0
"""Seconds in which all processes have to come together."""
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class RankLostError(WorkerError):
    """A process of the group has ended or is silent; the message names it."""

    page = "how-to/train_on_several_machines.md"


class Group:
    """The processes that learn together, as one of them sees it; as a context it ends with it.

    All of them must call the same methods in the same order. What they get is the same in all of
    them, bit for bit, except where noted.

    Attributes:
        rank: Which of them this is.
        size: How many there are.
        local_rank: Which of those on this machine it is.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        *,
        store: Store | None = None,
        timeout_s: float = _PATIENCE_S,
    ) -> None:
        """All processes make theirs at the same time.

        Args:
            rank: Which of them this is.
            size: How many there are.
            local_rank: Which of those on this machine it is.
            store: What they all can write to; None: where one is lost, it is not named.
            timeout_s: Seconds of silence after which one is lost.
        """
        self.rank, self.size, self.local_rank = rank, size, local_rank
        self._store, self._timeout_s = store, timeout_s
        self._names: list[str] = []
        if store is not None:
            store.set(f"name/{rank}", f"process {os.getpid()} on {platform.node()}")
            self._names = [
                f"rank {peer} ({store.get(f'name/{peer}').decode()})" for peer in range(size)
            ]

    def __enter__(self) -> Group:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Leave; if all went well, together."""
        if kind is None and self.size > 1:
            with self._together():
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
        with self._together():
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
            with torch.no_grad(), self._together():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def shared(self, value: T) -> T:
        """The value that rank 0 gave; those of the others are not used."""
        if self.size == 1:
            return value
        values = [value]
        with self._together():
            dist.broadcast_object_list(values, 0)
        return values[0]

    def gathered(self, value: T) -> list[T]:
        """The value that each process gave, by rank; for rank 0 only, empty for the others."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with self._together():
            dist.gather_object(value, values, 0)
        return values or []

    def leave(self) -> None:
        """Learn alone from now on; may be called twice."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()
        self.rank, self.size = 0, 1

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """A call that all processes make; where one is gone, leave and say which.

        Raises:
            RankLostError: if some process has ended, or is silent.
        """
        try:
            yield
        except RuntimeError as error:
            rank, size, store = self.rank, self.size, self._store
            self.leave()  # So that the others notice, too.
            notice_s = _NOTICE_SILENCE_S if "imed out" in str(error) else _NOTICE_S
            lost = "a process of the group"
            if store is not None:
                missing = _missing(store, rank, size, notice_s)
                lost = " and ".join(self._names[peer] for peer in missing)
            if not lost:
                raise  # All are there, so it was something else.
            raise RankLostError(
                f"{lost} has ended, or has not answered for {self._timeout_s:g} s, and the others "
                "cannot go on without it; see its own output for the reason. What was learned is "
                "in the newest checkpoint: start again with 'resume RUN_DIR' instead of 'run "
                "CONFIG', with any number of processes"
            ) from error


def _missing(store: Store, rank: int, size: int, notice_s: float) -> list[int]:
    """The other processes that do not notice within some time that something is wrong.

    The store ends with the first machine's ``torchrun``, which is the end of rank 0, too; and where
    that machine is silent, so is the store.
    """
    deadline = time.monotonic() + notice_s
    answer: list[list[int]] = []

    def ask() -> None:
        missing = [peer for peer in range(size) if peer != rank]
        try:
            store.set(f"left/{rank}", "")
            while missing and time.monotonic() < deadline:
                missing = [peer for peer in missing if not store.check([f"left/{peer}"])]
                time.sleep(0.05)
        except RuntimeError:
            missing = [0]
        answer.append(missing)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(notice_s + 1.0)
    return answer[0] if answer else [0]


def join(device: str = "cpu", timeout_s: float = _PATIENCE_S) -> Group:
    """Join the processes that ``torchrun`` started, or stay alone where it started none.

    Args:
        device: Where they compute; on CUDA they exchange gradients by NCCL, else by Gloo.
        timeout_s: Seconds that they wait for each other; who is silent for longer is lost.

    Raises:
        ConfigError: if the environment variables of ``torchrun`` are incomplete or wrong.
        RankLostError: if the others cannot be reached.
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
    on_cuda = torch.device(device).type == "cuda"
    if on_cuda:
        torch.cuda.set_device(Group(rank, size, local).device(device))
    backend = "cpu:gloo,cuda:nccl" if on_cuda else "gloo"
    try:
        store = _met(rank, size)
        group = Group(rank, size, local, store=store, timeout_s=timeout_s)
        dist.init_process_group(
            backend, timeout=timedelta(seconds=timeout_s), store=store, rank=rank, world_size=size
        )
    except RuntimeError as error:
        raise RankLostError(
            f"rank {rank} (process {os.getpid()} on {platform.node()}) cannot be connected with "
            f"the {size - 1} others: {error}. Have they all been started, and can the machines "
            "reach each other? GLOO_SOCKET_IFNAME names the network to use"
        ) from error
    return group


def _met(rank: int, size: int) -> Store:
    """A store that all processes have come to.

    The store of ``torchrun`` outlives processes that it starts again, and what they have left there
    would mislead others. So rank 0 chooses a name that is new, and tells it to those who greet it.

    Raises:
        RuntimeError: if some process does not come.
    """
    is_ours = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = rank == 0 and is_ours
    store = PrefixStore("empo", TCPStore(address, port, size, is_master, wait_for_workers=False))
    word, deadline = secrets.token_hex(8), time.monotonic() + _MEETING_S
    absent = set(range(1, size)) if rank == 0 else {0}
    store.set(f"greeting/{rank}", word)
    while absent:
        if time.monotonic() > deadline:
            raise RuntimeError(f"rank {min(absent)} did not come within {_MEETING_S:g} s")
        time.sleep(0.02)
        for other in sorted(absent):
            if rank == 0 and store.check([f"greeting/{other}"]):
                greeting = store.get(f"greeting/{other}").decode()
                store.set(f"answer/{other}", f"{greeting} {word}")
                absent -= {other} if store.check([f"{word}/{other}"]) else set()
            elif rank > 0 and store.check([f"answer/{rank}"]):
                greeting, _, chosen = store.get(f"answer/{rank}").decode().partition(" ")
                if greeting == word:  # And not that of a process that was here before.
                    store.set(f"{chosen}/{rank}", "")
                    return PrefixStore(chosen, store)
    return PrefixStore(word, store)
