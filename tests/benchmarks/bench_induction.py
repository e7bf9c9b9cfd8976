"""Backward induction per swept transition, in one thread and in two.

Run ``python tests/benchmarks/bench_induction.py [--steps 20 --turns 5]``. A swept transition is a
stored one at one time at which its state is valued. Measured is all that lies between the end of
the first sweep and that of the last one, allocation and checks included: processor time of one
thread, and the clock for two against one, beside two programs that share nothing. In the world,
two humans have 11 goals each, which the sweep pads to 24 columns.

A second table says what the kernels of both phases take by themselves, over all states, and over
200 of them again and again, whose rows of values then stay in the cache. A third one says how many
of a state's joint actions lead to different states: each reads a row of values.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from bench_graph import control
from jaxtyping import Int32
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import Tracker, WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.game import Block, make_scratch
from empo_exact.graph import build_graph
from empo_exact.humans import phase1
from empo_exact.payoffs import Payoffs
from empo_exact.plugin import Compute, ExactParams
from empo_exact.problem import pose
from empo_exact.result import ExactResult
from empo_exact.robots import phase2
from empo_exact.solve import solve
from empo_exact.sweep import Workspace, empty_policies, room

WORLD = "asymmetric_freeing_simple"
SHARED = {WORLD: 20, "asymmetric_freeing": 16, "corridor_control": 20, "free_the_human": None}
"""Worlds whose successors are counted, and their steps."""


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
    humans, theory = problem.humans_at(5), problem.theory_at(5)
    by_v_m, by_v_e = after.read_by(0)
    order = np.arange(graph.num_expanded, dtype=np.int32)
    table = Table("states", "phase 1", "phase 2", title="Kernels, ns per transition, medians")
    few = np.tile(order[:200], len(order) // 200)
    for name, states in ((f"all {len(order):,}", order), ("200 of them, again and again", few)):
        spent = []
        for _ in range(turns):
            seconds = np.zeros(2)
            for first in range(0, len(states), problem.block):
                block = Block(states, first, min(first + problem.block, len(states)))
                begin = time.thread_time()
                phase1(problem.game, humans, block, by_v_m, space.scratch, out, space.policies)
                middle = time.thread_time()
                phase2(
                    problem.game, theory, block, by_v_e, after.v_r, space.scratch, out,
                    space.policies,
                )  # fmt: skip
                seconds += middle - begin, time.thread_time() - middle
            spent.append(seconds)
        each = np.median(spent, axis=0) / np.diff(graph.bounds)[states].sum() * 1e9
        table.add_row(name, *(f"{ns:.1f}" for ns in each))
    return table


def distinct(successors: Int32[np.ndarray, "... action"]) -> float:
    """The share of different states among the successors along the last axis."""
    ordered = np.sort(successors, axis=-1)
    different = 1 + (np.diff(ordered, axis=-1) != 0).sum(-1)
    return float(different.mean() / successors.shape[-1])


def successors_table() -> Table:
    """How many joint actions of a state lead to different states."""
    columns = ("world", "of all", "of the robot's, for a profile of humans")
    table = Table(*columns, title="Different successors, % of joint actions")
    for name, steps in SHARED.items():
        params = {} if steps is None else {"max_steps": steps}
        ref = WorldModelRef.model_validate({"name": f"multigrid/{name}", "params": params})
        world: WorldModel = build(ref)
        graph = build_graph(world, world.spec.horizon)
        game = pose(world, graph, ExactParams(preset="paper"), Assumptions()).game
        first = graph.bounds[np.flatnonzero(game.is_plain)]
        joint = game.profile_joint[:, None] + game.robot_joint
        successors = graph.successor[first[:, None, None] + joint]
        shares = distinct(successors.reshape(len(first), -1)), distinct(successors)
        table.add_row(name, *(f"{100 * share:.0f}" for share in shares))
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
    Console(width=120).print(table, kernels_table(world, options.turns), successors_table())


if __name__ == "__main__":
    main()
