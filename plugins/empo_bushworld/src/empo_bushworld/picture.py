"""Pictures of a BushWorld, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from empo_bushworld.layout import MOVES, Layout
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import INK, PAPER, RGB, Pen, blend, heat_colour, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key, usual_tile_size

GROUND: Final[RGB] = (236, 228, 208)
BUSH: Final[RGB] = (38, 110, 48)
LINE: Final[RGB] = (150, 140, 120)
_ROBOT: Final[RGB] = (110, 115, 125)
_HUMANS: Final = ((240, 190, 30), (60, 120, 210), (200, 80, 170), (230, 120, 40))


def sheet(
    layout: Layout, spec: WorldSpec, row: Sequence[int], overlay: Overlay | None
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
            cell_pen.rect((0, 0), (1, 1), LINE)
            colour = blend(GROUND, BUSH, density / layout.impenetrable)
            cell_pen.rect((0.015, 0.015), (0.985, 0.985), colour)
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
            _moves(pens[row[agent]], marks.policies.get(agent, certain), chosen)
        for agent, (cell, tint) in enumerate(zip(row, tints, strict=False)):
            number = str(1 + agent - robots * (agent >= robots))
            pens[cell].text((0.5, 0.36), number, 0.24, text_on(tint), halo=tint)

    tile = layout.tile or usual_tile_size(layout.width, layout.height, marks)
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
        best = max((value for value in values if value is not None), default=None)
        colour = INK if cell in pursued else GROUND if best is None else heat_colour(best)
        frame = [(0.075, 0.075), (0.925, 0.075), (0.925, 0.925), (0.075, 0.925)]
        pens[cell].outline(frame, colour, 0.09)
        number = "" if best is None else f"{best:.2f}".removeprefix("0")
        name = " ".join(keys.get(cell, ()))
        for at, text, anchor in (((0.88, 0.86), number, "rb"), ((0.12, 0.12), name, "lt")):
            pens[cell].text(at, text, 0.18, text_on(colour), anchor=anchor, halo=colour)


def _moves(pen: Pen, policy: Sequence[float], chosen: int | None) -> None:
    """A line per move, as long as it is likely, and a dot as large as passing is; bold if taken."""
    for action, ((dx, dy), p) in enumerate(zip(MOVES, policy, strict=False)):
        if p < 0.005 and action != chosen:
            continue
        bold = 0.06 if action == chosen else 0
        if dx or dy:
            ends = [(0.5, 0.5), (0.5 + dx * p * 0.45, 0.5 + dy * p * 0.45)]
            pen.line(ends, PAPER, 0.09 + bold)
            pen.line(ends, INK, 0.05 + bold)
        else:
            pen.circle((0.5, 0.5), max(0.02, p / 8) + bold, INK)
