"""Exact solving in parts: halos, processes against threads, files against RAM, and forecasts.

Run ``python tests/benchmarks/bench_parts.py [halo] [processes] [exploration] [spill] [check]``;
``spill --boxes 6 --ram-gb 1`` solves the blocks world with six boxes within 1 GiB of RAM, which
takes an hour and 13 GB of disk. Each solve is a process of its own; contenders take turns.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.forecast import Forecast
from empo_exact.graph import build_graph
from empo_exact.parts.forecast import halo_share
from empo_exact.parts.peers import joined
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

WHAT = ("halo", "processes", "exploration", "spill", "check")
PARTS = (2, 8, 64)
BOUND = 0.3
"""Halo rows per state that 8 parts of ``asymmetric_freeing`` may have."""
CHECKED: dict[str, dict[str, Any]] = {
    "blocks": {"boxes": 3, "max_steps": 50},
    "multigrid/asymmetric_freeing": {"max_steps": 20},
    "multigrid/corridor_control": {"max_steps": 60},
    "multigrid/corridor_bush": {"max_steps": 9},
}
"""Worlds whose seconds are forecast: one with a human, others with two, the last with chance."""
EXPLORED: dict[str, dict[str, Any]] = {
    "blocks": {"boxes": 4, "max_steps": 14},
    "multigrid/corridor_bush": {"max_steps": 9},
}
EXPLORING_TURNS = 5
PROCESSES = (1, 2)
FACTOR = 2.0
"""How far off a forecast may be."""
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
        shares = [halo_share(graph, count) for count in PARTS]
        table.add_row(
            f"{name}, T={steps}",
            f"{graph.num_states:,}",
            f"{graph.num_transitions:,}",
            *(f"{share:.3f}" for share in shares),
        )
    console.print("Halo: values of other parts per state and sweep", table)


def solved(options: dict[str, Any], ranks: int = 1) -> dict[str, Any]:
    """One solve, or one forecast, in a process of its own; or in several, the most of each."""
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    with tempfile.TemporaryDirectory(dir=options.get("folder")) as folder:
        given = json.dumps(options | {"folder": folder})
        done = subprocess.run(
            [sys.executable, *(several if ranks > 1 else []), __file__, "--child", given],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {name: max(each[name] for each in found) for name in found[0]}


def child(options: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    compute = options["compute"]
    params = ExactParams.model_validate(
        {"preset": "paper", "keep": "none", "inspector": False, "compute": compute}
    )
    name, choices = options["world"]
    chosen = world(name, **choices)
    plain = params.compute.model_copy(update={"processes": 1, "graph": "memory", "parts": 2})
    short = world(name, **{**choices, "max_steps": 2})
    solve(short, params.model_copy(update={"compute": plain}))  # Loads the kernels.
    if options.get("forecast"):
        print(json.dumps(Forecast(chosen, params).alternatives()))
        return
    # A virtual machine may get its memory from its host page by page, which takes longer than to
    # write it, and is not to be counted to whoever is the first to use it.
    np.ones(int(options.get("touched GiB", 0) * GIB), np.uint8)
    with joined() as peers:
        begin, began = time.perf_counter(), time.process_time()
        result = solve(chosen, params, directory=Path(options["folder"]), peers=peers)
        wall, solving = time.perf_counter() - begin, time.process_time() - began
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(each.ru_utime + each.ru_stime for each in usage)
    figures = {
        "states": result.sizes.states,
        "transitions": result.sizes.transitions,
        "wall s": wall,
        "explored s": result.seconds.graph,
        "solving CPU s": solving,
        # Workers are children of a server, which says nothing of them.
        "CPU s": math.nan if compute.get("processes", 1) > 1 else used,
        "peak GiB": usage[0].ru_maxrss * 1024 / GIB,
        "V_r": result.at(0).V_r,
    }
    print(json.dumps(figures) + "\n", end="", flush=True)  # At once, since ranks share a pipe.


def processes(console: Console, boxes: int) -> None:
    """Two processes of one thread against two threads of one process."""
    contenders = {
        "2 threads": {"workers": 2},
        "2 processes": {"workers": 1, "processes": 2},
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    for _ in range(TURNS):
        for name, compute in contenders.items():
            found[name].append(solved({"world": ["blocks", {"boxes": boxes}], "compute": compute}))
    _show(console, f"Blocks with {boxes} boxes, medians of {TURNS} turns", found)
    wall = {name: statistics.median(run["wall s"] for run in runs) for name, runs in found.items()}
    console.print(
        f"speed of 2 processes / 2 threads: {wall['2 threads'] / wall['2 processes']:.2f}"
    )


def exploration(console: Console) -> None:
    """Exploring by two processes against two threads, in memory that each has touched before."""
    contenders = {"2 threads": ({"workers": 2}, 1), "2 processes": ({"workers": 1}, 2)}
    for name in EXPLORED:
        found: dict[str, list[dict[str, float]]] = {each: [] for each in contenders}
        for _ in range(EXPLORING_TURNS):
            for each, (compute, ranks) in contenders.items():
                given = {"world": [name, EXPLORED[name]], "compute": compute, "touched GiB": 1}
                found[each].append(solved(given, ranks))
        title = f"Exploring {name} {EXPLORED[name]}, medians of {EXPLORING_TURNS} turns"
        _show(console, title, found)
        threads, shared = (
            statistics.median(run["explored s"] for run in runs) for runs in found.values()
        )
        console.print(f"speed of exploring by 2 processes / 2 threads: {threads / shared:.2f}")


def spill(
    console: Console, blocks: dict[str, Any], ram_gb: float | None, folder: str | None
) -> None:
    """Files against RAM; with a limit, files alone."""
    compute: dict[str, Any] = {"graph": "spill", "ram_limit_gb": ram_gb}
    contenders = {"spill": compute} if ram_gb else {"memory": {}, "spill": {**compute, "parts": 8}}
    found = {
        name: [solved({"world": ["blocks", blocks], "compute": each, "folder": folder})]
        for name, each in contenders.items()
    }
    _show(console, f"Blocks {blocks}" + (f", {ram_gb} GiB" if ram_gb else ""), found)


def checks(console: Console) -> None:
    """Seconds that ``empo check`` says, and processor seconds of each process, with one thread.

    On a machine without other work these are those on the clock.
    """
    table = Table("world", "parts", "predicted s", "CPU s", "on the clock", "predicted / CPU")
    for name, choices in CHECKED.items():
        given = {"world": [name, choices], "compute": {"workers": 1}}
        told: dict[int, list[float]] = {count: [] for count in PROCESSES}
        took: dict[int, list[dict[str, float]]] = {count: [] for count in PROCESSES}
        for _ in range(TURNS):
            said = solved({**given, "forecast": True})
            for count in PROCESSES:
                told[count].append(_seconds(said["1 part" if count == 1 else f"{count} parts"]))
                asked = {**given, "compute": {"workers": 1, "parts": count}}
                took[count].append(solved(asked, count))
        for count in PROCESSES:
            predicted = statistics.median(told[count])
            used, wall = (
                statistics.median(run[key] for run in took[count])
                for key in ("solving CPU s", "wall s")
            )
            off = "" if 1 / FACTOR <= predicted / used <= FACTOR else " (off)"
            table.add_row(
                f"{name} {choices}", str(count), f"{predicted:.2g}", f"{used:.2g}", f"{wall:.2g}",
                f"{predicted / used:.2f}{off}",
            )  # fmt: skip
    console.print(f"Forecasts, medians of {TURNS} turns; off by {FACTOR:g} at most", table)


def _seconds(line: str) -> float:
    """The middle of the range of seconds at the end of a line of ``empo check``."""
    found = re.search(r"([\d.,]+)(?: to ([\d.,]+))? s$", line)
    assert found, line
    ends = [float(end.replace(",", "")) for end in found.groups() if end]
    return math.sqrt(ends[0] * ends[-1])


def _show(console: Console, title: str, results: dict[str, list[dict[str, float]]]) -> None:
    names = list(next(iter(results.values()))[0])
    table = Table("", *names, title=title)
    for name, runs in results.items():
        medians = [statistics.median(run[key] for run in runs) for key in names]
        table.add_row(name, *(f"{x:,.0f}" if x >= 1000 else f"{x:,.6g}" for x in medians))
    console.print(table)
    values = {run["V_r"] for runs in results.values() for run in runs}
    if len(results) > 1:
        console.print(
            f"V_r at the start: {'equal to the last bit' if len(values) == 1 else values}"
        )


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(WHAT))
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
    if "exploration" in chosen.what:
        exploration(console)
    if "check" in chosen.what:
        checks(console)
    if "spill" in chosen.what:
        blocks: dict[str, Any] = {"boxes": chosen.boxes, "max_steps": chosen.steps}
        if chosen.cells:
            blocks["robot_actions"] = "cells"
        spill(console, blocks, chosen.ram_gb, chosen.folder)


if __name__ == "__main__":
    main()
