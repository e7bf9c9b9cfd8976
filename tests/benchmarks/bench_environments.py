"""Stepping speed of a single multigrid environment, as PettingZoo has it.

Run ``python tests/benchmarks/bench_environments.py``. Agents act at random; an agent-step is one
agent acting once. Contenders take turns, and what counts is the median processor time of all
turns:

- *listed*: all successors of a checked row by ``world.transitions``, and one picked: no masks,
  rewards or dictionaries;
- *world.step*: one drawn by the call that steps many copies, with one copy;
- *environment*: ``MultigridParallelEnv``, with all that it reports;
- *multigrid*: an empty room of the package ``multigrid`` with as many agents, where installed.
"""

from __future__ import annotations

import importlib.util
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from empo_multigrid.gym.environments import MultigridParallelEnv
from empo_worlds.queries import sample_successors

WORLDS = ("trivial", "two_robots", "small_trolley", "household", "warehouse")
TURNS, STEPS = 9, 1000
TARGET = 120
"""Thousands of agent-steps per second that an environment must reach."""


def contenders(name: str) -> tuple[int, dict[str, Callable[[], object]]]:
    """The number of agents, and functions that take one step."""
    env = MultigridParallelEnv(name)
    world, rng, generator = env.world, random.Random(0), torch.Generator().manual_seed(0)
    agents, options = len(env.possible_agents), len(world.spec.agents[0].actions)
    row = world.initial_state()[None]
    actions = torch.randint(options, (997, 1, agents), generator=generator)
    turns = iter(range(2**62))
    env.reset(seed=0)

    def step() -> None:
        if not env.agents:
            env.reset()
        env.step({name: rng.randrange(options) for name in env.agents})

    found: dict[str, Callable[[], object]] = {
        "listed": lambda: sample_successors(
            world.transitions(row, actions[next(turns) % 997]), row, generator
        ),
        "world.step": lambda: world.step(row, actions[next(turns) % 997], generator),
        "environment": step,
    }
    if importlib.util.find_spec("multigrid") is not None:
        found["multigrid"] = _peer(agents, rng)
    return agents, found


def _peer(agents: int, rng: random.Random) -> Callable[[], object]:
    from multigrid.envs import EmptyEnv

    peer: Any = EmptyEnv(size=8, agents=agents, max_steps=100)
    peer.reset(seed=0)

    def step() -> None:
        if peer.is_done():
            peer.reset()
        peer.step({agent: rng.randrange(7) for agent in range(agents)})

    return step


def speeds(agents: int, steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Thousands of agent-steps per second of processor time."""
    took: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(TURNS + 1):
        for name, step in steps.items():
            began = time.process_time()
            for _ in range(STEPS):
                step()
            if turn:  # The first round warms up.
                took[name].append(time.process_time() - began)
    return {name: agents * STEPS / statistics.median(times) / 1e3 for name, times in took.items()}


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    table = Table(title="Thousands of agent-steps per second, one environment")
    for column in ("world", "agents", "contender", "k/s", "times listed", ""):
        text = column in ("world", "contender", "")
        table.add_column(column, justify="left" if text else "right")
    for name in WORLDS:
        agents, steps = contenders(name)
        found = speeds(agents, steps)
        for contender, speed in found.items():
            verdict = "ok" if speed >= TARGET else f"below {TARGET}"
            table.add_row(
                name, str(agents), contender, f"{speed:.1f}", f"{speed / found['listed']:.1f}",
                verdict if contender == "environment" else "",
            )  # fmt: skip
        table.add_section()
    if "multigrid" not in found:
        print("multigrid is left out: it is not installed (pip install multigrid)")
    Console().print(table)


if __name__ == "__main__":
    main()
