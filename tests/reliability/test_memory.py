"""Nothing grows while training goes on, once the replay is full."""

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_learning.timers import Timers
from empo_phase2.experience import Block, States, Transitions
from empo_phase2.explorer_set import ExplorerSet
from empo_phase2.learner import Learner
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_phase2.replay import Replay, ReplayShape, StorageKind

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
            below(2, ENVIRONMENTS, SLOTS).bool(),
            torch.zeros(ENVIRONMENTS, 0),
            below(ROBOT_ACTIONS, ENVIRONMENTS),
            torch.nn.functional.pad(counts.cumsum(0), (1, 0)),
            below(states, items),
            torch.ones(items),
        ),
        torch.zeros(ENVIRONMENTS, dtype=torch.bool),
        below(3, ENVIRONMENTS, 1),
        below(3, ENVIRONMENTS, 1),
        below(states, ENVIRONMENTS),
    )


def handles() -> Counter[str]:
    """Open files by path, those without a name by folder, and child processes."""
    files = Counter(
        re.sub(r"/#\d+ \(deleted\)$", "/unnamed", str(path.readlink()))
        for path in Path("/proc/self/fd").iterdir()
        if path.is_symlink()
    )
    return files + Counter(f"child {child.pid}" for child in psutil.Process().children())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("storage", ["ram", "mapped"])
@pytest.mark.parametrize("steps", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_memory_stays_flat_once_the_replay_is_full(
    steps: int, storage: StorageKind, tmp_path: Path
) -> None:
    shape = ReplayShape(
        words=2, dtype=torch.int32, slots=SLOTS, robot_actions=ROBOT_ACTIONS,
        human_slots=SLOTS, human_actions=3, profiles=1,
    )  # fmt: skip
    replay = Replay(CAPACITY, shape, storage=storage, directory=tmp_path)
    generator = torch.Generator().manual_seed(0)

    def once(step: int) -> None:
        replay.add(block(step, generator), training_step=step)
        batch = replay.transitions(replay.sample_indices(64, generator, oldest=step - 100))
        replay.states(torch.cat([batch.state, batch.successor]).unique())

    assert_flat(once, replay, before=3 * CAPACITY // ENVIRONMENTS, steps=steps)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("values", ["lookup", "mlp"])
def test_memory_stays_flat_while_a_learner_trains(values: str) -> None:
    params = Phase2Params.model_validate(
        {
            "human_prior": "path-heuristic",
            "values": {"q_r": values, "v_h_e": values},
            "replay": {"capacity": 2000},
            # Every quantity is trained from the start, in every state that there is.
            "warm_up": dict.fromkeys(["v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp"], 0),
        }
    )
    world = build(WorldModelRef.model_validate({"name": "multigrid/trivial"}))
    problem = Problem.of(params, world)
    replay, actor = problem.replay(), problem.factory(0)
    explorers, collector = ExplorerSet(params.exploration, problem.spec), build(params.collector)
    learner = Learner(params, problem.quantities(), replay, collector, explorers, Timers(), 0)

    def once(step: int) -> None:
        experience = actor.act(step)
        replay.add(Block.from_arrays(experience.arrays), training_step=step)
        learner.train(learner.schedule.at(learner.steps))

    assert_flat(once, replay, before=1000, steps=20_000)


def assert_flat(once: Callable[[int], None], replay: Replay, *, before: int, steps: int) -> None:
    """Fill the replay, then go on, and compare."""
    process, clock = psutil.Process(), count()

    def go(number: int) -> list[int]:
        used = []
        for _ in range(number):
            once(next(clock))
            used.append(process.memory_info().rss)
        return used

    go(before)
    assert len(replay) == replay.capacity
    reserved, held, threads = replay.reserved_bytes(), handles(), set(threading.enumerate())
    # The floor is for short runs, where a few pages more look like a trend.
    limit = max(2**20 * steps / 10_000, 2**19)
    # A leak goes on; what else happens in this process may take memory once.
    for _ in range(3):
        growth = np.polyfit(np.arange(steps), go(steps), 1)[0] * steps
        if growth <= limit:
            break
    assert growth <= limit
    # States are dropped now and then, and their table grows again.
    assert replay.reserved_bytes() <= 2 * reserved
    # Files, processes and threads of earlier tests may go meanwhile.
    assert not handles() - held
    assert not set(threading.enumerate()) - threads


def test_what_a_command_leaves_in_cycles_does_not_pile_up() -> None:
    program = """
import sys
from empo_core.cli import main

class Cycle:
    living = largest = 0

    def __init__(self):
        self.itself = self
        Cycle.living += 1
        Cycle.largest = max(Cycle.largest, Cycle.living)

    def __del__(self):
        Cycle.living -= 1

sys.argv = ["empo", "--help"]
try:
    main()
except SystemExit:
    pass
for _ in range(200_000):
    Cycle()
print(Cycle.largest, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert int(done.stderr.split()[-1]) < 50_000
