"""Pictures of kitchens, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from empo_benchmarks.overcooked.goals import AT, HOLD, SERVE, KitchenGoal
from empo_benchmarks.overcooked.kitchen import (
    COOK_WORDS,
    DISH,
    DISHES,
    FLOOR,
    INTERACT,
    MOVES,
    NOTHING,
    ONION,
    ONIONS,
    POT,
    WINDOW,
    Kitchen,
)
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import GROUND, INK, PAPER, RGB, Pen, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key
from empo_worlds.grid.pictures import (
    best_value,
    draw_action,
    draw_cell,
    draw_goal,
    draw_move,
    tile_size_of,
)

_LINE: Final[RGB] = (190, 186, 176)
_BENCH: Final[RGB] = (203, 170, 125)
_WINDOW: Final[RGB] = (150, 190, 150)
_ONION: Final[RGB] = (226, 190, 70)
_DISH: Final[RGB] = (250, 250, 250)
_POT: Final[RGB] = (70, 74, 82)
_SOUP: Final[RGB] = (214, 120, 40)
TINTS: Final[tuple[RGB, RGB]] = ((110, 115, 125), (240, 190, 30))


def sheet(
    kitchen: Kitchen,
    goals: Sequence[KitchenGoal],
    spec: WorldSpec,
    row: Sequence[int],
    overlay: Overlay | None,
    tile_size: int | None,
) -> PictureSheet:
    """A picture of a state: the robot is a square, the human a disc, with a line to what it faces.

    Goals are framed in the colour of their value, at the station that they are about.
    """
    annotations, height = overlay or Overlay(), len(kitchen.lines)

    def paint(pen: Pen, human: int | None) -> None:
        pens = [pen.inset(*kitchen.at(cell), 1) for cell in range(len(kitchen.tile))]
        for cell_pen, kind in zip(pens, kitchen.tile.tolist(), strict=True):
            draw_tile(cell_pen, kind)
        for cell in kitchen.counters:
            draw_item(pens[cell], row[kitchen.word[cell]], 0.5, 0.5)
        for cell in kitchen.pots:
            onions, cooked = row[kitchen.word[cell] :][:2]
            draw_pot(pens[cell], onions, cooked / kitchen.cook_time)
        if human is not None:
            _goals(pens, kitchen, goals, spec, annotations)
        for agent, tint in enumerate(TINTS):
            place, facing, held = row[COOK_WORDS * agent :][:COOK_WORDS]
            draw_cook(pens[kitchen.floor[place]], agent, tint, facing, held)
            policy = annotations.policies.get(agent)
            chosen = annotations.actions.get(agent)
            _moves(pens[kitchen.floor[place]], policy, chosen)
            if chosen is not None:
                # Cooks stand on floors, which have a row below.
                name = spec.agents[agent].actions[chosen]
                draw_action(pens[kitchen.floor[place]], name, is_low=False)
        pen.text((0.04, 0.03), f"served {row[-1]}", 0.18, anchor="lt", halo=PAPER)

    tile = tile_size_of(kitchen.width, height, annotations, tile_size)
    return PictureSheet(spec, TINTS, annotations, tile, kitchen.width, height, paint)


def draw_tile(pen: Pen, kind: int) -> None:
    """A tile with what is always there."""
    draw_cell(pen, _LINE, GROUND if kind == FLOOR else _WINDOW if kind == WINDOW else _BENCH)
    if kind == ONIONS:
        for x, y in ((0.32, 0.62), (0.68, 0.62), (0.5, 0.36)):
            draw_item(pen, ONION, x, y)
    elif kind == DISHES:
        for y in (0.62, 0.5, 0.38):
            draw_item(pen, DISH, 0.5, y)


def draw_item(pen: Pen, item: int, x: float, y: float) -> None:
    """An onion is a small disc, a dish a large white one, with as many onions as its soup has."""
    if item == ONION:
        pen.circle((x, y), 0.13, INK)
        pen.circle((x, y), 0.11, _ONION)
    elif item >= DISH:
        pen.circle((x, y), 0.2, INK)
        pen.circle((x, y), 0.18, _DISH)
        if item > DISH:
            pen.circle((x, y), 0.14, _SOUP)
            pen.text((x, y), str(item - DISH), 0.2, text_on(_SOUP))


def draw_pot(pen: Pen, onions: int, cooked: float) -> None:
    """A pot with its onions, above a bar of how far it is cooked."""
    pen.rect((0.16, 0.2), (0.84, 0.86), _POT, radius=0.1)
    for number in range(onions):
        draw_item(pen, ONION, 0.5 + 0.24 * (number - (onions - 1) / 2), 0.44)
    if cooked:
        pen.rect((0.22, 0.66), (0.78, 0.78), PAPER)
        pen.rect((0.22, 0.66), (0.22 + 0.56 * cooked, 0.78), _SOUP)


def draw_cook(pen: Pen, agent: int, tint: RGB, facing: int, held: int) -> None:
    """A cook, a line to what it faces, and what it holds."""
    for size, colour in ((0.3, INK), (0.27, tint)):
        if agent == 0:
            pen.rect((0.5 - size, 0.5 - size), (0.5 + size, 0.5 + size), colour, radius=0.04)
        else:
            pen.circle((0.5, 0.5), size, colour)
    x, y = MOVES[facing]
    pen.line([(0.5 + 0.3 * x, 0.5 + 0.3 * y), (0.5 + 0.46 * x, 0.5 + 0.46 * y)], INK, 0.07)
    if held != NOTHING:
        draw_item(pen, held, 0.5, 0.5)


def _goals(
    pens: Sequence[Pen],
    kitchen: Kitchen,
    goals: Sequence[KitchenGoal],
    spec: WorldSpec,
    overlay: Overlay,
) -> None:
    """Frames, letters and the largest value of the goals of each station."""
    pursued = overlay.pursued.get(1)
    for kind in (ONIONS, DISHES, POT, WINDOW):
        mine = [number for number, goal in enumerate(goals) if station(goal) == kind]
        values = [] if overlay.goal_values is None else [overlay.goal_values[goal] for goal in mine]
        key = " ".join(goal_key(spec, goal) for goal in mine)
        for cell in kitchen.cells_of([kind]):
            is_pursued = pursued in mine
            draw_goal(pens[cell], key, best_value(values), is_pursued=is_pursued, size=0.15)


def station(goal: KitchenGoal) -> int:
    """The kind of tile where a goal is drawn."""
    if goal.kind == AT:
        return goal.about
    if goal.kind == SERVE:
        return WINDOW
    return {ONION: ONIONS, DISH: DISHES}.get(goal.about, POT) if goal.kind == HOLD else POT


def _moves(pen: Pen, policy: Sequence[float] | None, chosen: int | None) -> None:
    """A line per direction, as long as it is likely, a dot for staying and a ring for the rest."""
    for action in range(INTERACT + 1):
        p = float(action == chosen) if policy is None else policy[action]
        if action != INTERACT:
            move = MOVES[action - 1] if action else (0, 0)
            draw_move(pen, move, p, is_taken=action == chosen)
        elif p >= 0.005 or action == chosen:
            pen.ring((0.5, 0.5), 0.2 + 0.2 * p, INK, 0.03 + 0.05 * (action == chosen))
