import heapq

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_multigrid.gym.game import LIBRARY, resolve_world
from empo_multigrid.layout import AGENT_WORDS, CELL, DIRECTION, DX, DY, FORWARD, Layout
from empo_multigrid.paths import (
    IMPASSABLE,
    UNREACHABLE,
    can_forward,
    cost_maps,
    free_directions,
    path_costs,
)
from empo_multigrid.world import MultigridWorld, world_from_text

WORLDS = sorted(path.stem for path in LIBRARY.glob("*.yaml"))


def rows_of(world: MultigridWorld, number: int = 60) -> torch.Tensor:
    """States along a random walk, different in every world but always the same."""
    generator = torch.Generator().manual_seed(5)
    states = world.initial_state().repeat(number, 1)
    for time in range(1, number):
        chosen = torch.multinomial(
            world.available(states[time - 1 : time])[0].double(), 1, generator=generator
        )
        states[time] = world.step(states[time - 1 : time], chosen.T, generator)[0]
    return states


def ahead(layout: Layout, cell: int, direction: int) -> int | None:
    x, y = cell % layout.width + DX[direction], cell // layout.width + DY[direction]
    return y * layout.width + x if 0 <= x < layout.width and 0 <= y < layout.height else None


@pytest.mark.parametrize("name", WORLDS)
def test_can_forward_says_whether_the_world_lets_an_agent_move_alone(name: str) -> None:
    world = resolve_world(name)
    layout, states = world.layout, rows_of(world)
    meanings = layout.actions.tolist()
    for agent in range(layout.num_agents):
        # Whoever is terminated, paused, forced or forbidden to move says nothing about the way.
        words = states[:, AGENT_WORDS * agent : AGENT_WORDS * (agent + 1)]
        able = (states[:, 2 : AGENT_WORDS * layout.num_agents : AGENT_WORDS] == 0).all(1)
        able &= (states[:, 3 : AGENT_WORDS * layout.num_agents : AGENT_WORDS] == 0).all(1)
        able &= world.available(states)[:, agent, meanings.index(FORWARD)]
        if 0 not in meanings:
            continue  # Nobody can stand still, so nobody moves alone.
        actions = torch.full((len(states), layout.num_agents), meanings.index(0))
        able &= world.available(states)[:, :, meanings.index(0)].all(1)
        actions[:, agent] = meanings.index(FORWARD)
        expected = can_forward(layout, states.numpy(), agent)
        found = world.transitions(states, actions)
        for state in torch.nonzero(able).flatten().tolist():
            items = found.states[found.offsets[state] : found.offsets[state + 1]]
            target = ahead(layout, int(words[state, CELL]), int(words[state, DIRECTION]))
            moved = bool((items[:, AGENT_WORDS * agent + CELL] == target).any())
            assert moved == expected[state], world.describe(states[state])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("map: 'Ay ..'", True),
        ("map: 'Ay'", False),
        ("map: 'Ay We'", False),
        ("map: 'Ay La'", True),
        ("map: 'Ay Un'", True),
        ("map: 'Ay Sw'", True),
        ("map: 'Ay Gr'", True),
        ("map: 'Ay Ae'", False),
        ("map: 'Ay Or'", True),
        ("map: 'Ay Cr'", False),
        ("map: 'Ay Lr'", False),
        ("map: 'Ay Kr'", False),
        ("map: 'Ay By'", False),
        ("map: 'Ay Kb'", False),
        ("map: 'Ay Bu'", True),
        ("map: 'Ay Bl ..'", True),
        ("map: 'Ay Bl Bl ..'", True),
        ("map: 'Ay Bl Ae'", False),
        ("map: 'Ay Bl'", False),
        ("map: 'Ay Bl Kr'", False),
        ("map: 'Ay Ro ..'", False),
        ("map: 'Ae Ro ..'", True),
        ("map: 'Ay Bl Ro ..'", False),
        ("map: 'Ay Bl La'", True),
        ("map: 'Ay Mw'", False),
        ("map: 'Ay Mw'\nagents: {0: {can_enter_magic_walls: true}}", True),
        ("map: 'Ay Me'\nagents: {0: {can_enter_magic_walls: true}}", False),
        ("map: 'Ay Ma'\nagents: {0: {can_enter_magic_walls: true}}", True),
        (
            "map: 'Ay Ma'\nagents: {0: {can_enter_magic_walls: true}}\n"
            "objects: {'1,0': {active: false}}",
            False,
        ),
        ("map: 'Ay Bu'\nenter_bush_success_prob: 0.0", True),
    ],
)
def test_every_rule_of_can_forward(text: str, expected: bool) -> None:
    world = world_from_text(text)
    assert can_forward(world.layout, world.initial_state()[None].numpy(), 0).tolist() == [expected]


def test_can_forward_looks_where_each_state_faces() -> None:
    world = world_from_text("map: |\n  We We\n  Ay ..\n  Ae We")
    rows = world.initial_state().repeat(4, 1)
    rows[:, DIRECTION] = torch.arange(4)
    assert can_forward(world.layout, rows.numpy(), 0).tolist() == [True, False, False, False]
    assert free_directions(world.layout, rows.numpy(), 0).tolist() == [[True] + [False] * 3] * 4


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("..", 1), ("We", IMPASSABLE), ("Or", 1), ("Cr", 2), ("Lr", 25), ("Ae", 2), ("Bl", 2),
        ("Kr", 3), ("By", 3), ("Xr", 3), ("Ro", 50), ("Un", 2), ("Sw", 2), ("Kb", 2), ("Dk", 2),
        ("Ma", IMPASSABLE), ("Bu", IMPASSABLE), ("La", IMPASSABLE), ("Gr", 1), ("Fr", 1),
    ],
)  # fmt: skip
def test_what_entering_a_cell_costs(code: str, expected: int) -> None:
    world = world_from_text(f"map: 'Ay {code}'")
    costs = cost_maps(world.layout, world.initial_state()[None].numpy(), 0)
    assert costs.tolist() == [[1, expected]]


def test_a_trampled_bush_costs_as_much_as_open_ground() -> None:
    world = world_from_text("map: 'Ay Bu'")
    row = world.initial_state()
    row[-1] = 1
    assert cost_maps(world.layout, row[None].numpy(), 0).tolist() == [[1, 1]]


def test_an_opened_box_costs_as_much_as_what_it_held_and_carried_things_cost_nothing() -> None:
    world = world_from_text("map: 'Ay Xr ..'\nobjects: {'1,0': {contains: Kr}}")
    layout = world.layout
    rows = world.initial_state().repeat(3, 1).numpy()
    rows[:, layout.first_item_word] = [layout.opened + 2, layout.num_cells, -1]
    assert cost_maps(layout, rows, 0).tolist() == [[1, 1, 3], [1, 1, 1], [1, 1, 1]]


def test_the_map_does_not_depend_on_the_agents_own_place() -> None:
    world = world_from_text("map: 'Ay .. Ae'")
    rows = world.initial_state().repeat(2, 1)
    rows[1, CELL] = 1
    maps = cost_maps(world.layout, rows.numpy(), 0)
    assert maps.tolist() == [[1, 1, 2], [1, 1, 2]]


def dijkstra(layout: Layout, costs: np.ndarray, goal: np.ndarray) -> list[int]:
    best = [0 if inside else UNREACHABLE for inside in goal]
    heap = [(0, cell) for cell in np.flatnonzero(goal).tolist()]
    while heap:
        so_far, cell = heapq.heappop(heap)
        if so_far > best[cell] or costs[cell] == IMPASSABLE:
            continue
        for direction in range(4):
            before = ahead(layout, cell, direction)
            total = so_far + int(costs[cell])
            if before is not None and total < best[before]:
                best[before] = total
                heapq.heappush(heap, (total, before))
    return best


@settings(max_examples=60)
@given(st.data())
def test_path_costs_are_those_of_a_textbook_dijkstra(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    text = "map: |\n" + "".join(
        "  " + " ".join("Ay" if (x, y) == (0, 0) else ".." for x in range(width)) + "\n"
        for y in range(height)
    )
    layout = world_from_text(text).layout
    size = width * height
    cost = st.sampled_from([IMPASSABLE, 1, 2, 3, 25, 50])
    maps = np.array(
        data.draw(st.lists(st.lists(cost, min_size=size, max_size=size), min_size=1, max_size=3)),
        dtype=np.int16,
    )
    cells = st.lists(st.booleans(), min_size=size, max_size=size)
    goals = np.array(data.draw(st.lists(cells, min_size=1, max_size=3)), dtype=np.bool_)
    found = path_costs(layout, maps, goals)
    expected = [[dijkstra(layout, costs, goal) for goal in goals] for costs in maps]
    assert found.tolist() == expected
