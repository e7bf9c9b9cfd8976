"""A picture of a state: the board, and what an overlay adds to it. Needs no window."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from empo_core.errors import WorldError
from empo_core.types import Overlay, WorldSpec
from empo_multigrid import layout as codes
from empo_multigrid.canvas import AGENT_RGB, INK, PAPER, RGB, Pen, Point, blend, text_on
from empo_multigrid.layout import Bools, Floats, Ints, Layout
from empo_multigrid.scene import Scene, control, scene
from empo_multigrid.sidebar import add_caption, add_panel, font, heat_colour
from empo_multigrid.text import agent_mark
from empo_multigrid.tiles import (
    draw_agent,
    draw_bush,
    draw_button,
    draw_door,
    draw_ground,
    draw_magic_wall,
    draw_thing,
)

MIN_TILE: Final = 8
MAX_TILE: Final = 256
# Shapes are drawn this many times larger and shrunk, which smooths their edges.
_SMOOTH: Final = 4
# Numbers in cells smaller than this could not be read.
_MIN_TILE_WITH_NUMBERS: Final = 40
_INSET: Final = 0.08


def render(
    layout: Layout,
    spec: WorldSpec,
    row: Ints,
    overlay: Overlay | None = None,
    tile_size: int = 32,
) -> UInt8[np.ndarray, "height width 3"]:
    """An RGB picture of a state.

    The board has ``tile_size`` pixels per cell. Goal values or policies add a panel on the
    right, a caption adds a line below; overlays of one kind give pictures of one size.

    Args:
        layout: The world.
        spec: Names of agents, actions and goals.
        row: One state row.
        overlay: What to draw on top.
        tile_size: Pixels per cell and side, from 8 to 256.

    Raises:
        WorldError: The overlay does not fit the world.
        ValueError: The tile size is out of range.
    """
    if not MIN_TILE <= tile_size <= MAX_TILE:
        raise ValueError(f"tile_size is {tile_size}: it must be from {MIN_TILE} to {MAX_TILE}")
    overlay = overlay or Overlay()
    human = _check(spec, overlay)
    found = scene(layout, row)
    picture = _board(layout, spec, found, overlay, human, tile_size)
    if overlay.goal_values is not None or overlay.policies:
        heading = None if human is None else spec.agents[human].name
        picture = add_panel(picture, spec, layout.agent_colour.tolist(), overlay, heading)
    if overlay.caption:
        picture = add_caption(picture, overlay.caption)
    return np.array(picture)


def _check(spec: WorldSpec, overlay: Overlay) -> int | None:
    """The human whose goals are drawn, None if no goals are drawn.

    Raises:
        WorldError: The overlay does not fit the world.
    """
    for agent, probs in overlay.policies.items():
        if not 0 <= agent < len(spec.agents):
            raise WorldError(f"overlay.policies names agent {agent}; there are {len(spec.agents)}")
        actions = spec.agents[agent].actions
        if len(probs) != len(actions) or not all(0 <= p <= 1 for p in probs):
            raise WorldError(
                f"overlay.policies[{agent}] needs a probability for each of "
                f"{len(actions)} actions ({', '.join(actions)}), not {list(probs)}"
            )
    if overlay.human is not None and overlay.human not in spec.humans:
        raise WorldError(f"overlay.human is {overlay.human}; humans are {list(spec.humans)}")
    if overlay.goal_values is None:
        return None
    if len(overlay.goal_values) != len(spec.goals):
        raise WorldError(
            f"overlay.goal_values has {len(overlay.goal_values)} numbers; "
            f"{spec.name!r} has {len(spec.goals)} goals"
        )
    for goal, value in zip(spec.goals, overlay.goal_values, strict=True):
        # Rounding may carry a probability past 1 by a hair.
        if not -1e-6 <= value <= 1 + 1e-6:
            raise WorldError(f"the overlay's value of goal {goal.name} is {value}, not in [0, 1]")
    if not spec.humans:
        raise WorldError(f"{spec.name!r} has no humans whose goal values could be drawn")
    return spec.humans[0] if overlay.human is None else overlay.human


def _board(
    layout: Layout,
    spec: WorldSpec,
    found: Scene,
    overlay: Overlay,
    human: int | None,
    tile_size: int,
) -> Image.Image:
    """The grid with everything in it."""
    big = tile_size * _SMOOTH
    image = Image.new("RGB", (layout.width * big, layout.height * big))
    pens = [
        Pen(image, cell % layout.width * big, cell // layout.width * big, big)
        for cell in range(layout.num_cells)
    ]
    heat = None if human is None else _heat(layout, spec, overlay, human)
    for cell, pen in enumerate(pens):
        draw_ground(pen, int(layout.terrain[cell]), int(layout.terrain_colour[cell]))
        if heat is not None and not math.isnan(heat[cell]) and layout.terrain[cell] != codes.WALL:
            # Lava and the like must stay visible.
            alpha = 0.85 if layout.terrain[cell] == codes.EMPTY else 0.5
            pen.rect((0.015, 0.015), (0.985, 0.985), heat_colour(float(heat[cell])), alpha=alpha)
    _draw_fixed(layout, found, pens)
    if human is not None:
        colour = AGENT_RGB[layout.agent_colour[human]]
        for goal in spec.goals_of(human):
            _draw_goal_box(layout, layout.goal_cells[goal], pens, colour)
    for cell, thing in found.loose.items():
        draw_thing(pens[cell], thing)
    _draw_control_lines(layout, found, pens)
    for agent, probs in overlay.policies.items():
        _draw_arrows(layout, found, pens, agent, list(probs))
    for index, view in enumerate(found.agents):
        draw_agent(pens[view.cell], view, int(layout.agent_colour[index]))
    board = image.reduce(_SMOOTH)
    _write_marks(layout, found, board, tile_size)
    if heat is not None and tile_size >= _MIN_TILE_WITH_NUMBERS:
        _write_heat(layout, board, heat, tile_size)
    return board


def _heat(layout: Layout, spec: WorldSpec, overlay: Overlay, human: int) -> Floats:
    """The largest value of the human's goals that contain each cell; NaN outside all goals."""
    heat = np.full(layout.num_cells, np.nan)
    for goal in spec.goals_of(human):
        assert overlay.goal_values is not None
        value = min(1.0, max(0.0, float(overlay.goal_values[goal])))
        cells = layout.goal_cells[goal]
        heat[cells] = np.fmax(heat[cells], value)
    return heat


def _draw_fixed(layout: Layout, found: Scene, pens: list[Pen]) -> None:
    for fixed, word in enumerate(found.fixed):
        kind, pen = int(layout.fixed_kind[fixed]), pens[layout.fixed_cell[fixed]]
        colour, target = int(layout.fixed_colour[fixed]), int(layout.fixed_target[fixed])
        if kind == codes.DOOR:
            draw_door(pen, colour, word)
        elif kind == codes.MAGIC_WALL:
            draw_magic_wall(pen, int(layout.fixed_side[fixed]), word)
        elif kind == codes.BUSH:
            draw_bush(pen, word)
        elif kind == codes.KILL_BUTTON:
            draw_button(pen, kind, colour, target, enabled=bool(word), on=False)
        elif kind == codes.PAUSE_SWITCH:
            draw_button(pen, kind, colour, target, enabled=bool(word & 2), on=bool(word & 1))
        elif kind == codes.CONTROL_BUTTON:
            button = control(word)
            programmed = button.action != codes.NOTHING
            draw_button(pen, kind, colour, target, enabled=button.enabled, on=programmed)
        else:
            draw_button(pen, kind, colour, target, enabled=True, on=False)


def _draw_control_lines(layout: Layout, found: Scene, pens: list[Pen]) -> None:
    """A dashed line from each programmed control button to the agent it controls."""
    for fixed, word in enumerate(found.fixed):
        if layout.fixed_kind[fixed] != codes.CONTROL_BUTTON:
            continue
        agent = control(word).agent
        if agent == codes.NOTHING:
            continue
        here, there = int(layout.fixed_cell[fixed]), found.agents[agent].cell
        x = there % layout.width - here % layout.width
        y = there // layout.width - here // layout.width
        colour = AGENT_RGB[layout.agent_colour[agent]]
        pens[here].dashes((0.5, 0.5), (x + 0.5, y + 0.5), blend(colour, INK, 0.3), 0.05)


def _draw_goal_box(layout: Layout, cells: Bools, pens: list[Pen], colour: RGB) -> None:
    """A dashed line along the inner border of a goal, whatever its shape."""

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
            for tint, width in ((blend(colour, INK, 0.55), 0.055), (colour, 0.035)):
                pens[cell].dashes(ends[0], ends[1], tint, width)


def _towards(out: tuple[int, int], along: tuple[int, int], reach: float) -> Point:
    near = 0.5 - _INSET
    return 0.5 + out[0] * near + along[0] * reach, 0.5 + out[1] * near + along[1] * reach


def _draw_arrows(
    layout: Layout, found: Scene, pens: list[Pen], agent: int, probs: list[float]
) -> None:
    """Arrows ahead and to the sides of an agent, as strong as the actions are probable."""
    view = found.agents[agent]
    colour = AGENT_RGB[layout.agent_colour[agent]]
    turns = {codes.FORWARD: 0, codes.LEFT: 3, codes.RIGHT: 1}
    for action, prob in enumerate(probs):
        meaning = int(layout.actions[action])
        if meaning not in turns or prob < 0.005:
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
        pen.outline(shaft, INK, 0.06)
        pen.polygon(shaft, blend(PAPER, colour, 0.25 + 0.75 * prob))


def _write_marks(layout: Layout, found: Scene, board: Image.Image, tile_size: int) -> None:
    """The index of each agent, on its triangle."""
    draw = ImageDraw.Draw(board)
    writing = font(max(7, round(tile_size * 0.34)))
    for index, agent in enumerate(found.agents):
        tint = AGENT_RGB[layout.agent_colour[index]]
        # The triangle's middle lies behind the tile's, away from its tip.
        back = 0.07
        x = agent.cell % layout.width + 0.5 - back * codes.DX[agent.direction]
        y = agent.cell // layout.width + 0.5 - back * codes.DY[agent.direction]
        colour = INK if agent.terminated else text_on(tint)
        draw.text(
            (x * tile_size, y * tile_size), agent_mark(index), fill=colour, font=writing,
            anchor="mm", stroke_width=2 if agent.terminated else 0, stroke_fill=PAPER,
        )  # fmt: skip


def _write_heat(layout: Layout, board: Image.Image, heat: Floats, tile_size: int) -> None:
    """The number behind each colour, in the corner of its cell."""
    draw = ImageDraw.Draw(board)
    writing = font(max(8, round(tile_size * 0.22)))
    for cell in np.flatnonzero(~np.isnan(heat)).tolist():
        if layout.terrain[cell] == codes.WALL:
            continue
        x, y = cell % layout.width, cell // layout.width
        label = f"{heat[cell]:.2f}".removeprefix("0")
        spot = ((x + 0.87) * tile_size, (y + 0.87) * tile_size)
        ground = heat_colour(float(heat[cell]))
        halo = max(1, round(tile_size / 32))
        draw.text(
            spot, label, fill=text_on(ground), font=writing, anchor="rb",
            stroke_width=halo, stroke_fill=ground,
        )  # fmt: skip
