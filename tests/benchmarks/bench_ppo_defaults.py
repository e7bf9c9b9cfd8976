"""Defaults of PPO for few environments: candidates and presets on five tasks, with several seeds.

Prints mean and 95 % t interval, over the seeds, of the last evaluation (20 episodes, likeliest
actions) and of the newest 100 episodes of training. Tasks, candidates and seeds can be chosen;
rows are appended to a file as they come, and those that are there already are not run again.

    OMP_NUM_THREADS=1 python tests/benchmarks/bench_ppo_defaults.py [--seeds 5] [--rows FILE]
        [--tasks cartpole acrobot ...] [--candidates few large sb3 ...]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from empo_core.config import RunConfig, merged
from empo_core.experiment import run
from empo_learning.statistics import interval

TASKS: dict[str, tuple[int, dict[str, Any]]] = {
    "cartpole": (20_000, {"environment": "gymnasium/CartPole-v1"}),
    "acrobot": (20_000, {"environment": "gymnasium/Acrobot-v1"}),
    "inverted-pendulum": (20_000, {"environment": "gymnasium/InvertedPendulum-v5"}),
    "mountain-car": (
        20_000, {"environment": "gymnasium/MountainCarContinuous-v0", "normalise": {}},
    ),
    "pendulum": (30_000, {"environment": "gymnasium/Pendulum-v1"}),
}  # fmt: skip
"""Steps of a run, and its environment."""


def sizes(horizon: int, minibatch: int, epochs: int, rate: float) -> dict[str, Any]:
    """Params of a candidate."""
    return {
        "experience": {"bptt_horizon": horizon},
        "update": {"minibatch_size": minibatch, "update_epochs": epochs, "sampling": "steps"},
        "optimiser": {"lr": rate},
    }


CANDIDATES: dict[str, dict[str, Any]] = {
    "few": {"preset": "few"},
    "large": {"preset": "large"},
    "sb3": sizes(256, 64, 10, 3e-4),
    "256 steps, 1e-3": sizes(256, 64, 10, 1e-3),
    "128 steps, 3e-4": sizes(128, 64, 10, 3e-4),
    "64 steps, 1e-3": sizes(64, 64, 10, 1e-3),
}
"""'sb3': rollout, minibatch, epochs and rate of Stable-Baselines3's defaults, in 8 copies."""


def outcome(task: str, candidate: str, seed: int, envs: int) -> dict[str, Any]:
    """The row of a run."""
    steps, about = TASKS[task]
    params = merged(
        {
            "total_steps": steps,
            "num_envs": envs,
            "vectorisation": {"backend": "serial"},
            "compute": {"threads": 1},
            "reporting": {"evaluation_episodes": 20, "checkpoint_interval": 0},
            **about,
        },
        CANDIDATES[candidate],
    )
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "algorithm": {"name": "rollout", "params": params},
            "trackers": [],
            "seed": seed,
            "runs": folder,
        }
        result: Any = run(RunConfig.model_validate(config))
    return {
        "task": task,
        "candidate": candidate,
        "seed": seed,
        "envs": envs,
        "evaluation": result.evaluations[-1].returns.mean_return,
        "training": result.record.history[-1].mean_return,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--rows", type=Path, default=Path("ppo_defaults.jsonl"))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument(
        "--candidates", nargs="+", choices=CANDIDATES, default=["few", "large", "sb3"]
    )
    arguments = parser.parse_args()
    rows = []
    if arguments.rows.exists():
        rows = [json.loads(line) for line in arguments.rows.read_text().splitlines()]
    done = {(row["task"], row["candidate"], row["seed"], row["envs"]) for row in rows}
    for seed in range(arguments.seeds):
        for task in arguments.tasks:
            for candidate in arguments.candidates:
                if (task, candidate, seed, arguments.envs) in done:
                    continue
                rows.append(outcome(task, candidate, seed, arguments.envs))
                with arguments.rows.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    show([row for row in rows if row["envs"] == arguments.envs])


def show(rows: list[dict[str, Any]]) -> None:
    """Print means and intervals by task and candidate."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["task"], row["candidate"]].append(row)
    table = Table("task", "candidate", "seeds", "evaluation", "training")
    for (task, candidate), found in groups.items():
        cells = []
        for name in ("evaluation", "training"):
            mean, half = interval(np.array([row[name] for row in found], np.float64))
            cells.append(f"{float(mean):.1f} ± {float(half):.1f}")
        table.add_row(task, candidate, str(len(found)), *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
