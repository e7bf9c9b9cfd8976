"""Time that ``examples/ppo_cartpole.yaml`` takes to solve CartPole, seed by seed.

Each run is a process of its own, as a user starts it. Processor time is that of the run and of all
its workers, imports included. The return is that of the evaluation that ended the run; since a run
stops at its first good evaluation, the policy is then judged once more, over 100 other episodes.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_cartpole.py [--seeds 5] [KEY.PATH=VALUE ...]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_rollout.policyfile import load_policy

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo_cartpole.yaml"
ENOUGH, EPISODES = 475.0, 100
OTHER_EPISODES = 10_000_000
"""Seed of the first of the episodes that no run has seen."""


def adopt_orphans() -> None:
    """Become the parent of workers whose own has ended, so that their time is counted here."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def processor_seconds() -> float:
    """Of all processes so far that came from this one and ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@torch.no_grad()
def mean_return(policy: Path) -> float:
    """Mean return of a saved policy, in episodes with seeds that no run has used."""
    network = load_policy(policy).policy
    envs = gymnasium.make_vec("CartPole-v1", EPISODES, vectorization_mode="vector_entry_point")
    seen, _ = envs.reset(seed=OTHER_EPISODES)
    earned, over = np.zeros(EPISODES), np.zeros(EPISODES, bool)
    nobody, first = torch.zeros(EPISODES, 0), torch.zeros(EPISODES, dtype=torch.int64)
    while not over.all():
        step = network.step(torch.from_numpy(seen), nobody, first.bool(), first)
        seen, reward, terminated, truncated, _ = envs.step(step.distribution.mode[:, 0].numpy())
        earned += reward * ~over
        over |= terminated | truncated
    envs.close()
    return float(earned.mean())


def main() -> None:
    """Print the table; fails if a seed fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("changes", nargs="*", help="changes to the example's config")
    arguments = parser.parse_args()
    adopt_orphans()
    torch.set_num_threads(1)
    table = Table(title=f"{EXAMPLE.name}: at least {ENOUGH:.0f} over {EPISODES} episodes")
    for name in ("seed", "steps", "return", "return anew", "seconds wall", "seconds CPU"):
        table.add_column(name, justify="right")
    solved = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "empo_core", "run", str(EXAMPLE), f"seed={seed}"]
            command += [*arguments.changes, "--json", "--quiet"]
            before, began = processor_seconds(), time.perf_counter()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            wall = time.perf_counter() - began
            if done.returncode:
                sys.exit(f"seed {seed}: {done.stderr}")
            found, cpu = json.loads(done.stdout), processor_seconds() - before
            anew = mean_return(Path(found["run_dir"]) / "results" / "model.safetensors")
        got = found["evaluation"]["mean_return"]
        solved += got >= ENOUGH
        table.add_row(
            f"{seed}", f"{found['steps']:,}", f"{got:.1f}", f"{anew:.1f}", f"{wall:.1f}",
            f"{cpu:.1f}",
        )  # fmt: skip
        print(
            f"seed {seed}: {got:.1f} ({anew:.1f} anew), {wall:.1f} s, {cpu:.1f} s CPU", flush=True
        )
    Console(width=100).print(table)
    print(f"{solved} of {arguments.seeds} solved it")
    sys.exit(solved < arguments.seeds)


if __name__ == "__main__":
    main()
