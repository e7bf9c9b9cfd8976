"""Channels of the picture of a state, and the values of each.

Each thing shows a value in a channel of its own and 1 in the channel of its sort, so things that
share a cell are all visible. ``docs/reference/compact_states.md`` has the same as a table.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from empo_multigrid import layout as codes

FIRST_DOOR, FIRST_KEY, MAGIC, OVERLAPPABLE, IMMOBILE, MOBILE, FIRST_AGENT, CHANNELS = (
    15, 22, 29, 30, 31, 32, 33, 40,
)  # fmt: skip
TERRAIN_CHANNEL: Final = {
    codes.WALL: 0,
    codes.GOAL_SQUARE: 3,
    codes.LAVA: 4,
    codes.UNSTEADY: 7,
    codes.SWITCH: 8,
    codes.FLOOR: 9,
}
FIXED_CHANNEL: Final = {
    codes.KILL_BUTTON: 10, codes.PAUSE_SWITCH: 11, codes.DISABLING_SWITCH: 12,
    codes.CONTROL_BUTTON: 13, codes.BUSH: 14, codes.DOOR: FIRST_DOOR, codes.MAGIC_WALL: MAGIC,
}  # fmt: skip
ITEM_CHANNEL: Final = {
    codes.BALL: 1,
    codes.BOX: 2,
    codes.BLOCK: 5,
    codes.ROCK: 6,
    codes.KEY: FIRST_KEY,
}
DISABLES: Final = {codes.KILL_BUTTON: 1, codes.PAUSE_SWITCH: 2, codes.CONTROL_BUTTON: 3}
"""Value of a disabling switch, by what it disables."""
SOLID: Final = 6
"""Value of a magic wall that can no longer be entered."""
CONDITION: Final = 3
"""The bits of a fixed object's word in a state row that its appearance depends on."""


class Appearance(NamedTuple):
    """A value in a channel, and 1 in channel ``sort``; value 0 where nothing is to be seen."""

    channel: int
    value: int
    sort: int


INVISIBLE: Final = Appearance(OVERLAPPABLE, 0, codes.NOTHING)


def terrain_appearance(kind: int) -> Appearance:
    """Channels of ``EMPTY`` ... ``FLOOR``."""
    if kind == codes.EMPTY:
        return INVISIBLE
    return Appearance(TERRAIN_CHANNEL[kind], 1, IMMOBILE if kind == codes.WALL else OVERLAPPABLE)


def fixed_appearance(kind: int, colour: int, aspect: int, condition: int) -> Appearance:
    """Channels of ``DOOR`` ... ``CONTROL_BUTTON``.

    Args:
        kind: The kind.
        colour: Of a door.
        aspect: Side of a magic wall, or ``fixed_target``.
        condition: The lowest bits (``CONDITION``) of its word in a state row.
    """
    channel = FIXED_CHANNEL[kind]
    if kind == codes.DOOR:
        sort = OVERLAPPABLE if condition == codes.DOOR_OPEN else IMMOBILE
        return Appearance(channel + colour, 1 + condition, sort)
    if kind == codes.BUSH and condition:
        return INVISIBLE
    if kind == codes.MAGIC_WALL:
        return Appearance(channel, 1 + aspect if condition else SOLID, IMMOBILE)
    if kind == codes.DISABLING_SWITCH:
        return Appearance(channel, DISABLES[aspect], IMMOBILE)
    return Appearance(channel, 1 + condition, IMMOBILE)


def item_appearance(kind: int, colour: int, content: int) -> Appearance:
    """Channels of ``BLOCK`` ... ``BOX``; ``content`` of a box is a ``content_code``."""
    if kind == codes.KEY:
        return Appearance(FIRST_KEY + colour, 1, MOBILE)
    value = {codes.BALL: 1 + colour, codes.BOX: 1 + content}.get(kind, 1)
    return Appearance(ITEM_CHANNEL[kind], value, MOBILE)


def content_code(kind: int, colour: int) -> int:
    """Content of a box as one number: 0 nothing, 1 + colour a key, 8 + colour a ball."""
    return {codes.KEY: 1 + colour, codes.BALL: 8 + colour}.get(kind, 0)
