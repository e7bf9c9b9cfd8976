"""Stepping speed of copies of a multigrid world, with and without observations.

Run ``python tests/benchmarks/bench_worlds.py``. 4,096 copies, in which all agents act at random;
an agent-step is one agent of one copy acting once. The contenders take turns:

- *environments*: a loop over ``MultigridParallelEnv``, one per copy (64 of them);
- *reference*: the reference of the tests, all successors in plain Python (64 states);
- *listed*: one successor drawn from all that ``world.transitions`` lists;
- *world.step*: one call of the world, in one thread, and in two with half of the copies each;
- *copies*: ``world.step``, and everything a learner needs but observations: what others do, what
  is available, rewards, ends and new episodes (``empo_world_environments.copies``);
- *vector*: the same with observations, as a learner receives and answers them;
- *plain vector*: the same without the kernel that changes observations where states differ;
- *Gymnasium*, *PettingZoo*: the vector as ``gymnasium.make_vec`` makes it, and with arrays per
  agent; robots are paid for humans' goals.

What counts is processor time, except for two threads: they are timed by the clock, and need two
processors that have nothing else to do.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_learning.allocator import keep_freed_memory
from empo_multigrid.gym.environments import MultigridParallelEnv
from empo_multigrid.world import MultigridWorld
from empo_world_environments.copies import Stage, WorldCopies
from empo_world_environments.gym import WorldGymnasiumVector, WorldParallelVector
from empo_world_environments.observation import WorldObservation
from empo_world_environments.vector import WorldVectorEnv
from empo_worlds.queries import sample_successors

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins" / "empo_multigrid" / "tests"))

import reference_transition

WORLDS = ("trivial", "two_robots", "small_trolley", "household", "warehouse")
COPIES = 4096
FEW = 64
ROUNDS = 7
CALLS = 5
TARGET = 2.0
"""Millions of agent-steps per second that stepping must reach."""
PUBLIC_TARGET = 1.0
"""The same of interfaces of other libraries."""
TARGETS = {
    **dict.fromkeys(["world.step", "world.step, two threads", "copies"], TARGET),
    **dict.fromkeys(["Gymnasium", "PettingZoo"], PUBLIC_TARGET),
}


class Contest:
    """One world, and everybody who steps it."""

    def __init__(self, name: str) -> None:
        self.world: MultigridWorld = build(WorldModelRef.model_validate(f"multigrid/{name}"))
        spec = self.world.spec
        self.agents = len(spec.agents)
        self._generator = torch.Generator().manual_seed(0)
        self._options = spec.num_actions[0]
        self._states = self.world.initial_state().repeat(COPIES, 1)
        for _ in range(5):
            self._states = self.world.step(self._states, self._actions(COPIES), self._generator)
        stage = Stage(self.world, WorldObservation(spec, "robots"), None, _reward)
        self._copies = WorldCopies(stage, COPIES, self._generator, cut=True)
        self._vector = WorldVectorEnv(self.world, copies=COPIES, reward=_reward, desync=True)
        self._vector.start(0)
        self._plain = WorldVectorEnv(self.world, copies=COPIES, reward=_reward, desync=True)
        self._plain._featurizer = None
        self._plain.start(0)
        self._gymnasium = WorldGymnasiumVector(self.world, COPIES, reward="goal")
        self._gymnasium.reset(seed=0)
        self._pettingzoo = WorldParallelVector(self.world, COPIES, reward="goal")
        self._pettingzoo.reset(seed=0)
        self._envs = [MultigridParallelEnv(self.world) for _ in range(FEW)]
        for env in self._envs:
            env.reset(seed=0)
        self._random = random.Random(0)
        self._pool = ThreadPoolExecutor(2)

    def contenders(self) -> dict[str, tuple[Callable[[], None], int, Callable[[], float]]]:
        """Function to time, number of copies that it steps and clock to use, by name."""
        cpu, wall = time.process_time, time.perf_counter
        return {
            "environments": (self._step_environments, FEW, cpu),
            "reference": (self._step_reference, FEW, cpu),
            "listed": (self._step_listed, COPIES, cpu),
            "world.step": (self._step_world, COPIES, cpu),
            "world.step, two threads": (self._step_threads, COPIES, wall),
            "copies": (self._step_copies, COPIES, cpu),
            "vector": (partial(self._step_vector, self._vector), COPIES, cpu),
            "plain vector": (partial(self._step_vector, self._plain), COPIES, cpu),
            "Gymnasium": (self._step_gymnasium, COPIES, cpu),
            "PettingZoo": (self._step_pettingzoo, COPIES, cpu),
        }

    def _actions(self, copies: int) -> Tensor:
        return torch.randint(
            self._options, (copies, self.agents), generator=self._generator, dtype=torch.int64
        )

    def _robot_options(self) -> Tensor:
        return self._actions(COPIES)[:, : len(self.world.spec.robots)].contiguous()

    def _step_environments(self) -> None:
        for env in self._envs:
            if not env.agents:
                env.reset()
            env.step({name: self._random.randrange(self._options) for name in env.agents})

    def _step_reference(self) -> None:
        actions = self._actions(FEW).tolist()
        for row, chosen in zip(self._states[:FEW].tolist(), actions, strict=True):
            found = reference_transition.transition(self.world.layout, row, chosen)
            self._random.choices([s for _, s in found], [p for p, _ in found])

    def _step_listed(self) -> None:
        successors = self.world.transitions(self._states, self._actions(COPIES))
        sample_successors(successors, self._states, self._generator)

    def _step_world(self) -> None:
        self.world.step(self._states, self._actions(COPIES), self._generator)

    def _step_threads(self) -> None:
        actions, half = self._actions(COPIES), COPIES // 2
        generators = [torch.Generator().manual_seed(i) for i in range(2)]
        parts = [slice(0, half), slice(half, COPIES)]
        futures = [
            self._pool.submit(self.world.step, self._states[part], actions[part], generator)
            for part, generator in zip(parts, generators, strict=True)
        ]
        for future in futures:
            future.result()

    def _step_copies(self) -> None:
        self._copies.step(self._robot_options())

    def _step_gymnasium(self) -> None:
        options = self._robot_options().numpy()
        self._gymnasium.step(options if options.shape[1] > 1 else options[:, 0])

    def _step_pettingzoo(self) -> None:
        options = self._robot_options().numpy()
        agents = self._pettingzoo.agents
        self._pettingzoo.step(dict(zip(agents, options.T, strict=True)))

    def _step_vector(self, vector: WorldVectorEnv) -> None:
        vector.recv()
        vector.send(0, self._robot_options().view(-1, 1).numpy().astype(np.int64))


def _reward(states: Tensor, steps_left: Tensor) -> Tensor:
    return -1.0 * steps_left


def speeds(contest: Contest) -> dict[str, float]:
    """Millions of agent-steps per second of each contender, by the median of its turns."""
    took: dict[str, list[float]] = {name: [] for name in contest.contenders()}
    for turn in range(ROUNDS + 1):
        for name, (call, copies, clock) in contest.contenders().items():
            for _ in range(CALLS):
                start = clock()
                call()
                elapsed = clock() - start
                if turn:  # The first round warms up.
                    took[name].append(elapsed / (copies * contest.agents))
    return {name: 1e-6 / statistics.median(times) for name, times in took.items()}


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    keep_freed_memory()
    table = Table(title=f"Millions of agent-steps per second, {COPIES:,} copies")
    for column in ("world", "agents", "contender", "M/s", "times environments", ""):
        table.add_column(
            column, justify="left" if column in {"world", "contender", ""} else "right"
        )
    for name in WORLDS:
        contest = Contest(name)
        found = speeds(contest)
        for contender, speed in found.items():
            target = TARGETS.get(contender)
            verdict = "" if target is None else "ok" if speed >= target else f"below {target}"
            ratio = speed / found["environments"]
            cells = (name, str(contest.agents), contender, f"{speed:.3f}", f"{ratio:,.0f}", verdict)
            table.add_row(*cells)
        table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
