"""Processor time per swept transition against the number of goals.

Run ``python tests/benchmarks/bench_goals.py``. The board with two boxes of ``blocks_in_python.py``
(7,500 states, 337,500 transitions, 50 steps), whose 25 cells are shared out among 1 to 25 goals of
its human, and a multigrid world. A swept transition is one stored transition at one time at which
its state can occur; "swept" is their share of all stored transitions at all times. The contenders
take turns, five of each, in one thread; medians are shown, without the time of the graph.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from blocks_in_python import compiled_blocks
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.graph import build_graph
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_worlds.compiled import CompiledWorld

TURNS = 5
GOALS = (1, 2, 4, 8, 16, 25)
GRID = {"name": "multigrid/asymmetric_freeing_simple", "params": {"max_steps": 12}}


def main() -> None:
    """Measure and show."""
    model = compiled_blocks().model
    worlds: dict[str, WorldModel] = {
        f"blocks, {number} goals": CompiledWorld(replace(model, goals={0: shared(number)}))
        for number in GOALS
    }
    worlds["asymmetric_freeing_simple, T=12"] = build(WorldModelRef.model_validate(GRID))
    params = ExactParams(preset="paper", compute=Compute(workers=1))
    times: dict[str, list[float]] = {name: [] for name in worlds}
    swept: dict[str, int] = {}
    stored: dict[str, int] = {}
    for turn in range(TURNS + 1):
        for name, world in worlds.items():
            start = time.process_time()
            result = solve(world, params)
            middle = time.process_time()
            build_graph(world, result.horizon)
            if turn:  # The first one compiles.
                times[name].append(2 * middle - start - time.process_time())
            swept[name] = swept_transitions(result)
            stored[name] = result.graph.num_transitions * (result.horizon or 1)
    table = Table("world", "goals", "swept", "ns per swept transition", "ns per goal of them")
    for name, spent in times.items():
        ns = 1e9 * statistics.median(spent) / swept[name]
        goals = len(worlds[name].spec.goals)
        share = f"{swept[name] / stored[name]:.0%}"
        table.add_row(name, str(goals), share, f"{ns:.1f}", f"{ns / goals:.2f}")
    Console(width=100).print(table)


def shared(number: int) -> list[tuple[str, Callable[[np.ndarray], np.ndarray]]]:
    """So many goals, each of which has some of the cells."""
    return [(f"goal {goal}", partial(is_shared, number, goal)) for goal in range(number)]


def is_shared(number: int, goal: int, states: np.ndarray) -> np.ndarray:
    """True where the human is in a cell of a goal."""
    has: np.ndarray = states[:, 0] % number == goal
    return has


def swept_transitions(result: ExactResult) -> int:
    """Transitions of the states that can occur, summed over all times."""
    size = np.zeros(result.graph.num_states, dtype=np.int64)
    size[: result.graph.num_expanded] = np.diff(result.graph.bounds)
    return sum(int(size[result.reachable(step)].sum()) for step in range(result.horizon or 0))


if __name__ == "__main__":
    main()
