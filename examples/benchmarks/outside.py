"""Tasks of MiniGrid and PettingZoo: our PPO and Stable-Baselines3's at equal budgets.

Run ``python examples/benchmarks/outside.py [OUT] [--quick]``. Each task of ``outside.yaml`` is
learned from several seeds by both libraries, with equal networks, hyperparameters and numbers of
steps, one process and one thread, turn by turn. A judge then plays whole episodes, which no run
has seen, with the likeliest actions of each policy. What is done is kept in OUT (default:
``outside``), so that an interrupted run goes on where it was; then there are ``table.csv``,
``curves.csv`` and ``curves.png``. ``--quick`` takes few steps and one seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from rich.console import Console
from rich.table import Table

from empo_core import Config
from empo_core.config.files import read_yaml, validate_document
from empo_core.runs.atomic import write_file
from empo_pictures.figures import new_figure, write_figure
from empo_rollout.policyfile import load_policy

HERE = Path(__file__).parent
SETTINGS = HERE / "outside.yaml"
sys.path[:0] = [str(HERE)]

import outside_games as games  # noqa: E402
from esr_scores import Estimate, csv_text, mean  # noqa: E402
from kept_runs import digest, run_file  # noqa: E402

OURS, THEIRS = "EMPO", "Stable-Baselines3"
POINTS = 40
"""Points of a curve in the picture."""


class Task(Config):
    """A task, its budget, and what differs from ``Settings.ppo``."""

    environment: dict[str, Any]
    steps: int
    episodes: int
    ppo: dict[str, Any] = Field(default_factory=dict)


class Quick(Config):
    """What ``--quick`` changes."""

    steps: int
    episodes: int


class Settings(Config):
    """The file of settings."""

    seeds: list[int]
    judged_from: int
    quick: Quick
    ppo: dict[str, Any]
    tasks: dict[str, Task]


@dataclass(frozen=True)
class Run:
    """What a library made of a task from one seed.

    Attributes:
        curve: Steps, and mean return of the newest 100 episodes of training then.
        judged: Mean return of the judge's episodes and of their agents.
        cpu_seconds: Of training.
    """

    curve: list[tuple[int, float]]
    judged: float
    cpu_seconds: float


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    task: str
    who: str
    steps: int
    judged: Estimate
    training: Estimate
    cpu_seconds: Estimate


def ours(task: Task, ppo: dict[str, Any], seed: int, folder: Path) -> tuple[games.Act, Run]:
    """Our policy and its run."""
    loss = {"name": "ppo", "params": {"clip": ppo["clip"], "entropy": {"coef": ppo["entropy"]}}}
    params = {
        "total_steps": task.steps,
        "environment": task.environment,
        "num_envs": ppo["copies"],
        "vectorisation": {"backend": "serial"},
        "experience": {"bptt_horizon": ppo["horizon"]},
        "gamma": ppo["gamma"],
        "advantages": {"gae_lambda": ppo["gae_lambda"]},
        "policy": {"network": {"name": "mlp", "params": {"hidden": ppo["hidden"]}}},
        "losses": [{"loss": loss}],
        "update": {
            "update_epochs": ppo["epochs"],
            "minibatch_size": ppo["minibatch"],
            "sampling": "steps",
            "value_coef": ppo["value_coef"],
        },
        "optimiser": {"lr": ppo["lr"], "eps": ppo["eps"], "max_grad_norm": ppo["max_grad_norm"]},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 0, "checkpoint_interval": 50},
    }
    config = {"algorithm": {"name": "rollout", "params": params}, "seed": seed, "trackers": []}
    file, seconds, _ = run_file(folder, config)
    with (file.parent / "training.csv").open() as lines:
        curve = [(int(r["steps"]), float(r["mean_return"] or "nan")) for r in csv.DictReader(lines)]
    network = load_policy(file).policy

    @torch.no_grad()
    def act(rows: np.ndarray) -> np.ndarray:
        agent = torch.zeros(len(rows), dtype=torch.int64)
        nobody = torch.zeros(len(rows), 0)
        step = network.step(torch.from_numpy(rows), nobody, agent.bool(), agent)
        return step.distribution.mode[:, 0].numpy()

    return act, Run(curve, 0.0, seconds)


def learned(settings: Settings, name: str, who: str, seed: int, out: Path) -> Run:
    """A run, read where it was kept with the same settings."""
    path = out / f"{name}_{who}_{seed}.json".lower()
    task = settings.tasks[name]
    ppo = settings.ppo | task.ppo
    known = digest([task.model_dump(), ppo, settings.judged_from])
    if path.is_file() and (kept := json.loads(path.read_text()))["settings"] == known:
        return Run(kept["curve"], kept["judged"], kept["cpu_seconds"])
    if who == OURS:
        act, run = ours(task, ppo, seed, out / f"{name}_{seed}".lower())
        curve, seconds = run.curve, run.cpu_seconds
    else:
        act, curve, seconds = games.trained(task.environment, ppo, task.steps, seed)
    copies = [games.game(task.environment) for _ in range(task.episodes)]
    judged = float(games.returns(copies, act, settings.judged_from).mean())
    run = Run(curve, judged, seconds)
    write_file(path, json.dumps({**vars(run), "settings": known}) + "\n")
    return run


def row(task: str, who: str, runs: Sequence[Run]) -> Row:
    """The line of some seeds."""
    return Row(
        task=task,
        who=who,
        steps=max(run.curve[-1][0] for run in runs),
        judged=mean(np.array([run.judged for run in runs])),
        training=mean(np.array([run.curve[-1][1] for run in runs])),
        cpu_seconds=mean(np.array([run.cpu_seconds for run in runs])),
    )


def show(table: Sequence[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Mean return of an episode, per agent", caption=footer)
    shown.add_column("task")
    shown.add_column("who")
    for column in ("steps", "judged", "newest 100 of training", "CPU s"):
        shown.add_column(column, justify="right")
    for row in table:
        shown.add_row(
            row.task, row.who, f"{row.steps:,}", row.judged.shown(3), row.training.shown(3),
            row.cpu_seconds.shown(0),
        )  # fmt: skip
    Console(width=150).print(shown)


def draw(found: dict[str, dict[str, list[Run]]], out: Path) -> None:
    """``curves.csv``, and ``curves`` as PNG, SVG and PDF: means and intervals over seeds."""
    figure, panels = new_figure(columns=len(found), width=3.2 * len(found), height=3.4)
    lines = ["task,who,steps,mean,low,high"]
    for axes, (task, by_who) in zip(panels, found.items(), strict=True):
        for who, runs in by_who.items():
            last = min(run.curve[-1][0] for run in runs)
            steps = np.linspace(0, last, POINTS + 1)[1:]
            at = np.array([np.interp(steps, *np.transpose(run.curve)) for run in runs])
            points = [mean(column) for column in at.T]
            axes.plot(steps, [point.value for point in points], label=who)
            low, high = [point.low for point in points], [point.high for point in points]
            axes.fill_between(steps, low, high, alpha=0.2, linewidth=0)
            lines += [
                f"{task},{who},{step:.0f},{point.value:.6g},{point.low:.6g},{point.high:.6g}"
                for step, point in zip(steps, points, strict=True)
            ]
        axes.set(title=task, xlabel="steps")
        axes.locator_params(axis="x", nbins=4)
    panels[0].set(ylabel="mean return of the newest 100 episodes")
    panels[0].legend(frameon=False, loc="lower right")
    write_file(out / "curves.csv", "\n".join(lines) + "\n")
    write_figure(figure, out / "curves.png")


def main() -> None:
    """Learn all tasks, print and write the table, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("outside"))
    parser.add_argument("--quick", action="store_true", help="few steps and one seed")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    parser.add_argument("--task", action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    torch.set_num_threads(1)  # Networks are small, and processors may be shared.
    settings = validate_document(Settings, read_yaml(given.settings))
    out = given.out.resolve()
    if given.quick:
        less = settings.quick.model_dump()
        tasks = {name: task.model_copy(update=less) for name, task in settings.tasks.items()}
        settings = settings.model_copy(update={"tasks": tasks, "seeds": settings.seeds[:1]})
        out /= "quick"
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, list[Run]]] = {}
    for name in given.task or settings.tasks:
        found[name] = {OURS: [], THEIRS: []}
        for seed in settings.seeds:
            for who, runs in found[name].items():
                runs.append(learned(settings, name, who, seed, out))
                run = runs[-1]
                print(
                    f"{name}, {who}, seed {seed}: {run.judged:.3f} ({run.cpu_seconds:.0f} s CPU)",
                    flush=True,
                )
    table = [row(name, who, runs) for name, by in found.items() for who, runs in by.items()]
    seeds = f"{len(settings.seeds)} seeds" if len(settings.seeds) > 1 else "one seed"
    named = f"{given.settings.name} {digest([settings.model_dump()])}"
    footer = f"95 % intervals over {seeds}; settings {named}"
    show(table, footer)
    write_file(out / "table.csv", f"{csv_text(table)}# {footer}\n")
    draw(found, out)
    print(f"Wrote {out / 'table.csv'} and curves.png")


if __name__ == "__main__":
    main()
