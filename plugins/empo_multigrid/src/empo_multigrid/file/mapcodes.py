"""The two-character codes of a world's map, and how a map is read.

A fixed code (``Kb``) is matched before a coloured one (``K`` and a colour letter), which is why
a blue key is written ``KB``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from empo_core.suggestions import nearest
from empo_multigrid import layout as codes

Layer = Literal["terrain", "fixed", "item", "agent"]

COLOUR_LETTERS: Final = {
    "r": codes.RED, "g": codes.GREEN, "b": codes.BLUE,
    "p": codes.PURPLE, "y": codes.YELLOW, "e": codes.GREY,
}  # fmt: skip


class Code(NamedTuple):
    """Contents of a cell, as one code of the map describes them.

    Attributes:
        layer: What kind of thing it is.
        kind: ``EMPTY`` ... ``FLOOR``, ``DOOR`` ... ``CONTROL_BUTTON`` or ``BLOCK`` ... ``BOX``.
        colour: Its colour, or that of whom it obeys.
        target: What ``Layout.fixed_target`` says.
        side: What ``Layout.fixed_side`` says.
        word: What its word in the initial row is, for a fixed object.
        name: What people call it.
    """

    layer: Layer
    kind: int
    name: str
    colour: int = codes.NOTHING
    target: int = codes.NOTHING
    side: int = codes.NOTHING
    word: int = 0


_EMPTY = Code("terrain", codes.EMPTY, "empty cell")
_KILL = Code("fixed", codes.KILL_BUTTON, "kill button", codes.YELLOW, codes.GREY, word=1)
_PAUSE = Code("fixed", codes.PAUSE_SWITCH, "pause switch", codes.YELLOW, codes.GREY, word=2)


def _disabling(target: int, target_name: str) -> Code:
    return Code(
        "fixed", codes.DISABLING_SWITCH, f"disabling switch for {target_name}", codes.GREY, target
    )


def _magic(side: int) -> Code:
    return Code("fixed", codes.MAGIC_WALL, "magic wall", side=side, word=1)


FIXED_CODES: Final[dict[str, Code]] = {
    "..": _EMPTY,
    "Bl": Code("item", codes.BLOCK, "block", codes.BROWN),
    "Ro": Code("item", codes.ROCK, "rock", codes.GREY),
    "Bu": Code("fixed", codes.BUSH, "bush"),
    "La": Code("terrain", codes.LAVA, "lava"),
    "Sw": Code("terrain", codes.SWITCH, "switch"),
    "Un": Code("terrain", codes.UNSTEADY, "unsteady ground"),
    "Mn": _magic(codes.NORTH),
    "Ms": _magic(codes.SOUTH),
    "Mw": _magic(codes.WEST),
    "Me": _magic(codes.EAST),
    "Ma": _magic(codes.ANY_SIDE),
    "Kb": _KILL,
    "Ki": _KILL,
    "Ps": _PAUSE,
    "Pa": _PAUSE,
    "Dk": _disabling(codes.KILL_BUTTON, "kill buttons"),
    "dK": _disabling(codes.KILL_BUTTON, "kill buttons"),
    "Dp": _disabling(codes.PAUSE_SWITCH, "pause switches"),
    "dP": _disabling(codes.PAUSE_SWITCH, "pause switches"),
    "DC": _disabling(codes.CONTROL_BUTTON, "control buttons"),
    "dC": _disabling(codes.CONTROL_BUTTON, "control buttons"),
    "CB": Code("fixed", codes.CONTROL_BUTTON, "control button", codes.YELLOW, codes.GREY, word=1),
    "KB": Code("item", codes.KEY, "key", codes.BLUE),
}
"""Codes that are matched as they stand."""

COLOURED_CODES: Final[dict[str, Code]] = {
    "W": Code("terrain", codes.WALL, "wall"),
    "G": Code("terrain", codes.GOAL_SQUARE, "goal square"),
    "F": Code("terrain", codes.FLOOR, "floor"),
    "L": Code("fixed", codes.DOOR, "locked door", word=codes.DOOR_LOCKED),
    "C": Code("fixed", codes.DOOR, "closed door", word=codes.DOOR_CLOSED),
    "O": Code("fixed", codes.DOOR, "open door", word=codes.DOOR_OPEN),
    "K": Code("item", codes.KEY, "key"),
    "B": Code("item", codes.BALL, "ball"),
    "X": Code("item", codes.BOX, "box"),
    "A": Code("agent", 0, "agent"),
}
"""First characters of codes whose second character is a colour letter."""


def decode(code: str) -> Code:
    """Contents that a two-character code stands for.

    Raises:
        ValueError: if the code means nothing; the message says what would be near.
    """
    if code in FIXED_CODES:
        return FIXED_CODES[code]
    first, second = code[:1], code[1:]
    if first in COLOURED_CODES and second in COLOUR_LETTERS:
        return COLOURED_CODES[first]._replace(colour=COLOUR_LETTERS[second])
    raise ValueError(f"{code!r} is not a map code; {_hint(first, second)}")


def all_codes() -> Iterator[str]:
    """Every code that a map may contain."""
    yield from FIXED_CODES
    for first in COLOURED_CODES:
        yield from (first + c for c in COLOUR_LETTERS if first + c not in FIXED_CODES)


def _hint(first: str, second: str) -> str:
    if first == "M":
        return "a magic wall is Mn, Ms, Mw, Me or Ma (its magic side, or any)"
    if first in COLOURED_CODES:
        letters = ", ".join(f"{c} {name}" for c, name in zip("rgbpye", _COLOUR_WORDS, strict=True))
        fixed = ", ".join(code for code in FIXED_CODES if code[0] == first)
        also = f"; other codes with {first!r}: {fixed}" if fixed else ""
        return f"{COLOURED_CODES[first].name} {first!r} takes a colour letter ({letters}){also}"
    known_codes = list(all_codes())
    folded = (code for code in known_codes if code.lower() == (first + second).lower())
    near = next(folded, None) or nearest(first + second, known_codes, cutoff=0.5)
    if near:
        return f"did you mean {near!r}?"
    return f"a map has {' '.join(FIXED_CODES)} and {' '.join(COLOURED_CODES)} with a colour letter"


_COLOUR_WORDS = ("red", "green", "blue", "purple", "yellow", "grey")


def pairs(line: str) -> list[tuple[str, int]]:
    """The two-character cells of a line, spaces dropped, and where they begin.

    The last has one character where their number is odd.
    """
    text = "".join(line.split())
    columns = [column for column, char in enumerate(line) if not char.isspace()]
    return [(text[i : i + 2], columns[i]) for i in range(0, len(columns), 2)]
