"""Pictures of a BushWorld, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from empo_bushworld.layout import MOVES, Layout
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import INK, RGB, Pen, blend, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key
from empo_worlds.grid.pictures import (
    best_value,
    draw_action,
    draw_cell,
    draw_goal,
    draw_move,
    tile_size_of,
)

GROUND: Final[RGB] = (236, 228, 208)
BUSH: Final[RGB] = (38, 110, 48)
LINE: Final[RGB] = (150, 140, 120)
_ROBOT: Final[RGB] = (110, 115, 125)
_HUMANS: Final = ((240, 190, 30), (60, 120, 210), (200, 80, 170), (230, 120, 40))


def sheet(
    layout: Layout,
    spec: WorldSpec,
    row: Sequence[int],
    overlay: Overlay | None,
    tile_size: int | None,
) -> PictureSheet:
    """A picture of a state.

    Bushes are the greener the denser they are; robots are squares, humans are discs, both
    with their numbers. Goals are framed in the colour of their value.
    """
    marks, agents, robots = overlay or Overlay(), len(spec.agents), len(layout.robots)
    humans = [_HUMANS[index % len(_HUMANS)] for index in range(agents - robots)]
    tints = [*[_ROBOT] * robots, *humans]

    def paint(pen: Pen, human: int | None) -> None:
        pens = [pen.inset(c % layout.width, c // layout.width, 1) for c in range(len(row) - agents)]
        for cell_pen, density in zip(pens, row[agents:], strict=True):
            draw_cell(cell_pen, LINE, blend(GROUND, BUSH, density / layout.impenetrable))
        if human is not None:
            _goals(pens, layout, spec, marks, human)
        for agent, (cell, tint) in enumerate(zip(row, tints, strict=False)):
            for size, colour in ((0.28, INK), (0.25, tint)):
                if agent < robots:
                    pens[cell].rect((0.5 - size, 0.5 - size), (0.5 + size, 0.5 + size), colour)
                else:
                    pens[cell].circle((0.5, 0.5), size, colour)
        for agent in sorted({*marks.policies, *marks.actions}):
            chosen = marks.actions.get(agent)
            certain = [float(action == chosen) for action in range(len(MOVES))]
            for action, p in enumerate(marks.policies.get(agent, certain)):
                draw_move(pens[row[agent]], MOVES[action], p, is_taken=action == chosen)
        for agent, (cell, tint) in enumerate(zip(row, tints, strict=False)):
            number = str(1 + agent - robots * (agent >= robots))
            pens[cell].text((0.5, 0.36), number, 0.24, text_on(tint), halo=tint)
            chosen = marks.actions.get(agent)
            if chosen is not None:
                is_low = cell // layout.width == layout.height - 1
                draw_action(pens[cell], spec.agents[agent].actions[chosen], is_low=is_low)

    tile = tile_size_of(layout.width, layout.height, marks, tile_size or layout.tile)
    return PictureSheet(spec, tints, marks, tile, layout.width, layout.height, paint)


def _goals(pens: list[Pen], layout: Layout, spec: WorldSpec, overlay: Overlay, human: int) -> None:
    """Frames, letters, and the largest value; dark where the pursued goal is."""
    keys: dict[int, list[str]] = {}
    values_by_cell: dict[int, list[float | None]] = {}
    pursued: set[int] = set()
    for goal, (x1, y1, x2, y2) in zip(spec.goals_of(human), layout.goals, strict=True):
        cells = [y * layout.width + x for y in range(y1, y2 + 1) for x in range(x1, x2 + 1)]
        keys.setdefault(cells[0], []).append(goal_key(spec, goal))
        for cell in cells:
            value = None if overlay.goal_values is None else overlay.goal_values[goal]
            values_by_cell.setdefault(cell, []).append(value)
        pursued.update(cells if overlay.pursued.get(human) == goal else ())
    for cell, values in values_by_cell.items():
        key = " ".join(keys.get(cell, ()))
        draw_goal(pens[cell], key, best_value(values), is_pursued=cell in pursued)
