"""Time of ``empo runs`` over thousands of runs.

Run ``python tests/benchmarks/bench_runs.py [--runs N]``. It writes the directories of N small runs
(2,000 by default) of a sweep and lists them in a process of its own, with the start of Python.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from empo_core.config import RunConfig
from empo_core.runs.directory import resolved, write_config


def write_runs(folder: Path, number: int) -> None:
    """Directories of finished runs that differ in ``beta_r`` and in the seed."""
    config = {"world_model": "multigrid/trivial", "algorithm": "exact", "runs": str(folder)}
    data = json.loads(json.dumps(resolved(RunConfig.model_validate(config))))
    goals = [{"human": 1, "goal": str(goal), "V_e": goal / 7} for goal in range(6)]
    for index in range(number):
        data["seed"] = index
        data["algorithm"]["params"]["theory"]["beta_r"] = index / 7
        directory = folder / f"2026-01-01-trivial-exact-{index}"
        (directory / "results").mkdir(parents=True)
        write_config(directory, data)
        status = {"status": "finished", "updated": "2026-01-01T00:00:00+00:00", "seconds": 1.5}
        (directory / "status.json").write_text(json.dumps(status))
        summary = {"root": {"V_r": -index / 3, "goals": goals}, "seconds": {"total": 1.5}}
        (directory / "results/summary.json").write_text(json.dumps(summary))


def main() -> None:
    """Write, list, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    number = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), number)
        for arguments in (["--help"], [], ["--sort", "-root.V_r"], ["--json"]):
            command = [sys.executable, "-m", "empo_core", "runs", *arguments]
            command += [] if "--help" in arguments else [folder]
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds = time.perf_counter() - started
            print(f"{number:,} runs, {' '.join(arguments) or 'table'}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
