"""Pictures of a BushWorld, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

from empo_bushworld.layout import MOVES, Layout
from empo_core.types import Overlay, WorldSpec

Colour = tuple[int, int, int]
GROUND: Colour = (236, 228, 208)
BUSH: Colour = (38, 110, 48)
HEAT: Colour = (214, 60, 40)
ROBOT: Colour = (110, 115, 125)
HUMANS: tuple[Colour, ...] = ((240, 190, 30), (60, 120, 210), (200, 80, 170), (230, 120, 40))
LINE: Colour = (150, 140, 120)
INK: Colour = (20, 20, 20)
CAPTION = 14
"""Height of a caption, in pixels."""


def draw(
    layout: Layout, spec: WorldSpec, row: Sequence[int], overlay: Overlay | None
) -> UInt8[np.ndarray, "height width 3"]:
    """An RGB picture of a state.

    Bushes are the greener the denser they are; robots are squares, humans are discs, both
    with their numbers. The overlay's goal values redden the frames of the goals' cells.
    """
    tile, agents = layout.tile, len(spec.agents)
    caption = CAPTION if overlay is not None and overlay.caption else 0
    size = layout.width * tile, layout.height * tile + caption
    image = Image.new("RGB", size, GROUND)
    pen = ImageDraw.Draw(image)
    for cell, density in enumerate(row[agents:]):
        colour = _blend(GROUND, BUSH, density / layout.impenetrable)
        pen.rectangle(_box(layout, cell, 0), fill=colour, outline=LINE)
    if overlay is not None:
        _heat(pen, layout, spec, overlay)
    for agent, cell in enumerate(row[:agents]):
        _agent(pen, layout, agent, cell)
    if overlay is not None:
        for agent, policy in overlay.policies.items():
            _arrows(pen, layout, row[agent], policy)
        if overlay.caption:
            pen.text((2, layout.height * tile), overlay.caption, fill=(255, 255, 255))
    return np.asarray(image, dtype=np.uint8).copy()


def _box(layout: Layout, cell: int, margin: int) -> tuple[int, int, int, int]:
    x, y = cell % layout.width * layout.tile, cell // layout.width * layout.tile
    return x + margin, y + margin, x + layout.tile - 1 - margin, y + layout.tile - 1 - margin


def _blend(low: Colour, high: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def _heat(pen: ImageDraw.ImageDraw, layout: Layout, spec: WorldSpec, overlay: Overlay) -> None:
    if overlay.goal_values is None:
        return
    human = spec.humans[0] if overlay.human is None else overlay.human
    values = [overlay.goal_values[goal] for goal in spec.goals_of(human)]
    for (x1, y1, x2, y2), value in zip(layout.goals, values, strict=True):
        for y in range(y1, y2 + 1):
            for x in range(x1, x2 + 1):
                box = _box(layout, y * layout.width + x, 1)
                colour = _blend(GROUND, HEAT, min(1.0, max(0.0, value)))
                pen.rectangle(box, outline=colour, width=max(1, layout.tile // 8))


def _agent(pen: ImageDraw.ImageDraw, layout: Layout, agent: int, cell: int) -> None:
    box = _box(layout, cell, max(1, layout.tile // 5))
    human = agent - len(layout.robots)
    if human < 0:
        pen.rectangle(box, fill=ROBOT, outline=INK)
    else:
        pen.ellipse(box, fill=HUMANS[human % len(HUMANS)], outline=INK)
    number = str((agent if human < 0 else human) + 1)
    pen.text((box[0] + layout.tile // 8, box[1]), number, fill=INK)


def _arrows(pen: ImageDraw.ImageDraw, layout: Layout, cell: int, policy: Sequence[float]) -> None:
    """A line per move, as long as it is likely, and a dot as large as passing is."""
    x1, y1, x2, y2 = _box(layout, cell, 0)
    x, y, reach = (x1 + x2) / 2, (y1 + y2) / 2, layout.tile * 0.45
    for (dx, dy), p in zip(MOVES, policy, strict=True):
        if dx or dy:
            tip = x + dx * p * reach, y + dy * p * reach
            pen.line([(x, y), tip], fill=INK, width=max(1, layout.tile // 12))
        else:
            radius = p * layout.tile / 8
            pen.ellipse([x - radius, y - radius, x + radius, y + radius], fill=INK)
