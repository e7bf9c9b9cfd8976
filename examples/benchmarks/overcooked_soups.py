"""Overcooked: soups that a robot and a human serve in 400 steps.

Run ``python examples/benchmarks/overcooked_soups.py [OUT] [--quick]``. Robots are trained or solved
as the settings say, and play with a human who plans and with one from self-play. Runs and scores
are kept in OUT (default: ``overcooked``) as they come, so that an interrupted run goes on where it
was; then there are ``table.csv`` and ``table.png``. ``--quick`` takes few episodes of a small
kitchen.
"""

from __future__ import annotations

import argparse
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

from empo_benchmarks.overcooked.world import OvercookedWorld
from empo_core import Config
from empo_core.config.files import read_yaml, validate_document
from empo_core.runs.atomic import write_file
from empo_pictures.figures import new_figure, write_figure

HERE = Path(__file__).parent
SETTINGS = HERE / "overcooked.yaml"
sys.path[:0] = [str(HERE)]

import overcooked_cooks as cooks  # noqa: E402
from esr_scores import Estimate, csv_text, mean, paired_difference  # noqa: E402
from kept_runs import digest, file_digest, run_file  # noqa: E402
from overcooked_ave import ave_robot  # noqa: E402

ALWAYS = ("still", "random", "PPO soups", "PPO self-play")
HUMANS = ("planner", "self-play")
TRAINED = ("PPO soups", "PPO self-play", "EMPO learned", "EMPO by PPO")
USED = {
    "PPO soups": {"ppo"},
    "PPO self-play": {"ppo", "self_play"},
    "self-play": {"ppo", "self_play"},
    "AvE": {"ave"},
    "EMPO learned": {"learned"},
    "EMPO by PPO": {"learned", "ppo", "by_ppo"},
}
"""Settings that scores of robots and humans depend on, besides those that all depend on."""
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


class ByPpo(Config):
    """What differs from ``ppo`` where the robot is paid U_r."""

    environment: dict[str, Any]
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
    runs: dict[str, dict[str, int]]
    robots: dict[str, list[str]]
    horizon: int
    theory: dict[str, float | str]
    ave: dict[str, int]
    learned: dict[str, Any]
    by_ppo: ByPpo
    ppo: dict[str, Any]
    self_play: SelfPlay


@dataclass(frozen=True)
class Row:
    """A line of the table: a robot with a human in a kitchen.

    Intervals are over the means of runs of training where there are several, else over episodes.
    """

    kitchen: str
    human: str
    robot: str
    runs: int
    soups: Estimate
    ahead_of_still: Estimate
    ahead_of_random: Estimate
    cpu_seconds: float
    env_steps: int


@dataclass(frozen=True)
class Score:
    """Soups of each run of training and episode, and what a run took on average."""

    soups: np.ndarray
    cpu_seconds: float
    env_steps: int

    def estimate(self) -> Estimate:
        """The mean number of soups."""
        return mean(self.soups.mean(1) if len(self.soups) > 1 else self.soups[0])

    def ahead_of(self, other: Score, resamples: int, seed: int) -> Estimate:
        """The mean difference to a robot that was not trained, in the same episodes."""
        if len(self.soups) == 1:
            return paired_difference(self.soups[0], other.soups[0], resamples, seed)
        return mean((self.soups - other.soups).mean(1))


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
        planner = cooks.planner(world, settings.noise)
        soups, cpu_seconds, env_steps = [], [], []
        for run in range(self._runs(robot)):
            mine, seconds, steps = self._robot(world, robot, run)
            other = planner
            if human == "self-play":
                # Only its own robot meets another human than all others do.
                partner = run if robot == "PPO self-play" else 0
                other = cooks.trained(world, self._ppo("both", partner)[0], HUMAN)
            soups.append(cooks.soups(world, mine, other, chance))
            cpu_seconds.append(seconds)
            env_steps.append(steps)
        return Score(np.array(soups), float(np.mean(cpu_seconds)), env_steps[0])

    def _robot(self, world: OvercookedWorld, name: str, run: int) -> tuple[cooks.Cook, float, int]:
        """A robot, and processor seconds and steps of agents that it took to make it."""
        settings = self.settings
        if name == "random":
            return cooks.random, 0.0, 0
        if name in ("still", "aside"):
            # The corner to the north of where the robot starts in cramped_room.
            return cooks.fixed(*["north"] * (name == "aside")), 0.0, 0
        if name == "AvE":
            prior = cooks.prior(world, settings.noise)
            return ave_robot(world, prior, **settings.ave, seed=settings.seed), 0.0, 0
        if name in ("PPO soups", "PPO self-play"):
            file, seconds, steps = self._ppo("both" if name == "PPO self-play" else "robot", run)
            return cooks.trained(world, file, ROBOT), seconds, steps
        if name == "EMPO learned":
            file, seconds, steps = self._learned(run)
            return cooks.learned(self._endless(), file), seconds, steps
        if name == "EMPO by PPO":
            file, seconds, steps = self._by_ppo(run)
            return cooks.paid_for_power(self._endless(), file), seconds, steps
        theory = {**settings.theory, "beta_r": float(name.split()[2])}
        # Beside things on counters there are too many states.
        params = json.dumps({**self._params, "counter_items": 0})
        table, policy, seconds = cooks.solved(
            params, settings.horizon, settings.noise, json.dumps(theory)
        )
        return cooks.exact_robot(world, table, policy), seconds, 0

    def _ppo(self, learners: str, run: int) -> tuple[Path, float, int]:
        """The policy file of a run of PPO for soups, by self-play or beside the planner."""
        settings, algorithm = self.settings, dict(self.settings.ppo)
        environment: dict[str, Any] = {"learners": learners}
        if learners == "both":
            algorithm |= settings.self_play.params
            environment["shaping"] = settings.self_play.shaping
        else:
            environment["human_prior"] = self._planner
        algorithm["environment"] = {"name": "overcooked", "params": environment}
        return self._run(f"PPO {learners}", "rollout", algorithm, settings.steps, run)

    def _learned(self, run: int) -> tuple[Path, float, int]:
        """The policy file of a run of ``phase2``."""
        settings = self.settings
        theory = {**settings.theory, **settings.learned["theory"]}
        params = {**settings.learned, "theory": theory, "human_prior": self._planner}
        return self._run("EMPO learned", "phase2", params, None, run)

    def _by_ppo(self, run: int) -> tuple[Path, float, int]:
        """The policy file of a run of PPO that is paid U_r as a run of ``phase2`` left it."""
        settings = self.settings
        known, seconds, _ = self._learned(run)
        reward = {"kind": "power", "run": str(known.parents[1])}
        environment = {
            **settings.by_ppo.environment, "reward": reward, "human_prior": self._planner,
        }  # fmt: skip
        params = {
            **settings.ppo, **settings.by_ppo.params,
            "environment": {"name": "world", "params": environment},
        }  # fmt: skip
        file, more, steps = self._run("EMPO by PPO", "rollout", params, None, run)
        return file, seconds + more, steps

    def _run(
        self, name: str, algorithm: str, params: dict[str, Any], max_steps: int | None, run: int
    ) -> tuple[Path, float, int]:
        world = {**self._params, "soups": 1, "max_steps": max_steps}
        return run_file(
            self.out / self._slug(name),
            {
                "world_model": {"name": "overcooked", "params": world},
                "algorithm": {"name": algorithm, "params": params},
                "seed": self.settings.seed + run,
            },
        )

    @property
    def _planner(self) -> dict[str, Any]:
        return {"name": "kitchen-planner", "params": {"noise": self.settings.noise}}

    def _endless(self) -> OvercookedWorld:
        return cooks.kitchen(self._params, None)

    def _runs(self, robot: str) -> int:
        return self.settings.runs.get(self.name, {}).get(robot, 1)

    def _slug(self, name: str) -> str:
        return f"{self.name} {name}".lower().replace(" ", "_")

    def _digest(self, robot: str, human: str) -> str:
        """Digest of the settings that a score depends on."""
        settings = self.settings.model_dump(mode="json")
        used = {"steps", "episodes", "seed", "noise", "horizon"}
        if robot.startswith("EMPO"):
            used |= {"theory"}
        for name, parts in USED.items():
            if name in (robot, human):
                used |= parts
        about = {key: settings[key] for key in used} | {
            "kitchen": self._params,
            "runs": self._runs(robot),
        }
        return digest(about)

    def scores(self) -> dict[tuple[str, str], Score]:
        """Scores by human and robot; those of an earlier run of the same settings are read."""
        found = {}
        for robot in self.robots():
            for human in HUMANS:
                path = self.out / f"{self._slug(robot)}_with_{human}.json"
                known = self._digest(robot, human)
                if path.is_file() and (kept := json.loads(path.read_text()))["settings"] == known:
                    score = Score(np.array(kept["soups"]), kept["cpu_seconds"], kept["env_steps"])
                    print(f"{self.name}, {robot} with {human}: read from {path}", flush=True)
                else:
                    score = self.score(robot, human)
                    kept = {**vars(score), "soups": score.soups.tolist(), "settings": known}
                    write_file(path, json.dumps(kept) + "\n")
                    number = score.soups.mean()
                    print(f"{self.name}, {robot} with {human}: {number:.2f} soups", flush=True)
                found[human, robot] = score
        return found


def rows(contest: Contest, found: dict[tuple[str, str], Score]) -> Iterator[Row]:
    """The lines of one kitchen."""
    chance = contest.settings.bootstrap, contest.settings.seed
    for (human, robot), score in sorted(found.items(), key=lambda each: HUMANS.index(each[0][0])):
        yield Row(
            kitchen=contest.name,
            human=human,
            robot=robot,
            runs=len(score.soups) if robot in TRAINED else 0,
            soups=score.estimate(),
            ahead_of_still=score.ahead_of(found[human, "still"], *chance),
            ahead_of_random=score.ahead_of(found[human, "random"], *chance),
            cpu_seconds=score.cpu_seconds,
            env_steps=score.env_steps,
        )


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Soups in an episode", caption=footer)
    for column in ("kitchen", "human", "robot"):
        shown.add_column(column)
    for column in ("runs", "soups", "ahead of still", "ahead of random", "CPU s", "steps"):
        shown.add_column(column, justify="right")
    for row in table:
        shown.add_row(
            row.kitchen, row.human, row.robot, str(row.runs or ""), row.soups.shown(2),
            row.ahead_of_still.shown(2), row.ahead_of_random.shown(2),
            f"{row.cpu_seconds:.0f}", f"{row.env_steps:,}",
        )  # fmt: skip
    Console(width=170).print(shown)


def write(table: list[Row], out: Path, footer: str) -> None:
    """``table.csv``, and ``table`` as PNG, SVG and PDF."""
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


def settings_of(path: Path) -> Settings:
    """The settings in a file."""
    return validate_document(Settings, read_yaml(path))


def main() -> None:
    """Train, solve and score all robots, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("overcooked"))
    parser.add_argument("--quick", action="store_true", help="few episodes of a small kitchen")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    parser.add_argument("--kitchen", action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    torch.set_num_threads(1)  # Networks are small, and processors may be shared.
    settings = settings_of(given.settings)
    out, kitchens = given.out.resolve(), given.kitchen or list(settings.kitchens)
    if given.quick:
        kitchens, out = settings.quick.kitchens, out / "quick"
        fewer = {"total_steps": settings.quick.ppo_steps}
        both = {"params": settings.self_play.params | fewer}
        changed = {
            "episodes": settings.quick.episodes,
            "runs": {},
            "ppo": settings.ppo | fewer,
            "self_play": settings.self_play.model_copy(update=both),
        }
        settings = settings.model_copy(update=changed)
    out.mkdir(parents=True, exist_ok=True)
    table: list[Row] = []
    for name in kitchens:
        contest = Contest(settings, name, out)
        table += rows(contest, contest.scores())
    footer = (
        f"{settings.episodes} episodes of {settings.steps} steps; 95 % intervals; rules of "
        f"overcooked 0.2.1; settings {given.settings.name} {file_digest(given.settings)}"
    )
    show(table, footer)
    write(table, out, footer)
    print(f"Wrote {out / 'table.csv'}")


if __name__ == "__main__":
    main()
