"""Sketches of states: glyphs for pages that draw many states of one world."""

from __future__ import annotations

import numpy as np

from empo_core.types import WorldSpec
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.show.render import draw_agent
from empo_multigrid.show.scene import AgentView, FixedView, VisibleItem, scene
from empo_multigrid.show.text import agent_facts
from empo_multigrid.show.things import FIXTURES, TERRAIN, draw_ground, draw_item, item_name
from empo_pictures.canvas import Pen
from empo_theory.inspection import Sketch
from empo_worlds.grid.pictures import Glyphs

Cell = tuple[VisibleItem | None, FixedView | None]
"""What is in a cell."""


def sketch(layout: Layout, spec: WorldSpec, rows: Ints) -> Sketch:
    """Pictures of some states."""
    glyphs = Glyphs()
    ground = [_ground(layout, glyphs, cell) for cell in range(layout.num_cells)]
    things = np.zeros((len(rows), layout.num_cells), np.int32)
    agents, places, headings = (np.zeros((len(rows), layout.num_agents), np.int32) for _ in "aph")
    for state, row in enumerate(rows):
        contents = scene(layout, row)
        for cell in {*contents.loose, *contents.fixed}:
            inside = contents.loose.get(cell), contents.fixed.get(cell)
            things[state, cell] = _thing(spec, glyphs, inside)
        for index, view in enumerate(contents.agents):
            agents[state, index] = _agent(layout, spec, glyphs, index, view)
            places[state, index], headings[state, index] = view.cell, view.direction
    return Sketch(
        width=layout.width,
        height=layout.height,
        glyphs=tuple(glyphs.glyphs),
        ground=np.array(ground),
        things=things,
        agents=agents,
        places=places,
        headings=headings,
        goals=layout.goal_cells,
    )


def _ground(layout: Layout, glyphs: Glyphs, cell: int) -> int:
    terrain, colour = int(layout.terrain[cell]), int(layout.terrain_colour[cell])
    return glyphs.number(
        (terrain, colour),
        lambda pen: draw_ground(pen, terrain, colour),
        lambda: TERRAIN[terrain].name,
    )


def _thing(spec: WorldSpec, glyphs: Glyphs, inside: Cell) -> int:
    item, fixed = inside

    def name() -> str:
        parts = [] if item is None else [item_name(item)]
        if fixed is not None:
            thing = FIXTURES[fixed.kind]
            facts = thing.facts(fixed, spec)
            parts.append(f"{thing.name} ({facts})" if facts else thing.name)
        return ", ".join(parts)

    def paint(pen: Pen) -> None:
        if fixed is not None:
            FIXTURES[fixed.kind].tile(pen, fixed)
        if item is not None:
            draw_item(pen, item)

    return glyphs.number(("thing", *inside), paint, name)


def _agent(layout: Layout, spec: WorldSpec, glyphs: Glyphs, index: int, view: AgentView) -> int:
    return glyphs.number(
        ("agent", index, view._replace(cell=0)),
        lambda pen: draw_agent(layout, pen, view, index),
        lambda: agent_facts(spec, index, view),
    )
