"""Failures in the obstacle gridworld are sorted, and their decisions split, as promised."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
for folder in (ROOT / "examples" / "benchmarks", ROOT / "plugins" / "empo_blocks" / "tests"):
    sys.path.insert(0, str(folder))

import esr  # noqa: E402
import esr_failures  # noqa: E402
from esr_settings import SETTINGS, Settings  # noqa: E402

from empo_core.config.files import read_yaml, validate_document  # noqa: E402


@pytest.mark.parametrize(
    ("human", "boxes", "goal", "cause"),
    [
        (1, (0, 8), 0, "box on goal"),
        (0, (1, 3), 8, "no way"),
        (3, (4, 8), 5, "detour needed"),
        (0, (4, 8), 2, "walking"),
    ],
)
def test_a_state_says_what_keeps_the_human_from_its_goal(
    human: int, boxes: tuple[int, ...], goal: int, cause: str
) -> None:
    grid = np.isin(np.arange(9), boxes).reshape(3, 3)
    assert esr_failures.cause(human, grid, goal) == cause


def test_boxes_leave_a_goal_by_free_cells_and_not_over_the_human() -> None:
    rows = np.array([[3, 0, 8], [3, 0, 1], [5, 4, 8]], np.int16)
    found = esr_failures.leaving(rows, np.array([0, 0, 8]), 3)
    # Actions: still, box 1 left, down, right, up, then box 2 likewise.
    assert [np.flatnonzero(each).tolist() for each in found] == [[3], [], [5]]


def test_robots_are_asked_about_failures_and_their_reasons_add_up(tmp_path: Path) -> None:
    given = read_yaml(SETTINGS)
    given.data |= {"size": 3, "steps": 12}
    settings = validate_document(Settings, given)
    contest = esr.Contest.of(settings, 2, 30, tmp_path)
    goals = contest.episodes.goal
    robot = esr_failures.watched(contest, "pessimistic", 100.0, tmp_path)
    assert 0 < len(robot.failures) < len(goals)
    assert esr_failures.main_causes(robot, goals).total() == len(robot.failures)
    assert (esr_failures.boxes_in_corners(robot)[0], robot.boxes.shape) == (0, (12, 120, 3, 3))
    asked = esr_failures.waiting(robot, goals)
    assert len(asked.time)
    assert 0 < esr_failures.chance_to_leave(robot.result, asked, 3) < 1
    row, goal, time = esr_failures.typical(asked)
    assert goal in row[1:]
    leaves = esr_failures.leaving(np.array([row]), np.array([goal]), 3)[0]
    action = int(np.flatnonzero(leaves)[0])
    name = robot.result.spec.robot_action_names[action]
    found = esr_failures.split(robot.result, row, time, goal, name)
    q_r = robot.result.at(row, time).Q_r
    assert sum(found.share.values()) == pytest.approx((q_r[0] - q_r[action]) / -q_r[0], rel=1e-6)
    assert set(found.share) == {"this corner", "other corners", "edges", "inside"}
