"""A state as text: the grid in the codes of world files, then who is in which condition."""

from __future__ import annotations

from typing import Final

from empo_core.types import WorldSpec
from empo_multigrid import layout as codes
from empo_multigrid.file.mapcodes import COLOUR_LETTERS
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.show.scene import AgentView, Scene, VisibleItem, control, scene
from empo_worlds.grid.world import text_rows

ARROWS: Final = ">v<^"
DIRECTION_NAMES: Final = ("east", "south", "west", "north")
ITEM_NAMES: Final = {
    codes.BLOCK: "block",
    codes.ROCK: "rock",
    codes.KEY: "key",
    codes.BALL: "ball",
    codes.BOX: "box",
}
FIXED_NAMES: Final = {
    codes.DOOR: "door",
    codes.MAGIC_WALL: "magic wall",
    codes.BUSH: "bush",
    codes.KILL_BUTTON: "kill button",
    codes.PAUSE_SWITCH: "pause switch",
    codes.DISABLING_SWITCH: "disabling switch",
    codes.CONTROL_BUTTON: "control button",
}

_LETTERS = {colour: letter for letter, colour in COLOUR_LETTERS.items()}
_TERRAIN = {codes.EMPTY: "..", codes.LAVA: "La", codes.UNSTEADY: "Un", codes.SWITCH: "Sw"}
_COLOURED_TERRAIN = {codes.WALL: "W", codes.GOAL_SQUARE: "G", codes.FLOOR: "F"}
_ITEMS = {codes.BLOCK: "Bl", codes.ROCK: "Ro", codes.KEY: "K", codes.BALL: "B", codes.BOX: "X"}
_DOORS = "OCL"
_DOOR_STATES = ("open", "closed", "locked")
_SIDES = "eswna"
_DISABLES = {codes.KILL_BUTTON: "Dk", codes.PAUSE_SWITCH: "Dp", codes.CONTROL_BUTTON: "DC"}
_BUTTONS = {codes.KILL_BUTTON: "Kb", codes.PAUSE_SWITCH: "Ps", codes.CONTROL_BUTTON: "CB"}


def describe(layout: Layout, spec: WorldSpec, row: Ints) -> str:
    """A state for people to read.

    The grid uses the two-character codes of world files, so what is drawn is what a map would
    say; agents are an arrow in the direction they face, followed by their index. The topmost
    thing of a cell is shown: an agent hides what it stands on.
    """
    contents = scene(layout, row)
    cells = [_cell_code(layout, contents, cell) for cell in range(layout.num_cells)]
    for index, agent in enumerate(contents.agents):
        # One character: 0-9, then letters, so that the columns stay aligned.
        cells[agent.cell] = ARROWS[agent.direction] + agent_mark(index)
    lines = text_rows(cells, layout.width)
    lines += [
        _agent_line(layout, spec, index, agent) for index, agent in enumerate(contents.agents)
    ]
    return "\n".join(lines + _object_lines(layout, spec, contents))


def agent_mark(index: int) -> str:
    """One character for an agent's index: 0 to 9, then letters; ``*`` beyond 35."""
    return "0123456789abcdefghijklmnopqrstuvwxyz"[index] if index < 36 else "*"


def thing_name(thing: VisibleItem) -> str:
    """Name of an item, e.g. ``red key``; blocks and rocks have no colour."""
    name = ITEM_NAMES[thing.kind]
    return (
        name if thing.kind in (codes.BLOCK, codes.ROCK) else f"{codes.COLOURS[thing.colour]} {name}"
    )


def _cell_code(layout: Layout, contents: Scene, cell: int) -> str:
    if cell in contents.loose:
        kind, colour = contents.loose[cell]
        if (kind, colour) == (codes.KEY, codes.BLUE):
            return "KB"  # In a map, Kb is a kill button.
        code = _ITEMS[kind]
        return code if len(code) == 2 else code + _LETTERS[colour]
    fixed = int(layout.fixed_at[cell])
    if fixed != codes.NOTHING:
        code = _fixed_code(layout, fixed, contents.fixed[fixed])
        if code:
            return code
    terrain = int(layout.terrain[cell])
    if terrain in _COLOURED_TERRAIN:
        return _COLOURED_TERRAIN[terrain] + _LETTERS[layout.terrain_colour[cell]]
    return _TERRAIN[terrain]


def _fixed_code(layout: Layout, fixed: int, word: int) -> str:
    """The map code of a fixed object; empty where nothing of it is left."""
    kind = int(layout.fixed_kind[fixed])
    if kind == codes.DOOR:
        return _DOORS[word] + _LETTERS[layout.fixed_colour[fixed]]
    if kind == codes.MAGIC_WALL:
        return "M" + _SIDES[layout.fixed_side[fixed]] if word else "We"
    if kind == codes.BUSH:
        return "" if word else "Bu"
    if kind == codes.DISABLING_SWITCH:
        return _DISABLES[int(layout.fixed_target[fixed])]
    return _BUTTONS[kind]


def _agent_line(layout: Layout, spec: WorldSpec, index: int, agent: AgentView) -> str:
    name, where = spec.agents[index].name, _where(layout, agent.cell)
    return f"{agent_mark(index)} {name} at {where}, {agent_facts(spec, index, agent)}"


def agent_facts(spec: WorldSpec, index: int, agent: AgentView) -> str:
    """The condition of an agent, wherever it is."""
    facts = [f"facing {DIRECTION_NAMES[agent.direction]}"]
    if agent.carrying is not None:
        facts.append(f"carrying {thing_name(agent.carrying)}")
    if agent.terminated:
        facts.append("terminated")
    if agent.paused:
        facts.append("paused")
    if agent.forced != codes.NOTHING:
        facts.append(f"next action forced: {spec.agents[index].actions[agent.forced]}")
    return ", ".join(facts)


def _object_lines(layout: Layout, spec: WorldSpec, contents: Scene) -> list[str]:
    lines = []
    for fixed, word in enumerate(contents.fixed):
        facts = fixed_facts(layout, spec, fixed, word)
        if facts:
            name = FIXED_NAMES[int(layout.fixed_kind[fixed])]
            lines.append(f"{name} at {_where(layout, int(layout.fixed_cell[fixed]))}: {facts}")
    return lines


def fixed_facts(layout: Layout, spec: WorldSpec, fixed: int, word: int) -> str:
    """Facts about an object that the grid does not show, or that an agent covers."""
    kind = int(layout.fixed_kind[fixed])
    if kind == codes.DOOR:
        return f"{codes.COLOURS[layout.fixed_colour[fixed]]}, {_DOOR_STATES[word]}"
    if kind == codes.MAGIC_WALL:
        side = int(layout.fixed_side[fixed])
        where = "any side" if side == codes.ANY_SIDE else f"the {DIRECTION_NAMES[side]}"
        return f"can be entered from {where}" if word else "solid"
    if kind == codes.BUSH:
        return "trampled" if word else ""
    if kind == codes.KILL_BUTTON:
        return "enabled" if word else "disabled"
    if kind == codes.PAUSE_SWITCH:
        return f"{'on' if word & 1 else 'off'}, {'enabled' if word & 2 else 'disabled'}"
    if kind == codes.CONTROL_BUTTON:
        return _control_facts(spec, word)
    return ""


def _control_facts(spec: WorldSpec, word: int) -> str:
    button = control(word)
    facts = ["enabled" if button.enabled else "disabled"]
    if button.agent != codes.NOTHING:
        facts.append(f"programmed by {agent_mark(button.agent)}")
    if button.awaiting:
        facts.append("waiting for the action to record")
    if button.action != codes.NOTHING:
        agent = max(button.agent, 0)
        facts.append(f"recorded {spec.agents[agent].actions[button.action]}")
    return ", ".join(facts)


def _where(layout: Layout, cell: int) -> str:
    return f"({cell % layout.width},{cell // layout.width})"
