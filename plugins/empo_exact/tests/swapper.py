"""Processes that swap arrays; in a module of its own, which they can import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from empo_exact.parts import peers as module
from empo_exact.parts.outbox import Address, Inbox
from empo_exact.parts.peers import Peers
from empo_exact.parts.processes import _join

SIZE = 3
SIZES = [3, 0, 5000, 40, 70_000, 1]
"""Rows that are sent one time after another, so that memory grows, and is used again."""


def elsewhere(address: Address) -> Inbox:
    """What a process on another machine finds at an address."""
    return Inbox(address._replace(token=bytes(16)))


def _sent(source: int, target: int, size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float64) + 1000 * source + 100 * target


class Swapper:
    """Swaps arrays with others."""

    def all_came(self, meeting: str, rank: int, far: Sequence[int]) -> bool:
        """Swap arrays of all sizes, and tell whether what came was what was sent."""
        if rank in far:
            module.Inbox = elsewhere  # type: ignore[assignment,misc]
        _join(Path(meeting), rank, SIZE)
        peers = Peers(rank, SIZE)
        everything = [self._swap(peers, size) for size in SIZES]
        peers.close()
        return all(everything)

    def _swap(self, peers: Peers, size: int) -> bool:
        every = range(SIZE)
        given = [{"row": _sent(peers.rank, to, size), "empty": np.empty(0)} for to in every]
        lent = peers.swap(given, lent_as="test")
        own = peers.swap([{"row": _sent(peers.rank, to, 9)} for to in every])
        peers.swap([{"row": np.zeros(size)} for _ in every])
        return all(
            np.array_equal(lent[of]["row"], _sent(of, peers.rank, size))
            and not len(lent[of]["empty"])
            and np.array_equal(own[of]["row"], _sent(of, peers.rank, 9))
            for of in every
        )
