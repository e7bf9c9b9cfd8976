"""Time and results of every algorithm on problems of its own kind, for ``choosing.md``.

Run ``python tests/benchmarks/bench_choosing.py [--only TEXT] [--list]``. Each row is one
``empo run`` in a process of its own: processor time with the start of Python and of all workers,
wall-clock time, memory, and how good the result is. In all, about half an hour of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[2]
LEARNED = (
    "multigrid/free_the_human",
    "algorithm.name=phase2",
    "algorithm.params.human_prior=exact",
    "algorithm.params.reporting.compare=exact",
)
PENDULUM = "examples/latent_pendulum.yaml"


def exact(name: str, horizon: int) -> tuple[str, ...]:
    """A solve of a ready-made world."""
    return (f"multigrid/{name}", f"world_model.params.max_steps={horizon}", "algorithm=exact")


def learned(network: str, *more: str) -> tuple[str, ...]:
    """Values of free_the_human, learned with the default settings."""
    return (*LEARNED, f"algorithm.params.values={{q_r: {network}, v_h_e: {network}}}", *more)


CASES: dict[str, tuple[str, ...]] = {
    "exact, free_the_human, T=16": ("examples/free_the_human.yaml",),
    "exact, asymmetric_freeing, T=16": exact("asymmetric_freeing", 16),
    "exact, asymmetric_freeing, T=20": exact("asymmetric_freeing", 20),
    "phase2, lookup": learned("lookup"),
    "phase2, lookup, async": learned("lookup", "algorithm.params.collector=async"),
    "phase2, mlp": learned("mlp"),
    "phase2, grid-conv": learned("grid-conv"),
    "rollout, ppo, free_the_human": ("examples/ppo_multigrid.yaml",),
    "rollout, ppo, CartPole": ("examples/ppo_cartpole.yaml",),
    "latent, awr, Pendulum": (PENDULUM, "algorithm.params.policy_loss=awr"),
    "latent, svg, Pendulum": (PENDULUM, "algorithm.params.policy_loss=svg"),
}


@dataclass(frozen=True)
class Measured:
    """One run.

    Attributes:
        cpu_s: Processor seconds of all its processes.
        wall_s: Seconds it took here.
        summary: What ``--json`` printed.
    """

    cpu_s: float
    wall_s: float
    summary: dict[str, Any]


def measured(arguments: tuple[str, ...], runs: Path) -> Measured:
    """Run it, on one thread."""
    before, began = _children_s(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "empo_core", "run", *arguments, f"runs={runs}", "-q", "--json"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    wall_s = time.perf_counter() - began
    return Measured(_children_s() - before, wall_s, json.loads(done.stdout))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def achieved(summary: dict[str, Any]) -> Iterator[str]:
    """How large the problem was, and how good the result is."""
    if graph := summary.get("graph"):
        yield f"{graph['states']:,} states, {graph['transitions']:,} transitions"
    if steps := summary.get("steps"):
        yield f"{steps:,} steps"
    if gap := summary.get("gap"):
        yield f"V_r at the start {gap['Compare/V_r_root_rel']:.3%} off"
        yield f"policies {gap['Compare/pi_r_mean_tv']:.4f} apart"
    if "return_mean" in summary:
        yield f"newest episodes return {summary['return_mean']:.1f}"


def main() -> None:
    """Run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    parser.add_argument("--list", action="store_true", help="only name the rows")
    options = parser.parse_args()
    chosen = {name: case for name, case in CASES.items() if options.only in name}
    if options.list:
        print("\n".join(chosen))
        return
    table = Table("run", "CPU s", "wall s", "peak MiB", "result", title="One thread each")
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in chosen.items():
            run = measured(arguments, Path(folder))
            peak = f"{run.summary['peak_memory_bytes'] / 2**20:,.0f}"
            result = "; ".join(achieved(run.summary))
            row = (name, f"{run.cpu_s:.1f}", f"{run.wall_s:.1f}", peak, result)
            table.add_row(*row)
            print(*row, sep="  ", file=sys.stderr, flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
