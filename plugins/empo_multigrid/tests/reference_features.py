"""The features of a state in plain Python, one thing at a time; what the fast ones must equal.

Written from ``docs/reference/compact_states.md`` alone: it shares neither numbers nor code with
``looks``, ``codec``, ``descriptions`` and ``features``.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference_scene import Item, Scene

from empo_multigrid.layout import (
    BALL,
    BLOCK,
    BOX,
    BUSH,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    DOOR,
    DOOR_CLOSED,
    DOOR_OPEN,
    FLOOR,
    GOAL_SQUARE,
    KEY,
    KILL_BUTTON,
    LAVA,
    MAGIC_WALL,
    PAUSE_SWITCH,
    ROCK,
    SWITCH,
    UNSTEADY,
    WALL,
    Layout,
)

NAMES = (
    "wall", "ball", "box", "goal square", "lava", "block", "rock", "unsteady ground", "switch",
    "floor", "kill button", "pause switch", "disabling switch", "control button", "bush",
    "red door", "green door", "blue door", "purple door", "yellow door", "grey door",
    "brown door", "red key", "green key", "blue key", "purple key", "yellow key", "grey key",
    "brown key", "magic wall", "overlappable", "immobile", "mobile", "red agent", "green agent",
    "blue agent", "purple agent", "yellow agent", "grey agent", "brown agent",
)  # fmt: skip
"""The channels of the picture."""
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey", "brown")
TERRAIN = {
    WALL: "wall", GOAL_SQUARE: "goal square", LAVA: "lava", UNSTEADY: "unsteady ground",
    SWITCH: "switch", FLOOR: "floor",
}  # fmt: skip
BUTTONS = (KILL_BUTTON, PAUSE_SWITCH, DISABLING_SWITCH, CONTROL_BUTTON)

Picture = list[list[list[float]]]
"""Channels of rows of cells."""


def picture(layout: Layout, row: Sequence[int]) -> Picture:
    """The picture of a state."""
    scene = Scene.decode(layout, row)
    drawn = [[[0.0] * layout.width for _ in range(layout.height)] for _ in NAMES]
    for y in range(layout.height):
        for x in range(layout.width):
            for name, value in cell_values(scene, y * layout.width + x).items():
                drawn[NAMES.index(name)][y][x] = float(value)
    return drawn


def cell_values(scene: Scene, cell: int) -> dict[str, int]:
    """Nonzero channel values of a cell, by channel."""
    layout = scene.layout
    values: dict[str, int] = {}
    fixed, kind = scene.fixed_at(cell)
    terrain = TERRAIN.get(int(layout.terrain[cell]))
    if fixed is not None:
        values |= fixed_values(scene, fixed, kind)
    elif terrain is not None:
        values |= {terrain: 1, "immobile" if terrain == "wall" else "overlappable": 1}
    item = scene.item_at(cell)
    if item is not None:
        values |= item_values(layout, scene.items.index(item), item)
    agent = scene.agent_at(cell)
    if agent is not None:
        values[f"{COLOURS[layout.agent_colour[agent]]} agent"] = 1
    return values


def fixed_values(scene: Scene, fixed: int, kind: int) -> dict[str, int]:
    """Channel values of a fixed object."""
    word, layout = scene.words.get(fixed), scene.layout
    if kind == DOOR:
        door = f"{COLOURS[layout.fixed_colour[fixed]]} door"
        if word == DOOR_OPEN:
            return {door: 1, "overlappable": 1}
        return {door: 2 if word == DOOR_CLOSED else 3, "immobile": 1}
    if kind == BUSH:
        return {} if word else {"bush": 1, "immobile": 1}
    if kind == MAGIC_WALL:
        return {"magic wall": 1 + int(layout.fixed_side[fixed]) if word else 6, "immobile": 1}
    if kind == KILL_BUTTON:
        return {"kill button": 2 if word else 1, "immobile": 1}
    if kind == PAUSE_SWITCH:
        return {"pause switch": {0: 1, 1: 2, 2: 3, 3: 4}[word or 0], "immobile": 1}
    if kind == CONTROL_BUTTON:
        control = scene.controls[fixed]
        value = 1 + (1 if control.enabled else 0) + (2 if control.awaiting else 0)
        return {"control button": value, "immobile": 1}
    return {"disabling switch": 1 + disables(layout, fixed), "immobile": 1}


def disables(layout: Layout, fixed: int) -> int:
    """Kind that a switch disables: 0 kill buttons, 1 pause switches, 2 control buttons."""
    return (KILL_BUTTON, PAUSE_SWITCH, CONTROL_BUTTON).index(int(layout.fixed_target[fixed]))


def item_values(layout: Layout, index: int, item: Item) -> dict[str, int]:
    """Channel values of an item that lies in a cell."""
    colour = COLOURS[item.colour]
    if item.kind == KEY:
        return {f"{colour} key": 1, "mobile": 1}
    if item.kind == BALL:
        return {"ball": 1 + COLOURS.index(colour), "mobile": 1}
    if item.kind == BOX:
        inside = content(layout, index)
        if inside is None:
            return {"box": 1, "mobile": 1}
        kind, tint = inside
        return {"box": (2 if kind == KEY else 9) + tint, "mobile": 1}
    return {{BLOCK: "block", ROCK: "rock"}[item.kind]: 1, "mobile": 1}


def content(layout: Layout, index: int) -> tuple[int, int] | None:
    """Kind and colour of what a box holds."""
    kind = int(layout.item_content_kind[index])
    return None if kind < 0 else (kind, int(layout.item_content_colour[index]))


def global_features(layout: Layout) -> list[float]:
    """Mean chances: to stumble, to enter a magic wall, that it solidifies, to enter a bush."""
    cells = range(layout.num_cells)
    magic = [f for f, kind in enumerate(layout.fixed_kind) if kind == MAGIC_WALL]
    bush = [f for f, kind in enumerate(layout.fixed_kind) if kind == BUSH]
    return [
        mean([float(layout.stumble[c]) for c in cells if layout.terrain[c] == UNSTEADY]),
        mean([float(layout.fixed_enter[f]) for f in magic]),
        mean([float(layout.fixed_solidify[f]) for f in magic]),
        mean([float(layout.fixed_enter[f]) for f in bush]),
    ]


def mean(values: list[float]) -> float:
    """The mean, 0 of nothing."""
    return sum(values) / len(values) if values else 0.0


def agent_features(layout: Layout, row: Sequence[int]) -> list[list[float]]:
    """13 numbers for each agent."""
    scene = Scene.decode(layout, row)
    described = []
    for i, agent in enumerate(scene.agents):
        carried, colour = -1, -1
        item = scene.carried(i)
        if item is not None:
            carried, colour = {KEY: 0, BALL: 1, BOX: 2}[item.kind], item.colour
            inside = content(layout, scene.items.index(item)) if item.kind == BOX else None
            if inside is not None:
                carried, colour = 3 if inside[0] == KEY else 4, inside[1]
        numbers = [agent.cell % layout.width, agent.cell // layout.width]
        numbers += [1 if agent.direction == direction else 0 for direction in range(4)]
        numbers += [int(layout.can_enter_magic[i]), int(layout.can_push_rocks[i])]
        numbers += [carried, colour, int(agent.paused), int(agent.terminated)]
        numbers += [-1 if agent.forced is None else agent.forced]
        described.append([float(number) for number in numbers])
    return described


def object_features(layout: Layout, row: Sequence[int]) -> list[list[float]]:
    """14 numbers for each button and switch, in the order of the layout."""
    scene = Scene.decode(layout, row)
    described = []
    for f, kind in enumerate(layout.fixed_kind.tolist()):
        if kind not in BUTTONS:
            continue
        cell, word = int(layout.fixed_cell[f]), scene.words.get(f, 0)
        values: dict[str, int | None] = {"who": int(layout.fixed_colour[f])}
        if kind == KILL_BUTTON:
            values |= {"enabled": word, "whom": int(layout.fixed_target[f])}
        elif kind == PAUSE_SWITCH:
            values |= {"enabled": word // 2, "on": word % 2, "whom": int(layout.fixed_target[f])}
        elif kind == DISABLING_SWITCH:
            values |= {"enabled": 1, "whom": -1, "disables": disables(layout, f)}
        else:
            control = scene.controls[f]
            values |= {"enabled": int(control.enabled), "whom": int(layout.fixed_target[f])}
            values |= {"agent": control.programmed, "action": control.recorded}
            values |= {"awaits": int(control.awaiting)}
        numbers = [float(kind == button) for button in BUTTONS]
        numbers += [float(cell % layout.width), float(cell // layout.width)]
        defaults = {"enabled": 0, "on": 0, "who": -1, "whom": -1, "disables": -1}
        defaults |= {"agent": -1, "action": -1, "awaits": 0}
        for name, default in defaults.items():
            value = values.get(name)
            numbers.append(float(default if value is None else value))
        described.append(numbers)
    return described
