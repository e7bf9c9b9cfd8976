"""The processes that solve one world together, as one of them sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int64, Shaped

from empo_core.errors import WorkerError
from empo_executors.frames import decode_arrays, encode_arrays
from empo_learning.distributed import join

T = TypeVar("T")
Arrays: TypeAlias = Mapping[str, np.ndarray]


class GoneError(WorkerError):
    """Another process of the group is gone."""


class Peers:
    """One process of a group, or the only one. All must call the same methods in the same order.

    Attributes:
        rank: Which of them this is.
        size: How many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    def swap(self, outgoing: Sequence[Arrays]) -> list[Arrays]:
        """Give named arrays to every process, and get those from every process, by rank.

        Raises:
            GoneError: Another process is gone.
        """
        if self.size == 1:
            return list(outgoing)
        # What it gives to itself stays where it is.
        sent_away = [{} if rank == self.rank else each for rank, each in enumerate(outgoing)]
        pieces = [encode_arrays(arrays) for arrays in sent_away]
        sizes = torch.tensor([sum(map(len, each)) for each in pieces])
        coming = torch.empty_like(sizes)
        try:
            dist.all_to_all_single(coming, sizes)
            flat = [np.frombuffer(each, np.uint8) for each in chain.from_iterable(pieces) if each]
            # Unlike a bytearray, it is not filled with zeros first.
            received = np.empty(int(coming.sum()), np.uint8)
            dist.all_to_all_single(
                torch.from_numpy(received),
                torch.from_numpy(np.concatenate(flat)),
                coming.tolist(),
                sizes.tolist(),
            )
        except RuntimeError as error:
            raise _gone(error) from error
        begins = np.cumsum(coming.numpy()) - coming.numpy()
        found: list[Arrays] = [decode_arrays(received.data, begin) for begin in begins.tolist()]
        found[self.rank] = outgoing[self.rank]
        return found

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
            GoneError: Another process is gone.
        """
        asked = self.swap([{"": queries[ranks == rank]} for rank in range(self.size)])
        answers = self.swap([{"": answer(each[""])} for each in asked])
        found = np.empty((len(queries), *answers[0][""].shape[1:]), answers[0][""].dtype)
        for rank, each in enumerate(answers):
            found[ranks == rank] = each[""]
        return found

    def all(self, value: T) -> list[T]:
        """The value that each process gave, by rank.

        Raises:
            GoneError: Another process is gone.
        """
        if self.size == 1:
            return [value]
        values: list[T] = [value] * self.size
        try:
            dist.all_gather_object(values, value)
        except RuntimeError as error:
            raise _gone(error) from error
        return values

    def sum(self, number: int) -> int:
        """The sum of a count over all processes."""
        return sum(self.all(number))


@contextmanager
def joined() -> Iterator[Peers]:
    """The processes that ``torchrun`` started, as long as the context lasts; else this one alone.

    Raises:
        ConfigError: The environment variables of ``torchrun`` are incomplete or wrong.
    """
    with join() as group:
        yield Peers(group.rank, group.size)


def _gone(error: RuntimeError) -> GoneError:
    return GoneError(f"another process of this solve does not answer any more: {error}")
