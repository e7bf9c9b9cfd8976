"""Everything that a multigrid world contains: its name, its map code, its tile, facts about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from empo_core.types import WorldSpec
from empo_multigrid import layout as codes
from empo_multigrid.file.mapcodes import COLOUR_LETTERS
from empo_multigrid.show import tiles
from empo_multigrid.show.scene import FixedView, VisibleItem, control
from empo_pictures.canvas import Pen

DIRECTION_NAMES: Final = ("east", "south", "west", "north")
_LETTERS = {colour: letter for letter, colour in COLOUR_LETTERS.items()}


class Thing(NamedTuple):
    """Terrain or an item.

    Attributes:
        name: What people call it.
        code: Its map code; of what has a colour, the character before the colour's letter.
        tile: Draws it in a colour.
        wash: How much of its colour the ground below it has.
    """

    name: str
    code: str
    tile: Callable[[Pen, int], None]
    wash: float = 0.0

    def named(self, colour: int) -> str:
        """The name, with the colour of what has one, e.g. ``red key``."""
        return self.name if len(self.code) == 2 else f"{codes.COLOURS[colour]} {self.name}"

    def coded(self, colour: int) -> str:
        """The map code."""
        if len(self.code) == 2:
            return self.code
        # In a map, Kb is a kill button.
        return "KB" if (self.code, colour) == ("K", codes.BLUE) else self.code + _LETTERS[colour]


class Fixture(NamedTuple):
    """An object that stays in its cell.

    Attributes:
        name: What people call it.
        code: Its map code as it is now; empty where nothing of it is left.
        facts: What a map does not show, or an agent covers.
        tile: Draws it as it is now.
    """

    name: str
    code: Callable[[FixedView], str]
    facts: Callable[[FixedView, WorldSpec], str]
    tile: Callable[[Pen, FixedView], None]


def agent_mark(index: int) -> str:
    """One character for an agent's index: 0 to 9, then letters; ``*`` beyond 35."""
    return "0123456789abcdefghijklmnopqrstuvwxyz"[index] if index < 36 else "*"


def item_name(item: VisibleItem) -> str:
    """Name of an item, e.g. ``red key``; blocks and rocks have no colour."""
    return ITEMS[item.kind].named(item.colour)


def _ability(is_enabled: bool) -> str:
    return "enabled" if is_enabled else "disabled"


def _magic_facts(view: FixedView, spec: WorldSpec) -> str:
    where = "any side" if view.side == codes.ANY_SIDE else f"the {DIRECTION_NAMES[view.side]}"
    return f"can be entered from {where}" if view.word else "solid"


def _control_facts(view: FixedView, spec: WorldSpec) -> str:
    button = control(view.word)
    facts = [_ability(button.enabled)]
    if button.agent != codes.NOTHING:
        facts.append(f"programmed by {agent_mark(button.agent)}")
    if button.awaiting:
        facts.append("waiting for the action to record")
    if button.action != codes.NOTHING:
        agent = max(button.agent, 0)
        facts.append(f"recorded {spec.agents[agent].actions[button.action]}")
    return ", ".join(facts)


TERRAIN: Final[dict[int, Thing]] = {
    codes.EMPTY: Thing("", "..", tiles.draw_nothing),
    codes.WALL: Thing("wall", "W", tiles.draw_wall),
    codes.LAVA: Thing("lava", "La", tiles.draw_lava),
    codes.UNSTEADY: Thing("unsteady ground", "Un", tiles.draw_unsteady),
    codes.SWITCH: Thing("switch", "Sw", tiles.draw_switch),
    codes.GOAL_SQUARE: Thing("goal square", "G", tiles.draw_flag, wash=0.22),
    codes.FLOOR: Thing("floor", "F", tiles.draw_nothing, wash=0.3),
}
ITEMS: Final[dict[int, Thing]] = {
    codes.BLOCK: Thing("block", "Bl", tiles.draw_block),
    codes.ROCK: Thing("rock", "Ro", tiles.draw_rock),
    codes.KEY: Thing("key", "K", tiles.draw_key),
    codes.BALL: Thing("ball", "B", tiles.draw_ball),
    codes.BOX: Thing("box", "X", tiles.draw_box),
}
FIXTURES: Final[dict[int, Fixture]] = {
    codes.DOOR: Fixture(
        "door",
        lambda view: "OCL"[view.word] + _LETTERS[view.colour],
        lambda view, _: f"{codes.COLOURS[view.colour]}, {('open', 'closed', 'locked')[view.word]}",
        tiles.draw_door,
    ),
    codes.MAGIC_WALL: Fixture(
        "magic wall",
        lambda view: "M" + "eswna"[view.side] if view.word else "We",
        _magic_facts,
        tiles.draw_magic_wall,
    ),
    codes.BUSH: Fixture(
        "bush",
        lambda view: "" if view.word else "Bu",
        lambda view, _: "trampled" if view.word else "",
        tiles.draw_bush,
    ),
    codes.KILL_BUTTON: Fixture(
        "kill button",
        lambda _: "Kb",
        lambda view, _: _ability(bool(view.word)),
        lambda pen, view: tiles.draw_button(pen, view, enabled=bool(view.word)),
    ),
    codes.PAUSE_SWITCH: Fixture(
        "pause switch",
        lambda _: "Ps",
        lambda view, _: f"{'on' if view.word & 1 else 'off'}, {_ability(bool(view.word & 2))}",
        lambda pen, view: tiles.draw_button(
            pen, view, enabled=bool(view.word & 2), on=bool(view.word & 1)
        ),
    ),
    codes.DISABLING_SWITCH: Fixture(
        "disabling switch",
        lambda view: {codes.KILL_BUTTON: "Dk", codes.PAUSE_SWITCH: "Dp"}.get(view.target, "DC"),
        lambda view, _: "",
        tiles.draw_button,
    ),
    codes.CONTROL_BUTTON: Fixture(
        "control button",
        lambda _: "CB",
        _control_facts,
        lambda pen, view: tiles.draw_button(
            pen,
            view,
            enabled=control(view.word).enabled,
            on=control(view.word).action != codes.NOTHING,
        ),
    ),
}


def draw_ground(pen: Pen, terrain: int, colour: int) -> None:
    """The terrain of a cell."""
    thing = TERRAIN[terrain]
    tiles.draw_floor(pen, colour, thing.wash)
    thing.tile(pen, colour)


def draw_item(pen: Pen, item: VisibleItem) -> None:
    """An item, lying or carried."""
    ITEMS[item.kind].tile(pen, item.colour)
