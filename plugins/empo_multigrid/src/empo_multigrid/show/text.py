"""A state as text: the grid in the codes of world files, then who is in which condition."""

from __future__ import annotations

from typing import Final

from empo_core.types import WorldSpec
from empo_multigrid import layout as codes
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.show.scene import AgentView, Scene, scene
from empo_multigrid.show.things import (
    DIRECTION_NAMES,
    FIXTURES,
    ITEMS,
    TERRAIN,
    agent_mark,
    item_name,
)
from empo_worlds.grid.world import text_rows

ARROWS: Final = ">v<^"


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


def _cell_code(layout: Layout, contents: Scene, cell: int) -> str:
    if cell in contents.loose:
        item = contents.loose[cell]
        return ITEMS[item.kind].coded(item.colour)
    if cell in contents.fixed:
        view = contents.fixed[cell]
        if code := FIXTURES[view.kind].code(view):
            return code
    return TERRAIN[int(layout.terrain[cell])].coded(int(layout.terrain_colour[cell]))


def _agent_line(layout: Layout, spec: WorldSpec, index: int, agent: AgentView) -> str:
    name, where = spec.agents[index].name, _where(layout, agent.cell)
    return f"{agent_mark(index)} {name} at {where}, {agent_facts(spec, index, agent)}"


def agent_facts(spec: WorldSpec, index: int, agent: AgentView) -> str:
    """The condition of an agent, wherever it is."""
    facts = [f"facing {DIRECTION_NAMES[agent.direction]}"]
    if agent.carrying is not None:
        facts.append(f"carrying {item_name(agent.carrying)}")
    if agent.terminated:
        facts.append("terminated")
    if agent.paused:
        facts.append("paused")
    if agent.forced != codes.NOTHING:
        facts.append(f"next action forced: {spec.agents[index].actions[agent.forced]}")
    return ", ".join(facts)


def _object_lines(layout: Layout, spec: WorldSpec, contents: Scene) -> list[str]:
    lines = []
    for cell, view in contents.fixed.items():
        thing = FIXTURES[view.kind]
        if facts := thing.facts(view, spec):
            lines.append(f"{thing.name} at {_where(layout, cell)}: {facts}")
    return lines


def _where(layout: Layout, cell: int) -> str:
    return f"({cell % layout.width},{cell // layout.width})"
