"""The simulator's episodes by hand: rewards, what is void on the goal, and crushing."""

from __future__ import annotations

import numpy as np
from simulator import STAY, Episodes, Robot, played, started

LEFT, DOWN, RIGHT = range(3)


def episode(human: int, boxes: list[int], goal: int, steps: int = 6) -> Episodes:
    """One episode on 3 x 3 cells in which the human never errs."""
    grid = np.zeros((1, 9), dtype=bool)
    grid[0, boxes] = True
    return Episodes(
        human=np.array([human]),
        boxes=grid.reshape(1, 3, 3),
        goal=np.array([goal]),
        is_noise=np.zeros((1, steps), dtype=bool),
        noise_action=np.zeros((1, steps), dtype=int),
    )


def pushes(*actions: tuple[int, int]) -> Robot:
    """A robot that takes these actions in turn, then none."""

    def robot(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        cell, direction = actions[step] if step < len(actions) else (0, STAY)
        return np.array([cell]), np.array([direction])

    return robot


def test_every_step_on_the_goal_pays_from_the_arrival_on() -> None:
    found = played(pushes(), episode(human=0, boxes=[4], goal=8))
    assert (found.arrival[0], found.reward[0], found.is_crushed[0]) == (4, 3, False)


def test_boxes_stay_once_the_human_is_on_its_goal() -> None:
    # The human arrives in the first step, in which the robot would crush it.
    found = played(pushes((2, LEFT), (2, LEFT)), episode(human=0, boxes=[2], goal=1))
    assert (found.reward[0], found.is_crushed[0]) == (6, False)


def test_a_crushed_human_never_arrives_and_its_boxes_stay() -> None:
    # The human steps below the box, which follows; freeing it again is in vain.
    robot = pushes((0, DOWN), (3, RIGHT))
    found = played(robot, episode(human=3, boxes=[0, 4, 6], goal=5))
    assert (found.reward[0], found.arrival[0], found.is_crushed[0]) == (0, 0, True)


def test_a_locked_human_waits_until_a_box_is_gone() -> None:
    found = played(pushes((1, RIGHT)), episode(human=0, boxes=[1, 3], goal=4))
    assert (found.reward[0], found.arrival[0]) == (4, 3)
    assert played(pushes(), episode(human=0, boxes=[1, 3], goal=4)).reward[0] == 0


def test_starts_depend_on_their_own_seed_only() -> None:
    many = started("corner", None, 5, 4, 10, np.arange(40))
    some = started("corner", None, 5, 4, 10, np.arange(30, 40))
    for all_of_them, last in zip(vars(many).values(), vars(some).values(), strict=True):
        assert np.array_equal(all_of_them[30:], last)
    assert set(many.human.tolist()) == {0, 4, 20, 24}
    assert many.boxes.sum((1, 2)).tolist() == [4] * 40
    goals = many.boxes.reshape(40, 25)[np.arange(40), many.goal]
    assert not goals.any()
    assert not (many.goal == many.human).any()
    assert 0.1 < started("random", None, 5, 2, 50, np.arange(40)).is_noise.mean() < 0.3
