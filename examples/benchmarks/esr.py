"""The obstacle gridworld benchmark: robots that help a human whose goal they cannot see.

Run ``python examples/benchmarks/esr.py [OUT] [--quick]``. Robots are scored by a simulator that was
written from the rules alone and shares no code with the world that EMPO solves. Results are kept
in OUT (default: ``esr``) as they come, so that an interrupted run goes on where it was; then there
are ``table.csv`` and ``table.png``. ``--quick`` takes few episodes with two boxes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from empo_blocks.plugin import BlocksParams
from empo_blocks.world import load_world
from empo_core import Config
from empo_core.config.files import read_yaml, validate_document
from empo_core.figures import new_figure, write_figure
from empo_core.storage.arrays import write_file

HERE = Path(__file__).parent
SETTINGS = HERE / "esr_blocks.yaml"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "plugins" / "empo_blocks" / "tests")]

import esr_robots  # noqa: E402
from esr_ave import best_actions  # noqa: E402
from esr_scores import Estimate, csv_text, mean, paired_difference, share  # noqa: E402
from simulator import Episodes, Robot, Scores, played, started  # noqa: E402

CORNERS = 4


class Quick(Config):
    """What ``--quick`` changes."""

    boxes: list[int]
    episodes: int


class Empo(Config):
    """The rows of EMPO: all humans times all beta_r."""

    theory: dict[str, float | str]
    beta_r: list[float]
    humans: list[str]


class Ave(Config):
    """The exact variant of assistance via empowerment."""

    steps: int
    discount: float
    sweeps: int


class Settings(Config):
    """The file of settings."""

    size: int
    steps: int
    boxes: list[int]
    start: str
    episodes: int
    seed: int
    quick: Quick
    bootstrap: int
    empo: Empo
    primary: str
    robots: list[str]
    ave: Ave


@dataclass(frozen=True)
class Row:
    """A robot's line in the table."""

    boxes: int
    robot: str
    success: Estimate
    reward: Estimate
    crushed: Estimate
    arrival: float
    failures: int
    failures_with_box_on_goal: int
    behind_primary: Estimate
    cpu_seconds: float
    env_steps: int


@dataclass(frozen=True)
class Contest:
    """All episodes with one number of boxes."""

    settings: Settings
    boxes: int
    episodes: Episodes
    chance: np.ndarray

    @classmethod
    def of(cls, settings: Settings, boxes: int, episodes: int) -> Contest:
        """Episodes of all corners, each drawn from a seed of its own."""
        seeds = settings.seed + np.arange(CORNERS * episodes)
        parts = [
            started(settings.start, corner, settings.size, boxes, settings.steps, part)
            for corner, part in enumerate(np.split(seeds, CORNERS))
        ]
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        chance = [np.random.default_rng([seed, 2]).random(settings.steps) for seed in seeds]
        return cls(settings, boxes, Episodes(*map(np.concatenate, fields)), np.stack(chance))

    def robots(self) -> Iterator[str]:
        """Names of all robots."""
        yield from self.settings.robots
        empo = self.settings.empo
        for humans in empo.humans:
            yield from (f"EMPO {humans}, beta_r {beta:g}" for beta in empo.beta_r)

    def score(self, name: str) -> tuple[Scores, float]:
        """Scores of a robot, and the processor seconds that it took to solve its world."""
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            robot = self._robot(name, Path(folder))
            seconds = time.process_time() - begin
            return played(robot, self.episodes), seconds

    def _robot(self, name: str, folder: Path) -> Robot:
        settings, size = self.settings, self.settings.size
        if name == "still":
            return esr_robots.still(size)
        if name == "random125":
            return esr_robots.random125(size, self.chance)
        if name == "random-effective":
            return esr_robots.random_effective(self.chance)
        if name.startswith("AvE "):
            world = load_world(BlocksParams(size=size, boxes=self.boxes))
            ave = settings.ave.model_dump()
            return esr_robots.greedy(best_actions(world, name.split()[1], **ave), world)
        humans, _, beta_r = name.removeprefix("EMPO ").partition(", beta_r ")
        theory = {**settings.empo.theory, "beta_r": float(beta_r)}
        result = esr_robots.solved(size, self.boxes, settings.steps, humans, theory, folder)
        return esr_robots.empo(result, self.chance)


def scores(contest: Contest, out: Path, digest: str) -> dict[str, tuple[Scores, float]]:
    """Scores of all robots; those of an earlier run of the same settings are read."""
    found = {}
    for name in contest.robots():
        slug = name.lower().replace(",", "").replace(" ", "_")
        path = out / f"{contest.boxes}_boxes_{slug}.json"
        number = len(contest.episodes.goal)
        if path.is_file():
            kept = json.loads(path.read_text())
            if (kept["settings"], kept["episodes"]) == (digest, number):
                arrays = {key: np.array(values) for key, values in kept["scores"].items()}
                found[name] = Scores(**arrays), kept["cpu_seconds"]
                print(f"{contest.boxes} boxes, {name}: read from {path}", flush=True)
                continue
        scored, seconds = found[name] = contest.score(name)
        data = {key: values.tolist() for key, values in asdict(scored).items()}
        kept = {"settings": digest, "episodes": number, "cpu_seconds": seconds, "scores": data}
        write_file(path, json.dumps(kept) + "\n")
        print(f"{contest.boxes} boxes, {name}: {seconds:.1f} CPU seconds", flush=True)
    return found


def rows(contest: Contest, found: dict[str, tuple[Scores, float]]) -> Iterator[Row]:
    """The lines of the table."""
    settings = contest.settings
    primary, _ = found[settings.primary]
    for name, (scored, seconds) in found.items():
        succeeds = scored.reward > 0
        yield Row(
            boxes=contest.boxes,
            robot=name,
            success=share(succeeds),
            reward=mean(scored.reward),
            crushed=share(scored.is_crushed),
            arrival=float(scored.arrival[succeeds].mean()) if succeeds.any() else float("nan"),
            failures=int((~succeeds).sum()),
            failures_with_box_on_goal=int((~succeeds & scored.is_box_on_goal).sum()),
            behind_primary=paired_difference(
                primary.reward, scored.reward, settings.bootstrap, settings.seed
            ),
            cpu_seconds=seconds,
            env_steps=0,  # None of these robots learns from the environment.
        )


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Obstacle gridworld", caption=footer)
    columns = ("success", "reward", "crushed", "arrival", "failures", "primary ahead by", "CPU s")
    for column in ("boxes", "robot", *columns):
        shown.add_column(column, justify="left" if column == "robot" else "right")
    for row in table:
        shown.add_row(
            str(row.boxes), row.robot, row.success.shown(3), row.reward.shown(2),
            row.crushed.shown(3), f"{row.arrival:.1f}",
            f"{row.failures} ({row.failures_with_box_on_goal} box on goal)",
            row.behind_primary.shown(2), f"{row.cpu_seconds:.1f}",
        )  # fmt: skip
    Console(width=170).print(shown)


def write(table: list[Row], out: Path, footer: str) -> None:
    """``table.csv``, and ``table.png`` and ``.svg``."""
    write_file(out / "table.csv", f"{csv_text(table)}# {footer}\n")
    counts = list(dict.fromkeys(row.boxes for row in table))
    figure, axes = new_figure(columns=3, width=13, height=5)
    for axis, key, label in zip(
        axes, ("success", "reward", "crushed"), ("success", "mean reward", "crushed"), strict=True
    ):
        for at, boxes in enumerate(counts):
            mine = [row for row in table if row.boxes == boxes]
            found: list[Estimate] = [getattr(row, key) for row in mine]
            values = np.array([each.value for each in found])
            bars = [values - [e.low for e in found], [e.high for e in found] - values]
            heights = np.arange(len(mine)) + 0.2 * at
            axis.errorbar(values, heights, xerr=bars, fmt="os^D"[at % 4], label=f"{boxes} boxes")
        axis.set_yticks(range(len(mine)), [row.robot for row in mine] if axis is axes[0] else [])
        axis.invert_yaxis()
        axis.set_xlabel(label)
    axes[-1].legend(frameon=False)
    write_figure(figure, out / "table.png")


def load_kernels(settings: Settings) -> None:
    """Solve two tiny worlds, so that compiling is not charged to anybody."""
    for humans in ("matched", "pessimistic"):
        esr_robots.solved(2, 1, 1, humans, dict(settings.empo.theory), Path())


def main() -> None:
    """Score all robots, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("esr"))
    parser.add_argument("--quick", action="store_true", help="few episodes with two boxes")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    given = parser.parse_args()
    settings = validate_document(Settings, read_yaml(given.settings))
    digest = hashlib.sha256(given.settings.read_bytes()).hexdigest()[:16]
    given.out.mkdir(parents=True, exist_ok=True)
    size = settings.quick if given.quick else settings
    load_kernels(settings)
    table: list[Row] = []
    for boxes in size.boxes:
        contest = Contest.of(settings, boxes, size.episodes)
        table += rows(contest, scores(contest, given.out, digest))
    number = CORNERS * size.episodes
    footer = f"{number} episodes each; 95 % intervals; settings {given.settings.name} {digest}"
    show(table, footer)
    write(table, given.out, footer)
    print(f"Wrote {given.out / 'table.csv'}")


if __name__ == "__main__":
    main()
