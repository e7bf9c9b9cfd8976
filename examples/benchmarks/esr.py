"""The obstacle gridworld benchmark: robots that help a human whose goal they cannot see.

Run ``python examples/benchmarks/esr.py [OUT] [--boxes 2 3] [--learned] [--only TEXT] [--quick]
[--settings FILE]``; ``esr_neighbours.yaml`` has all starts, and robots that infer the goal.
Robots are scored by a simulator that was written from the rules alone and shares no code with the
world that EMPO solves. Results are kept in OUT (default: ``esr``) as they come, so that an
interrupted run goes on where it was; then there are ``table.csv`` and ``table.png``. ``--learned``
adds robots that learn, ``--only`` leaves out others than the primary one whose names lack the text,
``--quick`` takes few episodes with two boxes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_benchmarks.blocks.params import BlocksParams
from empo_benchmarks.blocks.world import load_world
from empo_core.config.files import read_yaml, validate_document
from empo_core.runs.atomic import write_file
from empo_pictures.figures import new_figure, write_figure

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "plugins" / "empo_benchmarks" / "tests")]

import esr_learners  # noqa: E402
import esr_robots  # noqa: E402
from esr_ave import best_actions  # noqa: E402
from esr_scores import Estimate, csv_text, mean, paired_difference, share  # noqa: E402
from esr_settings import LEARNED, SETTINGS, GoalList, LearnedSettings, Settings  # noqa: E402
from kept_runs import file_digest, run_file  # noqa: E402
from simulator import Episodes, Robot, Scores, played, started  # noqa: E402

CORNERS = 4
REPRODUCED = (
    "contrastive robots are ours, for which a reproduction of the published code (issue 3 of "
    "vivekmyers/empowerment_successor_representations, 20 seeds) has rewards of 18.9 and 20.5"
)
"""Stands under tables with contrastive robots."""
LEARNED_FROM = " learned, seed "
"""Stands between a robot that learns and its seed."""


@dataclass(frozen=True)
class Row:
    """A robot's line in the table."""

    boxes: int
    start: str
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
class Score:
    """What became of a robot's episodes, and what it took to make the robot."""

    scores: Scores
    cpu_seconds: float
    env_steps: int


@dataclass(frozen=True)
class Contest:
    """All episodes with one number of boxes, and where results are kept."""

    settings: Settings
    learned: LearnedSettings | None
    boxes: int
    episodes: Episodes
    chance: np.ndarray
    out: Path

    @classmethod
    def of(
        cls,
        settings: Settings,
        boxes: int,
        episodes: int,
        out: Path,
        learned: LearnedSettings | None = None,
    ) -> Contest:
        """Episodes of all starts and corners, each of a start drawn from a seed of its own."""
        seeds = settings.seed + np.arange(CORNERS * episodes)
        parts = [
            started(start, corner, settings.size, boxes, settings.steps, part)
            for start in settings.starts
            for corner, part in enumerate(np.split(seeds, CORNERS))
        ]
        fields = zip(*(vars(part).values() for part in parts), strict=True)
        chance = [np.random.default_rng([seed, 2]).random(settings.steps) for seed in seeds]
        drawn = Episodes(*map(np.concatenate, fields))
        return cls(settings, learned, boxes, drawn, np.stack(chance * len(settings.starts)), out)

    def robots(self) -> Iterator[str]:
        """Names of all robots."""
        yield from self.settings.robots
        empo = self.settings.empo
        for humans in empo.humans:
            yield from (f"EMPO {humans}, beta_r {beta:g}" for beta in empo.beta_r)
        yield from self.inferring()
        if self.learned is not None:
            values = [f"EMPO {name}" for name in self.learned.empo.values]
            for name in (*self.learned.env_steps, *values):
                yield from (f"{name}{LEARNED_FROM}{seed}" for seed in self.learned.seeds)

    def inferring(self) -> dict[str, tuple[str, GoalList]]:
        """The human's model and the goals of each robot that infers, by the robot's name."""
        settings, cells = self.settings.inferring, self.settings.size**2
        if settings is None:
            return {}
        return {
            f"infers {human}, {list_name(goals, cells)}": (human, goals)
            for human in settings.humans
            for goals in settings.lists
        }

    def score(self, name: str) -> Score:
        """Scores of a robot, and the processor seconds that it took to make it."""
        if LEARNED_FROM in name:
            robot, seconds, steps = self._learned_robot(name)
            return Score(played(robot, self.episodes), seconds, steps)
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            robot = self.robot(name, Path(folder))
            seconds = time.process_time() - begin
            return Score(played(robot, self.episodes), seconds, 0)

    def robot(self, name: str, folder: Path) -> Robot:
        """A robot that does not learn."""
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
        if name in (inferring := self.inferring()):
            assert settings.inferring is not None
            human, goals = inferring[name]
            inference = esr_robots.inference(
                settings.inferring.humans[human], settings.inferring.params, size, self.boxes
            )
            seeds = [settings.seed, 3]
            chance = np.random.default_rng(seeds).random((len(self.episodes.goal), size**2))
            listed = esr_robots.goal_lists(goals, self.episodes.goal, chance)
            return esr_robots.Inferring(inference, listed)
        humans, _, beta_r = name.removeprefix("EMPO ").partition(", beta_r ")
        theory = {**settings.empo.theory, "beta_r": float(beta_r)}
        result = esr_robots.solved(
            size, self.boxes, settings.steps, humans, theory, folder, settings.empo.preset
        )
        return esr_robots.empo(result.robot_policies, self.chance)

    def _learned_robot(self, name: str) -> tuple[Robot, float, int]:
        """A robot that learns, and processor seconds and steps of the world that it took."""
        assert self.learned is not None
        learned, settings = self.learned, self.settings
        kind, _, seed = name.partition(LEARNED_FROM)
        if kind.startswith("EMPO "):
            values, folder = kind.removeprefix("EMPO "), self.out / self.slug(name)
            config = esr_robots.learned_config(settings, learned.empo, self.boxes, values)
            file, seconds, steps = run_file(folder, {**config, "seed": int(seed)})
            policies = esr_robots.learned_policies(file, settings, self.boxes)
            return esr_robots.empo(policies, self.chance), seconds, steps
        begin, steps = time.process_time(), learned.env_steps[kind]
        course = esr_learners.Course(kind, settings, self.boxes, learned.learning)
        learner = course.robot(steps, int(seed))
        seconds = time.process_time() - begin
        return esr_learners.robot_of(learner, settings.size, self.chance), seconds, steps

    def slug(self, name: str) -> str:
        """Name of a robot's files."""
        return f"{self.boxes}_boxes_{name}".lower().replace(",", "").replace(" ", "_")


def list_name(goals: GoalList, cells: int) -> str:
    """Such as ``all goals`` or ``5 wrong goals``."""
    if goals.goals == cells:
        return "all goals"
    return f"{goals.goals} goals" if goals.has_true else f"{goals.goals} wrong goals"


def scores(contest: Contest, names: list[str], digests: list[str]) -> dict[str, Score]:
    """Scores of robots; those of an earlier run of the same settings are read.

    The first digest is that of the settings, the last covers those of robots that learn.
    """
    found = {}
    for name in names:
        digest = digests[-1 if LEARNED_FROM in name else 0]
        path = contest.out / f"{contest.slug(name)}.json"
        number = len(contest.episodes.goal)
        if path.is_file():
            kept = json.loads(path.read_text())
            if (kept["settings"], kept["episodes"]) == (digest, number):
                arrays = {key: np.array(values) for key, values in kept["scores"].items()}
                steps = kept.get("env_steps", 0)
                found[name] = Score(Scores(**arrays), kept["cpu_seconds"], steps)
                print(f"{contest.boxes} boxes, {name}: read from {path}", flush=True)
                continue
        found[name] = score = contest.score(name)
        kept = {
            "settings": digest,
            "episodes": number,
            "cpu_seconds": score.cpu_seconds,
            "env_steps": score.env_steps,
            "scores": {key: values.tolist() for key, values in asdict(score.scores).items()},
        }
        write_file(path, json.dumps(kept) + "\n")
        print(f"{contest.boxes} boxes, {name}: {score.cpu_seconds:.1f} CPU seconds", flush=True)
    return found


def rows(contest: Contest, found: dict[str, Score]) -> Iterator[Row]:
    """The lines of the table, start by start."""
    settings = contest.settings
    size = len(contest.episodes.goal) // len(settings.starts)
    pairs = [
        (at, name, score) for at in range(len(settings.starts)) for name, score in found.items()
    ]
    for at, name, score in pairs:
        part = slice(at * size, (at + 1) * size)
        scored = Scores(*(values[part] for values in vars(score.scores).values()))
        primary = found[settings.primary].scores.reward[part]
        succeeds = scored.reward > 0
        yield Row(
            boxes=contest.boxes,
            start=settings.starts[at],
            robot=name,
            success=share(succeeds),
            reward=mean(scored.reward),
            crushed=share(scored.is_crushed),
            arrival=float(scored.arrival[succeeds].mean()) if succeeds.any() else float("nan"),
            failures=int((~succeeds).sum()),
            failures_with_box_on_goal=int((~succeeds & scored.is_box_on_goal).sum()),
            behind_primary=paired_difference(
                primary, scored.reward, settings.bootstrap, settings.seed
            ),
            cpu_seconds=score.cpu_seconds,
            env_steps=score.env_steps,
        )


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Obstacle gridworld", caption=footer)
    scored = ("success", "reward", "crushed", "arrival", "failures", "primary ahead by")
    for column in ("boxes", "start", "robot", *scored, "CPU s", "steps"):
        shown.add_column(column, justify="left" if column in ("start", "robot") else "right")
    for row in table:
        shown.add_row(
            str(row.boxes), row.start, row.robot, row.success.shown(3), row.reward.shown(2),
            row.crushed.shown(3), f"{row.arrival:.1f}",
            f"{row.failures} ({row.failures_with_box_on_goal} box on goal)",
            row.behind_primary.shown(2), f"{row.cpu_seconds:.1f}",
            f"{row.env_steps:,}",
        )  # fmt: skip
    Console(width=170).print(shown)


def write(table: list[Row], out: Path, footer: str) -> None:
    """``table.csv``, and ``table`` as PNG, SVG and PDF."""
    write_file(out / "table.csv", f"{csv_text(table)}# {footer}\n")
    groups = list(dict.fromkeys((row.boxes, row.start) for row in table))
    figure, axes = new_figure(columns=3, width=13, height=5)
    for axis, key, label in zip(
        axes, ("success", "reward", "crushed"), ("success", "mean reward", "crushed"), strict=True
    ):
        for at, (boxes, start) in enumerate(groups):
            mine = [row for row in table if (row.boxes, row.start) == (boxes, start)]
            found: list[Estimate] = [getattr(row, key) for row in mine]
            values = np.array([each.value for each in found])
            bars = [values - [e.low for e in found], [e.high for e in found] - values]
            heights = np.arange(len(mine)) + 0.8 / max(4, len(groups)) * at
            name = (
                f"{boxes} boxes"
                if len({start for _, start in groups}) == 1
                else (f"{boxes} boxes, {start}")
            )
            axis.errorbar(values, heights, xerr=bars, fmt="os^Dv<>*P"[at % 9], label=name)
        axis.set_yticks(range(len(mine)), [row.robot for row in mine] if axis is axes[0] else [])
        axis.invert_yaxis()
        axis.set_xlabel(label)
    axes[-1].legend(frameon=False)
    write_figure(figure, out / "table.png")


def load_kernels(settings: Settings) -> None:
    """Solve two tiny worlds, so that compiling is not charged to anybody."""
    for humans in ("matched", "pessimistic"):
        esr_robots.solved(2, 1, 1, humans, dict(settings.empo.theory), Path())


def arguments() -> argparse.Namespace:
    """What was asked for on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("esr"))
    parser.add_argument("--boxes", type=int, nargs="+", help="other numbers than in the settings")
    parser.add_argument("--learned", action="store_true", help="robots that learn, too")
    parser.add_argument("--only", default="", metavar="TEXT", help="robots whose names have it")
    parser.add_argument("--quick", action="store_true", help="few episodes with two boxes")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    parser.add_argument("--learned-settings", type=Path, default=LEARNED, help="another file")
    return parser.parse_args()


def main() -> None:
    """Score all robots, print and write the table."""
    torch.set_num_threads(1)  # For small networks more only wait for each other.
    given = arguments()
    settings = validate_document(Settings, read_yaml(given.settings))
    digests, footer = [file_digest(given.settings)], f"settings {given.settings.name}"
    learned = None
    if given.learned:
        learned = validate_document(LearnedSettings, read_yaml(given.learned_settings))
        digests.append(f"{digests[0]} {file_digest(given.learned_settings)}")
        footer += f" and {given.learned_settings.name}"
    size = settings.quick if given.quick else settings
    numbers, most = given.boxes or size.boxes, settings.size**2 - 2
    if not 1 <= min(numbers) <= max(numbers) <= most:
        sys.exit(
            f"boxes {numbers}: {settings.size} x {settings.size} cells have room for 1 to {most} "
            "boxes beside the human and its goal"
        )
    given.out.mkdir(parents=True, exist_ok=True)
    load_kernels(settings)
    table: list[Row] = []
    for boxes in numbers:
        contest = Contest.of(settings, boxes, size.episodes, given.out, learned)
        names = [n for n in contest.robots() if n == settings.primary or given.only in n]
        table += rows(contest, scores(contest, names, digests))
    footer = f"{CORNERS * size.episodes} episodes each; 95 % intervals; {footer} {digests[-1]}"
    if any(row.robot.startswith("contrastive") for row in table):
        footer += f"; {REPRODUCED}"
    show(table, footer)
    write(table, given.out, footer)
    print(f"Wrote {given.out / 'table.csv'}")


if __name__ == "__main__":
    main()
