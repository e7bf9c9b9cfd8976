"""Size, time and memory of exact solutions of the blocks world with 2 to 5 boxes.

Run ``python tests/benchmarks/bench_blocks.py [BOXES ...]``. Each world is solved in a process of
its own, over 50 steps, with Phase 1 humans; with 5 boxes that takes minutes and 8 GB. Seconds are
processor time (user and system) of all threads, except for the last column.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_benchmarks.blocks.params import BlocksParams
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.world import load_world
from empo_core.runs.environment import peak_memory_bytes
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

BATCH = 2000
"""States per call of the world: about as many as the solver asks for at once."""
CALLS = 10
TARGET = 10.0
"""Millions of transitions per second and core that the world must list."""
MIB = 2**20


def measured(boxes: int) -> dict[str, float]:
    """Figures of one world."""
    world = load_world(BlocksParams(boxes=boxes))
    params = ExactParams.model_validate({"preset": "paper", "keep": "none", "inspector": False})
    build_graph(load_world(BlocksParams(boxes=boxes, size=3)), 2)  # Loads the kernels.
    ranks = Ranks(world.board.cells, boxes)
    drawn = np.random.default_rng(0).integers(ranks.count, size=BATCH)
    states, listed = torch.from_numpy(ranks.unrank(drawn)), []
    for _ in range(CALLS):
        start = time.process_time()
        found = world.transitions(states)
        listed.append(found.num_pairs / (time.process_time() - start) / 1e6)
    start = time.process_time()
    graph = build_graph(world, world.spec.horizon)
    exploring = time.process_time() - start
    counts = graph.num_states, graph.num_transitions
    del graph
    start, clock = time.process_time(), time.perf_counter()
    solve(world, params)
    return {
        "states": counts[0],
        "transitions": counts[1],
        "listed M/s": float(np.median(listed)),
        "graph s": exploring,
        "graph M/s": counts[1] / exploring / 1e6,
        "solved s": time.process_time() - start,
        "solved wall s": time.perf_counter() - clock,
        "peak MiB": peak_memory_bytes() / MIB,
    }


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measured(int(sys.argv[2]))))
        return
    table = Table(title="Blocks on 5 x 5 cells, 50 steps")
    for boxes in map(int, sys.argv[1:] or (2, 3, 4, 5)):
        done = subprocess.run(
            [sys.executable, __file__, "--child", str(boxes)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found: dict[str, float] = json.loads(done.stdout)
        if not table.columns:
            for column in ("boxes", *found, ""):
                table.add_column(column, justify="right")
        shown = [
            f"{x:,.1f}" if "M/s" in name or " s" in name else f"{x:,.0f}"
            for name, x in found.items()
        ]
        verdict = "ok" if found["listed M/s"] >= TARGET else f"listed below {TARGET} M/s"
        table.add_row(str(boxes), *shown, verdict)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
