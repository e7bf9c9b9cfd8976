"""Writers that are killed all the time: what is accepted is whole, in order, and there once."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from empo_core.protocols import Needs, Payload, Send, Worker, WorkerFactory
from empo_executors.frames import decode_arrays, encode_arrays
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams


def writer(payload: int) -> WorkerFactory:
    """A factory of workers that do nothing but write, and never wait."""

    def make(number: int, incarnation: int) -> Worker:
        from types import SimpleNamespace

        parts = encode_arrays({"values": np.full(payload, incarnation % 251, np.uint8)})

        def call(request: bytes, send: Send) -> Payload:
            while True:
                send(parts)

        made: Worker = SimpleNamespace(call=call, close=lambda: None, load=None)  # type: ignore[assignment]
        return made

    return make


def kills(payload: int, number: int, folder: Path, chance: random.Random, sig: int) -> int:
    """Start and kill one writer after the other; how many parts were accepted in all."""
    executor = LocalExecutor(LocalParams())
    executor.start(writer(payload), 1, Needs(), folder, 10**6)
    accepted = 0
    for incarnation in range(number):
        while (state := executor.workers()[0]).incarnation < incarnation or state.pid is None:
            assert executor.next(0.01) is None
        executor.submit(0, b"write")
        parts, killed = 0, False
        while (reply := executor.next(30)) is not None:
            assert (reply.incarnation, reply.number) == (incarnation, 0)
            if reply.kind == "lost":
                break
            parts += 1
            values = decode_arrays(reply.payload)["values"]
            assert values.tobytes() == bytes([incarnation % 251]) * payload
            if not killed:
                time.sleep(chance.uniform(0, 0.02))
                os.kill(state.pid, sig)
                killed = True
                if sig != signal.SIGKILL:
                    time.sleep(0.01)
                    executor.replace(0, "was stopped")
        account = executor.account()[incarnation]
        assert account.accepted == parts + 1  # The first says that the worker was built.
        assert account.sent - account.accepted in (0, 1)
        assert (account.submitted, account.answered, account.lost) == (1, 0, 1)
        accepted += parts
    executor.stop()
    assert not list(folder.iterdir())
    return accepted


@pytest.mark.parametrize(
    "payload",
    [
        100,
        pytest.param(20_000, marks=pytest.mark.slow),
        pytest.param(200_000, marks=pytest.mark.slow),
    ],
)
def test_killed_writers_leave_nothing_lost_twice_or_torn(payload: int, tmp_path: Path) -> None:
    assert kills(payload, 8, tmp_path, random.Random(payload), signal.SIGKILL) > 8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("payload", [100, 20_000, 200_000])
def test_fifteen_hundred_kills(payload: int, tmp_path: Path) -> None:
    assert kills(payload, 500, tmp_path, random.Random(payload), signal.SIGKILL) > 500


def test_writers_stopped_in_a_message_are_killed_without_harm(tmp_path: Path) -> None:
    assert kills(3_000_000, 5, tmp_path, random.Random(0), signal.SIGSTOP) > 5
