"""Learning curves of the latent agent: tasks x agents x seeds, and pictures of them.

Train, several runs at once, each in a process of its own with one thread::

    python tests/benchmarks/latent_curves.py --tasks cartpole-swingup --jobs 2

An agent is a preset, one with one thing done as in another (``latent_agents.py``), or
``sac``, soft actor-critic of Stable-Baselines3 (``peer_sac.py``). Every run that ends leaves
``<task>_<agent>_<seed>.csv`` in the output folder, some of what it reported in ``training/``, and
``settings.json`` there says how it was made; its model stays in the folder of the runs (see
``lost_episodes.py``). What is there already is not done again, and a run that was broken off goes
on from its last checkpoint (``sac`` begins anew), so the same command may be given again and
again. Then draw::

    python tests/benchmarks/latent_curves.py --plot

which makes a picture per task (mean over seeds, and the least to the greatest; where runs were
evaluated only once, every seed) and prints a table: means of the last three evaluations, and of the
training episodes at the end, with 95 % intervals over seeds. Beside them stand figures that others
published after 100,000 environment steps: with larger models, more updates per step, other seeds,
and no run of ours.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from latent_agents import AGENTS, PLAYED, SAC, TASKS
from latent_report import plot, read, table, training_returns

from empo_core.config import merged

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "explanation" / "latent_curves"
RUNS = ROOT / "runs" / "latent_curves"
SETTINGS = "settings.json"
REPORTED = (
    "episode/return_mean",
    "policy/planner_std",
    "policy/log_std",
    "policy/saturated",
    "policy/planner_policy_share_1",
    "value/mean",
    "eval/planner/value_bias",
    "eval/policy/value_bias",
)
"""What is kept of a run's metrics: returns while training, how wide plans and policy are, bias."""


class Job(NamedTuple):
    """One run: its name, its config, and where its curve goes."""

    name: str
    config: dict[str, Any]
    target: Path


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parsed command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    add("--agents", nargs="+", choices=(*AGENTS, SAC), default=["awr", "svg"])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--environment-steps", type=int, default=50_000, help="with repetitions of actions")
    add("--size", default="tiny")
    add("--evaluate", nargs="+", choices=("planner", "policy"), default=["planner", "policy"])
    add("--evaluate-every", type=int, default=10_000, help="environment steps; 0: at the end")
    add("--episodes", type=int, default=10, help="of each evaluation")
    add("--params", type=json.loads, default={}, help="further params of all agents, as JSON")
    add("--jobs", type=int, default=1, help="runs at once")
    add("--out", type=Path, default=OUT, help="folder of the curves")
    add("--runs", type=Path, default=RUNS, help="folder of the runs themselves")
    add("--plot", action="store_true", help="draw what is there instead of training")
    add("--only", type=json.loads, help=argparse.SUPPRESS)  # A process of its own for one run.
    return parser.parse_args(given)


def jobs(options: argparse.Namespace) -> list[Job]:
    """All runs that are asked for."""
    return [
        Job(
            name=f"{task}_{agent}_{seed}",
            config=config(options, task, agent, seed),
            target=options.out / f"{task}_{agent}_{seed}.csv",
        )
        for seed in options.seeds
        for task in options.tasks
        for agent in options.agents
    ]


def config(options: argparse.Namespace, task: str, agent: str, seed: int) -> dict[str, Any]:
    """The config of a run, but for where it goes."""
    played: dict[str, Any] = merged(TASKS[task], {"params": PLAYED.get(agent, {})})
    repeat = played["params"].get("action_repeat", 1)
    steps, interval = options.environment_steps // repeat, options.evaluate_every // repeat
    if agent == SAC:
        peer = {"steps": steps, "interval": interval, "episodes": options.episodes}
        return {SAC: {"task": played, **peer}, "seed": seed}
    params = {
        "size": options.size,
        "total_steps": steps,
        "tasks": [played],
        "compute": {"threads": 1},
        "reporting": {
            "evaluation_interval": interval,
            "evaluation_episodes": options.episodes,
            "evaluate": options.evaluate,
            "checkpoint_interval": 2_000,
            "keep_checkpoints": 1,
            "videos": 0,
        },
    }
    params = merged(merged(params, AGENTS[agent]), options.params)
    return {"algorithm": {"name": "latent", "params": params}, "trackers": ["jsonl"], "seed": seed}


def missing(wanted: Iterable[Job], out: Path) -> list[Job]:
    """The runs whose curves are not there.

    Raises:
        SystemExit: A curve is there that was made otherwise.
    """
    path = out / SETTINGS
    known = json.loads(path.read_text()) if path.exists() else {}
    left = []
    for job in wanted:
        if not job.target.exists():
            left.append(job)
        elif known.get(job.name) != job.config:
            sys.exit(
                f"{job.target} was made with other settings ({path} has them): remove it to make "
                "it anew, ask for the same settings, or choose another folder with --out"
            )
    return left


def note(job: Job, out: Path) -> None:
    """Say how a curve was made."""
    path = out / SETTINGS
    known = json.loads(path.read_text()) if path.exists() else {}
    known[job.name] = job.config
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def train_one(job: Job) -> None:
    """Do a run, or go on with it, and keep its curve and what it reported."""
    from empo_core.config import RunConfig
    from empo_core.experiment import execute, resume

    job.target.parent.mkdir(parents=True, exist_ok=True)
    if SAC in job.config:
        import peer_sac

        peer_sac.save_curve(job.target, seed=job.config["seed"], **job.config[SAC])
        return
    folder = Path(job.config["runs"])
    begun = [path.parent for path in sorted(folder.glob("*/config.yaml"))]
    if not begun:
        begun = [execute(RunConfig.model_validate(job.config)).directory]
    elif json.loads((begun[-1] / "status.json").read_text())["status"] != "finished":
        resume(begun[-1])
    draft = job.target.with_suffix(".part")
    shutil.copy(begun[-1] / "results" / "curve.csv", draft)
    keep_training(begun[-1], job.target.parent / "training" / job.target.name)
    draft.rename(job.target)
    (begun[-1] / "results" / "model.safetensors").replace(folder.with_suffix(".safetensors"))
    shutil.rmtree(folder)


def keep_training(run: Path, target: Path) -> None:
    """Write the numbers named in ``REPORTED`` of all steps of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    target.parent.mkdir(exist_ok=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *REPORTED])
        for line in lines:
            numbers = [line.get(name) for name in REPORTED]
            writer.writerow([line["step"], *("" if n is None else f"{n:.6g}" for n in numbers)])


def started(job: Job, runs: Path) -> subprocess.Popen[bytes]:
    """A process that does a run; other settings never go on with what these began."""
    runs.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(json.dumps(job.config, sort_keys=True).encode()).hexdigest()[:8]
    folder = runs / f"{job.name}-{digest}"
    own = [job.name, {**job.config, "runs": str(folder)}, str(job.target)]
    command = [sys.executable, str(Path(__file__).resolve()), "--only", json.dumps(own)]
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    if not TASKS[job.name.split("_")[0]]["params"].get("pixels"):
        variables["MUJOCO_GL"] = "disabled"
    with (runs / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)


def train(wanted: Sequence[Job], options: argparse.Namespace) -> int:
    """Do all runs, so many at once, and say how many failed."""
    waiting, failed = list(wanted), 0
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated; the same command goes on"))
    running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < options.jobs:
                job = waiting.pop(0)
                running[job.name] = (job, started(job, options.runs), time.monotonic())
                print(f"{job.name}: begins", flush=True)
            time.sleep(0.2)
            for name, (job, process, began) in list(running.items()):
                if process.poll() is None:
                    continue
                del running[name]
                took = f"{(time.monotonic() - began) / 60:.1f} min"
                if process.returncode:
                    failed += 1
                    print(f"{name}: failed after {took}: {options.runs / name}.log", flush=True)
                else:
                    note(job, options.out)
                    print(f"{name}: {took}, {last_words(job.target)}", flush=True)
    finally:
        for _, process, _ in running.values():
            process.terminate()  # Each leaves a checkpoint.
        for job, process, _ in running.values():
            process.wait()
            if job.target.exists():  # It had no steps left to do.
                note(job, options.out)
    return failed


def last_words(path: Path) -> str:
    """Mean returns at the last evaluation of a run, as text."""
    rows = read([path])
    end = max(row.environment_step for row in rows)
    return ", ".join(f"{row.actor} {row.value:.1f}" for row in rows if row.environment_step == end)


def main() -> None:
    """Train or draw."""
    options = arguments()
    if options.only is not None:
        name, settings, target = options.only
        train_one(Job(name, settings, Path(target)))
    elif options.plot:
        rows = read(sorted(options.out.glob("*_*_*.csv")))
        if not rows:
            sys.exit(f"{options.out} has no curves yet")
        for path in plot(rows, options.out):
            print(path)
        print(table(rows, training_returns(options.out)))
    else:
        sys.exit(train(missing(jobs(options), options.out), options) > 0)


if __name__ == "__main__":
    main()
