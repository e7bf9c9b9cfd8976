"""Worlds of the library with every reduction that they know, against all of their states."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.protocols import WorldModel
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_tabular.table import Table
from empo_tabular.world import find_problems, world_of
from empo_worlds.symmetry_checks import false_symmetry

THEORY = {"beta_h": 5.0, "gamma_h": 0.95, "gamma_r": 0.99, "beta_r": 5.0, "zeta": 2.0, "eta": 1.1}


def world_named(name: str, **params: Any) -> WorldModel:
    world: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return world


def states_solved(world: WorldModel, *reduce: str) -> list[int]:
    """Numbers of states before each reduction and after the last, once all values are compared."""
    base = {"theory": THEORY, "keep": "all", "compute": {"workers": 1}}
    expected = solve(world, ExactParams.model_validate(base))
    found = solve(world, ExactParams.model_validate({**base, "reduce": [*reduce]}))
    assert np.array_equal(found.graph.states, expected.graph.states)
    for time in expected.times:
        for mine, given in zip(found.store.at(time), expected.store.at(time), strict=True):
            np.testing.assert_allclose(mine, given, rtol=1e-12, atol=1e-12)
    return [found.reductions[0].before, *(step.after for step in found.reductions)]


GRIDS = [
    ("two_room", 6, "symmetry", "lump"),
    ("block_corridor", 5, "symmetry", "lump"),
    ("corridor_control", 3, "symmetry", "lump"),
    ("tiny_test", 5, "symmetry", "lump"),
    ("small_trolley", 3, "symmetry", "lump"),
    ("asymmetric_freeing_simple", 3, "symmetry", "lump"),
    ("asymmetric_start", 2, "symmetry", "lump"),
    ("free_the_human", 6, "lump"),
    ("trivial", 6, "lump"),
    ("key_and_door", 6, "lump"),
    ("simple_circle", 5, "lump"),
]


@pytest.mark.parametrize(("name", "max_steps", "reduce"), [(n, t, r) for n, t, *r in GRIDS])
def test_reductions_change_no_value_of_a_grid(name: str, max_steps: int, reduce: list[str]) -> None:
    sizes = states_solved(world_named(f"multigrid/{name}", max_steps=max_steps), *reduce)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


@pytest.mark.parametrize(
    ("name", "max_steps"),
    [("two_room", 6), ("small_trolley", 4), ("asymmetric_start", 2), ("personal_goals", 3),
     ("block_corridor", 6), ("two_robots", 3), ("minimal_agent", 6), ("tiny_test", 5)],
)  # fmt: skip
def test_grids_have_the_symmetries_that_they_declare(name: str, max_steps: int) -> None:
    world = world_named(f"multigrid/{name}")
    states = torch.from_numpy(build_graph(world, max_steps).states)
    assert world.symmetries()
    for symmetry in world.symmetries():
        assert false_symmetry(world, symmetry, states) is None


def test_agents_are_not_exchanged_where_their_numbers_decide() -> None:
    # Both humans of this world may enter one bush, and the first by number does.
    for world in (
        world_named("multigrid/corridor_bush"),
        world_named("multigrid/small_trolley", simultaneity="reference"),
    ):
        assert all("exchange" not in symmetry.name for symmetry in world.symmetries())


COINS: dict[str, Any] = {
    "name": "coins",
    "initial": "start",
    "horizon": 3,
    "states": ["start", "heads", "tails"],
    "agents": [
        {"name": "ann", "role": "human", "actions": ["wait", "left", "right"]},
        {"name": "bot", "role": "robot", "actions": ["wait", "block"]},
    ],
    "transitions": [
        {"state": "*", "actions": ["*", "block"], "to": "start"},
        {"state": "*", "actions": ["left", "*"], "to": {"heads": "3/4", "tails": "1/4"}},
        {"state": "*", "actions": ["right", "*"], "to": {"heads": "1/4", "tails": "3/4"}},
        {"state": "start", "to": "start"},
        {"state": "heads", "to": "heads"},
        {"state": "tails", "to": "tails"},
    ],
    "goals": {"ann": [{"name": "heads", "states": "heads"}, {"name": "tails", "states": "tails"}]},
    "symmetries": [
        {
            "name": "turn the coin",
            "states": {"heads": "tails", "tails": "heads"},
            "actions": {"ann": {"left": "right", "right": "left"}},
            "goals": {"ann": {"heads": "tails", "tails": "heads"}},
        }
    ],
}


def test_a_table_may_list_its_symmetries() -> None:
    assert states_solved(world_of(Table.model_validate(COINS)), "symmetry") == [3, 2]
    assert states_solved(world_of(Table.model_validate(COINS)), "symmetry", "lump")[0] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"states": {"heads": "tails"}}, "'heads' is missing or there twice"),
        ({"states": {"head": "tails"}}, "there is no 'head' to rename"),
        ({"agents": {"ann": "bot", "bot": "ann"}}, "differ in their role"),
        ({"actions": {"eve": {}}}, "there is no agent 'eve'"),
        ({"goals": {"ann": {"heads": "sky"}}}, "becomes 'sky'; there are heads, tails"),
        ({"goals": {"bot": {"heads": "tails"}}}, "no 'heads' to rename; there are none"),
    ],
)
def test_a_symmetry_of_a_table_that_renames_wrongly_is_refused(
    change: dict[str, Any], message: str
) -> None:
    (symmetry,) = COINS["symmetries"]
    table = Table.model_validate({**COINS, "symmetries": [{**symmetry, **change}]})
    assert any(message in reason for _, reason in find_problems(table)), find_problems(table)
