"""Drawings of everything that a multigrid world contains; ``things`` says of what."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from empo_multigrid import layout as codes
from empo_multigrid.show.scene import AgentView, FixedView
from empo_pictures.canvas import GRID, GROUND, INK, PAPER, RGB, Pen, Point, blend

# By index in ``layout.COLOURS``. Softer than the pure colours, apart in hue and in lightness.
AGENT_RGB: Final[tuple[RGB, ...]] = (
    (221, 60, 64), (46, 158, 91), (52, 99, 219), (136, 72, 190), (247, 190, 22),
    (126, 133, 146), (146, 98, 56),
)  # fmt: skip

_STONE: Final[RGB] = (78, 86, 101)
_MAGIC: Final[RGB] = (98, 70, 152)
_WOOD: Final[RGB] = (176, 122, 70)
_DARK_WOOD: Final[RGB] = (120, 78, 40)
_LEAF: Final[RGB] = (67, 143, 74)
_LAVA: Final[RGB] = (233, 88, 34)
_GLOW: Final[RGB] = (255, 190, 66)
_DANGER: Final[RGB] = (196, 32, 38)


def draw_nothing(pen: Pen, colour: int) -> None:
    """Nothing but the ground."""


def draw_floor(pen: Pen, colour: int, wash: float) -> None:
    """The ground of a cell within a thin line, with some of a colour."""
    pen.rect((0, 0), (1, 1), GRID)
    pen.rect((0.015, 0.015), (0.985, 0.985), blend(GROUND, AGENT_RGB[colour], wash))


def draw_wall(pen: Pen, colour: int) -> None:
    """A wall of stone, or painted."""
    _masonry(pen, _STONE if colour == codes.GREY else blend(AGENT_RGB[colour], INK, 0.35))


def draw_switch(pen: Pen, colour: int) -> None:
    """A plate in the ground."""
    pen.rect((0.18, 0.18), (0.82, 0.82), blend(GROUND, INK, 0.35), radius=0.1)
    pen.rect((0.22, 0.22), (0.78, 0.78), blend(GROUND, INK, 0.12), radius=0.08)
    pen.circle((0.5, 0.5), 0.13, blend(GROUND, INK, 0.35))


def draw_ball(pen: Pen, colour: int) -> None:
    """A ball."""
    tint = AGENT_RGB[colour]
    pen.circle((0.5, 0.52), 0.3, blend(tint, INK, 0.5))
    pen.circle((0.5, 0.52), 0.26, tint)
    pen.circle((0.41, 0.42), 0.08, blend(tint, PAPER, 0.7))


def draw_box(pen: Pen, colour: int) -> None:
    """A box with a lid and a band."""
    tint = AGENT_RGB[colour]
    edge = blend(tint, INK, 0.5)
    pen.rect((0.16, 0.2), (0.84, 0.84), edge, radius=0.06)
    pen.rect((0.2, 0.4), (0.8, 0.8), blend(tint, PAPER, 0.25), radius=0.03)
    pen.rect((0.2, 0.24), (0.8, 0.37), blend(tint, PAPER, 0.45), radius=0.03)
    pen.rect((0.44, 0.24), (0.56, 0.8), edge, alpha=0.55)


def draw_door(pen: Pen, view: FixedView) -> None:
    """A door: open ones stand aside, locked ones have a padlock."""
    tint = AGENT_RGB[view.colour]
    edge = blend(tint, INK, 0.55)
    pen.rect((0, 0), (1, 1), edge)
    if view.word == codes.DOOR_OPEN:
        pen.rect((0.1, 0.1), (0.9, 0.9), GROUND)
        pen.rect((0.1, 0.1), (0.22, 0.9), tint)
        pen.circle((0.16, 0.5), 0.035, edge)
        return
    pen.rect((0.07, 0.07), (0.93, 0.93), blend(tint, PAPER, 0.12))
    pen.rect((0.17, 0.16), (0.83, 0.46), edge, radius=0.03, alpha=0.28)
    pen.rect((0.17, 0.54), (0.83, 0.84), edge, radius=0.03, alpha=0.28)
    if view.word == codes.DOOR_CLOSED:
        pen.circle((0.78, 0.5), 0.065, edge)
        pen.circle((0.77, 0.49), 0.035, PAPER)
    elif view.word == codes.DOOR_LOCKED:
        pen.ring((0.5, 0.4), 0.17, INK, 0.06)
        pen.rect((0.28, 0.42), (0.72, 0.74), INK, radius=0.05)
        pen.circle((0.5, 0.54), 0.055, PAPER)
        pen.polygon([(0.475, 0.55), (0.525, 0.55), (0.54, 0.67), (0.46, 0.67)], PAPER)


def draw_magic_wall(pen: Pen, view: FixedView) -> None:
    """A magic wall shines on the side from which it can be entered; a solid one is dull."""
    if not view.word:
        _masonry(pen, blend(_MAGIC, _STONE, 0.75))
        pen.line([(0.3, 0.3), (0.7, 0.7)], blend(_MAGIC, PAPER, 0.3), 0.05)
        pen.line([(0.7, 0.3), (0.3, 0.7)], blend(_MAGIC, PAPER, 0.3), 0.05)
        return
    _masonry(pen, _MAGIC)
    shine = blend(_MAGIC, PAPER, 0.85)
    _spark(pen, (0.5, 0.5), 0.2, shine)
    for direction in range(4) if view.side == codes.ANY_SIDE else (view.side,):
        edge = pen.turned(direction)
        edge.rect((0.88, 0.06), (0.98, 0.94), shine)
        edge.polygon([(0.86, 0.36), (0.86, 0.64), (0.73, 0.5)], shine)


def draw_bush(pen: Pen, view: FixedView) -> None:
    """A bush, or what is left of it."""
    if view.word:
        for x, y, lean in ((0.3, 0.72, -0.1), (0.5, 0.8, 0.08), (0.7, 0.7, 0.12)):
            pen.line([(x, y), (x + lean, y - 0.12)], blend(_LEAF, GROUND, 0.4), 0.035)
            pen.line([(x, y), (x - 0.1, y - 0.06)], blend(_DARK_WOOD, GROUND, 0.4), 0.035)
        return
    crowns = ((0.32, 0.6, 0.2), (0.68, 0.6, 0.2), (0.5, 0.4, 0.23), (0.5, 0.68, 0.2))
    for x, y, radius in crowns:
        pen.circle((x, y), radius + 0.03, blend(_LEAF, INK, 0.5))
    for x, y, radius in crowns:
        pen.circle((x, y), radius, _LEAF)
    for x, y in ((0.42, 0.32), (0.26, 0.54), (0.62, 0.55), (0.45, 0.62), (0.6, 0.38)):
        pen.circle((x, y), 0.055, blend(_LEAF, PAPER, 0.35))


def draw_button(pen: Pen, view: FixedView, *, enabled: bool = True, on: bool = False) -> None:
    """A button or switch on its post: the rim shows whom it obeys, the cap what it does to whom.

    Args:
        pen: Where.
        view: The button or switch.
        enabled: Whether it works.
        on: Whether it is switched on (pause switch) or programmed (control button).
    """
    pen.rect((0.06, 0.06), (0.94, 0.94), blend(_STONE, INK, 0.2), radius=0.14)
    pen.rect((0.1, 0.1), (0.9, 0.9), blend(_STONE, PAPER, 0.72), radius=0.11)
    rim = AGENT_RGB[view.colour]
    disables = view.kind == codes.DISABLING_SWITCH
    cap = blend(_STONE, PAPER, 0.35) if disables else AGENT_RGB[view.target]
    if not enabled:
        rim, cap = blend(rim, PAPER, 0.6), blend(cap, PAPER, 0.55)
    pen.circle((0.5, 0.5), 0.355, INK)
    pen.circle((0.5, 0.5), 0.335, rim)
    pen.circle((0.5, 0.5), 0.25, INK)
    pen.circle((0.5, 0.5), 0.235, blend(cap, PAPER, 0.25 if on else 0.0))
    kind = view.target if disables else view.kind
    _symbol(pen, kind, PAPER if enabled else blend(cap, INK, 0.3))
    if disables:
        pen.line([(0.3, 0.7), (0.7, 0.3)], _DANGER, 0.06)
    if on:
        pen.circle((0.83, 0.17), 0.075, INK)
        pen.circle((0.83, 0.17), 0.055, (92, 214, 92))
    if not enabled:
        pen.line([(0.16, 0.16), (0.84, 0.84)], INK, 0.05)


def draw_agent(
    pen: Pen, agent: AgentView, colour: int, draw_carried: Callable[[Pen], None] | None
) -> None:
    """A triangle that points where the agent faces, what it carries, and its condition."""
    tint = AGENT_RGB[colour]
    if agent.terminated:
        tint = blend(tint, GROUND, 0.6)
    shape = pen.turned(agent.direction)
    points = [(0.9, 0.5), (0.16, 0.88), (0.28, 0.5), (0.16, 0.12)]
    shape.polygon(points, INK)
    shape.outline(points, INK, 0.09)
    shape.polygon(points, tint)
    shape.outline(points, tint, 0.025)
    if agent.terminated:
        for ends in ([(0.2, 0.2), (0.8, 0.8)], [(0.8, 0.2), (0.2, 0.8)]):
            pen.line(ends, PAPER, 0.17)
        for ends in ([(0.2, 0.2), (0.8, 0.8)], [(0.8, 0.2), (0.2, 0.8)]):
            pen.line(ends, _DANGER, 0.1)
    if draw_carried is not None:
        badge = pen.inset(0.55, 0.55, 0.44)
        badge.circle((0.5, 0.5), 0.5, INK)
        badge.circle((0.5, 0.5), 0.455, PAPER)
        draw_carried(badge.inset(0.12, 0.12, 0.76))
    if agent.paused:
        pen.circle((0.2, 0.2), 0.18, INK)
        for x in (0.125, 0.215):
            pen.rect((x, 0.11), (x + 0.055, 0.29), PAPER)
    if agent.forced >= 0:
        pen.circle((0.8, 0.2), 0.18, INK)
        bolt = [(0.83, 0.06), (0.7, 0.22), (0.79, 0.22), (0.76, 0.34), (0.9, 0.17), (0.81, 0.17)]
        pen.polygon(bolt, _GLOW)


def _symbol(pen: Pen, kind: int, colour: RGB) -> None:
    """Symbol of a button's effect: a cross kills, bars pause, an arrow in a circle controls."""
    if kind == codes.KILL_BUTTON:
        pen.line([(0.4, 0.4), (0.6, 0.6)], colour, 0.075)
        pen.line([(0.6, 0.4), (0.4, 0.6)], colour, 0.075)
    elif kind == codes.PAUSE_SWITCH:
        for x in (0.41, 0.53):
            pen.rect((x, 0.38), (x + 0.07, 0.62), colour)
    elif kind == codes.CONTROL_BUTTON:
        pen.line([(0.37, 0.5), (0.58, 0.5)], colour, 0.06)
        pen.polygon([(0.53, 0.36), (0.67, 0.5), (0.53, 0.64)], colour)


def draw_flag(pen: Pen, colour: int) -> None:
    """The flag of a goal square."""
    tint = AGENT_RGB[colour]
    pen.line([(0.36, 0.22), (0.36, 0.8)], blend(tint, INK, 0.5), 0.045)
    pen.polygon([(0.38, 0.22), (0.74, 0.35), (0.38, 0.48)], tint)


def draw_lava(pen: Pen, colour: int) -> None:
    """Lava with waves."""
    pen.rect((0, 0), (1, 1), _LAVA)
    for row, height in enumerate((0.22, 0.5, 0.78)):
        wave = [
            (x / 20, height + 0.055 * math.sin(2 * math.pi * x / 10 + 1.6 * row)) for x in range(21)
        ]
        pen.line(wave, _GLOW, 0.06)


def draw_unsteady(pen: Pen, colour: int) -> None:
    """Cracked ground."""
    pen.rect((0.015, 0.015), (0.985, 0.985), (236, 224, 196))
    crack = (150, 124, 82)
    for points in (
        [(0.1, 0.3), (0.3, 0.36), (0.42, 0.2), (0.6, 0.28)],
        [(0.3, 0.36), (0.38, 0.56), (0.24, 0.72)],
        [(0.9, 0.42), (0.68, 0.52), (0.74, 0.74), (0.56, 0.88)],
        [(0.68, 0.52), (0.54, 0.48)],
    ):
        pen.line(points, crack, 0.03)


def draw_block(pen: Pen, colour: int) -> None:
    """A crate."""
    pen.rect((0.09, 0.09), (0.91, 0.91), _DARK_WOOD, radius=0.05)
    pen.rect((0.14, 0.14), (0.86, 0.86), _WOOD, radius=0.02)
    pen.line([(0.18, 0.82), (0.82, 0.18)], _DARK_WOOD, 0.13)
    pen.line([(0.18, 0.82), (0.82, 0.18)], blend(_WOOD, PAPER, 0.18), 0.07)
    for x, y in ((0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (0.8, 0.8)):
        pen.circle((x, y), 0.03, _DARK_WOOD)


def draw_rock(pen: Pen, colour: int) -> None:
    """A rock."""
    border = [
        (0.3, 0.16), (0.64, 0.12), (0.86, 0.36), (0.9, 0.66), (0.7, 0.88), (0.26, 0.88),
        (0.09, 0.64), (0.14, 0.36),
    ]  # fmt: skip
    grey = (142, 146, 153)
    pen.polygon(border, grey)
    pen.polygon([(0.3, 0.16), (0.64, 0.12), (0.56, 0.4), (0.3, 0.46)], blend(grey, PAPER, 0.4))
    pen.polygon([(0.14, 0.36), (0.3, 0.16), (0.3, 0.46)], blend(grey, PAPER, 0.2))
    pen.polygon([(0.56, 0.4), (0.86, 0.36), (0.9, 0.66), (0.7, 0.88)], blend(grey, INK, 0.25))
    pen.polygon([(0.64, 0.12), (0.86, 0.36), (0.56, 0.4)], blend(grey, PAPER, 0.12))
    pen.outline(border, blend(grey, INK, 0.65), 0.045)


def draw_key(pen: Pen, colour: int) -> None:
    """A key."""
    metal = AGENT_RGB[colour]
    for tint, extra in ((blend(metal, INK, 0.6), 0.04), (metal, 0.0)):
        pen.ring((0.5, 0.3), 0.19 + extra, tint, 0.09 + 2 * extra)
        pen.line([(0.5, 0.5), (0.5, 0.84)], tint, 0.09 + 2 * extra)
        pen.line([(0.5, 0.82), (0.66, 0.82)], tint, 0.08 + 2 * extra)
        pen.line([(0.5, 0.67), (0.62, 0.67)], tint, 0.08 + 2 * extra)


def _masonry(pen: Pen, base: RGB) -> None:
    pen.rect((0, 0), (1, 1), base)
    joint = blend(base, INK, 0.28)
    light = blend(base, PAPER, 0.1)
    for row, joints in enumerate(((0.5,), (0.0, 1.0), (0.5,))):
        top = row / 3
        pen.rect((0, top), (1, top + 0.045), light)
        pen.rect((0, top + 0.29), (1, top + 0.3334), joint)
        for x in joints:
            left, right = max(0.0, x - 0.022), min(1.0, x + 0.022)
            pen.rect((left, top), (right, top + 0.3334), joint)


def _spark(pen: Pen, centre: Point, size: float, colour: RGB) -> None:
    x, y = centre
    points = []
    for corner in range(8):
        radius = size if corner % 2 == 0 else size * 0.36
        angle = math.pi * corner / 4
        points.append((x + radius * math.cos(angle), y + radius * math.sin(angle)))
    pen.polygon(points, colour)
