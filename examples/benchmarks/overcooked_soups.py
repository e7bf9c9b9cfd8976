"""Overcooked: soups that a robot and a human serve in 400 steps.

Run ``python examples/benchmarks/overcooked_soups.py [OUT] [--quick]``. Robots are trained or solved
as the settings say, and play with a human who plans and with one from self-play. Runs and scores
are kept in OUT (default: ``overcooked``) as they come, so that an interrupted run goes on where it
was; then there are ``table.csv`` and ``table.png``. ``--quick`` takes few episodes of a small
kitchen.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core import Config
from empo_core.config.files import read_yaml, validate_document
from empo_core.figures import new_figure, write_figure
from empo_core.storage.arrays import write_file
from empo_overcooked.world import OvercookedWorld

HERE = Path(__file__).parent
SETTINGS = HERE / "overcooked.yaml"
sys.path[:0] = [str(HERE)]

import overcooked_cooks as cooks  # noqa: E402
from esr_scores import Estimate, csv_text, mean, paired_difference  # noqa: E402
from kept_runs import run_file  # noqa: E402

ALWAYS = ("still", "random", "PPO soups", "PPO self-play")
HUMANS = ("planner", "self-play")
ROBOT, HUMAN = 0, 1


class Quick(Config):
    """What ``--quick`` changes."""

    kitchens: list[str]
    episodes: int
    ppo_steps: int


class SelfPlay(Config):
    """What differs from ``ppo`` where both cooks learn."""

    shaping: float
    params: dict[str, Any]


class Settings(Config):
    """The file of settings."""

    steps: int
    episodes: int
    seed: int
    bootstrap: int
    noise: float
    quick: Quick
    kitchens: dict[str, dict[str, Any]]
    robots: dict[str, list[str]]
    horizon: int
    theory: dict[str, float | str]
    learned: dict[str, Any]
    ppo: dict[str, Any]
    self_play: SelfPlay


@dataclass(frozen=True)
class Row:
    """A line of the table: a robot with a human in a kitchen."""

    kitchen: str
    human: str
    robot: str
    soups: Estimate
    ahead_of_still: Estimate
    ahead_of_random: Estimate
    cpu_seconds: float
    env_steps: int


@dataclass(frozen=True)
class Score:
    """Soups of each episode, and what it took to make the robot."""

    soups: np.ndarray
    cpu_seconds: float
    env_steps: int


@dataclass(frozen=True)
class Contest:
    """A kitchen and its cooks."""

    settings: Settings
    name: str
    out: Path

    @property
    def _params(self) -> dict[str, Any]:
        return self.settings.kitchens[self.name]

    def robots(self) -> Iterator[str]:
        """Names of all robots."""
        yield from (*ALWAYS, *self.settings.robots[self.name])

    def score(self, robot: str, human: str) -> Score:
        """Soups of a robot with a human; every robot meets the same chance."""
        settings = self.settings
        world = cooks.kitchen(self._params, settings.horizon)
        rng = np.random.default_rng(settings.seed)
        chance = rng.random((settings.steps, settings.episodes, 2))
        if human == "planner":
            other = cooks.planner(world, settings.noise)
        else:
            other = cooks.trained(world, self._ppo("both")[0], HUMAN)
        mine, seconds, steps = self._robot(world, robot)
        return Score(cooks.soups(world, mine, other, chance), seconds, steps)

    def _robot(self, world: OvercookedWorld, name: str) -> tuple[cooks.Cook, float, int]:
        """A robot, and processor seconds and steps of agents that it took to make it."""
        settings = self.settings
        if name == "random":
            return cooks.random, 0.0, 0
        if name in ("still", "aside"):
            # The corner to the north of where the robot starts in cramped_room.
            return cooks.fixed(*["north"] * (name == "aside")), 0.0, 0
        if name.startswith("PPO"):
            file, seconds, steps = self._ppo("both" if name == "PPO self-play" else "robot")
            return cooks.trained(world, file, ROBOT), seconds, steps
        if name == "EMPO learned":
            folder = self.out / self._slug(name)
            file, seconds, steps = run_file(folder, self._learned_config())
            return cooks.learned(world, file, settings.horizon), seconds, steps
        theory = {**settings.theory, "beta_r": float(name.split()[2])}
        # Beside things on counters there are too many states.
        params = json.dumps({**self._params, "counter_items": 0})
        table, policy, seconds = cooks.solved(
            params, settings.horizon, settings.noise, json.dumps(theory)
        )
        return cooks.exact_robot(world, table, policy), seconds, 0

    def _ppo(self, learners: str) -> tuple[Path, float, int]:
        """The policy file of a run of PPO for soups, by self-play or beside the planner."""
        settings, algorithm = self.settings, dict(self.settings.ppo)
        environment: dict[str, Any] = {"learners": learners}
        if learners == "both":
            algorithm |= settings.self_play.params
            environment["shaping"] = settings.self_play.shaping
        else:
            human = {"name": "kitchen-planner", "params": {"noise": settings.noise}}
            environment["human_prior"] = human
        algorithm["environment"] = {"name": "overcooked", "params": environment}
        return run_file(
            self.out / self._slug(f"PPO {learners}"),
            {
                "world_model": self._world(settings.steps),
                "algorithm": {"name": "rollout", "params": algorithm},
                "seed": settings.seed,
            },
        )

    def _learned_config(self) -> dict[str, Any]:
        settings = self.settings
        human = {"name": "kitchen-planner", "params": {"noise": settings.noise}}
        theory = {**settings.theory, **settings.learned["theory"]}
        params = {**settings.learned, "theory": theory, "human_prior": human}
        return {
            "world_model": self._world(settings.horizon),
            "algorithm": {"name": "phase2", "params": params},
            "seed": settings.seed,
        }

    def _world(self, steps: int) -> dict[str, Any]:
        return {"name": "overcooked", "params": {**self._params, "soups": 1, "max_steps": steps}}

    def _slug(self, name: str) -> str:
        return f"{self.name} {name}".lower().replace(" ", "_")

    def scores(self, digest: str) -> dict[tuple[str, str], Score]:
        """Scores by human and robot; those of an earlier run of the same settings are read."""
        found = {}
        for robot in self.robots():
            for human in HUMANS:
                path = self.out / f"{self._slug(robot)}_with_{human}.json"
                if path.is_file() and (kept := json.loads(path.read_text()))["settings"] == digest:
                    score = Score(np.array(kept["soups"]), kept["cpu_seconds"], kept["env_steps"])
                    print(f"{self.name}, {robot} with {human}: read from {path}", flush=True)
                else:
                    score = self.score(robot, human)
                    kept = {**vars(score), "soups": score.soups.tolist(), "settings": digest}
                    write_file(path, json.dumps(kept) + "\n")
                    number = score.soups.mean()
                    print(f"{self.name}, {robot} with {human}: {number:.2f} soups", flush=True)
                found[human, robot] = score
        return found


def rows(contest: Contest, found: dict[tuple[str, str], Score]) -> Iterator[Row]:
    """The lines of one kitchen."""
    resamples, seed = contest.settings.bootstrap, contest.settings.seed
    for (human, robot), score in sorted(found.items(), key=lambda each: HUMANS.index(each[0][0])):
        still, random = (found[human, name].soups for name in ("still", "random"))
        yield Row(
            kitchen=contest.name,
            human=human,
            robot=robot,
            soups=mean(score.soups),
            ahead_of_still=paired_difference(score.soups, still, resamples, seed),
            ahead_of_random=paired_difference(score.soups, random, resamples, seed),
            cpu_seconds=score.cpu_seconds,
            env_steps=score.env_steps,
        )


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Soups in an episode", caption=footer)
    for column in ("kitchen", "human", "robot"):
        shown.add_column(column)
    for column in ("soups", "ahead of still", "ahead of random", "CPU s", "steps"):
        shown.add_column(column, justify="right")
    for row in table:
        shown.add_row(
            row.kitchen, row.human, row.robot, row.soups.shown(2), row.ahead_of_still.shown(2),
            row.ahead_of_random.shown(2), f"{row.cpu_seconds:.0f}", f"{row.env_steps:,}",
        )  # fmt: skip
    Console(width=170).print(shown)


def write(table: list[Row], out: Path, footer: str) -> None:
    """``table.csv``, and ``table.png`` and ``.svg``."""
    write_file(out / "table.csv", f"{csv_text(table)}# {footer}\n")
    kitchens = list(dict.fromkeys(row.kitchen for row in table))
    figure, axes = new_figure(columns=len(kitchens), width=5 * len(kitchens), height=5)
    for axis, kitchen in zip(axes, kitchens, strict=True):
        names = list(dict.fromkeys(row.robot for row in table if row.kitchen == kitchen))
        for at, human in enumerate(HUMANS):
            mine = [row for row in table if (row.kitchen, row.human) == (kitchen, human)]
            values = np.array([row.soups.value for row in mine])
            bars = [
                values - [row.soups.low for row in mine],
                [row.soups.high for row in mine] - values,
            ]
            heights = np.arange(len(names)) + 0.2 * at
            axis.errorbar(values, heights, xerr=bars, fmt="os"[at], label=f"human: {human}")
        axis.set_yticks(range(len(names)), names)
        axis.invert_yaxis()
        axis.set(title=kitchen, xlabel="soups")
    axes[-1].legend(frameon=False)
    write_figure(figure, out / "table.png")


def main() -> None:
    """Train, solve and score all robots, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("overcooked"))
    parser.add_argument("--quick", action="store_true", help="few episodes of a small kitchen")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    parser.add_argument("--kitchen", action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    torch.set_num_threads(1)  # Networks are small, and processors may be shared.
    settings = validate_document(Settings, read_yaml(given.settings))
    digest = hashlib.sha256(given.settings.read_bytes()).hexdigest()[:16]
    out, kitchens = given.out.resolve(), given.kitchen or list(settings.kitchens)
    if given.quick:
        kitchens, out = settings.quick.kitchens, out / "quick"
        fewer = {"total_steps": settings.quick.ppo_steps}
        both = {"params": settings.self_play.params | fewer}
        changed = {
            "episodes": settings.quick.episodes,
            "ppo": settings.ppo | fewer,
            "self_play": settings.self_play.model_copy(update=both),
        }
        settings = settings.model_copy(update=changed)
    out.mkdir(parents=True, exist_ok=True)
    table: list[Row] = []
    for name in kitchens:
        contest = Contest(settings, name, out)
        table += rows(contest, contest.scores(digest))
    footer = (
        f"{settings.episodes} episodes of {settings.steps} steps; 95 % intervals; rules of "
        f"overcooked 0.2.1; settings {given.settings.name} {digest}"
    )
    show(table, footer)
    write(table, out, footer)
    print(f"Wrote {out / 'table.csv'}")


if __name__ == "__main__":
    main()
