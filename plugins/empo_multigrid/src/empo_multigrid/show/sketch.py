"""Sketches of states: glyphs for pages that draw many states of one world."""

from __future__ import annotations

import numpy as np

from empo_core.types import WorldSpec
from empo_multigrid.layout import Ints, Layout
from empo_multigrid.show import tiles
from empo_multigrid.show.render import draw_agent, draw_fixed
from empo_multigrid.show.scene import AgentView, VisibleItem, scene
from empo_multigrid.show.text import FIXED_NAMES, agent_facts, fixed_facts, thing_name
from empo_pictures.canvas import Pen
from empo_theory.inspection import Sketch
from empo_worlds.grid.pictures import Glyphs

TERRAIN_NAMES = ("", "wall", "lava", "unsteady ground", "switch", "goal square", "floor")

Cell = tuple[VisibleItem | None, int, int]
"""What is in a cell: an item, and a fixed object with its word; -1 for no object."""


def sketch(layout: Layout, spec: WorldSpec, rows: Ints) -> Sketch:
    """Pictures of some states."""
    glyphs = Glyphs()
    ground = [_ground(layout, glyphs, cell) for cell in range(layout.num_cells)]
    things = np.zeros((len(rows), layout.num_cells), np.int32)
    agents, places, headings = (np.zeros((len(rows), layout.num_agents), np.int32) for _ in "aph")
    for state, row in enumerate(rows):
        contents = scene(layout, row)
        fixed = dict(zip(layout.fixed_cell.tolist(), enumerate(contents.fixed), strict=True))
        for cell in {*contents.loose, *fixed}:
            inside = contents.loose.get(cell), *fixed.get(cell, (-1, -1))
            things[state, cell] = _thing(layout, spec, glyphs, inside)
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
        lambda pen: tiles.draw_ground(pen, terrain, colour),
        lambda: TERRAIN_NAMES[terrain],
    )


def _thing(layout: Layout, spec: WorldSpec, glyphs: Glyphs, inside: Cell) -> int:
    item, fixed, word = inside

    def name() -> str:
        parts = [] if item is None else [thing_name(item)]
        if fixed >= 0:
            facts = fixed_facts(layout, spec, fixed, word)
            label = FIXED_NAMES[int(layout.fixed_kind[fixed])]
            parts.append(f"{label} ({facts})" if facts else label)
        return ", ".join(parts)

    def paint(pen: Pen) -> None:
        if fixed >= 0:
            draw_fixed(layout, pen, fixed, word)
        if item is not None:
            tiles.draw_thing(pen, item)

    return glyphs.number(("thing", *inside), paint, name)


def _agent(layout: Layout, spec: WorldSpec, glyphs: Glyphs, index: int, view: AgentView) -> int:
    return glyphs.number(
        ("agent", index, view._replace(cell=0)),
        lambda pen: draw_agent(layout, pen, view, index),
        lambda: agent_facts(spec, index, view),
    )
