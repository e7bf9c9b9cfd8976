"""Several starts: each counts as reachable, in every way of solving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_games import Item, Shape, Table, TableWorld, random_table

from empo_core.errors import SolveError, WorldError
from empo_exact.plugin import ExactParams
from empo_exact.result import load
from empo_exact.solve import solve

SHAPE = Shape(40, ("human", "robot", "human"), (3, 2, 2), 4, timed=True, masked=True)
TABLE = random_table(SHAPE, 5)
ENDLESS = random_table(Shape(30, ("human", "robot"), (3, 2), None, timed=True, masked=True), 3)
IN_PARTS = [
    {"parts": 1},
    {"parts": 4},
    {"graph": "spill", "parts": 3},
]


def params(keep: str = "all", **compute: Any) -> ExactParams:
    return ExactParams.model_validate(
        {"keep": keep, "rollouts": 0, "compute": {"workers": 1, **compute}}
    )


def starts(table: Table) -> list[tuple[int, ...]]:
    """Three states, not in the order of their rows, one of them twice."""
    world, count = TableWorld(table), len(table.outcomes)
    return [
        world.row(count - 1),
        world.row(table.start),
        world.row(count // 2),
        world.row(count - 1),
    ]


def values_alone(table: Table) -> list[float]:
    """V_r of each start, from a game that starts there."""
    found = []
    for row in starts(table):
        world = TableWorld(table)
        alone = TableWorld(replace(table, start=world.number(row)))
        found.append(solve(alone, params()).at(0).V_r)
    return found


@pytest.mark.parametrize("table", [TABLE, ENDLESS], ids=["horizon", "acyclic"])
@pytest.mark.parametrize("keep", ["all", "disk", "none"])
@pytest.mark.parametrize("compute", [{}, *IN_PARTS], ids=str)
def test_all_starts_have_the_values_of_games_that_start_there(
    table: Table, keep: str, compute: dict[str, Any], tmp_path: Path
) -> None:
    world, rows = TableWorld(table), starts(table)
    result = solve(world, params(keep, **compute), directory=tmp_path, start=rows)
    expected = values_alone(table)
    assert [result.at(row).V_r for row in rows] == expected
    assert result.at(0).V_r == expected[0]
    assert [result.index(row) for row in rows] == [0, 1, 2, 0]
    assert set(result.reachable(0).tolist()) >= {0, 1, 2}
    assert np.isfinite(result.at(rows[2]).Q_r).any()


def test_processes_know_all_starts(tmp_path: Path) -> None:
    rows = starts(TABLE)
    chosen = params("none", processes=2, parts=4)
    result = solve(TableWorld(TABLE), chosen, directory=tmp_path, start=rows)
    assert [result.at(row).V_r for row in rows] == values_alone(TABLE)


def dead_end() -> Table:
    """State 1 is where no human attains a goal; state 0 does not lead there."""
    stays: list[tuple[int, ...]] = [(0, 0), (0, 1), (1, 0), (1, 1)]
    ends: list[tuple[Item, ...]] = [((1.0, state, 1.0),) for state in range(2)]
    outcomes = tuple(dict.fromkeys(stays, end) for end in ends)
    return Table(("human", "robot"), (2, 2), outcomes, ((0, 1.0, frozenset([0])),), (5, 7), 3)


@pytest.mark.parametrize("compute", [{}, *IN_PARTS, {"reduce": ["lump"]}], ids=str)
def test_a_start_in_which_a_human_is_without_power_is_refused(
    compute: dict[str, Any], tmp_path: Path
) -> None:
    world = TableWorld(dead_end())
    reduce = compute.get("reduce", [])
    compute = {key: value for key, value in compute.items() if key != "reduce"}
    chosen = params("all", **compute).model_copy(update={"reduce": reduce})
    rows = [world.row(0), world.row(1)]
    assert solve(world, chosen, directory=tmp_path / "one", start=rows[:1]).at(0).V_r < 0
    with pytest.raises(SolveError, match="attain"):
        solve(world, chosen, directory=tmp_path / "two", start=rows)


@pytest.mark.parametrize("starting", [1, 3])
def test_results_of_other_starts_are_saved_and_loaded(tmp_path: Path, starting: int) -> None:
    world, rows = TableWorld(TABLE), starts(TABLE)[:starting]
    solved = solve(world, params("all"), start=rows)
    solved.save(tmp_path)
    again = load(tmp_path, world)
    assert [again.at(row).V_r for row in rows] == [solved.at(row).V_r for row in rows]


@pytest.mark.parametrize("start", [[], [[1]], [[0.5, 1.0]], [[70_000, 1]], [1, 2]])
def test_rows_that_are_no_states_are_refused_as_starts(start: Any) -> None:
    with pytest.raises((SolveError, WorldError)):
        solve(TableWorld(TABLE), params(), start=start)
