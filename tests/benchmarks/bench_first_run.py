"""Processor time of the main example: the first run on a machine, and later ones.

    python tests/benchmarks/bench_first_run.py [--rounds 3] [--cpu x86-64-v3]

A first run compiles kernels; here each has an empty folder for them. In each round it is
followed by another run, which loads them, by one that finds a copy of them elsewhere, as a wheel
could bring it along, and by ``import torch`` alone. ``--cpu`` compiles for a CPU that others have,
too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paired import children_s
from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parents[2] / "examples" / "free_the_human.yaml"
RUN = ("-m", "empo_core", "run", str(EXAMPLE))
COPIED = "run with copied kernels"
TASKS = {"first run": RUN, "later run": RUN, COPIED: RUN, "import torch": ("-c", "import torch")}


def cpu_seconds(arguments: Sequence[str], folder: Path, cpu: str | None) -> float:
    """Processor time of Python in a process of its own, with its kernels in ``folder``."""
    chosen = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""} if cpu else {}
    began = children_s()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)} | chosen,
        capture_output=True,
        check=True,
    )
    return children_s() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", help="name of a CPU as LLVM has it; default: this one")
    options = parser.parse_args()
    rounds = options.rounds
    found = dict[str, list[float]]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            kernels = Path(folder, "kernels")
            kernels.mkdir()
            for name, arguments in TASKS.items():
                if name == COPIED:
                    kernels = shutil.copytree(kernels, Path(folder, "copied"))
                took = cpu_seconds(arguments, kernels, options.cpu)
                found.setdefault(name, []).append(took)
    table = Table(title=f"CPU seconds, medians of {rounds} rounds (aims: 15 and 2)")
    for column in ("", "seconds", "times import torch"):
        table.add_column(column, justify="right")
    base = statistics.median(found["import torch"])
    for name, seconds in found.items():
        median = statistics.median(seconds)
        table.add_row(name, f"{median:.1f}", f"{median / base:.1f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
