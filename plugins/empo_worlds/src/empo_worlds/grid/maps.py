"""Maps and rectangles in world files, and errors that name their line and column."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from empo_core.config.files import located_error
from empo_core.config.yaml import Document, Loc
from empo_core.errors import ConfigError


class Rectangle(NamedTuple):
    """Cells from ``(left, top)`` to ``(right, bottom)``, both included."""

    left: int
    top: int
    right: int
    bottom: int

    def __str__(self) -> str:
        """``(x,y)`` for a single cell, ``(x1,y1)-(x2,y2)`` otherwise."""
        first, last = f"({self.left},{self.top})", f"({self.right},{self.bottom})"
        return first if first == last else f"{first}-{last}"


_SPELLINGS = "write 'x,y', 'x1,y1, x2,y2', [x, y], [x1, y1, x2, y2] or [[x1, y1], [x2, y2]]"


def rectangle(value: JsonValue) -> Rectangle:
    """The cell or rectangle that a file writes in one of five ways, corners in any order.

    Raises:
        ValueError: if it is written in another way.
    """
    numbers: Sequence[JsonValue]
    match value:
        case str():
            if not re.fullmatch(r"\s*\d{1,6}\s*(,\s*\d{1,6}\s*){1,3}", value, re.ASCII):
                raise ValueError(f"is not a cell or rectangle; {_SPELLINGS}")
            numbers = [int(part) for part in value.split(",")]
        case [[x1, y1], [x2, y2]]:
            numbers = [x1, y1, x2, y2]
        case list():
            numbers = value
        case _:
            numbers = []
    valid = [number for number in numbers if type(number) is int and number >= 0]
    if len(valid) not in (2, 4) or len(valid) < len(numbers):
        raise ValueError(f"is not a cell or rectangle; {_SPELLINGS}")
    left, top, right, bottom = valid * (2 if len(valid) == 2 else 1)
    return Rectangle(min(left, right), min(top, bottom), max(left, right), max(top, bottom))


class Token(NamedTuple):
    """One cell of a map as it is written.

    Attributes:
        text: Its characters.
        loc: Path of the string below the map: (), (row,) or (row, position).
        line: Line within that string, from 0.
        column: Character within that line, from 0.
    """

    text: str
    loc: tuple[int, ...]
    line: int
    column: int


Split = Callable[[str], list[tuple[str, int]]]
"""Cuts a line into cells: the text of each, and where it begins."""


def tokens(written: str | list[str] | list[list[str]], split: Split) -> list[list[Token]]:
    """The cells of a map, row by row; blank lines are skipped.

    Args:
        written: One string with a line per row, a list of rows, or a list of lists of cells.
        split: Cuts a line into cells.
    """

    def row(line: str, loc: tuple[int, ...], number: int) -> list[Token]:
        return [Token(text, loc, number, column) for text, column in split(line)]

    if isinstance(written, str):
        rows = [row(line, (), number) for number, line in enumerate(written.split("\n"))]
    else:
        rows = [
            row(line, (y,), 0)
            if isinstance(line, str)
            else [token for x, cell in enumerate(line) for token in row(cell, (y, x), 0)]
            for y, line in enumerate(written)
        ]
    return [cells for cells in rows if cells]


def map_error(document: Document, token: Token, reason: str) -> ConfigError:
    """An error about one cell of the map under key ``map``, however the map is written."""
    loc: Loc = ("map", *token.loc)
    return located_error(document, loc, reason, at=(token.line, token.column))
