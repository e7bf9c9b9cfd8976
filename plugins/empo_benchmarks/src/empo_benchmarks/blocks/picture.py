"""Pictures of boards, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Int16

from empo_benchmarks.blocks.board import HUMAN_MOVES, MOVES, STAY, Board
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import GROUND, INK, RGB, Pen, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key
from empo_theory.inspection import Sketch
from empo_worlds.grid.pictures import (
    Glyphs,
    draw_action,
    draw_cell,
    draw_goal,
    draw_move,
    tile_size_of,
)

_LINE: Final[RGB] = (190, 186, 176)
_BOX: Final[RGB] = (176, 128, 78)
_HUMAN: Final[RGB] = (240, 190, 30)
_ROBOT: Final[RGB] = (110, 115, 125)
_BLOOD: Final[RGB] = (190, 40, 40)


def sheet(
    board: Board,
    spec: WorldSpec,
    row: Sequence[int],
    overlay: Overlay | None,
    tile_size: int | None,
) -> PictureSheet:
    """A picture of a state: the human is a disc, boxes have the numbers that actions call them.

    Goals are framed in the colour of their value. Lines show where agents move how likely.
    """
    annotations = overlay or Overlay()
    human, *boxes = row

    def paint(pen: Pen, goals_of: int | None) -> None:
        pens = [pen.inset(*board.place(cell), 1) for cell in range(board.cells)]
        for cell_pen in pens:
            _ground(cell_pen)
        for number, cell in enumerate(boxes, start=1):
            _box(pens[cell], str(number))
        if goals_of is not None:
            values = annotations.goal_values
            pursued = annotations.pursued.get(0)
            for cell, cell_pen in enumerate(pens):
                key = goal_key(spec, cell)
                value = None if values is None else values[cell]
                draw_goal(cell_pen, key, value, is_pursued=cell == pursued)
        _human(pens[human], is_crushed=human in boxes)
        moves = annotations.policies.get(0) or _action_policy(annotations, 0, len(HUMAN_MOVES))
        for action, p in enumerate(moves):
            is_taken = annotations.actions.get(0) == action
            draw_move(pens[human], MOVES[HUMAN_MOVES[action]], p, is_taken=is_taken)
        pushes = annotations.policies.get(1) or _action_policy(
            annotations, 1, len(spec.agents[1].actions)
        )
        for box, cell in enumerate(boxes if pushes else ()):
            for direction in range(STAY):
                action = board.robot_action(box, cell, direction)
                is_taken = annotations.actions.get(1) == action
                draw_move(pens[cell], MOVES[direction], pushes[action], is_taken=is_taken)
                if is_taken:
                    _action(pens[cell], board, spec, 1, action, cell)
        step = annotations.actions.get(0)
        if step is not None:
            _action(pens[human], board, spec, 0, step, human)

    tile = tile_size_of(board.size, board.size, annotations, tile_size)
    return PictureSheet(spec, [_HUMAN, _ROBOT], annotations, tile, board.size, board.size, paint)


def sketch(board: Board, rows: Int16[np.ndarray, "state word"]) -> Sketch:
    """Pictures of some states for a page; the robot is nowhere."""
    glyphs = Glyphs()
    ground = glyphs.number("", _ground)
    box = glyphs.number("box", partial(_box, number=""))
    human = glyphs.number("human", partial(_human, is_crushed=False))
    crushed = glyphs.number("crushed human", partial(_human, is_crushed=True))
    things, agents, cells = (np.zeros((len(rows), n), np.int32) for n in (board.cells, 2, 2))
    np.put_along_axis(things, rows[:, 1:].astype(np.int64), box, 1)
    agents[:, 0] = np.where((rows[:, 1:] == rows[:, :1]).any(1), crushed, human)
    cells[:, 0] = rows[:, 0]
    return Sketch(
        width=board.size,
        height=board.size,
        glyphs=tuple(glyphs.glyphs),
        ground=np.full(board.cells, ground, np.int32),
        things=things,
        agents=agents,
        places=cells,
        headings=np.full_like(cells, -1),
        goals=np.eye(board.cells, dtype=np.bool_),
    )


def _ground(pen: Pen) -> None:
    draw_cell(pen, _LINE, GROUND)


def _box(pen: Pen, number: str) -> None:
    pen.rect((0.14, 0.14), (0.86, 0.86), INK, radius=0.06)
    pen.rect((0.17, 0.17), (0.83, 0.83), _BOX, radius=0.05)
    pen.text((0.27, 0.28), number, 0.18, text_on(_BOX))


def _action(pen: Pen, board: Board, spec: WorldSpec, agent: int, action: int, cell: int) -> None:
    is_low = board.place(cell)[1] == board.size - 1
    draw_action(pen, spec.agents[agent].actions[action], is_low=is_low)


def _human(pen: Pen, *, is_crushed: bool) -> None:
    pen.circle((0.5, 0.5), 0.25, INK)
    pen.circle((0.5, 0.5), 0.22, _HUMAN)
    for side in (-0.2, 0.2) if is_crushed else ():
        pen.line([(0.5 - side, 0.3), (0.5 + side, 0.7)], _BLOOD, 0.07)


def _action_policy(overlay: Overlay, agent: int, actions: int) -> list[float]:
    """The action that is taken as a policy; nothing where none is."""
    chosen = overlay.actions.get(agent)
    return [] if chosen is None else [float(action == chosen) for action in range(actions)]
