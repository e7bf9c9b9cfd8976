"""From a world file to what transitions need: a spec, a layout and the initial row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from empo_core.config.yaml import Document
from empo_core.suggestions import few_suggestions
from empo_core.types import AgentSpec, WorldSpec
from empo_multigrid.file.agents import Agent, action_mask, action_set, populate
from empo_multigrid.file.fixtures import (
    Fixture,
    Item,
    fixtures,
    items,
    settings_by_cell,
    stumble_chances,
)
from empo_multigrid.file.goals import Goals, compile_goals
from empo_multigrid.file.mapcodes import FIXED_CODES, Code, decode, pairs
from empo_multigrid.file.problems import Problems
from empo_multigrid.file.worldfile import MAX_NAME, WorldFile
from empo_multigrid.layout import (
    ACTION_NAMES,
    AGENT_WORDS,
    GREY,
    NOTHING,
    PAUSE_SWITCH,
    PAUSED,
    Bools,
    Ints,
    Layout,
)
from empo_multigrid.learn.feature_layout import StateLayout
from empo_multigrid.learn.features import MultigridFeatures
from empo_worlds.grid.maps import Token, tokens

MAX_WORD = 2**15 - 1
"""Largest number in a state row."""

SWITCHED_ON = 1
"""Bit of a pause switch's word."""


@few_suggestions()
def compile_world(
    file: WorldFile, document: Document, *, max_steps: int | None = None, reference: bool = False
) -> tuple[WorldSpec, Layout, Ints]:
    """The world that a file describes.

    ``reference`` combines simultaneous actions as the public implementation does.

    Returns:
        The spec, the layout, and the initial state row.

    Raises:
        ConfigError: if something in the file does not fit the rest of it.
    """
    problems = Problems(document)
    parts = _assemble(file, problems)
    layout = _layout(parts, reference)
    names = tuple(ACTION_NAMES[action] for action in parts.actions)
    spec = WorldSpec(
        name=_title(file, document),
        agents=tuple(AgentSpec(name=a.name, role=a.role, actions=names) for a in parts.agents),
        goals=parts.goals.goals,
        state_words=layout.state_words,
        state_dtype=torch.int16,
        horizon=file.max_steps if max_steps is None else max_steps,
        releases_gil=True,
        features=MultigridFeatures(StateLayout(layout)),
    )
    return spec, layout, _initial_row(parts)


class _Parts(NamedTuple):
    """A world file, understood."""

    codes: list[Code]
    width: int
    height: int
    actions: tuple[int, ...]
    agents: list[Agent]
    items: list[Item]
    fixtures: list[Fixture]
    stumble: list[float]
    mask: Bools
    goals: Goals


def _assemble(file: WorldFile, problems: Problems) -> _Parts:
    codes, width = _read_map(file, problems)
    size = width, len(codes) // width
    settings = settings_by_cell(file, codes, width, problems)
    moving = items(codes, settings, problems)
    agents = populate(file, codes, problems)
    _check_size(file, size, len(agents), moving, problems)
    actions = action_set(file, codes)
    staying = fixtures(file, codes, settings, len(agents), actions, problems)
    if file.rocks_can_kill:
        problems.warn(("rocks_can_kill",), "has no effect: rocks never kill")
    problems.check()  # What follows allocates arrays of these sizes.
    mask = action_mask(file, agents, actions, size, problems)
    humans = [index for index, agent in enumerate(agents) if agent.role == "human"]
    roles = {agent.role for agent in agents}
    for role, letter in (("human", "Ay"), ("robot", "Ae")):
        if role not in roles:
            problems.warn(
                (f"{role}s" if getattr(file, f"{role}s") is not None else "map",),
                f"has no {role}; write {letter} where one starts, or list one in '{role}s'",
            )
    goals = compile_goals(file, codes, size, humans, problems)
    problems.check()
    stumble = stumble_chances(file, codes, settings)
    return _Parts(codes, *size, actions, agents, moving, staying, stumble, mask, goals)


def _read_map(file: WorldFile, problems: Problems) -> tuple[list[Code], int]:
    """The cells' meanings in reading order, and how many columns there are."""
    rows = tokens(file.map, pairs)
    if not rows:
        problems.add(("map",), "is empty; write a row of two-character cells per line")
        problems.check()
    width = len(rows[0])
    codes = []
    for y, row in enumerate(rows):
        for x, token in enumerate(row):
            try:
                codes.append(_decode(token))
            except ValueError as error:
                problems.add_in_map(token, f"row {y}, column {x}: {error}")
        if len(row) != width:
            reason = f"row {y} has {len(row)} cells, row 0 has {width}; all rows need the same"
            problems.add_in_map(row[0], reason)
    problems.check()
    return codes, width


def _decode(token: Token) -> Code:
    if len(token.text) == 1:
        raise ValueError(f"{token.text!r} is half a cell; a cell has two characters")
    return decode(token.text)


def _check_size(
    file: WorldFile, size: tuple[int, int], num_agents: int, moving: list[Item], problems: Problems
) -> None:
    width, height = size
    for key, setting, actual in (
        ("grid_size", file.grid_size, max(size)),
        ("grid_size", file.grid_size, min(size)),
        ("width", file.width, width),
        ("height", file.height, height),
    ):
        if setting is not None and setting != actual:
            problems.add((key,), f"is {setting} but the map is {width} x {height}; drop the key")
    # The largest place of an item: an opened box in the last agent's hands.
    doubled = any(item.content_kind != NOTHING for item in moving)
    largest = (width * height + num_agents) * (1 + doubled) - 1
    if largest > MAX_WORD:
        limit = (MAX_WORD + 1) // (1 + doubled) - num_agents
        because = " because boxes hold things" if doubled else ""
        reason = f"has {width * height:,} cells; at most {limit:,} are supported here{because}"
        problems.add(("map",), reason)


def _layout(parts: _Parts, reference: bool) -> Layout:
    codes, agents, moving, fixed = parts.codes, parts.agents, parts.items, parts.fixtures
    terrain = [code if code.layer == "terrain" else FIXED_CODES[".."] for code in codes]
    fixed_at = np.full(len(codes), NOTHING, dtype=np.int16)
    for index, thing in enumerate(fixed):
        fixed_at[thing.cell] = index
    has_word = np.array([thing.word != NOTHING for thing in fixed], dtype=np.bool_)
    first_fixed_word = AGENT_WORDS * len(agents) + len(moving)
    return Layout(
        width=parts.width,
        height=parts.height,
        actions=_ints(parts.actions),
        terrain=_ints(ground.kind for ground in terrain),
        terrain_colour=_ints(GREY if g.colour == NOTHING else g.colour for g in terrain),
        stumble=np.array(parts.stumble, dtype=np.float64),
        agent_colour=_ints(agent.colour for agent in agents),
        can_push_rocks=_bools(agent.can_push_rocks for agent in agents),
        can_enter_magic=_bools(agent.can_enter_magic for agent in agents),
        tramples=_bools(agent.tramples for agent in agents),
        action_mask=parts.mask,
        item_kind=_ints(item.kind for item in moving),
        item_colour=_ints(item.colour for item in moving),
        item_content_kind=_ints(item.content_kind for item in moving),
        item_content_colour=_ints(item.content_colour for item in moving),
        item_group=_groups(moving),
        fixed_kind=_ints(thing.kind for thing in fixed),
        fixed_cell=_ints(thing.cell for thing in fixed),
        fixed_at=fixed_at,
        fixed_word=_ints(np.where(has_word, first_fixed_word + has_word.cumsum() - 1, NOTHING)),
        fixed_colour=_ints(thing.colour for thing in fixed),
        fixed_target=_ints(thing.target for thing in fixed),
        fixed_side=_ints(thing.side for thing in fixed),
        fixed_enter=np.array([thing.enter for thing in fixed], dtype=np.float64),
        fixed_solidify=np.array([thing.solidify for thing in fixed], dtype=np.float64),
        goal_human=_ints(goal.human for goal in parts.goals.goals),
        goal_cells=parts.goals.cells,
        reference=reference,
    )


def _groups(moving: list[Item]) -> Ints:
    """A number per item that it shares with those that differ in nothing but their cell."""
    kinds = [item._replace(cell=NOTHING) for item in moving]
    first = {kind: kinds.index(kind) for kind in kinds}
    numbers = {position: number for number, position in enumerate(sorted(first.values()))}
    return _ints(numbers[first[kind]] for kind in kinds)


def _initial_row(parts: _Parts) -> Ints:
    paused = {
        thing.target
        for thing in parts.fixtures
        if thing.kind == PAUSE_SWITCH and thing.word & SWITCHED_ON
    }
    words: list[int] = []
    for agent in parts.agents:
        words += [agent.cell, agent.direction, PAUSED * (agent.colour in paused), 0]
    words += [item.cell for item in parts.items]
    words += [thing.word for thing in parts.fixtures if thing.word != NOTHING]
    return _ints(words)


def _title(file: WorldFile, document: Document) -> str:
    """The metadata's name, else the file's, fit for printing."""
    name = (file.metadata or {}).get("name")
    title = name if isinstance(name, str) else Path(document.name).stem
    printable = "".join(c for c in " ".join(title.split()) if c.isprintable())
    return printable[:MAX_NAME] or "world"


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int16)


def _bools(values: Iterable[bool]) -> Bools:
    return np.array(list(values), dtype=np.bool_)
