"""Nothing grows while training goes on, once the replay is full."""

import threading
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from empo_phase2.experience import Block, States, Transitions
from empo_phase2.replay import Replay

ENVIRONMENTS, ROBOT_ACTIONS, SLOTS, CAPACITY = 16, 16, 4, 500


def block(step: int, generator: torch.Generator) -> Block:
    """Environments that meet new states for ever, with between 1 and 3 successors per pair."""

    def below(limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(limit, shape, generator=generator)

    states, pairs = 8 * ENVIRONMENTS, ENVIRONMENTS * ROBOT_ACTIONS
    counts = 1 + below(3, pairs)
    items = int(counts.sum())
    rows = torch.stack([step * 40 + below(400, states), below(2, states)], 1).int()
    return Block(
        States(
            rows,
            torch.zeros(states, dtype=torch.int64),
            torch.zeros(states, dtype=torch.bool),
            torch.zeros((states, SLOTS), dtype=torch.bool),
            torch.ones((states, ROBOT_ACTIONS), dtype=torch.bool),
        ),
        Transitions(
            below(states, ENVIRONMENTS),
            1 + below(9, ENVIRONMENTS),
            torch.rand((ENVIRONMENTS, SLOTS, 3), generator=generator),
            below(SLOTS, ENVIRONMENTS, 1),
            below(3, ENVIRONMENTS, 1),
            below(ROBOT_ACTIONS, ENVIRONMENTS),
            below(states, ENVIRONMENTS),
            torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
            below(states, items),
            torch.ones(items),
        ),
        torch.arange(ENVIRONMENTS),
        torch.zeros(ENVIRONMENTS, dtype=torch.bool),
        below(3, ENVIRONMENTS, 1),
    )


def handles() -> tuple[int, int, int]:
    """Open files, threads and child processes."""
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    return open_files, threading.active_count(), len(psutil.Process().children())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("memory", ["ram", "mapped"])
@pytest.mark.parametrize("steps", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_once_the_replay_is_full(steps: int, memory: str, tmp_path: Path) -> None:
    replay = Replay(
        CAPACITY, words=2, dtype=torch.int32, slots=SLOTS, robot_actions=ROBOT_ACTIONS,
        human_slots=SLOTS, human_actions=3, humans=1, profiles=1, memory=memory,
        directory=tmp_path,
    )  # fmt: skip
    generator, process, clock = torch.Generator().manual_seed(0), psutil.Process(), count()

    def train(number: int) -> list[int]:
        used = []
        for _ in range(number):
            step = next(clock)
            # Actors come and go, and each is somebody new.
            replay.add(block(step, generator), actor=step // 50, training_step=step)
            batch = replay.sample(64, generator, oldest=step - 100)
            replay.states(torch.cat([batch.state, batch.next, batch.successor]).unique())
            replay.follow(torch.arange(64))
            used.append(process.memory_info().rss)
        return used

    train(3 * CAPACITY // ENVIRONMENTS)
    assert len(replay) == CAPACITY
    reserved, before = replay.memory_bytes(), handles()
    used = np.array(train(steps))
    assert replay.memory_bytes() == reserved
    assert handles() == before
    slope = np.polyfit(np.arange(steps), used, 1)[0]
    # The floor is for short runs, where a few pages more look like a trend.
    assert slope * steps <= max(2**20 * steps / 10_000, 2**19)
