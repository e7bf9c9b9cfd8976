"""The obstacle gridworld as its rules are told, in numpy: imports nothing of this plugin.

Many episodes at once. ``human`` and ``goal`` are cells ``[episode]``, row times size plus column;
``boxes`` says which cells hold one, ``[episode, row, column]``. Directions and the human's actions
are counted left, down, right, up, stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

MOVES = np.array([[0, -1], [1, 0], [0, 1], [-1, 0], [0, 0]])
STAY = 4
STAY_BONUS = 0.1
NOISE = 0.2

Robot = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
"""From human, boxes and the step to a cell and a direction for every episode."""


@dataclass(frozen=True)
class Episodes:
    """How episodes begin and what is drawn in them, the same for every robot."""

    human: np.ndarray  # [episode]
    boxes: np.ndarray  # [episode, row, column]
    goal: np.ndarray  # [episode]
    is_noise: np.ndarray  # [episode, step]
    noise_action: np.ndarray  # [episode, step]


@dataclass(frozen=True)
class Scores:
    """What became of every episode, each ``[episode]``."""

    reward: np.ndarray  # steps after whose human move the human stood on its goal
    is_crushed: np.ndarray
    arrival: np.ndarray  # the step of the first reward, from 1; 0 for none
    is_box_on_goal: np.ndarray  # at the end


def target_cells(cell: np.ndarray, direction: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Where things on ``cell`` end up: where they are if the border or a box is in the way."""
    size = boxes.shape[1]
    row, column = cell // size, cell % size
    to_row, to_column = row + MOVES[direction, 0], column + MOVES[direction, 1]
    on_board = (to_row >= 0) & (to_row < size) & (to_column >= 0) & (to_column < size)
    to_row, to_column = np.where(on_board, to_row, row), np.where(on_board, to_column, column)
    blocked = boxes[np.arange(len(cell)), to_row, to_column]
    return np.where(on_board & ~blocked, to_row * size + to_column, cell)


def holds_box(cell: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Whether each episode has a box on ``cell``."""
    size = boxes.shape[1]
    return boxes[np.arange(len(cell)), cell // size, cell % size]


def distance(cell: np.ndarray, goal: np.ndarray, size: int) -> np.ndarray:
    """Euclidean, in cells."""
    return np.sqrt((cell // size - goal // size) ** 2 + (cell % size - goal % size) ** 2)


def human_choice(human: np.ndarray, boxes: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """What the human does without noise: ends as near to its goal as it can, ties to the first."""
    size = boxes.shape[1]
    score = np.stack(
        [
            distance(target_cells(human, np.full_like(human, action), boxes), goal, size)
            for action in range(len(MOVES))
        ],
        axis=1,
    )
    score[:, STAY] -= STAY_BONUS
    return score.argmin(axis=1)


def moved_human(human: np.ndarray, action: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """The human after its move; one under a box stays there."""
    return np.where(holds_box(human, boxes), human, target_cells(human, action, boxes))


def moved_boxes(boxes: np.ndarray, cell: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Boxes after the robot's move, which no human hinders."""
    size, episode = boxes.shape[1], np.arange(len(boxes))
    target = np.where(holds_box(cell, boxes), target_cells(cell, direction, boxes), cell)
    moves = target != cell
    result = boxes.copy()
    result[episode[moves], cell[moves] // size, cell[moves] % size] = False
    result[episode[moves], target[moves] // size, target[moves] % size] = True
    return result


def stepped(
    human: np.ndarray,
    boxes: np.ndarray,
    goal: np.ndarray,
    action: np.ndarray,
    cell: np.ndarray,
    direction: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Human and boxes after the human's and the robot's action, which is void at the end."""
    human = np.where(human == goal, human, moved_human(human, action, boxes))
    void = (human == goal) | holds_box(human, boxes)
    return human, np.where(void[:, None, None], boxes, moved_boxes(boxes, cell, direction))


def played(robot: Robot, episodes: Episodes) -> Scores:
    """Scores of a robot that sees human and boxes, never the goal."""
    human, boxes, goal = episodes.human.copy(), episodes.boxes.copy(), episodes.goal
    reward = np.zeros(len(human), dtype=np.int64)
    arrival = np.zeros(len(human), dtype=np.int64)
    for step in range(episodes.is_noise.shape[1]):
        cell, direction = robot(human, boxes, step)
        action = np.where(
            episodes.is_noise[:, step],
            episodes.noise_action[:, step],
            human_choice(human, boxes, goal),
        )
        human, boxes = stepped(human, boxes, goal, action, cell, direction)
        on_goal = human == goal
        reward += on_goal
        arrival = np.where(on_goal & (arrival == 0), step + 1, arrival)
    return Scores(reward, holds_box(human, boxes), arrival, holds_box(goal, boxes))


def started(
    kind: str, corner: int | None, size: int, boxes: int, steps: int, seeds: np.ndarray
) -> Episodes:
    """Episodes of one kind of start, each drawn from its own seed.

    ``corner`` counts top left, top right, bottom left, bottom right; None draws it.
    """
    drawn = [_start(kind, corner, size, boxes, np.random.default_rng(seed)) for seed in seeds]
    noise = [np.random.default_rng([seed, 1]) for seed in seeds]
    return Episodes(
        human=np.array([human for human, _, _ in drawn]),
        boxes=np.stack([grid.reshape(size, size) for _, grid, _ in drawn]),
        goal=np.array([goal for _, _, goal in drawn]),
        is_noise=np.stack([rng.random(steps) < NOISE for rng in noise]),
        noise_action=np.stack([rng.integers(len(MOVES), size=steps) for rng in noise]),
    )


def _start(
    kind: str, corner: int | None, size: int, boxes: int, rng: np.random.Generator
) -> tuple[int, np.ndarray, int]:
    """Human, cells with boxes and goal of one episode."""
    last, middle = size - 1, size // 2
    places: list[tuple[int, int]] = []
    if kind in {"corner", "corner_hard"}:
        index = int(rng.integers(4)) if corner is None else corner
        row, column = last * (index // 2), last * (index % 2)
        away = 1 if kind == "corner" else 2
        places = [
            (row, column + (away if column == 0 else -away)),
            (row + (away if row == 0 else -away), column),
        ]
    elif kind == "center":
        row, column = middle, middle
        places = [
            (middle, middle + 1),
            (middle + 1, middle),
            (middle, middle - 1),
            (middle - 1, middle),
        ]
    else:
        row, column = divmod(int(rng.integers(size * size)), size)
    grid, human = np.zeros(size * size, dtype=bool), row * size + column
    for row_of_box, column_of_box in places[:boxes]:
        grid[row_of_box * size + column_of_box] = True
    while grid.sum() < boxes:
        free = np.flatnonzero(~grid)
        grid[rng.choice(free[free != human])] = True
    free = np.flatnonzero(~grid)
    return human, grid, int(rng.choice(free[free != human]))
