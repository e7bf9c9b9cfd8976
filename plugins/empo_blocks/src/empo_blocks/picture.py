"""Pictures of boards, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Int16

from empo_blocks.board import HUMAN_MOVES, MOVES, STAY, Board
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import GROUND, INK, PAPER, RGB, Pen, heat_colour, svg, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key, usual_tile_size
from empo_theory.inspection import Sketch

SIZE: Final = 96
"""Units per side of a glyph."""
_LINE: Final[RGB] = (190, 186, 176)
_BOX: Final[RGB] = (176, 128, 78)
_HUMAN: Final[RGB] = (240, 190, 30)
_ROBOT: Final[RGB] = (110, 115, 125)
_BLOOD: Final[RGB] = (190, 40, 40)


def sheet(
    board: Board, spec: WorldSpec, row: Sequence[int], overlay: Overlay | None
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
            _goals(pens, spec, annotations)
        _human(pens[human], is_crushed=human in boxes)
        moves = annotations.policies.get(0) or _action_policy(annotations, 0, len(HUMAN_MOVES))
        for action, p in enumerate(moves):
            _move(pens[human], HUMAN_MOVES[action], p, annotations.actions.get(0) == action)
        pushes = annotations.policies.get(1) or _action_policy(
            annotations, 1, len(spec.agents[1].actions)
        )
        for box, cell in enumerate(boxes if pushes else ()):
            for direction in range(STAY):
                action = board.robot_action(box, cell, direction)
                is_taken = annotations.actions.get(1) == action
                _move(pens[cell], direction, pushes[action], is_taken)

    tile = usual_tile_size(board.size, board.size, annotations)
    return PictureSheet(spec, [_HUMAN, _ROBOT], annotations, tile, board.size, board.size, paint)


def sketch(board: Board, rows: Int16[np.ndarray, "state word"]) -> Sketch:
    """Pictures of some states for a page; the robot is nowhere."""
    glyphs: dict[str, Callable[[Pen], None]] = {
        "": _ground,
        "box": partial(_box, number=""),
        "human": partial(_human, is_crushed=False),
        "crushed human": partial(_human, is_crushed=True),
    }
    things, agents, cells = (np.zeros((len(rows), n), np.int32) for n in (board.cells, 2, 2))
    np.put_along_axis(things, rows[:, 1:].astype(np.int64), 2, 1)
    agents[:, 0] = 3 + (rows[:, 1:] == rows[:, :1]).any(1)
    cells[:, 0] = rows[:, 0]
    return Sketch(
        width=board.size,
        height=board.size,
        glyphs=(("", ""), *((name, _glyph(paint)) for name, paint in glyphs.items())),
        ground=np.ones(board.cells, np.int32),
        things=things,
        agents=agents,
        places=cells,
        headings=np.full_like(cells, -1),
        goals=np.eye(board.cells, dtype=np.bool_),
    )


def _glyph(paint: Callable[[Pen], None]) -> str:
    return svg(SIZE, SIZE, lambda pen: paint(pen.inset(0, 0, SIZE)))


def _ground(pen: Pen) -> None:
    pen.rect((0, 0), (1, 1), _LINE)
    pen.rect((0.015, 0.015), (0.985, 0.985), GROUND)


def _box(pen: Pen, number: str) -> None:
    pen.rect((0.14, 0.14), (0.86, 0.86), INK, radius=0.06)
    pen.rect((0.17, 0.17), (0.83, 0.83), _BOX, radius=0.05)
    pen.text((0.27, 0.28), number, 0.18, text_on(_BOX))


def _human(pen: Pen, *, is_crushed: bool) -> None:
    pen.circle((0.5, 0.5), 0.25, INK)
    pen.circle((0.5, 0.5), 0.22, _HUMAN)
    for side in (-0.2, 0.2) if is_crushed else ():
        pen.line([(0.5 - side, 0.3), (0.5 + side, 0.7)], _BLOOD, 0.07)


def _goals(pens: list[Pen], spec: WorldSpec, overlay: Overlay) -> None:
    """Frame, letter and value of each cell; dark where the pursued goal is."""
    for cell, pen in enumerate(pens):
        value = None if overlay.goal_values is None else overlay.goal_values[cell]
        colour = GROUND if value is None else heat_colour(value)
        if overlay.pursued.get(0) == cell:
            colour = INK
        pen.outline([(0.06, 0.06), (0.94, 0.06), (0.94, 0.94), (0.06, 0.94)], colour, 0.08)
        number = "" if value is None else f"{value:.2f}".removeprefix("0")
        for at, text, anchor in (
            ((0.9, 0.88), number, "rb"),
            ((0.1, 0.1), goal_key(spec, cell), "lt"),
        ):
            pen.text(at, text, 0.17, text_on(colour), anchor=anchor, halo=colour)


def _action_policy(overlay: Overlay, agent: int, actions: int) -> list[float]:
    """The action that is taken as a policy; nothing where none is."""
    chosen = overlay.actions.get(agent)
    return [] if chosen is None else [float(action == chosen) for action in range(actions)]


def _move(pen: Pen, direction: int, p: float, is_taken: bool) -> None:
    """A line as long as the move is probable, a dot for staying; bold if taken."""
    if p < 0.005 and not is_taken:
        return
    bold = 0.05 if is_taken else 0
    if direction == STAY:
        pen.circle((0.5, 0.5), max(0.02, p / 8) + bold, INK)
        return
    x, y = MOVES[direction]
    ends = [(0.5, 0.5), (0.5 + x * p * 0.45, 0.5 + y * p * 0.45)]
    pen.line(ends, PAPER, 0.08 + bold)
    pen.line(ends, INK, 0.04 + bold)
