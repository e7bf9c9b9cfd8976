"""The agents of a world file: where they stand, what they are, what they can do where."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from empo_core.types import Role
from empo_multigrid.file.mapcodes import COLOUR_LETTERS, Code
from empo_multigrid.file.problems import Problems
from empo_multigrid.file.worldfile import ActionRule, AgentSettings, WorldFile
from empo_multigrid.layout import (
    ACTION_NAMES,
    ACTION_SETS,
    BALL,
    BOX,
    COLOURS,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    DOOR,
    GREY,
    KEY,
    PAUSE_SWITCH,
    YELLOW,
    Bools,
)
from empo_worlds.grid.maps import Rectangle

MAX_AGENTS = 62
"""A control button's word has six bits for the agent it controls."""

_NEEDS_OBJECT_ACTIONS = {
    ("item", KEY),
    ("item", BALL),
    ("item", BOX),
    ("fixed", DOOR),
    ("fixed", PAUSE_SWITCH),
    ("fixed", DISABLING_SWITCH),
    ("fixed", CONTROL_BUTTON),
}


class Agent(NamedTuple):
    """One agent at the start."""

    name: str
    role: Role
    cell: int
    colour: int
    direction: int
    can_push_rocks: bool
    can_enter_magic: bool

    @property
    def tramples(self) -> bool:
        """True if bushes give way to it for good."""
        return self.colour == GREY or self.can_push_rocks or self.can_enter_magic


def populate(file: WorldFile, codes: list[Code], problems: Problems) -> list[Agent]:
    """The agents in reading order of the map."""
    places = [(cell, code.colour) for cell, code in enumerate(codes) if code.layer == "agent"]
    if not places:
        problems.add(("map",), "has no agent; put e.g. Ay (a human) or Ae (a robot) into it")
    if len(places) > MAX_AGENTS:
        problems.add(("map",), f"has {len(places)} agents; at most {MAX_AGENTS} are supported")
    _check_indices(file, len(places), problems)
    facing = file.orientations or [0]
    pushers = {COLOUR_LETTERS[letter] for letter in file.can_push_rocks}
    agents = []
    for index, (cell, colour) in enumerate(places):
        settings = file.agents.get(index, AgentSettings())
        role = _role(file, index, colour, problems)
        label = f"{role if role != 'other' else 'agent'} {index} ({COLOURS[colour]})"
        pushes = colour in pushers if settings.can_push_rocks is None else settings.can_push_rocks
        agents.append(
            Agent(
                name=settings.name or label,
                role=role,
                cell=cell,
                colour=colour,
                direction=facing[index % len(facing)],
                can_push_rocks=pushes,
                can_enter_magic=settings.can_enter_magic_walls,
            )
        )
    _check_names(file, agents, problems)
    return agents


def action_set(file: WorldFile, codes: list[Code]) -> tuple[int, ...]:
    """Meaning of each action index; chosen by the map unless the file names a set."""
    if file.action_class is not None:
        return ACTION_SETS[file.action_class]
    # A kill button alone is not enough: so it is in the public implementation, where none
    # can then use it.
    needs_objects = any((code.layer, code.kind) in _NEEDS_OBJECT_ACTIONS for code in codes)
    return ACTION_SETS["ObjectActions" if needs_objects else "SmallActions"]


def action_mask(
    file: WorldFile,
    agents: list[Agent],
    actions: tuple[int, ...],
    size: tuple[int, int],
    problems: Problems,
) -> Bools:
    """Which actions each agent has in each cell ``[agent cell action]``."""
    width, height = size
    mask = np.ones((len(agents), height, width, len(actions)), dtype=np.bool_)
    names = [ACTION_NAMES[action] for action in actions]
    for number, rule in enumerate(file.action_rules):
        loc = ("action_rules", number)
        whole = (Rectangle(0, 0, width - 1, height - 1),)
        for area in rule.cells or whole:
            if area.right >= width or area.bottom >= height:
                problems.add((*loc, "cells"), f"{area} is outside the {width} x {height} map")
        for position, name in enumerate(rule.forbid):
            if name not in names:
                reason = f"{name!r} is no action of this world; it has {', '.join(names)}"
                problems.add((*loc, "forbid", position), reason)
                continue
            for agent in _chosen(rule, number, agents, problems):
                for area in rule.cells or whole:
                    rows = slice(area.top, area.bottom + 1)
                    mask[agent, rows, area.left : area.right + 1, names.index(name)] = False
        _check_some_action_remains(mask, loc, agents, problems)
    return mask.reshape(len(agents), height * width, len(actions))


def _check_some_action_remains(
    mask: Bools, loc: tuple[str, int], agents: list[Agent], problems: Problems
) -> None:
    stuck = np.argwhere(~mask.any(-1))
    if len(stuck):
        agent, y, x = (int(part) for part in stuck[0])
        problems.add(loc, f"leaves {agents[agent].name} no action in cell ({x},{y})")
        mask[~mask.any(-1)] = True  # So that later rules do not report it again.


def _chosen(rule: ActionRule, number: int, agents: list[Agent], problems: Problems) -> list[int]:
    if isinstance(rule.agents, list):
        return [index for index in rule.agents if index < len(agents)]
    chosen = [
        index
        for index, agent in enumerate(agents)
        if rule.agents in ("all", f"{agent.role}s", COLOURS[agent.colour])
    ]
    if not chosen:
        problems.add(("action_rules", number), f"has no effect: no agent is {rule.agents!r}")
    return chosen


def _role(file: WorldFile, index: int, colour: int, problems: Problems) -> Role:
    role_setting = file.agents.get(index, AgentSettings()).role
    roles: list[tuple[str, Role]] = []
    if role_setting is not None:
        roles.append((f"agents.{index}.role", role_setting))
    if index in (file.humans or ()):
        roles.append(("humans", "human"))
    if index in (file.robots or ()):
        roles.append(("robots", "robot"))
    if len({role for _, role in roles}) > 1:
        keys = " and ".join(key for key, _ in roles)
        loc = ("agents", index, "role") if role_setting is not None else ("robots",)
        problems.add(loc, f"{keys} disagree about agent {index}; keep one of them")
    if roles:
        return roles[0][1]
    if colour == YELLOW and file.humans is None:
        return "human"
    return "robot" if colour == GREY and file.robots is None else "other"


def _check_indices(file: WorldFile, count: int, problems: Problems) -> None:
    rules = [
        (("action_rules", number, "agents", position), index)
        for number, rule in enumerate(file.action_rules)
        if isinstance(rule.agents, list)
        for position, index in enumerate(rule.agents)
    ]
    lists = [
        ((key, position), index)
        for key, indices in (("humans", file.humans), ("robots", file.robots))
        for position, index in enumerate(indices or ())
    ]
    keys = [
        ((key, index), index)
        for key, indices in (("agents", file.agents), ("goals", file.goals))
        for index in indices
    ]
    for loc, index in [*keys, *lists, *rules]:
        if index >= count:
            problems.add(loc, f"there is no agent {index}; {_range(count)}")
    for key, indices in (("humans", file.humans), ("robots", file.robots)):
        for position, index in enumerate(indices or ()):
            if index in (indices or ())[:position]:
                problems.add((key, position), f"agent {index} is already listed")
    if file.orientations is not None and not file.orientations:
        problems.add(("orientations",), "is empty; give at least one direction, or drop the key")
    if len(file.orientations or ()) > max(count, 1):
        problems.warn(
            ("orientations",),
            f"has {len(file.orientations or ())} directions for {count} agents; the rest is unused",
        )


def _range(count: int) -> str:
    if count == 0:
        return "the map has none"
    return f"the map has agent {'0' if count == 1 else f'0 to {count - 1}'}, in reading order"


def _check_names(file: WorldFile, agents: list[Agent], problems: Problems) -> None:
    names = [agent.name for agent in agents]
    for index in file.agents:
        if index < len(agents) and names.count(names[index]) > 1:
            problems.add(("agents", index), f"another agent is called {names[index]!r}, too")
