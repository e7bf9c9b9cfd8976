"""Cost of a trial of ``empo sweep`` besides the run: ``python tests/benchmarks/bench_sweep.py``.

Trials of a toy algorithm that does nothing, in worker processes that serve one after the other.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

TESTS = Path(__file__).parents[2] / "plugins/empo_sweep/tests"
sys.path.insert(0, str(TESTS))

from toy_sweeps import install_toy  # noqa: E402

ALLOWED_MS = 20.0


def main() -> int:
    """Print the table; fails where a trial costs more than is allowed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = os.pathsep.join(install_toy(folder / "site"))
        config = "algorithm: {name: toy, params: {steps: 0}}\ntrackers: []\n"
        (folder / "run.yaml").write_text(config)
        one = seconds(folder, path, 1, options.workers)
        all_s = seconds(folder, path, options.trials, options.workers)
    each_ms = 1000 * (all_s - one) / (options.trials - 1)
    table = Table(title=f"{options.trials} trials that do nothing, {options.workers} worker(s)")
    table.add_column("what")
    table.add_column("wall clock", justify="right")
    table.add_row("a sweep of one trial, which has to start processes", f"{one:.2f} s")
    table.add_row(f"a sweep of {options.trials}", f"{all_s:.2f} s")
    table.add_row("each further trial", f"{each_ms:.2f} ms (at most {ALLOWED_MS:g})")
    Console(width=90).print(table)
    return int(each_ms > ALLOWED_MS)


def seconds(folder: Path, path: str, trials: int, workers: int) -> float:
    """Seconds that a whole sweep takes, checks and results included."""
    command = [sys.executable, "-m", "empo_core", "sweep", "run.yaml", "--quiet"]
    command += [f"name=bench{trials}", f"seed=0..{trials - 1}", f"workers={workers}"]
    begun = time.monotonic()
    subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": path}, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
