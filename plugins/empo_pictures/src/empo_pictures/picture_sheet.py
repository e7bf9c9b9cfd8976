"""Pictures of states: a board per human, names, policies and a legend around them."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, zip_longest
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import UInt8

from empo_core.errors import WorldError
from empo_core.types import Overlay, WorldSpec
from empo_pictures import canvas
from empo_pictures.canvas import GRID, INK, MUTED, PAPER, RGB, Pen, blend, fitting, heat_colour
from empo_pictures.fonts import check_characters

PANEL_WIDTH: Final = 230
CAPTION_HEIGHT: Final = 30
TITLE_HEIGHT: Final = 26
_TITLE_WIDTH: Final = 180
_MARGIN: Final = 14
_LINE: Final = 22
_HEADING: Final = 32
# Of a picture that need not be narrower or flatter for a screen.
_WIDE: Final = 2.6


_Plan: TypeAlias = tuple[list[tuple[float, float]], float, float]


class _Part(NamedTuple):
    """A part of the picture and its size, in units; a list of lines or a board."""

    width: float
    height: float
    paint: Callable[[Pen], None]


class _Line(NamedTuple):
    """A line of a list beside the boards: a name, and a bar as long as its value in [0, 1]."""

    name: str
    tint: RGB
    value: float | None = None
    is_marked: bool = False


@dataclass(frozen=True)
class PictureSheet:
    """A picture of a state, as pixels or as SVG.

    Attributes:
        spec: Names of agents, actions and goals.
        tints: Colour of each agent.
        overlay: What to draw on top and around.
        tile_size: Pixels per tile and side.
        columns: Tiles per row.
        rows: Tiles per column.
        paint: Draws all tiles with a pen for the first one, with the goals of a human or none.
    """

    spec: WorldSpec
    tints: Sequence[RGB]
    overlay: Overlay
    tile_size: int
    columns: int
    rows: int
    paint: Callable[[Pen, int | None], None]

    def __post_init__(self) -> None:
        """Refuse an overlay that does not fit the world, as a ``WorldError``."""
        for problem in _misfits(self.spec, self.overlay):
            raise WorldError(f"overlay.{problem}")
        check_characters(self._texts())

    def pixels(self) -> UInt8[np.ndarray, "height width 3"]:
        """An RGB picture."""
        return canvas.pixels(*self._laid_out(), 4 if self.tile_size <= 48 else 2)

    def svg(self) -> str:
        """An SVG document."""
        return canvas.svg(*self._laid_out())

    def _laid_out(self) -> tuple[int, int, Callable[[Pen], None]]:
        """Width and height in pixels, and a painter of all parts with the least blank area."""
        # Text stays readable beside tiny tiles, and is as sharp as large ones.
        unit = max(1, round(self.tile_size / 48))
        boards = [*self._boards(self.tile_size / unit)]
        parts = [*boards, *self._lists()]
        listed = enumerate(self._agents, start=len(boards))
        robots = [part for part, agent in listed if agent in self.spec.robots]
        sizes = [part[:2] for part in parts]
        limits = [
            (along, limit)
            for along in (0, 1)
            for first in range(len(parts))
            for limit in accumulate(size[along] for size in sizes[first:])
        ]
        plans = (_flow(sizes, limit, along) for along, limit in dict.fromkeys(limits))
        spots, width, height = min(plans, key=lambda plan: _cost(plan, robots))
        line = fitting(" ".join(self.overlay.caption.split()), 13, width - 2 * _MARGIN)

        def paint(pen: Pen) -> None:
            page = pen.inset(0, 0, unit)
            page.rect((0, 0), (width, height + CAPTION_HEIGHT), PAPER)
            for (x, y), part in zip(spots, parts, strict=True):
                part.paint(page.inset(x, y, 1))
            page.text((_MARGIN, height + CAPTION_HEIGHT / 2), line, 13, anchor="lm")

        tall = height + (CAPTION_HEIGHT if line else 0)
        return round(width * unit), round(tall * unit), paint

    @property
    def _agents(self) -> list[int]:
        """The agents whose actions are listed."""
        return sorted({*self.overlay.policies, *self.overlay.actions})

    @property
    def _humans(self) -> list[int]:
        """The humans whose goals are drawn, on a board each."""
        spec, overlay = self.spec, self.overlay
        humans = [human for human in spec.humans if overlay.human in (None, human)]
        is_bare = overlay.goal_values is None and not overlay.pursued
        return [] if is_bare else [human for human in humans if spec.goals_of(human)]

    def _boards(self, tile: float) -> Iterator[_Part]:
        """A board with a title per human whose goals are drawn, or one board without goals."""
        width, height = self.columns * tile, self.rows * tile
        if not self._humans:
            yield _Part(width, height, lambda pen: self.paint(pen.inset(0, 0, tile), None))
        width = max(width, _TITLE_WIDTH)

        def paint(pen: Pen, human: int) -> None:
            name, title = self.spec.agents[human].name, self.overlay.titles.get(human)
            line = fitting(f"{name}: {title}" if title else name, 13, width)
            pen.text((6, TITLE_HEIGHT / 2), line, 13, anchor="lm")
            self.paint(pen.inset(0, TITLE_HEIGHT, tile), human)

        for human in self._humans:
            yield _Part(width + _MARGIN, height + TITLE_HEIGHT, partial(paint, human=human))

    def _lists(self) -> Iterator[_Part]:
        """The actions of each agent, then the goals of each human."""
        spec, overlay = self.spec, self.overlay
        for agent in self._agents:
            agent_spec, tint = spec.agents[agent], self.tints[agent]
            chosen, probs = overlay.actions.get(agent), overlay.policies.get(agent)
            heading = (
                agent_spec.name
                if chosen is None
                else f"{agent_spec.name}: {agent_spec.actions[chosen]}"
            )
            pairs = zip_longest(agent_spec.actions, probs) if probs is not None else ()
            lines = [_Line(name, tint, p, i == chosen) for i, (name, p) in enumerate(pairs)]
            yield _list(_Line(heading, tint), lines)
        values = overlay.goal_values or [None] * len(spec.goals)
        for human in self._humans:
            title = "goals of" if overlay.goal_values is None else "$V_h^e$ for"
            lines = []
            for goal in spec.goals_of(human):
                is_pursued = overlay.pursued.get(human) == goal
                name = f"{goal_key(spec, goal)}: {spec.goals[goal].name}"
                name += " (pursued)" if is_pursued else ""
                lines.append(_Line(name, heat_colour(values[goal] or 0), values[goal], is_pursued))
            listed = _list(_Line(f"{title} {spec.agents[human].name}", self.tints[human]), lines)
            has_scale = overlay.goal_values is not None and human == self._humans[0]
            yield _above(listed, _SCALE) if has_scale else listed

    def _texts(self) -> Iterator[str]:
        """What is written."""
        yield from (self.overlay.caption, *self.overlay.titles.values())
        for agent in self._agents:
            yield from (self.spec.agents[agent].name, *self.spec.agents[agent].actions)
        for human in self._humans:
            yield self.spec.agents[human].name
            yield from (self.spec.goals[goal].name for goal in self.spec.goals_of(human))


def _list(heading: _Line, lines: Sequence[_Line]) -> _Part:
    """A heading, and below it names, numbers and bars; what is marked has a triangle."""
    left, right = _MARGIN, PANEL_WIDTH - _MARGIN

    def paint(pen: Pen) -> None:
        pen.circle((left + 7, 18), 7, blend(heading.tint, INK, 0.2))
        pen.text((left + 20, 18), fitting(heading.name, 14, right - left - 20), 14, anchor="lm")
        for row, (name, tint, value, is_marked) in enumerate(lines):
            y = _HEADING + _LINE * row + 9
            if is_marked:
                pen.polygon([(4, y - 5), (12, y), (4, y + 5)], INK)
            label = fitting(name, 12, right - left - (42 if value is not None else 0))
            pen.text((left, y), label, 12, INK if is_marked else MUTED, anchor="lm")
            if value is None:
                continue
            pen.text((right, y), f"{value:.3f}", 12, anchor="rm")
            for share, colour in ((1, GRID), (value, tint)):
                if share > 0.005:
                    end = left + (right - left) * share, y + 11
                    pen.rect((left, y + 7), end, colour, radius=min(2, 100 * share))

    return _Part(PANEL_WIDTH, _HEADING + _LINE * len(lines) + 10, paint)


def _above(first: _Part, second: _Part) -> _Part:
    """A part above another of the same width."""

    def paint(pen: Pen) -> None:
        first.paint(pen)
        second.paint(pen.inset(0, first.height, 1))

    return _Part(first.width, first.height + second.height, paint)


def _scale(pen: Pen) -> None:
    """The colours of cells, with the numbers that they stand for."""
    left, right = _MARGIN, PANEL_WIDTH - _MARGIN
    steps = right - left
    for step in range(steps):
        pen.rect((left + step, 4), (left + step + 1, 14), heat_colour(step / (steps - 1)))
    for value, anchor in ((0, "l"), (0.5, "m"), (1, "r")):
        pen.text((left + value * steps, 25), f"{value:g}", 11, MUTED, anchor=f"{anchor}m")


_SCALE: Final = _Part(PANEL_WIDTH, 38, _scale)


def _misfits(spec: WorldSpec, overlay: Overlay) -> Iterator[str]:
    """Faults of an overlay, each after the word ``overlay.``."""
    for agent in {*overlay.policies, *overlay.actions} - {*range(len(spec.agents))}:
        yield f"policies or actions names agent {agent}; there are {len(spec.agents)}"
    for agent, probs in overlay.policies.items():
        names = spec.agents[agent].actions
        if len(probs) not in (0, len(names)) or not all(0 <= p <= 1 for p in probs):
            need = f"a probability for each of {len(names)} actions ({', '.join(names)})"
            yield f"policies[{agent}] needs {need}, not {list(probs)}"
    for agent, action in overlay.actions.items():
        agent_spec = spec.agents[agent]
        if action is not None and not 0 <= action < len(agent_spec.actions):
            count = len(agent_spec.actions)
            yield f"actions[{agent}] is {action}; {agent_spec.name} has {count} actions"
    if overlay.human is not None and overlay.human not in spec.humans:
        yield f"human is {overlay.human}; humans are {list(spec.humans)}"
    for human, goal in overlay.pursued.items():
        if goal not in (spec.goals_of(human) if human in spec.humans else ()):
            yield f"pursued[{human}] is {goal}, which is no goal of that agent"
    if overlay.goal_values is None:
        return
    if not spec.humans:
        yield f"goal_values cannot be drawn: {spec.name!r} has no humans"
    if len(overlay.goal_values) != len(spec.goals):
        numbers = len(overlay.goal_values)
        yield f"goal_values has {numbers} numbers; {spec.name!r} has {len(spec.goals)} goals"
    for goal_spec, value in zip(spec.goals, overlay.goal_values, strict=False):
        # Rounding may carry a probability past 1 by a hair.
        if value is not None and not -1e-6 <= value <= 1 + 1e-6:
            yield f"goal_values of goal {goal_spec.name} is {value}, not in [0, 1]"


def usual_tile_size(columns: int, rows: int, overlay: Overlay) -> int:
    """Pixels per tile and side where nothing else is asked for; fewer in large worlds.

    Pictures that show actions taken are frames of animations: many, so half as sharp.
    """
    return max(8, min(48 if overlay.actions else 96, 1440 // max(columns, rows)))


def goal_key(spec: WorldSpec, goal: int) -> str:
    """The letter that stands for a goal, among those of its human: A to Z, A1 to Z1, and so on."""
    number, letter = divmod(spec.goals_of(spec.goals[goal].human).index(goal), 26)
    return string.ascii_uppercase[letter] + (str(number) if number else "")


def _flow(sizes: Sequence[tuple[float, float]], limit: float, along: int) -> _Plan:
    """Spots, width and height of boxes in rows (along 0) or columns (1) no longer than a limit."""
    spots: list[tuple[float, float]] = []
    x = y = longest = thickest = 0.0  # Along a row and across rows; columns are turned.
    for size in sizes:
        if x and x + size[along] > limit:
            x, y, thickest = 0, y + thickest, 0
        spots.append((y, x) if along else (x, y))
        x, thickest = x + size[along], max(thickest, size[1 - along])
        longest = max(longest, x)
    y += thickest
    return (spots, y, longest) if along else (spots, longest, y)


def _cost(plan: _Plan, together: Sequence[int]) -> float:
    """The area, more where the shape is extreme or some boxes stand neither in a row nor column."""
    spots, width, height = plan
    extreme = max(1.0, width / height / _WIDE, height / width)
    is_split = all(len({spots[part][axis] for part in together}) > 1 for axis in (0, 1))
    return width * height * extreme * (1.25 if is_split else 1)
