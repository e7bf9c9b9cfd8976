"""Disempower-Grid with humans and assistants who learn by PPO, as a check of the exact proxies.

Run ``python examples/benchmarks/disempower_ppo.py [OUT] [--layouts NAME ...] [--seeds N ...]``. On
each layout and for each seed the humans learn for their true goals beside a random assistant, then
assistants learn for the objectives of arXiv 2511.04177 beside these humans. All are played, and on
layouts that are small enough so is the best assistant there is for an objective beside the same
humans, by backward induction. Results are kept in OUT (default: ``disempower_ppo``) as they come,
so that an interrupted run goes on where it was; then there is ``table.csv``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path[:0] = [str(Path(__file__).parent)]

import disempower_kernels as kernels  # noqa: E402
from disempower_sampled import drawn  # noqa: E402
from esr_scores import Estimate, csv_text, mean, paired_difference  # noqa: E402
from kept_runs import file_digest, run_file  # noqa: E402

from empo_benchmarks.disempower.board import ASSISTANT, HUMANS  # noqa: E402
from empo_benchmarks.disempower.environment import env_spec, pay, true_goals  # noqa: E402
from empo_benchmarks.disempower.objectives import empowerment, ends_of, objective  # noqa: E402
from empo_benchmarks.disempower.params import DisempowerParams  # noqa: E402
from empo_benchmarks.disempower.world import DisempowerWorld, load_world  # noqa: E402
from empo_core import Config  # noqa: E402
from empo_core.config.files import read_yaml, validate_document  # noqa: E402
from empo_core.runs.atomic import write_file  # noqa: E402
from empo_exact.graph import build_graph  # noqa: E402
from empo_learning.state_cache import StateCache  # noqa: E402
from empo_rollout.policy import Networks  # noqa: E402
from empo_rollout.policyfile import load_policy  # noqa: E402
from empo_rollout.world_policies import chances  # noqa: E402
from empo_worlds.row_table import RowTable  # noqa: E402

SETTINGS = Path(__file__).with_name("disempower_ppo.yaml")
IDLE, RANDOM = "idle", "random"
RESAMPLES = 2000
Robot = Callable[[torch.Tensor, int], np.ndarray]
"""From states and the time to the assistant's policy [state action]."""


class Settings(Config):
    """The file of settings."""

    layouts: list[str]
    seeds: list[int]
    rewards: list[str]
    exact: list[str]
    steps: int
    episodes: int
    seed: int
    discount: float
    updates: int
    copies: int
    ppo: dict[str, Any]
    humans: dict[str, Any]
    assistant: dict[str, Any]


@dataclass(frozen=True)
class Score:
    """Means over the episodes of one assistant; pairs are about user and bystander.

    Attributes:
        empowerment: Exact mc_emp after each step, in bits.
        steps: Steps on the true goal.
        arrives: Share of episodes in which a human is ever on it.
        objectives: What assistants learn for, after each step.
        against_random: The user has more empowerment than beside a random assistant, and the
            bystander less; differences whose 95 % interval has 0 do not count.
        against_idle: The same beside an idle one.
        cpu_seconds: What it took to make the assistant.
    """

    empowerment: tuple[float, float]
    steps: tuple[float, float]
    arrives: tuple[float, float]
    objectives: dict[str, float]
    against_random: bool
    against_idle: bool
    cpu_seconds: float


@dataclass(frozen=True)
class Episodes:
    """What was measured in each episode [episode] or [human episode]."""

    empowerment: np.ndarray
    steps: np.ndarray
    objectives: dict[str, np.ndarray]

    def disempowers(self, other: Episodes) -> bool:
        """The user gains empowerment and the bystander loses some, compared with others."""
        user, bystander = (
            paired_difference(ours, others, RESAMPLES, 0)
            for ours, others in zip(self.empowerment, other.empowerment, strict=True)
        )
        return user.low > 0 and bystander.high < 0

    def score(self, random: Episodes, idle: Episodes, cpu_seconds: float) -> Score:
        """Their means."""

        def pair(values: np.ndarray) -> tuple[float, float]:
            user, bystander = values.mean(1).tolist()
            return user, bystander

        return Score(
            empowerment=pair(self.empowerment),
            steps=pair(self.steps),
            arrives=pair(self.steps > 0),
            objectives={name: float(values.mean()) for name, values in self.objectives.items()},
            against_random=self.disempowers(random),
            against_idle=self.disempowers(idle),
            cpu_seconds=cpu_seconds,
        )


class Place:
    """A layout, on which humans and assistants learn and play.

    Args:
        settings: The settings.
        layout: Its name.
        folder: Where runs are kept.
    """

    def __init__(self, settings: Settings, layout: str, folder: Path) -> None:
        self.settings, self.layout, self._folder = settings, layout, folder
        params = DisempowerParams(layout=layout, max_steps=settings.steps)
        self.world: DisempowerWorld = load_world(params)
        words = self.world.spec.state_words
        self._bits = StateCache(lambda rows, _: self._bits_of(rows), words, timeless=True)
        self._paid = StateCache(lambda rows, _: self._paid_of(rows), words, timeless=True)

    def _bits_of(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(empowerment(ends_of(self.world.board, words_of(rows))))

    def _paid_of(self, rows: torch.Tensor) -> torch.Tensor:
        paid = [objective(r, self.world.board, words_of(rows)) for r in self.settings.rewards]
        return torch.from_numpy(np.stack(paid, 1))

    def learned(self, seed: int, reward: str | None, humans: Path | None) -> tuple[Path, float]:
        """The policy file of humans, or of an assistant beside them, and its processor seconds."""
        settings = self.settings
        own = settings.humans if reward is None else settings.assistant
        learners = HUMANS if reward is None else 1
        named: dict[str, Any] = {"reward": reward}
        if humans is not None:
            board = self.world.board
            goals = {board.cell_name(goal) for goal in true_goals(board)}
            learned = {
                "file": str(humans.resolve()),
                "goals": sorted(goals),
                "others": "uniform",
                "achieved": "learned",
            }
            named["human_prior"] = {"name": "self-play", "params": learned}
        params = {
            **settings.ppo,
            **own,
            "environment": {"name": "disempower", "params": named},
            "num_envs": settings.copies,
            "total_steps": settings.updates * settings.copies * settings.steps * learners,
        }
        config = {
            "seed": seed,
            "trackers": [],
            "world_model": {
                "name": "disempower",
                "params": {"layout": self.layout, "max_steps": settings.steps},
            },
            "algorithm": {"name": "rollout", "params": params},
        }
        folder = self._folder / f"{self.layout}_{reward or 'humans'}_{seed}"
        file, seconds, _ = run_file(folder, config)
        return file, seconds

    def played(self, humans: Networks, robot: Robot | None) -> Episodes:
        """Episodes beside humans, and an assistant or an idle one, with equal random numbers."""
        settings, world = self.settings, self.world
        rng, count = np.random.default_rng(settings.seed), settings.episodes
        rows = world.initial_state().repeat(count, 1)
        policies = StateCache(
            lambda rows, _: torch.stack(human_policies(world, humans, rows.short()), 1),
            world.spec.state_words,
            timeless=True,
        )
        bits, steps = np.zeros((HUMANS, count)), np.zeros((HUMANS, count))
        paid, nothing = np.zeros((count, len(settings.rewards))), torch.zeros(count).long()
        for moment in range(settings.steps):
            chance = rng.random((HUMANS + 1, count))
            actions = torch.zeros(count, HUMANS + 1).long()
            both = policies(rows.long(), nothing).numpy()
            for human in range(HUMANS):
                actions[:, human] = torch.from_numpy(drawn(both[:, human], chance[human]))
            if robot is not None:
                own = drawn(robot(rows, moment), chance[ASSISTANT])
                actions[:, ASSISTANT] = torch.from_numpy(own)
            rows = world.transitions(rows, actions).states
            bits += self._bits(rows.long(), nothing).numpy().T
            paid += self._paid(rows.long(), nothing).numpy()
            steps += (pay(world.board, rows) > 0).numpy().T
        paid, bits = paid / settings.steps, bits / settings.steps
        objectives = {name: paid[:, i] for i, name in enumerate(settings.rewards)}
        return Episodes(bits, steps, objectives)

    def assistant(self, file: Path) -> Robot:
        """An assistant who has learned."""
        policy = load_policy(file, env_spec(self.world, "assistant")).policy
        options = self.world.spec.num_robot_actions

        def act(rows: torch.Tensor, moment: int) -> np.ndarray:
            seen = self.world.views(rows)[:, ASSISTANT]
            mask = torch.ones(len(rows), options, dtype=torch.bool)
            acting: np.ndarray = chances(policy, seen, mask, 0).numpy()
            return acting

        return act

    def even(self, rows: torch.Tensor, moment: int) -> np.ndarray:
        """A random assistant."""
        actions = self.world.spec.num_robot_actions
        return np.full((len(rows), actions), 1 / actions)

    @cached_property
    def graph(self) -> Graph:
        """All states."""
        return Graph(self.world)

    def best(self, humans: Networks, reward: str) -> tuple[Robot, float]:
        """The best assistant for an objective beside these humans, and its processor seconds."""
        begin, graph = time.process_time(), self.graph
        rows = torch.from_numpy(graph.states)
        both = [policy.numpy().copy() for policy in human_policies(self.world, humans, rows)]
        paid = objective(reward, self.world.board, graph.states).astype(np.float64)
        value, robots = np.zeros(len(paid)), self.world.spec.num_robot_actions
        choices: dict[int, np.ndarray] = {}
        for moment in reversed(range(self.settings.steps)):
            best, before = np.zeros(len(paid), np.int64), np.zeros_like(value)
            kernels.best_actions(
                graph.successor, graph.alike, *both, paid, value, self.settings.discount,
                np.zeros(robots), best, before,
            )  # fmt: skip
            value, choices[moment] = before, best.astype(np.int8)

        def act(rows: torch.Tensor, moment: int) -> np.ndarray:
            certain: np.ndarray = np.eye(robots)[choices[moment][graph.table.find(rows.numpy())]]
            return certain

        return act, time.process_time() - begin

    def scores(self, seed: int) -> Iterator[tuple[str, Score]]:
        """Scores of all assistants beside the humans of a seed."""
        file, seconds = self.learned(seed, None, None)
        humans = load_policy(file, env_spec(self.world, "humans")).policy
        idle, random = self.played(humans, None), self.played(humans, self.even)
        yield IDLE, idle.score(random, idle, seconds)
        yield RANDOM, random.score(random, idle, seconds)
        for reward in self.settings.rewards:
            own, seconds = self.learned(seed, reward, file)
            played = self.played(humans, self.assistant(own))
            yield f"PPO {reward}", played.score(random, idle, seconds)
            if self.layout in self.settings.exact:
                robot, seconds = self.best(humans, reward)
                yield f"exact {reward}", self.played(humans, robot).score(random, idle, seconds)


def human_policies(
    world: DisempowerWorld, humans: Networks, rows: torch.Tensor
) -> list[torch.Tensor]:
    """How user and bystander act who have learned [state action]."""
    views, options = world.views(rows), torch.ones(len(rows), 5, dtype=torch.bool)
    return [chances(humans, views[:, human], options, human) for human in range(HUMANS)]


class Graph:
    """All states of a layout, where joint actions lead, and which of these do the same."""

    def __init__(self, world: DisempowerWorld) -> None:
        graph = build_graph(world, None)
        self.states = graph.states
        self.table = RowTable.of(self.states)
        self.successor = graph.successor.reshape(-1, world.spec.num_joint_actions)
        self.alike = np.empty((len(self.states), world.spec.num_robot_actions), np.int8)
        kernels.find_alike(self.successor, self.alike)


def words_of(rows: torch.Tensor) -> np.ndarray:
    """Rows as kernels read them."""
    words: np.ndarray = rows.to(torch.int16).numpy()
    return words


@dataclass(frozen=True)
class Row:
    """A line of the table: means over seeds, with 95 % t intervals.

    ``of_best`` is how far an assistant gets in its own objective, from a random one (0) to the best
    there is (1); NaN where that is unknown.
    """

    layout: str
    robot: str
    seeds: int
    empowerment_user: Estimate
    empowerment_bystander: Estimate
    steps_user: Estimate
    steps_bystander: Estimate
    against_random: int
    against_idle: int
    of_best: float
    cpu_seconds: float


def row_of(layout: str, robot: str, found: dict[int, dict[str, Score]]) -> Row:
    """The line of an assistant, from the scores of each seed."""
    scores = [by_robot[robot] for by_robot in found.values()]
    reward, reached = robot.partition(" ")[2], float("nan")
    if reward and all(f"exact {reward}" in by_robot for by_robot in found.values()):
        own, none, best = (
            np.array([each[name].objectives[reward] for each in found.values()])
            for name in (robot, RANDOM, f"exact {reward}")
        )
        reached = float(((own - none) / (best - none)).mean())
    numbers = [(*score.empowerment, *score.steps) for score in scores]
    return Row(
        layout, robot, len(scores),
        *(mean(np.array(column)) for column in zip(*numbers, strict=True)),
        sum(score.against_random for score in scores),
        sum(score.against_idle for score in scores),
        reached,
        float(np.mean([score.cpu_seconds for score in scores])),
    )  # fmt: skip


def show(table: list[Row], footer: str) -> None:
    """Print the table."""
    shown = Table(title="Disempower-Grid by PPO", caption=footer)
    columns = ("emp user", "emp bystander", "steps user", "steps bystander")
    for column in ("layout", "assistant", "seeds", *columns):
        shown.add_column(column, no_wrap=True)
    for column in ("disempowers: random", "idle", "of best", "CPU s"):
        shown.add_column(column, justify="right")
    for row in table:
        shown.add_row(
            row.layout, row.robot, str(row.seeds),
            row.empowerment_user.shown(3), row.empowerment_bystander.shown(3),
            row.steps_user.shown(1), row.steps_bystander.shown(1),
            str(row.against_random), str(row.against_idle),
            "" if np.isnan(row.of_best) else f"{row.of_best:.0%}", f"{row.cpu_seconds:.1f}",
        )  # fmt: skip
    Console(width=200).print(shown)


def kept(path: Path, digest: str) -> dict[str, Score] | None:
    """Scores of a layout and a seed that are there already."""
    saved = json.loads(path.read_text()) if path.is_file() else {}
    if saved.get("settings") != digest:
        return None
    return {name: Score(**score) for name, score in saved["scores"].items()}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("disempower_ppo"))
    parser.add_argument("--layouts", nargs="+", help="some of those of the settings")
    parser.add_argument("--seeds", type=int, nargs="+", help="some of those of the settings")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    return parser.parse_args()


def main() -> None:
    """Let everybody learn and play, and print the table."""
    given = arguments()
    settings = validate_document(Settings, read_yaml(given.settings))
    layouts, seeds = given.layouts or settings.layouts, given.seeds or settings.seeds
    for option, asked, there in (
        ("--layouts", layouts, settings.layouts),
        ("--seeds", seeds, settings.seeds),
    ):
        for one in asked:
            if one not in there:
                sys.exit(f"{option} {one}: the settings have {', '.join(map(str, there))}")
    digest = file_digest(given.settings)
    footer = f"settings {given.settings.name} {digest}"
    print(footer)
    given.out.mkdir(parents=True, exist_ok=True)
    table: list[Row] = []
    for layout in layouts:
        place, found = Place(settings, layout, given.out / "runs"), {}
        for seed in seeds:
            path = given.out / f"{layout}_{seed}.json"
            scores = kept(path, digest)
            if scores is None:
                scores = dict(place.scores(seed))
                saved = {name: asdict(score) for name, score in scores.items()}
                write_file(path, json.dumps({"settings": digest, "scores": saved}) + "\n")
            print(f"{layout}, seed {seed}: {path}", flush=True)
            found[seed] = scores
        table += [row_of(layout, robot, found) for robot in found[seeds[0]]]
        show(table, footer)
    write_file(given.out / "table.csv", f"{csv_text(table)}# {footer}\n")
    print(f"Wrote {given.out / 'table.csv'}")


if __name__ == "__main__":
    main()
