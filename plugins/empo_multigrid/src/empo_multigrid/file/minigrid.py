"""Maps of MiniGrid as world files, whose human is MiniGrid's agent.

Only the map is taken over: what a task pays for, where its episodes end, and what moves by
itself in some are no part of it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import gymnasium
from minigrid.core import world_object
from minigrid.core.world_object import WorldObj
from minigrid.minigrid_env import MiniGridEnv

from empo_core.config.yaml import dump_yaml
from empo_core.errors import ConfigError
from empo_core.trees import JsonData

Cell: TypeAlias = tuple[int, int]
_COLOURED: Final = {
    world_object.Wall: "W",
    world_object.Floor: "F",
    world_object.Goal: "G",
    world_object.Key: "K",
    world_object.Ball: "B",
    world_object.Box: "X",
}
"""First letters of map codes, by class: others that derive from these may behave differently."""
_EAST: Final = 0


def from_minigrid(env: gymnasium.Env[object, object], *, robot: Cell | None = None) -> str:
    """The text of a world file with the map of a MiniGrid environment, as it is now.

    The human has a goal in each goal square, and one in all other cells together, lava included,
    so that it always has some power. On a map without goal squares each of them is a goal.

    Args:
        env: The environment; ``reset`` draws a map.
        robot: The cell of a robot that is added.

    Raises:
        ConfigError: if something on the map has no counterpart, or the robot's cell is not empty.
    """
    inner = env.unwrapped
    if not isinstance(inner, MiniGridEnv):
        raise ConfigError(f"{inner} is no environment of MiniGrid, so it has no map to take over")
    if inner.carrying is not None:
        held = inner.carrying
        raise ConfigError(f"MiniGrid's agent carries a {held.color} {held.type}; reset it first")
    grid, human = inner.grid, (int(inner.agent_pos[0]), int(inner.agent_pos[1]))
    cells = {(x, y): grid.get(x, y) for y in range(grid.height) for x in range(grid.width)}
    codes = [_code(thing, cell) for cell, thing in cells.items()]
    objects: dict[str, JsonData] = {}
    for cell, thing in cells.items():
        if isinstance(thing, world_object.Box) and thing.contains is not None:
            objects[_key(cell)] = {"contains": _content(thing.contains, cell)}
    headings = {human: int(inner.agent_dir)}
    _place(codes, grid.width, human, "Ay", "MiniGrid's agent")
    if robot is not None:
        if robot not in cells:
            size = f"{grid.width} x {grid.height}"
            raise ConfigError(f"robot: {_key(robot)} is outside the {size} map")
        _place(codes, grid.width, robot, "Ae", "the robot")
        headings[robot] = _EAST
    in_reading_order = sorted(headings, key=lambda cell: (cell[1], cell[0]))
    data: dict[str, JsonData] = {
        "max_steps": inner.max_steps,
        "orientations": ["eswn"[headings[cell]] for cell in in_reading_order],
        "possible_goals": _goals(cells),
    }
    if objects:
        data["objects"] = objects
    name = "MiniGrid" if env.spec is None else env.spec.id
    rows = [codes[start : start + grid.width] for start in range(0, len(codes), grid.width)]
    title = {"metadata": {"name": name, "description": inner.mission}}
    return "".join(
        [dump_yaml(title), "map: |\n", *(f"  {' '.join(r)}\n" for r in rows), dump_yaml(data)]
    )


def _code(thing: WorldObj | None, cell: Cell) -> str:
    """The map code of what is in a cell."""
    if thing is None:
        return ".."
    if type(thing) is world_object.Lava:
        return "La"
    letter = _COLOURED.get(type(thing))
    if type(thing) is world_object.Door:
        letter = "O" if thing.is_open else "L" if thing.is_locked else "C"
    if letter is None:
        kind = type(thing).__name__
        raise ConfigError(
            f"there is a {kind} ({thing.color} {thing.type}) in cell ({_key(cell)}), "
            "which world files do not know"
        )
    # Kb is a kill button.
    colour = "e" if thing.color == "grey" else thing.color[0]
    return "KB" if letter + colour == "Kb" else letter + colour


def _content(thing: WorldObj, cell: Cell) -> str:
    """The map code of what a box holds."""
    if type(thing) not in (world_object.Key, world_object.Ball):
        raise ConfigError(
            f"the box in cell ({_key(cell)}) holds a {type(thing).__name__} ({thing.color} "
            f"{thing.type}); boxes of world files hold keys and balls"
        )
    return _code(thing, cell)


def _place(codes: list[str], width: int, cell: Cell, code: str, agent_name: str) -> None:
    """Put an agent into an empty cell."""
    index = cell[1] * width + cell[0]
    if codes[index] != "..":
        raise ConfigError(
            f"{agent_name} cannot start in cell ({_key(cell)}), where there is {codes[index]}; it "
            "needs an empty cell"
        )
    codes[index] = code


def _goals(cells: dict[Cell, WorldObj | None]) -> JsonData:
    """A goal per goal square, and one of all other cells but walls."""
    squares = [c for c, thing in cells.items() if isinstance(thing, world_object.Goal)]
    solid = (world_object.Wall, world_object.Goal)
    others = [_key(c) for c, thing in cells.items() if not isinstance(thing, solid)]
    if not squares:
        return [*others]
    names = ["goal"] if len(squares) == 1 else [f"goal {_key(cell)}" for cell in squares]
    goals: list[JsonData] = [
        {"cells": _key(cell), "name": name} for cell, name in zip(squares, names, strict=True)
    ]
    # Without it a human that cannot reach a goal square, e.g. in lava, would have no power.
    return [*goals, {"cells": [*others], "name": "elsewhere"}]


def _key(cell: Cell) -> str:
    return f"{cell[0]},{cell[1]}"
