"""Tiles, frames of goals, arrows and glyphs of worlds on a grid."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final

from empo_core.types import Overlay
from empo_pictures.canvas import GROUND, INK, PAPER, RGB, Pen, heat_colour, svg, text_on
from empo_pictures.fonts import text_width
from empo_pictures.picture_sheet import usual_tile_size

MIN_TILE: Final = 8
MAX_TILE: Final = 256
# Height of the name of an action, in cells.
_ACTION: Final = 0.2
GLYPH: Final = 96
"""Units per side of a glyph."""


def tile_size_of(columns: int, rows: int, overlay: Overlay, tile_size: int | None) -> int:
    """Pixels per cell and side; the usual ones for None.

    Raises:
        ValueError: if the tile size is out of range.
    """
    if tile_size is None:
        return usual_tile_size(columns, rows, overlay)
    if not MIN_TILE <= tile_size <= MAX_TILE:
        raise ValueError(f"tile_size is {tile_size}: it must be from {MIN_TILE} to {MAX_TILE}")
    return tile_size


def draw_cell(pen: Pen, line: RGB, ground: RGB) -> None:
    """A cell within a thin line."""
    pen.rect((0, 0), (1, 1), line)
    pen.rect((0.015, 0.015), (0.985, 0.985), ground)


def best_value(values: Iterable[float | None]) -> float | None:
    """The largest of the values of goals that share a cell; None if none has a value."""
    return max((value for value in values if value is not None), default=None)


def value_label(value: float) -> str:
    """A number in [0, 1] with two digits, such as ``.25``."""
    return f"{value:.2f}".removeprefix("0")


def draw_goal(
    pen: Pen, key: str, value: float | None, *, is_pursued: bool, size: float = 0.17
) -> None:
    """A frame in the colour of a goal's value, dark if the goal is pursued, its letter and value.

    Args:
        pen: Where.
        key: The goal's letter, or those of all goals in this cell.
        value: The number in [0, 1] that the goal has.
        is_pursued: Whether the goal is pursued.
        size: Height of the letter and of the number, in cells.
    """
    colour = INK if is_pursued else GROUND if value is None else heat_colour(value)
    pen.outline([(0.06, 0.06), (0.94, 0.06), (0.94, 0.94), (0.06, 0.94)], colour, 0.08)
    number = "" if value is None else value_label(value)
    for at, text, anchor in (((0.9, 0.88), number, "rb"), ((0.1, 0.1), key, "lt")):
        pen.text(at, text, size, text_on(colour), anchor=anchor, halo=colour)


def draw_move(pen: Pen, move: tuple[int, int], p: float, *, is_taken: bool) -> None:
    """A line as long as a change of (x, y) is probable, a dot for staying; bold if taken."""
    if p < 0.005 and not is_taken:
        return
    bold = 0.05 if is_taken else 0
    x, y = move
    if not (x or y):
        pen.circle((0.5, 0.5), max(0.02, p / 8) + bold, INK)
        return
    ends = [(0.5, 0.5), (0.5 + x * p * 0.45, 0.5 + y * p * 0.45)]
    pen.line(ends, PAPER, 0.08 + bold)
    pen.line(ends, INK, 0.04 + bold)


def draw_action(pen: Pen, name: str, *, is_low: bool) -> None:
    """The action that an agent takes, on a label below the agent; within its cell if ``is_low``."""
    y, half = 0.87 if is_low else 1.0, text_width(name, 100) * _ACTION / 200 + 0.05
    pen.rect((0.5 - half, y - 0.11), (0.5 + half, y + 0.11), INK, radius=0.05)
    pen.text((0.5, y), name, _ACTION, PAPER)


class Glyphs:
    """Glyphs of a ``Sketch``, numbered as they are first asked for; number 0 shows nothing."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self.glyphs = [("", "")]

    def number(
        self, key: Hashable, paint: Callable[[Pen], None], name: Callable[[], str] | None = None
    ) -> int:
        """The number of a glyph.

        Args:
            key: What the glyph shows; equal keys have one glyph.
            paint: Draws it.
            name: Its name for those who do not see it; default: the key as text.
        """
        if key not in self._number:
            self._number[key] = len(self.glyphs)
            picture = svg(GLYPH, GLYPH, lambda pen: paint(pen.inset(0, 0, GLYPH)))
            self.glyphs.append((str(key) if name is None else name(), picture))
        return self._number[key]
