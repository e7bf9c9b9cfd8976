"""Failures of EMPO with two boxes in the obstacle gridworld, and the decisions behind them.

Run ``python examples/benchmarks/esr_failures.py [OUT]``. It plays the robots of
``esr_blocks.yaml``, sorts their failures by what kept the human from its goal, and asks every robot
about the decisions in which the most failing one leaves a box on the goal of a human that waits
beside it. Numbers are printed; OUT (default: ``esr``) gets ``failures`` as PNG, SVG and PDF.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core.config.files import read_yaml, validate_document
from empo_exact.result import ExactResult
from empo_inspector import explain
from empo_pictures.figures import new_figure, write_figure

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "plugins" / "empo_benchmarks" / "tests")]

import esr  # noqa: E402
import esr_robots  # noqa: E402
from esr_settings import SETTINGS, Settings  # noqa: E402
from simulator import MOVES, STAY, Scores, human_choice, played, target_cells  # noqa: E402

SETTLED = 10
"""Step from which a human that has not arrived is asked why; before, it is being freed."""
LATE = 40
"""Step from which decisions are about the end of the episode, and so are left out."""
NO_HOPE = 1e-6
"""V_h^m below which a human takes all actions alike."""
CAUSES = ("box on goal", "no way", "detour needed", "walking")


@dataclass(frozen=True)
class Watched:
    """A robot's episodes: where everything was before each step."""

    result: ExactResult
    scores: Scores
    human: np.ndarray  # [step, episode]
    boxes: np.ndarray  # [step, episode, row, column]

    @property
    def failures(self) -> np.ndarray:
        """Numbers of the episodes in which the human did not arrive."""
        return np.flatnonzero(self.scores.reward == 0)


@dataclass(frozen=True)
class Decisions:
    """Decisions in which the human is next to its goal, on which a box stands that could leave."""

    time: np.ndarray  # [decision]
    rows: np.ndarray  # [decision, word]
    goal: np.ndarray  # [decision]


def watched(contest: esr.Contest, humans: str, beta_r: float, folder: Path) -> Watched:
    """A robot's episodes."""
    settings = contest.settings
    theory = {**settings.empo.theory, "beta_r": beta_r}
    result = esr_robots.solved(settings.size, contest.boxes, settings.steps, humans, theory, folder)
    robot, seen = esr_robots.empo(result.robot_policies, contest.chance), []

    def watch(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        seen.append((human.copy(), boxes.copy()))
        return robot(human, boxes, step)

    scores = played(watch, contest.episodes)
    return Watched(result, scores, *map(np.stack, zip(*seen, strict=True)))


def cause(human: int, boxes: np.ndarray, goal: int) -> str:
    """What keeps a human from its goal in one state; ``boxes`` [row, column]."""
    if boxes.flat[goal]:
        return "box on goal"
    if not is_connected(human, goal, boxes):
        return "no way"
    stays = human_choice(np.array([human]), boxes[None], np.array([goal]))[0] == STAY
    return "detour needed" if stays else "walking"


def is_connected(human: int, goal: int, boxes: np.ndarray) -> bool:
    """True where the human can walk to the goal around boxes that stay."""
    reached = np.zeros(boxes.size, bool)
    reached[human] = True
    for _ in range(boxes.size):
        cells = np.flatnonzero(reached)
        around = np.broadcast_to(boxes, (len(cells), *boxes.shape))
        for direction in range(len(MOVES)):
            reached[target_cells(cells, np.full_like(cells, direction), around)] = True
    return bool(reached[goal])


def main_causes(robot: Watched, goals: np.ndarray) -> Counter[str]:
    """Failures by what kept the human from its goal most of the time, or that it was crushed."""
    found: Counter[str] = Counter()
    for episode in robot.failures:
        if robot.scores.is_crushed[episode]:
            found["crushed"] += 1
            continue
        steps = zip(robot.human[SETTLED:, episode], robot.boxes[SETTLED:, episode], strict=True)
        every = Counter(cause(int(human), boxes, goals[episode]) for human, boxes in steps)
        found[every.most_common(1)[0][0]] += 1
    return found


def boxes_in_corners(robot: Watched) -> np.ndarray:
    """Mean share of boxes that stand in corners [step]."""
    grid = robot.boxes[:, :, [0, 0, -1, -1], [0, -1, 0, -1]]
    return grid.sum(2).mean(1) / robot.boxes[0, 0].sum()


def waiting(robot: Watched, goals: np.ndarray) -> Decisions:
    """Decisions of a robot's failures in which the human is next to a goal that it could free."""
    size, failures = robot.boxes.shape[-1], robot.failures
    human, boxes = robot.human[:LATE, failures], robot.boxes[:LATE, failures]
    goal = np.broadcast_to(goals[failures], human.shape)
    distance = abs(human // size - goal // size) + abs(human % size - goal % size)
    flat = boxes.reshape(*human.shape, -1)
    on_goal = np.take_along_axis(flat, goal[..., None], 2)[..., 0]
    time, episode = np.nonzero((distance == 1) & on_goal)
    cells = esr_robots.box_cells(boxes[time, episode])
    rows = np.concatenate([human[time, episode][:, None], cells], 1).astype(np.int16)
    able = leaving(rows, goal[time, episode], size).any(1)
    return Decisions(time[able], rows[able], goal[time, episode][able])


def leaving(rows: np.ndarray, goal: np.ndarray, size: int) -> np.ndarray:
    """Which robot actions move the box off the goal, and not onto the human [decision, action]."""
    cells, decision = rows[:, 1:].astype(np.int64), np.arange(len(rows))
    boxes = np.zeros((len(rows), size**2), bool)
    boxes[decision[:, None], cells] = True
    found = np.zeros((len(rows), 1 + STAY * cells.shape[1]), bool)
    for action in range(1, found.shape[1]):
        cell, direction = esr_robots.pushed(cells, np.full(len(rows), action))
        target = target_cells(cell, direction, boxes.reshape(-1, size, size))
        found[:, action] = (cell == goal) & (target != cell) & (target != rows[:, 0])
    return found


def chance_to_leave(result: ExactResult, asked: Decisions, size: int) -> float:
    """Mean probability that a robot moves the box off the goal in the next step."""
    leaves, total = leaving(asked.rows, asked.goal, size), 0.0
    for time in np.unique(asked.time):
        same = asked.time == time
        rows = torch.from_numpy(asked.rows[same])
        policy = result.robot_policies(rows, result.horizon - int(time)).numpy()
        total += float(policy[leaves[same]].sum())
    return total / len(asked.time)


def typical(asked: Decisions) -> tuple[list[int], int, int]:
    """The most frequent state among decisions, its goal, and the middle one of its times."""
    each = [
        (*row, goal) for row, goal in zip(asked.rows.tolist(), asked.goal.tolist(), strict=True)
    ]
    *row, goal = most = Counter(each).most_common(1)[0][0]
    times = [int(time) for time, one in zip(asked.time, each, strict=True) if one == most]
    return row, goal, sorted(times)[len(times) // 2]


def kinds_of_cells(size: int, goal: int) -> dict[str, np.ndarray]:
    """The goal, a corner as a rule, other corners, other cells of the border, and cells inside."""
    y, x = np.divmod(np.arange(size**2), size)
    sides = np.isin(y, (0, size - 1)).astype(int) + np.isin(x, (0, size - 1))
    own = np.arange(size**2) == goal
    return {
        "this corner": own, "other corners": (sides == 2) & ~own,
        "edges": (sides == 1) & ~own, "inside": (sides == 0) & ~own,
    }  # fmt: skip


@dataclass(frozen=True)
class Split:
    """The difference of Q_r between leaving the box on the goal and moving it off, by cells."""

    share: dict[str, float]  # Of |Q_r|.
    attainable: dict[str, float]  # V_h^e while it stays.
    hopeless: tuple[int, int]  # Goals whose V_h^m is 0 after either action.
    power: tuple[float, float]  # X_h after either action.


def split(result: ExactResult, row: list[int], time: int, goal: int, action: str) -> Split:
    """Reasons for staying still rather than moving the box off."""
    why = explain(result, row, time, "still", action).reasons
    here, scale = result.at(row, time), abs(float(why.policies.q_r[0, why.first]))
    kinds = kinds_of_cells(round(len(here.V_e) ** 0.5), goal)
    parts = why.parts.sum(0) / scale
    world, moved = result.problem.world, torch.tensor([[0, why.first], [0, why.second]])
    after = world.transitions(torch.tensor([row, row]), moved).states.tolist()
    later = [result.at(state, time + 1) for state in after]
    return Split(
        {kind: float(parts[cells].sum()) for kind, cells in kinds.items()},
        {kind: float(here.V_e[cells].mean()) for kind, cells in kinds.items()},
        (int((later[0].V_m < NO_HOPE).sum()), int((later[1].V_m < NO_HOPE).sum())),
        (later[0].X_h[0], later[1].X_h[0]),
    )


def show(robots: dict[tuple[str, float], Watched], asked: Decisions, goals: np.ndarray) -> None:
    """Print a line per robot."""
    columns = ("humans", "beta_r", "failures", "goal in a corner", "crushed", *CAUSES)
    table = Table(title="Failures, and what was in the way for most of the time")
    for column in (*columns, "boxes in corners", "box leaves, per step"):
        table.add_column(column, justify="right")
    size = robots[next(iter(robots))].boxes.shape[-1]
    corners = (0, size - 1, size * (size - 1), size**2 - 1)
    for (humans, beta_r), robot in robots.items():
        causes = main_causes(robot, goals)
        table.add_row(
            humans, f"{beta_r:g}", str(len(robot.failures)),
            str(np.isin(goals[robot.failures], corners).sum()),
            *(str(causes[name]) for name in ("crushed", *CAUSES)),
            f"{boxes_in_corners(robot)[SETTLED:LATE].mean():.3f}",
            f"{chance_to_leave(robot.result, asked, size):.4f}",
        )  # fmt: skip
    Console(width=150).print(table)


def draw(robots: dict[tuple[str, float], Watched], splits: dict[str, Split], path: Path) -> None:
    """Boxes in corners over time, and the reasons of the decision."""
    figure, (over_time, reasons) = new_figure(columns=2, width=11, height=4)
    for number, ((humans, beta_r), robot) in enumerate(robots.items()):
        style = {"pessimistic": "-", "optimistic": "--", "matched": ":"}[humans]
        colour = f"C{number % 3}"
        over_time.plot(boxes_in_corners(robot), style, color=colour, label=f"{humans}, {beta_r:g}")
    over_time.set_xlabel("step")
    over_time.set_ylabel("share of boxes in corners")
    over_time.legend(frameon=False, ncols=3, fontsize="small")
    for number, (humans, found) in enumerate(splits.items()):
        at = np.arange(len(found.share)) + 0.27 * (number - 1)
        reasons.bar(at, [100 * part for part in found.share.values()], 0.25, label=humans)
    reasons.set_xticks(range(len(found.share)), list(found.share))
    reasons.axhline(0, color="black", linewidth=0.8)
    reasons.set_ylabel("for leaving the box there, % of Q_r")
    reasons.legend(frameon=False)
    write_figure(figure, path)


def main() -> None:
    """Play, sort, explain, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=Path("esr"))
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="another file")
    given = parser.parse_args()
    settings = validate_document(Settings, read_yaml(given.settings))
    given.out.mkdir(parents=True, exist_ok=True)
    contest = esr.Contest.of(settings, 2, settings.episodes, given.out)
    goals, largest = contest.episodes.goal, max(settings.empo.beta_r)
    with tempfile.TemporaryDirectory() as folder:
        robots = {
            (humans, beta_r): watched(contest, humans, beta_r, Path(folder))
            for humans in ("pessimistic", "optimistic", "matched")
            for beta_r in settings.empo.beta_r
        }
    failing = robots["pessimistic", largest]
    asked = waiting(failing, goals)
    show(robots, asked, goals)
    row, goal, time = typical(asked)
    leaves = leaving(np.array([row]), np.array([goal]), settings.size)[0]
    best = failing.result.at(row, time).Q_r
    action = failing.result.spec.robot_action_names[int(np.where(leaves, best, -np.inf).argmax())]
    print(f"{len(asked.time)} decisions; most often human {row[0]}, boxes {row[1:]}, goal {goal}")
    print(f"There, still rather than {action} after {time} steps, beta_r {largest:g}:")
    splits = {}
    for (humans, beta_r), robot in robots.items():
        if beta_r == largest:
            found = splits[humans] = split(robot.result, row, time, goal, action)
            parts = ", ".join(f"{kind} {100 * part:+.2f}" for kind, part in found.share.items())
            values = ", ".join(f"{kind} {part:.3f}" for kind, part in found.attainable.items())
            print(f"{humans}: {100 * sum(found.share.values()):+.2f} % of Q_r ({parts})")
            print(f"  attainable: {values}")
            hope, power = found.hopeless, found.power
            print(
                f"  then without hope: {hope[0]} or {hope[1]}; X_h {power[0]:.2f} or {power[1]:.2f}"
            )
    draw(robots, splits, given.out / "failures.png")
    print(f"Wrote {given.out / 'failures.png'}")


if __name__ == "__main__":
    main()
