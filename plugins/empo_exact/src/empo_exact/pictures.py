"""Pictures of a solved world: the start with its policy and heat map, and a rollout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from empo_core.types import Overlay
from empo_exact.rollout import play
from empo_exact.solution import Solution
from empo_pictures.canvas import GRID, GROUND, RGB, Pen, fitting
from empo_pictures.picture_sheet import PictureSheet
from empo_pictures.pictures import Frame, robot_policies, write_gif, write_png
from empo_pictures.vectors import write_svg

FRAMES_PER_SECOND = 2
MOST_NAMES: Final = 200
"""Goals and robot actions of a world that cannot draw itself: with more, there is no picture."""

_ROBOT: Final[RGB] = (110, 115, 125)
_HUMAN: Final[RGB] = (60, 120, 210)
_TILE, _COLUMNS, _MOST_LINES = 96, 6, 12


def draw(solution: Solution, directory: Path, *, rollouts: int, seed: int) -> None:
    """Write ``start`` as PNG and SVG, and ``rollout_<i>.gif`` of a world that draws itself."""
    world = solution.problem.world
    start = world.render(*_start(solution))
    if start is None:
        if (sheet := _text_sheet(solution)) is not None:
            write_png(sheet.pixels(), directory / "start.png")
            write_svg(sheet.svg(), directory / "start.svg")
        return
    write_png(start, directory / "start.png")
    vectors = world.render_svg(*_start(solution))
    if vectors is not None:
        write_svg(vectors, directory / "start.svg")
    generator = torch.Generator().manual_seed(seed)
    for number in range(rollouts if _has_all_times(solution) else 0):
        frames = []
        for time, (state, actions) in enumerate(play(solution, generator, {})):
            row = torch.from_numpy(solution.graph.states[state].copy())
            layer = overlay(solution, state, time)
            joint_action = dict(enumerate(actions or [None] * len(solution.spec.agents)))
            frame = world.render(row, replace(layer, actions=joint_action))
            assert frame is not None  # As the start had one.
            frames.append(frame)
        write_gif(frames, directory / f"rollout_{number}.gif", FRAMES_PER_SECOND)


def start_frame(solution: Solution) -> Frame | None:
    """The start as ``draw`` has it; None where a world without pictures has too many names."""
    start = solution.problem.world.render(*_start(solution))
    if start is None and (sheet := _text_sheet(solution)) is not None:
        return sheet.pixels()
    return start


def _text_sheet(solution: Solution) -> PictureSheet | None:
    """The start of a world without pictures, such as a table: its text in place of a board.

    None if the world has more than ``MOST_NAMES`` goals and robot actions.
    """
    world, spec = solution.problem.world, solution.spec
    names = len(spec.goals) + sum(len(spec.agents[robot].actions) for robot in spec.robots)
    if names > MOST_NAMES:
        return None
    row, marks = _start(solution)
    lines = world.describe(row).splitlines()[:_MOST_LINES] or [""]
    rows = 1 + len(lines) // 3  # A line is a third of a tile high.

    def paint(pen: Pen, human: int | None) -> None:
        pen.rect((0, 0), (_COLUMNS, rows), GRID)
        pen.rect((0.03, 0.03), (_COLUMNS - 0.03, rows - 0.03), GROUND)
        for number, line in enumerate(lines):
            y = rows / 2 + (number - (len(lines) - 1) / 2) / 3
            pen.text((_COLUMNS / 2, y), fitting(line, 14, 48 * _COLUMNS - 20), 14 / 48)

    tints = [_ROBOT if agent.role == "robot" else _HUMAN for agent in spec.agents]
    return PictureSheet(spec, tints, marks, _TILE, _COLUMNS, rows, paint)


def _start(solution: Solution) -> tuple[Tensor, Overlay]:
    return torch.from_numpy(solution.graph.states[0].copy()), overlay(solution, 0, 0)


def overlay(solution: Solution, state: int, time: int) -> Overlay:
    """The robots' policies and the attainability of all goals; neither where it is the end."""
    values, spec = solution.at(state, time), solution.spec
    if values.terminal:
        return Overlay(
            goal_values=[None] * len(spec.goals),
            titles=dict.fromkeys(spec.humans, "the end"),
            policies=dict.fromkeys(spec.robots, ()),
            caption=f"t = {time}: the end",
        )
    return Overlay(
        goal_values=values.V_e.clip(0, 1).tolist(),
        titles={human: f"$X_h$ = {power:.3g}" for human, power in values.X_h.items()},
        policies=robot_policies(spec, values.pi_r),
        caption=f"t = {time}: $V_r$ = {values.V_r:.4g}",
    )


def _has_all_times(solution: Solution) -> bool:
    """The values of all times were kept, which a rollout needs."""
    return solution.horizon is None or len(solution.times) == solution.horizon
