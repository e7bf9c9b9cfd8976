"""Processor time of the main example: the first run on a machine, and later ones.

    python tests/benchmarks/bench_first_run.py [--rounds 3]

A first run compiles kernels; here each has an empty folder for them. In each round it is
followed by another run, which loads them, and by ``import torch`` alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

EXAMPLE = Path(__file__).parents[2] / "examples" / "free_the_human.yaml"
RUN = ("-m", "empo_core", "run", str(EXAMPLE))
TASKS = {"first run": RUN, "later run": RUN, "import torch": ("-c", "import torch")}


def cpu_seconds(arguments: Sequence[str], folder: Path) -> float:
    """Processor time of Python in a process of its own, with its kernels in ``folder``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"NUMBA_CACHE_DIR": str(folder)},
        capture_output=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found = dict[str, list[float]]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, arguments in TASKS.items():
                found.setdefault(name, []).append(cpu_seconds(arguments, Path(folder)))
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
