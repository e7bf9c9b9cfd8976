"""Backward induction per swept transition, in one thread and in two.

Run ``python tests/benchmarks/bench_induction.py [--steps 20 --turns 5]``. A swept transition is a
stored one at one time at which its state is valued. Measured is all that lies between the end of
the first sweep and that of the last one, allocation and checks included: processor time of one
thread, and the clock for two against one, beside two programs that share nothing. In the world,
two humans have 11 goals each, which the sweep pads to 24 columns.

A second table says what the kernels of both phases take by themselves, over all states, and over
200 of them again and again, whose rows of values then stay in the cache.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from bench_graph import control
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Tracker, WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.game import Block, make_scratch
from empo_exact.graph import build_graph
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import Compute, ExactParams
from empo_exact.problem import pose
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_exact.sweep import Workspace, empty_policies, room, sweep_block

WORLD = "asymmetric_freeing_simple"


class SweepClock(Tracker):
    """Notes when sweeps end: on the clock, and in processor time."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, float]] = []

    def progress(self, task: str, done: float, total: float) -> None:
        """Note the time where a sweep ended."""
        if task == "backward induction":
            self._ends.append((time.perf_counter(), time.process_time()))

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds of all sweeps but the first: on the clock, and of the processor."""
        (begin, cpu_begin), (end, cpu_end) = self._ends[0], self._ends[-1]
        return end - begin, cpu_end - cpu_begin


def swept(result: ExactResult) -> int:
    """Transitions of all sweeps but the first."""
    graph, horizon = result.graph, result.horizon or 0
    counts = (min(graph.within(t), graph.num_expanded) for t in range(horizon - 1))
    return sum(int(graph.offsets[count * graph.spec.num_joint_actions]) for count in counts)


def measured(world: WorldModel, workers: int) -> tuple[float, float, ExactResult]:
    """Seconds of the sweeps, on the clock and of the processor, and what they found."""
    params = ExactParams(preset="paper", compute=Compute(workers=workers), keep="none")
    watch = SweepClock()
    result = solve(world, params, tracker=watch)
    return *watch.spent, result


def kernels_table(world: WorldModel, turns: int) -> Table:
    """What the kernels of both phases take, over all states and over a few that stay in the cache.

    The values of the states are random numbers.
    """
    graph = build_graph(world, world.spec.horizon)
    problem = pose(world, graph, ExactParams(preset="paper"), Assumptions())
    space = Workspace(0, make_scratch(problem.game), empty_policies(problem, problem.block))
    later, random = room(problem, graph.num_states), np.random.default_rng(0)
    for array in (later.v_m, later.v_e, later.v_r):
        array[:] = random.uniform(0.1, 1.0, array.shape)
    after, out = (
        Payoffs.of(problem, later._replace(v_r=-later.v_r)),
        room(problem, len(later.v_r)),
    )
    order = np.arange(graph.num_expanded, dtype=np.int32)
    table = Table("states", "phase 1", "phase 2", title="Kernels, ns per transition, medians")
    for count, repeats in ((len(order), 1), (200, len(order) // 200)):
        starts = [*range(0, count, problem.block)] * repeats
        blocks = [Block(order, first, min(first + problem.block, count)) for first in starts]
        spent = []
        for _ in range(turns):
            found = [sweep_block(problem, each, after, out, space, 5)[:2] for each in blocks]
            spent.append(np.sum(found, axis=0))
        each = np.median(spent, axis=0) / (int(graph.bounds[count]) * repeats) * 1e9
        table.add_row(f"{count:,}", *(f"{ns:.1f}" for ns in each))
    return table


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    name = {"name": f"multigrid/{WORLD}", "params": {"max_steps": options.steps}}
    world: WorldModel = build(WorldModelRef.model_validate(name))
    *_, result = measured(world, 2)
    spent, ratios, controls = [], [], []
    for _ in range(options.turns):
        one, cpu, _ = measured(world, 1)
        two, _, _ = measured(world, 2)
        spent.append(cpu)
        ratios.append(one / two)
        controls.append(control())
    count = swept(result)
    columns = ("world", "stored", "swept", "ns", "least ns", "two / one", "control")
    table = Table(*columns, title="Sweeps, ns of a thread per swept transition (aim: 9)")
    table.add_row(
        f"{WORLD}, T={options.steps}",
        f"{result.graph.num_transitions:,}",
        f"{count:,}",
        f"{statistics.median(spent) / count * 1e9:.1f}",
        f"{min(spent) / count * 1e9:.1f}",
        f"{statistics.median(ratios):.2f}",
        f"{statistics.median(controls):.2f}",
    )
    Console(width=120).print(table, kernels_table(world, options.turns))


if __name__ == "__main__":
    main()
