"""Writers that are killed all the time: what is accepted is whole, in order, and there once."""

from __future__ import annotations

import multiprocessing
import os
import queue
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from empo_async_actors.cells import Cell
from empo_async_actors.frames import Frame, Kind, decode_arrays
from empo_async_actors.process import ActorProcess

Events = queue.SimpleQueue[tuple[ActorProcess, Frame | None]]


def writer(payload: int) -> Callable[[int], Any]:
    """A factory of actors that do nothing but write, and never wait."""

    def make(index: int) -> Any:
        from types import SimpleNamespace

        from empo_core.types import Experience

        values = np.full(payload, index % 251, np.uint8)
        return SimpleNamespace(act=lambda training_step: Experience({"values": values}, 1))

    return make


def drain(events: Events, process: ActorProcess, payload: int) -> int:
    """Everything that is left of an ended process, checked; how many frames there were."""
    frames = 0
    while True:
        source, frame = events.get(timeout=30)
        if source is not process:
            continue
        if frame is None:
            return frames
        assert frame.number == frames
        frames += 1
        if frame.kind is Kind.EXPERIENCE:
            values = decode_arrays(frame.payload)["values"]
            assert values.tobytes() == bytes([process.incarnation % 251]) * payload


def kills(payload: int, number: int, folder: Path, chance: random.Random, sig: int) -> int:
    """Start and kill writers one after the other; how many frames were accepted in all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "empo_core.parallel", "empo_async_actors.child"])
    accepted = 0
    for incarnation in range(number):
        events: Events = queue.SimpleQueue()
        process = ActorProcess(
            context, folder, 0, incarnation, cloudpickle.dumps(writer(payload)), incarnation, events
        )
        process.cells[Cell.GRANTED] = 2**60
        while process.account.experiences < 1:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(process.pid, sig)
        if sig != signal.SIGKILL:
            time.sleep(0.01)
            process.kill()
        frames = drain(events, process, payload)
        process.close()
        account = process.account
        assert not process.trouble
        assert account.accepted == frames
        assert account.sent - account.accepted in (0, 1)
        accepted += frames
    assert not list(folder.iterdir())
    return accepted


@pytest.mark.parametrize("payload", [100, 20_000, 200_000])
def test_killed_writers_leave_nothing_lost_twice_or_torn(payload: int, tmp_path: Path) -> None:
    assert kills(payload, 8, tmp_path, random.Random(payload), signal.SIGKILL) > 8


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("payload", [100, 20_000, 200_000])
def test_fifteen_hundred_kills(payload: int, tmp_path: Path) -> None:
    assert kills(payload, 500, tmp_path, random.Random(payload), signal.SIGKILL) > 500


def test_writers_stopped_in_a_message_are_killed_without_harm(tmp_path: Path) -> None:
    assert kills(3_000_000, 5, tmp_path, random.Random(0), signal.SIGSTOP) > 5
