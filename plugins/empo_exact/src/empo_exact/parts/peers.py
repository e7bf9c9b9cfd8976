"""The processes that solve one world together, as one of them sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int64, Shaped

from empo_core.errors import WorkerError
from empo_exact.parts.array_bytes import decode_arrays, encode_arrays
from empo_exact.parts.outbox import Inbox, Outbox, Place

T = TypeVar("T")
Arrays: TypeAlias = Mapping[str, np.ndarray]


class GoneError(WorkerError):
    """Another process of the group is gone."""


class Peers:
    """One process of a group, or the only one. All must call the same methods in the same order.

    Those of one machine exchange arrays by memory that they share, others over the network.

    Attributes:
        rank: Which of them this is.
        size: How many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        self._outbox: Outbox | None = None
        self._inboxes: list[Inbox] = []
        self._readers: list[bool] = []
        self._all_near = False

    def swap(self, outgoing: Sequence[Arrays], lent_as: str | None = None) -> list[Arrays]:
        """Give named arrays to every process, and get those from every process, by rank.

        Args:
            outgoing: What each process gets; what this one gets stays where it is.
            lent_as: Arrays that come need not be copied: they may be overwritten by the next call
                with the same name.

        Raises:
            GoneError: if another process is gone.
        """
        if self.size == 1:
            return list(outgoing)
        outbox = self._outbox or self._meet()
        sent_away = [{} if rank == self.rank else arrays for rank, arrays in enumerate(outgoing)]
        messages = [encode_arrays(arrays) for arrays in sent_away]
        far = [
            () if near else message for near, message in zip(self._readers, messages, strict=True)
        ]
        near = [
            message if near else () for near, message in zip(self._readers, messages, strict=True)
        ]
        addresses = outbox.write(near, lent_as or "")
        with _noticing():
            coming = torch.empty((self.size, len(addresses[0])), dtype=torch.int64)
            dist.all_to_all_single(coming, torch.tensor(addresses))
            received = [] if self._all_near else _swap_far(far)
            places = [Place(*place) for place in coming.tolist()]
            arrived = [
                decode_arrays(inbox.read(place) if inbox.is_near else received[rank])
                for rank, (inbox, place) in enumerate(zip(self._inboxes, places, strict=True))
            ]
        if lent_as is None:
            arrived = [{name: array.copy() for name, array in arrays.items()} for arrays in arrived]
        return [
            outgoing[rank] if rank == self.rank else arrays for rank, arrays in enumerate(arrived)
        ]

    def close(self) -> None:
        """Share no memory with others any more."""
        if self._outbox:
            self._outbox.close()
            self._outbox = None

    def _meet(self) -> Outbox:
        """Find out which processes are on this machine."""
        self._outbox = Outbox()
        self._inboxes = [Inbox(address) for address in self.all(self._outbox.address)]
        near = self.all([inbox.is_near for inbox in self._inboxes])
        self._readers = [readers[self.rank] for readers in near]
        self._all_near = all(map(all, near))
        return self._outbox

    def ask(
        self,
        ranks: Int64[np.ndarray, " query"],
        queries: Shaped[np.ndarray, "query ..."],
        answer: Callable[[Shaped[np.ndarray, "query ..."]], Shaped[np.ndarray, "query ..."]],
    ) -> Shaped[np.ndarray, "query ..."]:
        """The answers of other processes [query ...].

        Args:
            ranks: Which process is asked [query].
            queries: What [query ...].
            answer: Answers what others ask this one.

        Raises:
            GoneError: if another process is gone.
        """
        requests = self.swap([{"": queries[ranks == rank]} for rank in range(self.size)], "asked")
        answers = self.swap([{"": answer(request[""])} for request in requests], "asked")
        result = np.empty((len(queries), *answers[0][""].shape[1:]), answers[0][""].dtype)
        for rank, part in enumerate(answers):
            result[ranks == rank] = part[""]
        return result

    def all(self, value: T) -> list[T]:
        """The value that each process gave, by rank.

        Raises:
            GoneError: if another process is gone.
        """
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        with _noticing():
            dist.all_gather_object(values, value)
        return values

    def sum(self, number: int) -> int:
        """The sum of a count over all processes."""
        return sum(self.all(number))


@contextmanager
def joined() -> Iterator[Peers]:
    """The processes that ``torchrun`` started, as long as the context lasts; else this one alone.

    Raises:
        ConfigError: if the environment variables of ``torchrun`` are incomplete or wrong.
    """
    from empo_learning.distributed import join

    with join() as group:
        peers = Peers(group.rank, group.size)
        try:
            yield peers
        finally:
            peers.close()


def _swap_far(outgoing: Sequence[Sequence[bytes | memoryview]]) -> list[memoryview]:
    """Send a message in pieces to every process over the network, and get one from each."""
    sizes = torch.tensor([sum(map(len, pieces)) for pieces in outgoing])
    coming = torch.empty_like(sizes)
    dist.all_to_all_single(coming, sizes)
    flat = [
        np.frombuffer(message, np.uint8) for message in chain.from_iterable(outgoing) if message
    ]
    # Unlike a bytearray, it is not filled with zeros first.
    received = np.empty(int(coming.sum()), np.uint8)
    dist.all_to_all_single(
        torch.from_numpy(received),
        torch.from_numpy(np.concatenate([np.empty(0, np.uint8), *flat])),
        coming.tolist(),
        sizes.tolist(),
    )
    ends = np.cumsum([0, *coming.tolist()]).tolist()
    return [received.data[begin:end] for begin, end in pairwise(ends)]


@contextmanager
def _noticing() -> Iterator[None]:
    """Raise a ``GoneError`` where another process is gone."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise GoneError(
            f"another process of this solve does not answer any more: {error}"
        ) from error
