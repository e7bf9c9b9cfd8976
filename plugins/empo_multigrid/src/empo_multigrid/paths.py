# mypy: disable-error-code="no-any-return"
"""Reachability of cells and costs of paths to goals; compiled with numba.

``can_forward`` says where an agent may step to, as in ``docs/explanation/transition_law.md``; the
costs are those that ``heuristic.py`` describes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from empo_multigrid import layout as codes
from empo_multigrid.law import effects as columns
from empo_multigrid.law.effects import Scene, Tables, empty_scene, landing_cell, passable
from empo_multigrid.law.intents import load, unload
from empo_multigrid.law.kernel import pack
from empo_multigrid.layout import Bools, Ints, Layout
from empo_worlds.compilation import compiled, nested

IMPASSABLE: Final = -1
UNREACHABLE: Final = 2**30

# What entering a cell costs, by what is uppermost in it.
EMPTY_COST: Final = 1
OPEN_DOOR_COST: Final = 1
CLOSED_DOOR_COST: Final = 2
LOCKED_DOOR_COST: Final = 25
AGENT_COST: Final = 2
BLOCK_COST: Final = 2
PICKABLE_COST: Final = 3
ROCK_COST: Final = 50
UNSTEADY_COST: Final = 2
OTHER_COST: Final = 2

Costs = NDArray[np.int32]


def can_forward(layout: Layout, rows: Ints, agent: int) -> Bools:
    """True if moving forward can take an agent out of its cell, if the others stay where they are.

    That needs a cell ahead that is inside the grid and without an agent, and there open ground,
    a row of blocks and rocks that the agent can push, a bush, or an active magic wall that it
    may enter from this side.

    Returns:
        One answer per state [state].
    """
    directions = rows[:, codes.AGENT_WORDS * agent + codes.DIRECTION].astype(np.int64)
    is_free: Bools = free_directions(layout, rows, agent)[np.arange(len(rows)), directions]
    return is_free


def free_directions(layout: Layout, rows: Ints, agent: int) -> Bools:
    """``can_forward`` for each direction that the agent might face, `[state direction]`."""
    out = np.zeros((len(rows), 4), dtype=np.bool_)
    tables, scene = _workspace(layout)
    _free_directions(tables, scene, np.ascontiguousarray(rows), agent, out)
    return out


def cost_maps(layout: Layout, rows: Ints, agent: int) -> Ints:
    """Cost for an agent of entering each cell, or ``IMPASSABLE``, `[state cell]`.

    The agent itself is left out, so its place does not matter.
    """
    out = np.zeros((len(rows), layout.num_cells), dtype=np.int16)
    tables, scene = _workspace(layout)
    _cost_maps(tables, scene, np.ascontiguousarray(rows), agent, out)
    return out


def path_costs(layout: Layout, costs: Ints, goals: Bools) -> Costs:
    """The least cost of the cells on a way from each cell to the nearest cell of a goal.

    The cell in which the way begins costs nothing, and may be impassable.

    Args:
        layout: The world, for its neighbourhoods.
        costs: What entering each cell costs, or ``IMPASSABLE`` [map cell].
        goals: Which cells belong to each goal [goal cell].

    Returns:
        Total costs, ``UNREACHABLE`` where there is no way [map goal cell].
    """
    out = np.full((len(costs), len(goals), layout.num_cells), UNREACHABLE, dtype=np.int32)
    queue = np.zeros(layout.num_cells, np.int64)
    queued = np.zeros(layout.num_cells, np.bool_)
    table = pack(layout).cell
    maps, goal_masks = np.ascontiguousarray(costs), np.ascontiguousarray(goals)
    _path_costs(table, maps, goal_masks, queue, queued, out)
    return out


def _workspace(layout: Layout) -> tuple[Tables, Scene]:
    return pack(layout), empty_scene(layout.state_words, layout.num_cells)


@compiled
def _free_directions(t: Tables, s: Scene, rows: Ints, agent: int, out: Bools) -> None:
    for state in range(len(rows)):
        load(t, s, rows[state])
        for direction in range(4):
            out[state, direction] = _is_free(t, s, agent, direction)
        unload(t, s)


@nested
def _is_free(t: Tables, s: Scene, agent: int, direction: int) -> bool:
    """True if an agent that faces a direction could move."""
    target = t.cell[s.row[codes.AGENT_WORDS * agent + codes.CELL], columns.NEIGHBOUR + direction]
    if target < 0 or s.agent_at[target] >= 0:
        return False
    if s.item_at[target] >= 0:
        return landing_cell(t, s, agent, target, direction) >= 0
    if passable(t, s, target):
        return True
    fixed = t.cell[target, columns.FIXED]
    if fixed < 0:
        return False
    kind = t.fixed[fixed, columns.FIXED_KIND]
    if kind == codes.BUSH:
        return True
    if (
        kind != codes.MAGIC_WALL
        or not t.agent[agent, columns.ENTERS_MAGIC]
        or s.row[t.fixed[fixed, columns.WORD]] == 0
    ):
        return False
    side = t.fixed[fixed, columns.SIDE]
    return side == codes.ANY_SIDE or side == (direction + 2) % 4


@compiled
def _cost_maps(t: Tables, s: Scene, rows: Ints, agent: int, out: Ints) -> None:
    first_item = codes.AGENT_WORDS * t.size[columns.AGENTS]
    opened = t.size[columns.CELLS] + t.size[columns.AGENTS]
    for state in range(len(rows)):
        row = rows[state]
        for cell in range(t.size[columns.CELLS]):
            out[state, cell] = _ground_cost(t, row, cell)
        for item in range(t.size[columns.ITEMS]):
            kind, place = t.item[item, columns.KIND], row[first_item + item]
            if place >= opened:
                # An opened box has become something that can be picked up, too.
                kind, place = codes.BOX, place - opened
            if 0 <= place < t.size[columns.CELLS]:
                if kind == codes.ROCK:
                    out[state, place] = ROCK_COST
                elif kind == codes.BLOCK:
                    out[state, place] = BLOCK_COST
                else:
                    out[state, place] = PICKABLE_COST
        for other in range(t.size[columns.AGENTS]):
            if other != agent:
                out[state, row[codes.AGENT_WORDS * other + codes.CELL]] = AGENT_COST


@nested
def _ground_cost(t: Tables, row: Ints, cell: int) -> int:
    """Cost of entering a cell that holds no agent and no item."""
    fixed, terrain = t.cell[cell, columns.FIXED], t.cell[cell, columns.TERRAIN]
    if fixed >= 0:
        kind = t.fixed[fixed, columns.FIXED_KIND]
        if kind == codes.DOOR:
            word = row[t.fixed[fixed, columns.WORD]]
            if word == codes.DOOR_OPEN:
                return OPEN_DOOR_COST
            return CLOSED_DOOR_COST if word == codes.DOOR_CLOSED else LOCKED_DOOR_COST
        if kind == codes.MAGIC_WALL:
            return IMPASSABLE
        if kind != codes.BUSH:
            return OTHER_COST
        if row[t.fixed[fixed, columns.WORD]] == 0:
            return IMPASSABLE
    if terrain in (codes.WALL, codes.LAVA):
        return IMPASSABLE
    if terrain == codes.UNSTEADY:
        return UNSTEADY_COST
    return OTHER_COST if terrain == codes.SWITCH else EMPTY_COST


@compiled
def _path_costs(
    cell_table: Ints, costs: Ints, goals: Bools, queue: NDArray[np.int64], queued: Bools, out: Costs
) -> None:
    """Relax until nothing improves; with few distinct costs a plain queue beats a heap."""
    cells = costs.shape[1]
    for number in range(len(costs)):
        for goal in range(len(goals)):
            best = out[number, goal]
            first, waiting = 0, 0
            for cell in range(cells):
                if goals[goal, cell]:
                    best[cell] = 0
                    queue[waiting] = cell
                    queued[cell] = True
                    waiting += 1
            while waiting > 0:
                cell = queue[first]
                first = (first + 1) % cells
                waiting -= 1
                queued[cell] = False
                if costs[number, cell] < 0:
                    continue  # No agent can enter it, so it leads nowhere.
                through = best[cell] + costs[number, cell]
                for direction in range(4):
                    before = cell_table[cell, columns.NEIGHBOUR + direction]
                    if before >= 0 and through < best[before]:
                        best[before] = through
                        if not queued[before]:
                            queue[(first + waiting) % cells] = before
                            queued[before] = True
                            waiting += 1
