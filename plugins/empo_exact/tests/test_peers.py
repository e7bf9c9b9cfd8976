"""Processes that exchange arrays by memory they share, or over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from swapper import SIZE, Swapper, elsewhere

from empo_core.protocols import Needs
from empo_exact.parts.outbox import Inbox, Outbox
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams

PATIENCE_S = 60.0


@pytest.mark.parametrize(
    "far",
    [
        pytest.param([], id="one machine", marks=pytest.mark.slow),
        pytest.param([1], id="two"),
        pytest.param([0, 1, 2], id="three", marks=pytest.mark.slow),
    ],
)
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
    assert not elsewhere(outbox.address).is_near
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
