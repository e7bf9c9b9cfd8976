"""Stepping speed of vector environments, against gymnasium's for Python environments.

Run ``python tests/benchmarks/bench_vectors.py``. CartPole, and an environment that does nothing,
64 copies each, under random actions. Ours step in this process or in two workers, one of two
blocks at a time; gymnasium's step all copies in this process or each in one of its own. All take
turns within one run, half a second each, and the best turn of each counts, for others
use the machine too. CPU is the processor time of all processes together per step, at best.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import gymnasium.vector
import numpy as np
import psutil
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from rich.console import Console
from rich.table import Table

from empo_core.protocols.environments import EnvironmentContext, VectorEnv, VectorLayout
from empo_environments.components import GymnasiumEnvironment
from empo_environments.gymnasium_env import GymnasiumEnv
from empo_environments.params import GymnasiumParams
from empo_environments.process import ProcessVectorEnv
from empo_environments.serial import SerialVectorEnv

ENVS = 64
WARM_UP_S, TURN_S = 0.3, 0.5
"""Processes that were asleep share one processor at first, until the system spreads them."""
CASE_S = 45.0
"""All contenders of a case share this time."""


class Trivial(gymnasium.Env[np.ndarray, int]):
    """Shows the same four numbers, and ends after 100 steps."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.steps = 0
        self.seen = np.zeros(4, np.float32)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin again."""
        self.steps = 0
        return self.seen, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Count."""
        self.steps += 1
        return self.seen, 1.0, self.steps == 100, False, {}


def cartpole() -> gymnasium.Env[Any, Any]:
    """CartPole without the checks of its first step."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


@dataclass
class Contender:
    """Something that steps all environments once per call, and how fast it was."""

    step: Callable[[], object]
    steps_per_s: float = 0.0
    cpu_s_per_step: list[float] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)

    def turn(self) -> None:
        """Step for a while."""
        processes = [psutil.Process(pid) for pid in self.pids]
        start = time.perf_counter()
        while time.perf_counter() - start < WARM_UP_S:
            self.step()
        steps, cpu, start = 0, -_cpu_s(processes), time.perf_counter()
        while time.perf_counter() - start < TURN_S:
            self.step()
            steps += ENVS
        took = time.perf_counter() - start
        self.steps_per_s = max(self.steps_per_s, steps / took)
        self.cpu_s_per_step.append((cpu + _cpu_s(processes)) / steps)

    @property
    def cpu_us(self) -> float:
        """Microseconds of processor time per step, the median of all turns."""
        return 1e6 * statistics.median(self.cpu_s_per_step)


def _cpu_s(processes: list[psutil.Process]) -> float:
    others = sum(sum(process.cpu_times()[:2]) for process in processes)
    return time.process_time() + others


def ours(vector: VectorEnv) -> Contender:
    """Receive and answer each block once per call."""
    vector.start(0)
    slots, blocks = vector.spec.block_agents, vector.spec.num_blocks
    actions = np.random.default_rng(0).integers(0, 2, (997, slots, 1))
    turns = iter(range(2**62))

    def step() -> None:
        for _ in range(blocks):
            vector.send(vector.recv().block, actions[next(turns) % 997])

    return Contender(step)


def theirs(vector: gymnasium.vector.VectorEnv[Any, Any, Any]) -> Contender:
    """Step all environments once per call."""
    vector.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 2, (997, ENVS))
    turns = iter(range(2**62))
    return Contender(lambda: vector.step(actions[next(turns) % 997]))


def measured(
    make: Callable[[], gymnasium.Env[Any, Any]], own_class: str | None
) -> dict[str, Contender]:
    """All contenders on copies of one environment, which has a vector class under an id or none."""
    adapted = [lambda: GymnasiumEnv(make())] * ENVS
    with ExitStack() as stack:

        def started(build: Callable[[], Any], contend: Callable[[Any], Contender]) -> Contender:
            before = {child.pid for child in psutil.Process().children(recursive=True)}
            vector = build()
            stack.callback(vector.close)
            contender = contend(vector)
            after = {child.pid for child in psutil.Process().children(recursive=True)}
            contender.pids = sorted(after - before)
            return contender

        contenders = {
            "gymnasium sync": started(lambda: SyncVectorEnv([make] * ENVS), theirs),
            "gymnasium async": started(lambda: AsyncVectorEnv([make] * ENVS), theirs),
            "serial": started(lambda: SerialVectorEnv(adapted, blocks=2, order="rotation"), ours),
            "process, 1 block": started(
                lambda: ProcessVectorEnv(
                    adapted, workers=2, blocks=1, order="rotation", on_crash="stop"
                ),
                ours,
            ),
            "process, 2 blocks": started(
                lambda: ProcessVectorEnv(
                    adapted, workers=2, blocks=2, order="rotation", on_crash="stop"
                ),
                ours,
            ),
        }
        if own_class is not None:
            contenders["vector class"] = started(
                lambda: gymnasium.make_vec(own_class, ENVS), theirs
            )
            component = GymnasiumEnvironment(GymnasiumParams(id=own_class), EnvironmentContext())
            contenders["component gymnasium"] = started(
                lambda: component.vector(ENVS, VectorLayout()), ours
            )
        begin = time.perf_counter()
        while time.perf_counter() - begin < CASE_S:
            for contender in contenders.values():
                contender.turn()
    return contenders


def main() -> None:
    """Print one table."""
    table = Table("environment", "vector", title=f"{ENVS} environments, 2 workers")
    for heading in ("k steps/s", "x gymnasium's best", "CPU us/step", "sync's CPU / this"):
        table.add_column(heading, justify="right")
    cases: dict[str, tuple[Callable[[], gymnasium.Env[Any, Any]], str | None]] = {
        "CartPole-v1": (cartpole, "CartPole-v1"),
        "trivial": (Trivial, None),
    }
    for name, (make, own_class) in cases.items():
        contenders = measured(make, own_class)
        best = max(contenders[key].steps_per_s for key in ("gymnasium sync", "gymnasium async"))
        for key, one in contenders.items():
            table.add_row(
                name, key, f"{one.steps_per_s / 1e3:,.1f}", f"{one.steps_per_s / best:.2f}",
                f"{one.cpu_us:.2f}", f"{contenders['gymnasium sync'].cpu_us / one.cpu_us:.2f}",
            )  # fmt: skip
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
