"""Learning curves of the latent agent: tasks x agents x seeds, and pictures of them.

Train, several runs at once, each in a process of its own with one thread::

    python tests/benchmarks/latent_curves.py --tasks cartpole-swingup --jobs 2

An agent is a preset, one with one thing done as in another (``AGENTS``), or
``sac``, soft actor-critic of Stable-Baselines3 (``peer_sac.py``). Every run that ends leaves
``<task>_<agent>_<seed>.csv`` in the output folder, some of what it reported in ``training/``, and
``settings.json`` there says how it was made. What is there already is not done again, and a run
that was broken off goes on from its last checkpoint (``sac`` begins anew), so the same command may
be given again and again. Then draw::

    python tests/benchmarks/latent_curves.py --plot

which makes a picture per task (mean over seeds, and the least to the greatest; where runs were
evaluated only once, every seed) and prints a table: means of the last three evaluations, with 95 %
intervals over seeds. Beside them stand figures that others published after 100,000 environment
steps: with larger models, more updates per step, other seeds, and no run of ours.
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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from empo_core.figures import new_figure
from empo_core.statistics import interval
from empo_latent.presets import PRESETS
from empo_latent.published import PUBLISHED, STEPS, PublishedReturns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
OUT = ROOT / "docs" / "explanation" / "latent_curves"
RUNS = ROOT / "runs" / "latent_curves"
SETTINGS = "settings.json"


PIXELS = {"pixels": True, "shadows": False, "picture_size": 48, "frame_stack": 3}


def dmc(domain: str, task: str, **params: Any) -> dict[str, Any]:
    """A task of the DeepMind Control Suite."""
    return {"name": "dmc", "params": {"task": f"{domain}-{task}", "action_repeat": 2, **params}}


TASKS: dict[str, dict[str, Any]] = {
    "pendulum": {"name": "gymnasium", "params": {"id": "Pendulum-v1"}},
    "cartpole-swingup": dmc("cartpole", "swingup"),
    "cup-catch": dmc("ball_in_cup", "catch"),
    "reacher-easy": dmc("reacher", "easy"),
    "finger-spin": dmc("finger", "spin"),
    "cartpole-swingup-pixels": dmc("cartpole", "swingup", **PIXELS),
    # These two need the extra ``empo-environments[mujoco]``.
    "half-cheetah": {"name": "gymnasium", "params": {"id": "HalfCheetah-v5"}},
    "hopper": {"name": "gymnasium", "params": {"id": "Hopper-v5"}},
}
AGENTS: dict[str, dict[str, Any]] = {
    "awr": {"preset": "awr"},
    "svg": {"preset": "svg"},
    "tdmpc2": {"preset": "tdmpc2"},
    "tdmpc2-awr": {"preset": "tdmpc2", "policy_loss": "awr"},
    "tdmpc2-states": {"preset": "tdmpc2", "value": {"critic": "v"}},
    "tdmpc2-encodings": {"preset": "tdmpc2", "imagination": {"start": "encoding"}},
    "tdmpc2-narrow": {"preset": "tdmpc2", "policy": {"min_log_std": -3.0, "max_log_std": 1.0}},
    "tdmpc2-entropy": {"preset": "tdmpc2", "policy_loss": "svg"},
    "tdmpc2-policy": {"preset": "tdmpc2", "collection": {"acting": "policy"}},
    "tdmpc2-rate": {"preset": "tdmpc2", "value": {"target_rate": 0.05}},
    "svg-rate": {"preset": "svg", "value": {"target_rate": 0.01}},
    "svg-candidates": {"preset": "svg", "imagination": {"candidates": 16}},
    "svg-actions": {"preset": "svg", "value": {"critic": "q"}},
    "svg-heads": {"preset": "svg", "value": {"heads": 5, "bootstrap": "pair"}},
    "svg-rollout": {"preset": "svg", "imagination": {"start": "rollout"}},
    "svg-wide": {"preset": "svg", "policy": {"min_log_std": -10.0, "max_log_std": 2.0}},
    "svg-entropy": {"preset": "svg", "policy_loss": PRESETS["tdmpc2"]["policy_loss"]},
    "svg-policy": {"preset": "svg", "collection": {"acting": "policy"}},
}
"""Presets; ``tdmpc2`` with its loss, critic, starts, log-std, entropy, actor or rate of target
networks exchanged; and ``svg``, whose runs are shorter, with as many candidates as ``awr``, or with
the rate, critic, value heads, starts, log-std or entropy of ``tdmpc2``, or the policy acting."""
SAC = "sac"
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
LAST = 3
"""Evaluations at the end of a curve whose mean the table has: single ones scatter."""
SHADES = ("black", "dimgrey", "darkgrey")
STYLES = {"planner": "o-", "policy": "x--"}


class Job(NamedTuple):
    """One run: its name, its config, and where its curve goes."""

    name: str
    config: dict[str, Any]
    target: Path


class Row(NamedTuple):
    """Result of one evaluation of a run."""

    task: str
    agent: str
    seed: int
    actor: str
    environment_step: int
    value: float
    seconds: float


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
    repeat = TASKS[task]["params"].get("action_repeat", 1)
    steps, interval = options.environment_steps // repeat, options.evaluate_every // repeat
    if agent == SAC:
        peer = {"steps": steps, "interval": interval, "episodes": options.episodes}
        return {SAC: {"task": TASKS[task], **peer}, "seed": seed}
    params = {
        "size": options.size,
        "total_steps": steps,
        "tasks": [TASKS[task]],
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


def merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, the second's where they disagree; mappings key by key."""
    result = dict(first)
    for key, value in second.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            value = merged(result[key], value)
        result[key] = value
    return result


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
        for _, process, _ in running.values():
            process.wait()
    return failed


def last_words(path: Path) -> str:
    """Mean returns at the last evaluation of a run, as text."""
    rows = read([path])
    end = max(row.environment_step for row in rows)
    return ", ".join(f"{row.actor} {row.value:.1f}" for row in rows if row.environment_step == end)


def read(paths: Iterable[Path]) -> list[Row]:
    """Rows of all learning-curve CSV files."""
    rows = []
    for path in paths:
        task, agent, seed = path.stem.split("_")
        with path.open(encoding="utf-8") as file:
            rows += [
                Row(
                    task, agent, int(seed), line["actor"], int(line["environment_step"]),
                    float(line["return_mean"]), float(line["seconds"]),
                )
                for line in csv.DictReader(file)
            ]  # fmt: skip
    return rows


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str, str], dict[int, list[float]]]:
    """Returns of all seeds by task, agent and actor, and then by environment steps."""
    groups: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row.environment_step):
        steps = groups.setdefault((row.task, row.agent, row.actor), defaultdict(list))
        steps[row.environment_step].append(row.value)
    return groups


def complete(by_step: dict[int, list[float]]) -> dict[int, list[float]]:
    """Returns at the steps that all seeds reached."""
    seeds = max(map(len, by_step.values()))
    return {step: values for step, values in by_step.items() if len(values) == seeds}


def reference(task: str) -> PublishedReturns | None:
    """Published returns of other agents in a task, if known; they saw no pictures."""
    params = TASKS[task]["params"]
    domain, _, name = params.get("task", "").partition("-")
    return None if params.get("pixels") else PUBLISHED.get((domain, name))


def plot(rows: Sequence[Row], out: Path) -> list[Path]:
    """A picture of each task."""
    paths = []
    for task in dict.fromkeys(row.task for row in rows):
        paths.append(out / f"{task}.png")
        picture([row for row in rows if row.task == task]).savefig(paths[-1], dpi=110)
    return paths


def picture(rows: Sequence[Row]) -> Figure:
    """Curves of a task, or points where all runs were evaluated only once, after as many steps."""
    figure, (axes,) = new_figure(width=6.4, height=4.8)
    if len({row.environment_step for row in rows}) > 1:
        draw_curves(axes, rows)
    else:
        draw_points(axes, rows)
    axes.set(title=rows[0].task, ylabel="mean return of evaluations")
    figure.legend(fontsize=7, loc="outside lower center", ncols=2)
    return figure


def draw_curves(axes: Axes, rows: Sequence[Row]) -> None:
    """Means by environment steps; only steps that all seeds reached have one."""
    for (_, agent, actor), by_step in sorted(grouped(rows).items()):
        whole = complete(by_step)
        values = np.array(list(whole.values()))
        seeds = values.shape[1]
        label = f"{agent}, {actor} acts ({seeds} seed{'s' * (seeds > 1)})"
        colour = colour_of(agent)
        axes.plot(list(whole), values.mean(1), STYLES[actor], ms=4, color=colour, label=label)
        axes.fill_between(list(whole), values.min(1), values.max(1), color=colour, alpha=0.12)
    for words, value, shade in published(rows[0].task):
        axes.hlines(value, 0.96 * STEPS, 1.04 * STEPS, color=shade, lw=2.5, label=words)
    axes.set(xlabel="environment steps")
    axes.set_xlim(left=0)


def draw_points(axes: Axes, rows: Sequence[Row]) -> None:
    """Every seed of every agent; all of them were evaluated after the same number of steps."""
    agents = [agent for agent in (*AGENTS, SAC) if any(row.agent == agent for row in rows)]
    for actor in sorted({row.actor for row in rows}):
        acting = [row for row in rows if row.actor == actor]
        places = [agents.index(row.agent) for row in acting]
        returns = [row.value for row in acting]
        marker = STYLES[actor][0]
        axes.plot(places, returns, marker, color="C0", label=f"{actor} acts, one seed")
    for words, value, shade in published(rows[0].task):
        axes.axhline(value, color=shade, lw=1, label=words)
    axes.set_xticks(range(len(agents)), agents, rotation=20)
    axes.set(xlabel=f"agent after {rows[0].environment_step:,} environment steps")


def colour_of(agent: str) -> Any:
    """A colour for matplotlib, the same in every picture: ten strong ones, then ten pale ones."""
    from matplotlib import colormaps

    if agent == SAC:
        return "black"
    number = list(AGENTS).index(agent)
    return colormaps["tab20"](2 * number % 20 + number // 10)


def published(task: str) -> list[tuple[str, int, str]]:
    """Published returns in a task: in words, the number, and the colour of its line."""
    known = reference(task)
    if known is None:
        return []
    marks = {"TD-MPC2": known.tdmpc2, "SAC": known.sac, "DreamerV3": known.dreamer}
    return [
        (f"{agent} after {STEPS:,} (published)", value, shade)
        for (agent, value), shade in zip(marks.items(), SHADES, strict=True)
    ]


def table(rows: Sequence[Row]) -> str:
    """The ends of all curves, in Markdown: of each seed the mean of its last evaluations."""
    lines = [
        "| task | agent | who acts | seeds | environment steps | mean return (95 % interval) "
        f"| TD-MPC2 / SAC / DreamerV3 after {STEPS:,} (published) |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for (task, agent, actor), by_step in sorted(grouped(rows).items()):
        whole = complete(by_step)
        last = list(whole)[-LAST:]
        seeds = len(whole[last[0]])
        mean, half = interval(np.mean([whole[step] for step in last], axis=0))
        known = reference(task)
        others = f"{known.tdmpc2} ± {known.spread} / {known.sac} / {known.dreamer}" if known else ""
        spread = "one seed" if seeds == 1 else f"± {half:.0f}"
        steps = f"{last[0]:,} to {last[-1]:,}" if len(last) > 1 else f"{last[0]:,}"
        lines.append(
            f"| {task} | {agent} | {actor} | {seeds} | {steps} | {mean:.0f} ({spread}) | {others} |"
        )
    return "\n".join(lines)


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
        print(table(rows))
    else:
        sys.exit(train(missing(jobs(options), options.out), options) > 0)


if __name__ == "__main__":
    main()
