"""Exact solutions of a blocks world with and without reductions, turn by turn in one process.

Run ``python tests/benchmarks/bench_reductions.py [--boxes 4] [--steps 50] [--rounds 3]``. Shown are
medians, and the median of each round's ratio to the solution of all states. Processor time is that
of all threads; all solves have Phase 1 humans and keep nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from empo_benchmarks.blocks.params import BlocksParams
from empo_benchmarks.blocks.world import BlocksWorld, load_world
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

CONTENDERS = ([], ["symmetry"], ["lump"], ["symmetry", "lump"])
TARGET = 0.4
"""Wall-clock time with symmetry, at most, in those without."""


def measured(world: BlocksWorld, reduce: list[str]) -> tuple[float, float, str, float]:
    """Wall-clock and processor seconds of a solve, its reductions, and V_r at the start."""
    params = ExactParams.model_validate(
        {"preset": "paper", "keep": "none", "inspector": False, "reduce": reduce}
    )
    wall, processor = time.perf_counter(), time.process_time()
    result = solve(world, params)
    spent = time.perf_counter() - wall, time.process_time() - processor
    numbers = [f"{step.after:,}" for step in result.reductions]
    return *spent, " → ".join(numbers) or f"{result.sizes.states:,}", result.at(0).V_r


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    small = load_world(BlocksParams(boxes=options.boxes, size=3, max_steps=2))
    for reduce in CONTENDERS:  # Loads the kernels.
        measured(small, reduce)
    world = load_world(BlocksParams(boxes=options.boxes, max_steps=options.steps))
    rounds = [[measured(world, reduce) for reduce in CONTENDERS] for _ in range(options.rounds)]
    title = f"{options.boxes} boxes on 5 x 5 cells, {options.steps} steps, {options.rounds} rounds"
    table = Table(title=title)
    for column in ("reduce", "states", "wall s", "processor s", "wall ratio", "cpu ratio", "V_r"):
        table.add_column(column, justify="right")
    for i, reduce in enumerate(CONTENDERS):
        wall, processor = (statistics.median(r[i][k] for r in rounds) for k in range(2))
        ratios = [statistics.median(r[i][k] / r[0][k] for r in rounds) for k in range(2)]
        _, _, states, v_r = rounds[0][i]
        shown = (f"{wall:.2f}", f"{processor:.2f}", *(f"{ratio:.3f}" for ratio in ratios))
        table.add_row(", ".join(reduce) or "nothing", states, *shown, f"{v_r:.12f}")
        if reduce == ["symmetry"]:
            verdict = "ok" if ratios[0] <= TARGET else f"above {TARGET}"
    console = Console(width=120)
    console.print(table)
    console.print(f"wall-clock time with symmetry: {verdict}")


if __name__ == "__main__":
    main()
