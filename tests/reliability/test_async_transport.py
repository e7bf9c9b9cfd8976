"""Writers that are killed all the time: what arrives is whole, in order, and there once."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator

import cloudpickle
import numpy as np
import pytest

from empo_core.errors import LostError
from empo_core.protocols import Needs, Report
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Worker processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Writer:
    """Does nothing but write, and never waits."""

    def pid(self) -> int:
        """This process."""
        return os.getpid()

    def write(self, report: Report, value: int, size: int) -> None:
        """Report numbered arrays for ever."""
        values = np.full(size, value, np.uint8)
        number = 0
        while True:
            report((number, values))
            number += 1


def kills(payload: int, number: int, chance: random.Random, sig: int) -> int:
    """Start and kill one writer after the other; how many reports arrived in all."""
    executor = LocalExecutor(LocalParams())
    arrived = 0
    for incarnation in range(number):
        worker, value = executor.start(Writer, Needs()), incarnation % 251
        pid = executor.call(worker, "pid").result(60)
        received: list[tuple[int, np.ndarray]] = []
        lost = executor.call(worker, "write", value, payload, on_report=received.append)
        while len(received) < 2:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(pid, sig)
        if sig != signal.SIGKILL:
            time.sleep(0.01)
            executor.kill(worker, "was stopped")
        with pytest.raises(LostError):
            lost.result(60)
        assert [number for number, _ in received] == list(range(len(received)))
        assert all(values.tobytes() == bytes([value]) * payload for _, values in received)
        arrived += len(received)
    executor.shutdown()
    return arrived


@pytest.mark.parametrize(
    "payload",
    [
        100,
        pytest.param(20_000, marks=pytest.mark.slow),
        pytest.param(200_000, marks=pytest.mark.slow),
    ],
)
def test_killed_writers_leave_nothing_lost_twice_or_torn(payload: int) -> None:
    assert kills(payload, 8, random.Random(payload), signal.SIGKILL) >= 16


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("payload", [100, 20_000, 200_000])
def test_fifteen_hundred_kills(payload: int) -> None:
    assert kills(payload, 500, random.Random(payload), signal.SIGKILL) >= 1000


def test_writers_stopped_in_a_message_are_killed_without_harm() -> None:
    assert kills(3_000_000, 5, random.Random(0), signal.SIGSTOP) >= 10
