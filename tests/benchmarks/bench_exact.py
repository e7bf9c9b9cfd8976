"""Speed of the exact solver, as ratios measured in one run.

One-core rows measure processor time, which other programs on the machine disturb less.
``python tests/benchmarks/bench_exact.py`` prints the tables; ``--plot`` also measures how time
and memory grow from 10^3 to 10^7 transitions and draws ``docs/explanation/scaling.png``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import empo_multigrid
from empo_exact.graph import StateGraph, build_graph
from empo_exact.plugin import Compute, ExactParams
from empo_exact.solve import solve
from empo_multigrid.layout import AGENT_WORDS
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "plugins" / "empo_multigrid" / "tests"))

import reference_transition  # noqa: E402

WORLDS = Path(empo_multigrid.__file__).parent / "worlds"
THEORY = {"beta_h": 10.0, "gamma_h": 0.95, "gamma_r": 0.99, "beta_r": 10.0, "zeta": 2.0, "eta": 1.1}


def explored_plainly(world: MultigridWorld, steps: int) -> int:
    """Transitions of the graph by the pure-Python rules: nothing compiled, nothing batched."""
    layout, layer, transitions = world.layout, {tuple(world.initial_state().tolist())}, 0
    known = set(layer)
    for _ in range(steps):
        following = set()
        for state in layer:
            cells = [state[AGENT_WORDS * i] for i in range(layout.num_agents)]
            available = [
                [a for a in range(len(layout.actions)) if layout.action_mask[i, cell, a]]
                for i, cell in enumerate(cells)
            ]
            for profile in itertools.product(*available):
                outcomes = reference_transition.transition(layout, state, profile)
                transitions += len(outcomes)
                following |= {successor for _, successor in outcomes}
        layer = following - known
        known |= layer
    return transitions


def world_named(name: str, max_steps: int) -> MultigridWorld:
    """A shipped world with another horizon."""
    return load_world(MultigridParams(file=WORLDS / f"{name}.yaml", max_steps=max_steps))


def seconds(task: Callable[[], Any], repeats: int = 7) -> float:
    """Median processor time, after one call that pays for compilation."""
    task()
    return statistics.median(once(task)[0] for _ in range(repeats))


def once(task: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, and what it returned."""
    start = time.process_time()
    result = task()
    return time.process_time() - start, result


def graph_row(name: str, steps: int) -> tuple[str, ...]:
    """Graph construction against the pure-Python transition, on the same graph."""
    world = world_named(name, steps)
    graph = build_graph(world, steps, workers=1)
    fast = seconds(lambda: build_graph(world, steps, workers=1))
    slow, transitions = once(lambda: explored_plainly(world, steps))
    per_second, plain = graph.num_transitions / fast, transitions / slow
    return (
        f"{name}, T={steps}",
        f"{graph.num_states:,}",
        f"{graph.num_transitions:,}",
        f"{per_second / 1e6:.2f} M/s",
        f"{plain / 1e3:.1f} k/s",
        f"{per_second / plain:,.0f}x",
        f"{graph.nbytes / graph.num_transitions:.1f}",
    )


def graph_table() -> Table:
    """Graph construction: transitions per second on one core."""
    table = Table(title="Graph construction, one core (aim: 2 M/s, 300x, 16 bytes)")
    for column in ("world", "states", "transitions", "ours", "pure Python", "ratio", "bytes each"):
        table.add_column(column, justify="left" if column == "world" else "right")
    table.add_row(*graph_row("asymmetric_freeing_simple", 6))
    table.add_row(*graph_row("asymmetric_freeing_simple", 12))
    table.add_row(*graph_row("asymmetric_freeing", 10))
    table.add_row(*graph_row("corridor_bush", 4))
    return table


def solve_row(name: str, steps: int) -> tuple[str, ...]:
    """A full solve against the reference in plain Python."""
    world = world_named(name, steps)
    params = ExactParams(theory=CompleteTheory(**THEORY), compute=Compute(workers=1), keep="none")
    fast, start = seconds(lambda: solve(world, params)), tuple(world.initial_state().tolist())
    slow, v_r = once(lambda: Reference(world, params.theory).at(start, steps).v_r)
    result = solve(world, params)
    mine = result.at(0).V_r
    if not np.isclose(mine, v_r, rtol=1e-10):
        raise SystemExit(f"{name}: {mine} is not {v_r}")
    goals = len(world.spec.goals_of(world.spec.humans[0]))
    return (
        f"{name}, T={steps}",
        f"{result.unrolled.states:,}",
        str(goals),
        f"{fast * 1e3:.1f} ms",
        f"{slow:.2f} s",
        f"{slow / fast:,.0f}x",
    )


def solve_table() -> Table:
    """Full solves, graph included."""
    table = Table(title="Full solve, one core (aim: 1000x, 20 ms for 1,384 unrolled states)")
    for column in ("world", "unrolled states", "goals", "ours", "reference", "ratio"):
        table.add_column(column, justify="left" if column == "world" else "right")
    table.add_row(*solve_row("asymmetric_freeing_simple", 6))
    table.add_row(*solve_row("simple_circle", 8))
    return table


def streaming_seconds(num_bytes: int) -> float:
    """Time to copy this many bytes once."""
    source = np.ones(num_bytes // 8, dtype=np.int64)
    target = np.empty_like(source)
    return seconds(lambda: np.copyto(target, source))


def bytes_per_step(graph: StateGraph, steps: int) -> tuple[int, int]:
    """Bytes of a sweep's arrays, and of the successor values it looks up, averaged over time.

    Per state these are V_m and V_e (read for t + 1, written for t) and the human policy per
    goal, Q_r and pi_r per joint robot action, and V_r twice, all in double precision. Only
    the states within t steps of the start, and their transitions, count at time t.
    """
    spec = graph.spec
    goals, actions = len(spec.goals), max(spec.num_actions)
    robots = int(np.prod([spec.num_actions[r] for r in spec.robots]))
    per_state = 8 * (4 * goals + goals * actions + 2 * robots + 2)
    states = [min(graph.within(t), graph.num_expanded) for t in range(steps)]
    transitions = [int(graph.offsets[count * spec.num_joint_actions]) for count in states]
    per_transition = graph.nbytes / graph.num_transitions
    arrays = sum(states) * per_state + sum(transitions) * per_transition
    # Every transition looks up V_m and V_e of each goal, and V_r.
    looked_up = sum(transitions) * 8 * (2 * goals + 1)
    return int(arrays / steps), int((arrays + looked_up) / steps)


def sweep_row(name: str, steps: int) -> tuple[str, ...]:
    """One sweep (both phases, one time step) against streaming its arrays once."""
    world = world_named(name, steps)
    params = ExactParams(theory=CompleteTheory(**THEORY), compute=Compute(workers=1), keep="none")
    arrays, traffic = bytes_per_step(solve(world, params).graph, steps)
    elapsed, result = once(lambda: solve(world, params))
    share = (result.seconds.phase1 + result.seconds.phase2) / result.seconds.total
    sweep, copy = elapsed * share / steps, streaming_seconds(arrays)
    return (
        f"{name}, T={steps}",
        f"{result.graph.num_transitions:,}",
        str(len(world.spec.goals)),
        f"{arrays / 1e6:.1f}",
        f"{sweep * 1e3:.2f} ms",
        f"{copy * 1e3:.2f} ms",
        f"{sweep / copy:.1f}x",
        f"{traffic / 1e6:.1f}",
        f"{sweep / streaming_seconds(traffic):.1f}x",
    )


def sweep_table() -> Table:
    """Sweeps and copies, both averaged over all time steps: early ones reach fewer states."""
    table = Table(title="One sweep against streaming its arrays once, one core (aim: 4x)")
    columns = ("world", "transitions", "goals", "MB", "sweep", "copy", "ratio")
    for column in (*columns, "MB with look-ups", "ratio to that"):
        table.add_column(column, justify="left" if column == "world" else "right")
    table.add_row(*sweep_row("corridor_control", 20))
    table.add_row(*sweep_row("asymmetric_freeing_simple", 20))
    return table


def measured_alone(name: str, steps: int) -> dict[str, float]:
    """Sizes, time and peak memory of one solve in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(steps)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def resident(field: str) -> float:
    """Megabytes of memory of this process, now (VmRSS) or at its peak (VmHWM)."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def report_one(name: str, steps: int) -> None:
    """Subprocess body of :func:`measured_alone`; a first, small solve loads the compiled code."""
    solve(world_named(name, 2), ExactParams(theory=CompleteTheory(**THEORY), keep="none"))
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Lets the peak start anew (Linux).
    world = world_named(name, steps)
    result = solve(world, ExactParams(theory=CompleteTheory(**THEORY), keep="none"))
    after = resident("VmHWM")
    found = {
        "states": result.graph.num_states,
        "pairs": result.graph.num_expanded * world.spec.num_joint_actions,
        "transitions": result.graph.num_transitions,
        "seconds": result.seconds.total,
        "graph_seconds": result.seconds.graph,
        "megabytes": after - before,
        "V_r": float(result.at(world.initial_state()).V_r),
    }
    sys.stdout.write(json.dumps(found))


def large_table() -> Table:
    """A world with at least five million pairs of physical state and joint action."""
    table = Table(title="A large world (aim: 5 M states x joint actions)")
    for column in ("world", "states", "pairs", "transitions", "graph", "total", "memory", "V_r"):
        table.add_column(column, justify="left" if column == "world" else "right")
    for name, steps in (("asymmetric_freeing", 20),):
        found = measured_alone(name, steps)
        table.add_row(
            f"{name}, T={steps}",
            f"{found['states']:,}",
            f"{found['pairs'] / 1e6:.1f} M",
            f"{found['transitions'] / 1e6:.1f} M",
            f"{found['graph_seconds']:.1f} s",
            f"{found['seconds']:.1f} s",
            f"{found['megabytes']:,.0f} MB",
            f"{found['V_r']:.6g}",
        )
    return table


def growth(name: str, horizons: tuple[int, ...]) -> list[dict[str, float]]:
    """The same world with longer and longer horizons, each in a process of its own."""
    return [{"steps": steps, **measured_alone(name, steps)} for steps in horizons]


def growth_table(rows: list[dict[str, float]]) -> Table:
    """Table of time and memory by number of transitions."""
    table = Table(title="Growth with the horizon")
    for column in ("T", "states", "transitions", "total", "ns per transition and step", "memory"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            str(row["steps"]),
            f"{row['states']:,}",
            f"{row['transitions']:,}",
            f"{row['seconds']:.4f} s",
            f"{row['seconds'] / row['steps'] / row['transitions'] * 1e9:.1f}",
            f"{row['megabytes']:,.0f} MB",
        )
    return table


def plot(rows: list[dict[str, float]], name: str, file: Path) -> None:
    """Time and memory over transitions, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    transitions = [row["transitions"] for row in rows]
    left.loglog(transitions, [row["seconds"] for row in rows], "o-", label="graph and sweeps")
    left.loglog(transitions, [row["graph_seconds"] for row in rows], "s--", label="graph alone")
    left.set(xlabel="stored transitions", ylabel="seconds", title="Time of one solve")
    left.legend()
    memory = [max(row["megabytes"], 0.1) for row in rows]
    right.loglog(transitions, memory, "o-", label="growth of peak memory")
    least = [16 * number / 2**20 for number in transitions]
    right.loglog(transitions, least, ":", label="16 bytes per transition")
    right.set(xlabel="stored transitions", ylabel="MB", title="Memory of one solve")
    right.legend()
    figure.suptitle(f"{name}, horizons {rows[0]['steps']} to {rows[-1]['steps']}")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", action="store_true", help="measure growth and draw it")
    parser.add_argument("--one", nargs=2, metavar=("WORLD", "T"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        report_one(arguments.one[0], int(arguments.one[1]))
        return
    console = Console(width=120)
    for table in (graph_table, solve_table, sweep_table, large_table):
        console.print(table())
    if arguments.plot:
        name, horizons = "asymmetric_freeing", (2, 3, 4, 6, 8, 10, 12, 16, 20)
        rows = growth(name, horizons)
        console.print(growth_table(rows))
        plot(rows, name, ROOT / "docs" / "explanation" / "scaling.png")


if __name__ == "__main__":
    main()
