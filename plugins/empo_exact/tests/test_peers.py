"""Processes that exchange arrays by memory they share, or over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from empo_core.protocols import Needs
from empo_exact.parts import peers as module
from empo_exact.parts.outbox import Address, Inbox, Outbox
from empo_exact.parts.peers import Peers
from empo_exact.parts.processes import _join
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams

SIZE = 3
PATIENCE_S = 60.0
SIZES = [3, 0, 5000, 40, 70_000, 1]
"""Rows that are sent one time after another, so that memory grows, and is used again."""


def _elsewhere(address: Address) -> Inbox:
    """What a process on another machine finds at an address."""
    return Inbox(address._replace(token=bytes(16)))


def _sent(source: int, target: int, size: int) -> np.ndarray:
    return np.arange(size, dtype=np.float64) + 1000 * source + 100 * target


class Swapper:
    """Swaps arrays with others."""

    def all_came(self, meeting: str, rank: int, far: Sequence[int]) -> bool:
        """Swap arrays of all sizes, and tell whether what came was what was sent."""
        if rank in far:
            module.Inbox = _elsewhere  # type: ignore[assignment,misc]
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


@pytest.mark.parametrize("far", [[], [1], [0, 1, 2]], ids=["one machine", "two", "three"])
def test_every_process_gets_what_the_others_sent(tmp_path: Path, far: Sequence[int]) -> None:
    executor = LocalExecutor(LocalParams())
    try:
        workers = [executor.start(Swapper, Needs()) for _ in range(SIZE)]
        meeting = str(tmp_path / "meeting")
        calls = [executor.call(w, "all_came", meeting, rank, far) for rank, w in enumerate(workers)]
        assert [call.result(PATIENCE_S) for call in calls] == [True] * SIZE
    finally:
        executor.shutdown()


def test_memory_of_another_machine_is_not_taken_for_this_ones() -> None:
    outbox = Outbox()
    assert Inbox(outbox.address).is_near
    assert not _elsewhere(outbox.address).is_near
    assert not Inbox(outbox.address._replace(descriptor=10_000)).is_near
    assert not Inbox(outbox.address._replace(process=2**22)).is_near
    outbox.close()
    assert not Inbox(outbox.address).is_near


def test_messages_stand_until_the_one_after_the_next_is_written() -> None:
    outbox = Outbox()
    inbox = Inbox(outbox.address)
    read = []
    for number, size in enumerate([10, 5000, 3, 9000, 8, 1]):
        places = outbox.write([[bytes([number]) * size], [], [b"ab", b"", b"c"]], "test")
        read.append(inbox.read(places[0]))
        assert bytes(inbox.read(places[2])) == b"abc"
        assert all(bytes(each) == bytes([each[0]]) * len(each) for each in read[-2:])
        assert [each[0] for each in read[-2:]] == [number - 1, number][-len(read) :]
    outbox.close()
    assert bytes(read[-1]) == bytes([5])
