"""Whether the robot of the obstacle gridworld parks boxes in corners, by preset.

Run ``python examples/benchmarks/esr_corners.py [--boxes 2 3]``. It plays the primary robot of
``esr_blocks.yaml`` (preset ``paper``) and of ``esr_fair.yaml`` (preset ``fair``) in the same
episodes, and prints how often the human arrives and what share of boxes lies in corners late on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core.config.files import read_yaml, validate_document

sys.path[:0] = [str(Path(__file__).parent)]

import esr  # noqa: E402
from esr_scores import share  # noqa: E402
from esr_settings import SETTINGS, Settings  # noqa: E402
from simulator import Robot, played  # noqa: E402

FAIR = SETTINGS.with_name("esr_fair.yaml")
LATE = range(10, 40)
"""Steps in which boxes in corners are counted: the human is free, and the end is far."""


def main() -> None:
    """Play, and print a line per number of boxes and preset."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boxes", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--episodes", type=int, help="per corner; others than in the settings")
    given = parser.parse_args()
    table = Table(title="Boxes in corners")
    columns = ("success", "crushed", "failures (box on goal)", "in corners", "in corners, failures")
    for column in ("boxes", "preset", *columns):
        table.add_column(column)
    for boxes in given.boxes:
        for file in (SETTINGS, FAIR):
            settings = validate_document(Settings, read_yaml(file))
            episodes = given.episodes or settings.episodes
            with tempfile.TemporaryDirectory() as folder:
                contest = esr.Contest.of(settings, boxes, episodes, Path(folder))
                robot, seen = watched(contest.robot(settings.primary, Path(folder)))
                scores = played(robot, contest.episodes)
            fails = scores.reward == 0
            corners = in_corners(seen)
            among = f"{corners[fails].mean():.3f}" if fails.any() else "-"
            table.add_row(
                str(boxes), settings.empo.preset, share(~fails).shown(4),
                share(scores.is_crushed).shown(4),
                f"{fails.sum()} ({(fails & scores.is_box_on_goal).sum()})",
                f"{corners.mean():.3f}", among,
            )  # fmt: skip
    Console(width=150).print(table)


def watched(robot: Robot) -> tuple[Robot, list[np.ndarray]]:
    """The robot, and a list that gets the boxes of each step [episode, row, column]."""
    seen: list[np.ndarray] = []

    def watching(human: np.ndarray, boxes: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        seen.append(boxes)
        return robot(human, boxes, step)

    return watching, seen


def in_corners(seen: list[np.ndarray]) -> np.ndarray:
    """The share of boxes in corners, over the late steps [episode]."""
    boxes = np.stack([seen[step] for step in LATE])
    corners = boxes[:, :, [0, 0, -1, -1], [0, -1, 0, -1]].sum(2)
    share_of_boxes: np.ndarray = (corners / boxes.sum((2, 3))).mean(0)
    return share_of_boxes


if __name__ == "__main__":
    main()
