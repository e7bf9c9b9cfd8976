"""Exact solving in parts: halos, processes against threads, and files against RAM.

Run ``python tests/benchmarks/bench_parts.py [halo] [processes] [spill]``; ``spill --boxes 6
--ram-gb 1`` solves the blocks world with six boxes within 1 GiB of RAM, which takes an hour and
13 GB of disk. Each solve is a process of its own; contenders take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table

from empo_core.config import WorldModelRef
from empo_core.experiment import build
from empo_core.protocols import WorldModel
from empo_exact.graph import build_graph
from empo_exact.parts.forecast import halo_share
from empo_exact.plugin import ExactParams
from empo_exact.solver import solve

PARTS = (2, 8, 64)
BOUND = 0.3
"""Halo rows per state that 8 parts of ``asymmetric_freeing`` may have."""
TURNS = 3
GIB = 2**30


def world(name: str, **params: Any) -> WorldModel:
    return build(WorldModelRef.model_validate({"name": name, "params": params}))


def halos(console: Console) -> None:
    """Halo rows per state, by number of parts."""
    table = Table("world", "states", "transitions", *(f"{count} parts" for count in PARTS))
    for name, steps in (("asymmetric_freeing", 16), ("corridor_control", 14)):
        found = world(f"multigrid/{name}", max_steps=steps)
        graph = build_graph(found, steps)
        shares = [halo_share(found, graph, count) for count in PARTS]
        table.add_row(
            f"{name}, T={steps}",
            f"{graph.num_states:,}",
            f"{graph.num_transitions:,}",
            *(f"{share:.3f}" for share in shares),
        )
    console.print("Halo: values of other parts per state and sweep", table)


def solved(options: dict[str, Any]) -> dict[str, float]:
    """One solve of the blocks world in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(options)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    compute = options["compute"]
    params = ExactParams.model_validate(
        {"preset": "paper", "keep": "none", "inspector": False, "compute": compute}
    )
    blocks = world("blocks", **options["world"])
    solve(
        world("blocks", boxes=1, size=3, max_steps=3),
        params.model_copy(
            update={
                "compute": params.compute.model_copy(update={"processes": 1, "graph": "memory"})
            }
        ),
    )  # Loads the kernels.
    with tempfile.TemporaryDirectory(dir=options.get("folder")) as folder:
        begin = time.perf_counter()
        result = solve(blocks, params, directory=Path(folder))
        wall = time.perf_counter() - begin
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(each.ru_utime + each.ru_stime for each in usage)
    figures = {
        "states": result.sizes.states,
        "transitions": result.sizes.transitions,
        "wall s": wall,
        "explored s": result.seconds.graph,
        # Workers are children of a server, which says nothing of them.
        "CPU s": math.nan if compute.get("processes", 1) > 1 else used,
        "peak GiB": usage[0].ru_maxrss * 1024 / GIB,
        "V_r": result.at(0).V_r,
    }
    print(json.dumps(figures))


def processes(console: Console, boxes: int) -> None:
    """Two processes of one thread against two threads of one process."""
    contenders = {
        "2 threads": {"workers": 2},
        "2 processes": {"workers": 1, "processes": 2},
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, compute in contenders.items():
            found[name].append(solved({"world": {"boxes": boxes}, "compute": compute}))
    _show(console, f"Blocks with {boxes} boxes, medians of {TURNS} turns", found)
    wall = {name: statistics.median(run["wall s"] for run in runs) for name, runs in found.items()}
    console.print(
        f"speed of 2 processes / 2 threads: {wall['2 threads'] / wall['2 processes']:.2f}"
    )


def spill(
    console: Console, blocks: dict[str, Any], ram_gb: float | None, folder: str | None
) -> None:
    """Files against RAM; with a limit, files alone."""
    compute: dict[str, Any] = {"graph": "spill", "ram_limit_gb": ram_gb}
    contenders = {"spill": compute} if ram_gb else {"memory": {}, "spill": {**compute, "parts": 8}}
    found = {
        name: [solved({"world": blocks, "compute": each, "folder": folder})]
        for name, each in contenders.items()
    }
    _show(console, f"Blocks {blocks}" + (f", {ram_gb} GiB" if ram_gb else ""), found)


def _show(console: Console, title: str, found: dict[str, list[dict[str, float]]]) -> None:
    names = list(next(iter(found.values()))[0])
    table = Table("", *names, title=title)
    for name, runs in found.items():
        medians = [statistics.median(run[key] for run in runs) for key in names]
        table.add_row(name, *(f"{x:,.0f}" if x >= 1000 else f"{x:,.6g}" for x in medians))
    console.print(table)
    values = {run["V_r"] for runs in found.values() for run in runs}
    if len(found) > 1:
        console.print(
            f"V_r at the start: {'equal to the last bit' if len(values) == 1 else values}"
        )


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=["halo", "processes", "spill"])
    parser.add_argument("--boxes", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50, help="of an episode")
    parser.add_argument("--cells", action="store_true", help="name cells in the robot's actions")
    parser.add_argument("--ram-gb", type=float)
    parser.add_argument("--folder", help="where spilled files are")
    parser.add_argument("--child")
    chosen = parser.parse_args()
    if chosen.child:
        child(json.loads(chosen.child))
        return
    console = Console(width=120)
    console.print(f"load of the machine: {psutil.getloadavg()[0]:.1f}")
    if "halo" in chosen.what:
        halos(console)
    if "processes" in chosen.what:
        processes(console, chosen.boxes)
    if "spill" in chosen.what:
        blocks: dict[str, Any] = {"boxes": chosen.boxes, "max_steps": chosen.steps}
        if chosen.cells:
            blocks["robot_actions"] = "cells"
        spill(console, blocks, chosen.ram_gb, chosen.folder)


if __name__ == "__main__":
    main()
