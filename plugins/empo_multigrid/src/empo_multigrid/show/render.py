"""A picture of a state: the board, and what an overlay adds to it. Needs no window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from empo_core.types import Overlay, WorldSpec
from empo_multigrid import layout as codes
from empo_multigrid.layout import Bools, Floats, Ints, Layout
from empo_multigrid.show import tiles
from empo_multigrid.show.scene import AgentView, Scene, control, scene
from empo_multigrid.show.things import FIXTURES, agent_mark, draw_ground, draw_item
from empo_multigrid.show.tiles import AGENT_RGB
from empo_pictures.canvas import (
    GROUND,
    INK,
    PAPER,
    RGB,
    Pen,
    Point,
    blend,
    heat_colour,
    text_on,
)
from empo_pictures.fonts import text_width
from empo_pictures.picture_sheet import PictureSheet, goal_key
from empo_worlds.grid.pictures import draw_action, tile_size_of, value_label

# Numbers and names in cells smaller than this could not be read.
_MIN_TILE_WITH_NUMBERS: Final = 40
_INSET: Final = 0.08
# Size of names, in tiles.
_NAME: Final = 0.17
# Corners, (0, 0) top left, of a goal's letter and of its number, by the direction of who is in the
# cell: an agent is narrow where it faces.
_CORNERS: Final[Mapping[int | None, tuple[tuple[int, int], tuple[int, int]]]] = {
    None: ((0, 0), (1, 1)), 0: ((1, 0), (1, 1)), 1: ((0, 1), (1, 1)), 2: ((0, 0), (0, 1)),
    3: ((0, 0), (1, 0)),
}  # fmt: skip


def sheet(
    layout: Layout, spec: WorldSpec, row: Ints, overlay: Overlay | None, tile_size: int | None
) -> PictureSheet:
    """A picture of a state; see ``GridWorld.render``."""
    annotations, contents = overlay or Overlay(), scene(layout, row)
    tile = tile_size_of(layout.width, layout.height, annotations, tile_size)

    def paint(pen: Pen, human: int | None) -> None:
        _board(layout, spec, contents, annotations, tile, pen, human)

    tints = [AGENT_RGB[colour] for colour in layout.agent_colour]
    return PictureSheet(spec, tints, annotations, tile, layout.width, layout.height, paint)


def _board(
    layout: Layout, spec: WorldSpec, contents: Scene, overlay: Overlay, tile_size: int, pen: Pen,
    human: int | None,
) -> None:  # fmt: skip
    """The cells, what is in them, goals of a human or none, and arrows."""
    pens = [
        pen.inset(cell % layout.width, cell // layout.width, 1) for cell in range(layout.num_cells)
    ]
    goals = () if human is None else spec.goals_of(human)
    heat = _heat(layout, overlay.goal_values, goals)
    for cell, cell_pen in enumerate(pens):
        draw_ground(cell_pen, int(layout.terrain[cell]), int(layout.terrain_colour[cell]))
        if not math.isnan(heat[cell]):
            # Lava and the like must stay visible.
            alpha = 0.85 if layout.terrain[cell] == codes.EMPTY else 0.5
            cell_pen.rect((0.015, 0.015), (0.985, 0.985), heat_colour(heat[cell]), alpha=alpha)
    for cell, view in contents.fixed.items():
        FIXTURES[view.kind].tile(pens[cell], view)
    pursued = None if human is None else overlay.pursued.get(human)
    # The pursued one comes last, on top.
    for goal in sorted(goals, key=lambda goal: goal == pursued):
        colour = AGENT_RGB[layout.agent_colour[spec.goals[goal].human]]
        _draw_goal_box(layout, layout.goal_cells[goal], pens, colour, thick=goal == pursued)
    for cell, item in contents.loose.items():
        draw_item(pens[cell], item)
    _draw_control_lines(layout, contents, pens)
    for agent in sorted({*overlay.policies, *overlay.actions}):
        chosen = overlay.actions.get(agent)
        certain = [float(a == chosen) for a in range(spec.num_actions[agent])]
        probs = list(overlay.policies.get(agent, certain))
        _draw_arrows(layout, contents, pens, agent, probs, chosen)
    for index, agent_view in enumerate(contents.agents):
        draw_agent(layout, pens[agent_view.cell], agent_view, index)
    if tile_size >= _MIN_TILE_WITH_NUMBERS:
        facing = {view.cell: view.direction for view in contents.agents}
        _write_heat(pens, heat, facing)
        _write_goals(layout, spec, pens, heat, goals, facing)
        for agent, action in overlay.actions.items():
            cell = contents.agents[agent].cell
            if action is not None:
                is_low = cell // layout.width == layout.height - 1
                draw_action(pens[cell], spec.agents[agent].actions[action], is_low=is_low)


def _heat(layout: Layout, values: Sequence[float | None] | None, goals: Sequence[int]) -> Floats:
    """The largest value of goals that contain each cell; NaN where there is none, and on walls."""
    heat = np.full(layout.num_cells, np.nan)
    for goal in goals:
        value = None if values is None else values[goal]
        if value is not None:
            cells = layout.goal_cells[goal] & (layout.terrain != codes.WALL)
            heat[cells] = np.fmax(heat[cells], min(1.0, max(0.0, value)))
    return heat


def _draw_control_lines(layout: Layout, contents: Scene, pens: list[Pen]) -> None:
    """A dashed line from each programmed control button to the agent it controls."""
    for here, view in contents.fixed.items():
        if view.kind != codes.CONTROL_BUTTON:
            continue
        agent = control(view.word).agent
        if agent == codes.NOTHING:
            continue
        there = contents.agents[agent].cell
        x = there % layout.width - here % layout.width
        y = there // layout.width - here // layout.width
        colour = AGENT_RGB[layout.agent_colour[agent]]
        pens[here].dashes((0.5, 0.5), (x + 0.5, y + 0.5), blend(colour, INK, 0.3), 0.05)


def _draw_goal_box(
    layout: Layout, cells: Bools, pens: list[Pen], colour: RGB, *, thick: bool
) -> None:
    """A line along the inner border of a goal, whatever its shape: thick, or thin and dashed."""

    def inside(x: int, y: int) -> bool:
        in_grid = 0 <= x < layout.width and 0 <= y < layout.height
        return in_grid and bool(cells[y * layout.width + x])

    for cell in np.flatnonzero(cells).tolist():
        x, y = cell % layout.width, cell // layout.width
        for side in range(4):
            out = codes.DX[side], codes.DY[side]
            if inside(x + out[0], y + out[1]):
                continue
            ends = []
            for turn in (1, 3):
                along = codes.DX[(side + turn) % 4], codes.DY[(side + turn) % 4]
                reach = 0.5 - _INSET
                if inside(x + along[0], y + along[1]):
                    corner = inside(x + along[0] + out[0], y + along[1] + out[1])
                    reach = 0.5 + _INSET if corner else 0.5
                ends.append(_towards(out, along, reach))
            if thick:
                pens[cell].line(ends, INK, 0.12)
                pens[cell].line(ends, colour, 0.06)
                continue
            for tint, width in ((blend(colour, INK, 0.55), 0.055), (colour, 0.035)):
                pens[cell].dashes(ends[0], ends[1], tint, width)


def _towards(out: tuple[int, int], along: tuple[int, int], reach: float) -> Point:
    near = 0.5 - _INSET
    return 0.5 + out[0] * near + along[0] * reach, 0.5 + out[1] * near + along[1] * reach


def _draw_arrows(
    layout: Layout,
    contents: Scene,
    pens: list[Pen],
    agent: int,
    probs: list[float],
    chosen: int | None,
) -> None:
    """Arrows ahead and to the sides of an agent, as strong as the actions are probable.

    The one that is taken has a bold border.
    """
    view = contents.agents[agent]
    colour = AGENT_RGB[layout.agent_colour[agent]]
    turns = {codes.FORWARD: 0, codes.LEFT: 3, codes.RIGHT: 1}
    for action, prob in enumerate(probs):
        meaning = int(layout.actions[action])
        if meaning not in turns or (prob < 0.005 and action != chosen):
            continue
        pen = pens[view.cell].turned(view.direction + turns[meaning])
        length = 0.12 + 0.33 * prob
        half = 0.1 + 0.1 * prob
        base = 0.98
        shaft = [
            (0.6, 0.5 - half * 0.4), (base + length * 0.4, 0.5 - half * 0.4),
            (base + length * 0.4, 0.5 - half), (base + length, 0.5),
            (base + length * 0.4, 0.5 + half), (base + length * 0.4, 0.5 + half * 0.4),
            (0.6, 0.5 + half * 0.4),
        ]  # fmt: skip
        pen.polygon(shaft, INK)
        pen.outline(shaft, INK, 0.12 if action == chosen else 0.04)
        pen.polygon(shaft, blend(PAPER, colour, 0.25 + 0.75 * prob))


def draw_agent(layout: Layout, pen: Pen, agent: AgentView, index: int) -> None:
    """An agent with its index."""
    colour = int(layout.agent_colour[index])
    carried = agent.carrying
    draw_carried = None if carried is None else partial(draw_item, item=carried)
    tiles.draw_agent(pen, agent, colour, draw_carried)
    # The triangle's middle lies behind the tile's, away from its tip.
    spot = 0.5 - 0.07 * codes.DX[agent.direction], 0.5 - 0.07 * codes.DY[agent.direction]
    ink = INK if agent.terminated else text_on(AGENT_RGB[colour])
    pen.text(spot, agent_mark(index), 0.34, ink, halo=PAPER if agent.terminated else None)


def _write_heat(pens: list[Pen], heat: Floats, facing: Mapping[int, int]) -> None:
    """The number behind each colour, in a corner of its cell."""
    for cell in np.flatnonzero(~np.isnan(heat)).tolist():
        _, corner = _CORNERS[facing.get(cell)]
        _write(pens[cell], corner, value_label(float(heat[cell])), 0.2, float(heat[cell]))


def _write_goals(
    layout: Layout, spec: WorldSpec, pens: list[Pen], heat: Floats, goals: Sequence[int],
    facing: Mapping[int, int],
) -> None:  # fmt: skip
    """The letter of each goal in its first free cell, with the name where there is room for it."""
    is_free = np.ones(layout.num_cells, np.bool_)
    is_free[list(facing)] = False
    starts: dict[int, list[int]] = {}
    for goal in goals:
        in_goal = layout.goal_cells[goal] & (layout.terrain != codes.WALL)
        cells = np.flatnonzero(in_goal & is_free if (in_goal & is_free).any() else in_goal)
        if len(cells):
            starts.setdefault(int(cells[0]), []).append(goal)
    for cell, here in starts.items():
        label = " ".join(goal_key(spec, goal) for goal in here)
        if len(here) == 1 and is_free[cell]:
            row_end = cell + layout.width - cell % layout.width
            row = (layout.goal_cells[here[0]] & is_free)[cell:row_end]
            room = len(row) if row.all() else int(row.argmin())
            named = f"{label} {spec.goals[here[0]].name}"
            label = named if text_width(named, 100) * _NAME / 100 <= room - 0.24 else label
        corner, _ = _CORNERS[facing.get(cell)]
        _write(pens[cell], corner, label, _NAME, float(heat[cell]))


def _write(pen: Pen, corner: tuple[int, int], text: str, size: float, heat: float) -> None:
    """A text in a corner of a cell with this number, which may be NaN."""
    x, y = corner
    ground = GROUND if math.isnan(heat) else heat_colour(heat)
    at = 0.13 + 0.74 * x, 0.12 + 0.75 * y
    pen.text(at, text, size, text_on(ground), anchor="lr"[x] + "tb"[y], halo=ground)
