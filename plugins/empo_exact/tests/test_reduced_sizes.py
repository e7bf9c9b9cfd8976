"""Sizes with reductions: what a check says, what a run says, and what is refused before it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from cells_world import Cells, exchange
from comparison import exact_params
from random_games import Shape, random_table
from rich.console import Console
from test_cone import Noted
from test_false_declarations import false_in_an_image

from empo_core.errors import SolveError
from empo_core.protocols import Tracker
from empo_exact import ram
from empo_exact.assumptions import Assumptions
from empo_exact.forecast import Forecast
from empo_exact.graph import Explored, build_graph
from empo_exact.plugin import Compute, ExactParams
from empo_exact.ram import Sizes
from empo_exact.reduction import Reduction
from empo_exact.reductions.prediction import predictions
from empo_exact.reductions.reduced import reduced_graph
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_exact.sweep import Solver

NEIGHBOURS = [exchange(5, i, i + 1) for i in range(4)]


def params(keep: str, *reduce: str, **more: Any) -> ExactParams:
    more = {"reduce": [*reduce], "keep": keep, "count_unrolled": False, **more}
    return exact_params(**more)


def shown(result: ExactResult) -> str:
    text = io.StringIO()
    Console(file=text, width=200).print(result.report())
    return text.getvalue()


def test_a_prediction_from_some_states_counts_whole_orbits() -> None:
    # All 60 states of five cells and three tokens are one orbit, of which some are known.
    world = Cells(5, NEIGHBOURS)
    graph = build_graph(world, 1)
    assert 1 < graph.num_states < 20
    found = predictions(world, params("none"), graph, is_complete=False)
    assert found["reduce symmetry"] == "up to 1 state in 60.0"
    found = predictions(world, params("none"), graph, is_complete=True)
    assert found["reduce symmetry"] == f"{graph.num_states} → 1 states"


def test_a_refusal_in_a_check_is_one_line() -> None:
    world = false_in_an_image()
    found = predictions(world, params("none"), build_graph(world, 4), is_complete=True)
    line = str(found["reduce symmetry"])
    assert line.startswith("refused: 'renaming 0' is no symmetry of 'random game': ")
    assert "\n" not in line
    assert not line.endswith(":")


def test_sizes_of_original_states_are_those_of_whole_orbits() -> None:
    world = Cells(5, NEIGHBOURS)
    reduced = reduced_graph(world, params("all", "symmetry"), Assumptions(), Tracker())
    original = Sizes.of(build_graph(world, world.spec.horizon))
    assert reduced.graph.num_states == 1
    assert reduced.original_sizes.states == original.states == 60
    assert (reduced.original_sizes.layers >= original.layers[:1]).all()


@pytest.mark.parametrize("limit", [5_000, 10_000, 20_000, 50_000, 1_000_000])
def test_what_auto_keeps_and_a_check_says_never_takes_more_than_is_small(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ram, "SMALL_BYTES", limit)
    world, asked = Cells(5, NEIGHBOURS), params("auto", "symmetry")
    found = solve(world, asked)
    original = Sizes.of(build_graph(world, world.spec.horizon))
    assert found.params.keep == Forecast(world, asked).needs()["keep"]
    if found.params.keep == "all":
        assert ram.disk_bytes(original, "all") <= limit
    # Whole orbits may be more than can be reached, half as many again here.
    assert found.params.keep == "all" or ram.disk_bytes(original, "all") > limit / 2


def test_a_check_counts_the_files_of_all_original_states() -> None:
    world = Cells(7, [exchange(7, i, i + 1) for i in range(6)])
    found = Forecast(world, params("all", "symmetry")).needs()
    written = ram.disk_bytes(Sizes.of(build_graph(world, world.spec.horizon)), "all") / 1e6
    text = str(found["disk (MB)"])
    assert text.startswith("up to ")
    assert float(text.split()[-1]) >= written


def refuse_sweeps(*_: Any, **__: Any) -> None:
    raise AssertionError("values were computed that would be lost")


def test_too_many_original_states_are_refused_before_any_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, few = Cells(5, NEIGHBOURS), Compute(workers=1, max_states=30)
    solve(world, params("none", "symmetry", compute=few))
    monkeypatch.setattr(Solver, "sweep", refuse_sweeps)
    with pytest.raises(SolveError, match=r"30 reachable states.*keep: none"):
        solve(world, params("all", "symmetry", compute=few))


def test_auto_keeps_nothing_where_there_are_too_many_original_states(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, few = Cells(5, NEIGHBOURS), Compute(workers=1, max_states=30)
    found = solve(world, params("auto", "symmetry", compute=few))
    assert found.params.keep == "none"
    assert "keep: auto is none here" in caplog.text
    expected = solve(world, params("none"))
    np.testing.assert_allclose(found.at(0).V_r, expected.at(0).V_r, rtol=1e-12)


def test_a_report_says_which_states_it_counts() -> None:
    world = Cells(5, NEIGHBOURS)
    kept, start = (solve(world, params(keep, "symmetry")) for keep in ("all", "none"))
    assert "60 original states," in shown(kept)
    assert "reduced: symmetry 60 → 1 states in" in shown(kept)
    assert "1 states that were solved," in shown(start)
    assert "reduced: symmetry at most 60 → 1 states in" in shown(start)
    assert "60 states," in shown(solve(world, params("all")))


def test_a_cone_says_how_many_states_there_were_where_that_is_known() -> None:
    world = Noted(
        random_table(Shape(5, ("human", "robot"), (2, 2), 3, timed=False, masked=False), 3)
    )
    kept, start = (solve(world, params(keep, "cone")).reductions[0] for keep in ("all", "none"))
    assert kept.before == build_graph(world, 3).num_states
    assert kept.before is not None
    assert kept.before > kept.after == start.after
    assert start.before is None
    assert start.sentence.startswith(f"cone unknown → {start.after} states in")
    assert Reduction.of(start.data) == start


def test_each_reduction_has_its_own_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("empo_exact.reductions.preparation.clock.perf_counter", lambda: next(clock))
    world = Cells(5, NEIGHBOURS)
    (step,) = solve(world, params("none", "symmetry")).reductions
    assert step.seconds in (1, 2)  # Of one check, or of a second one, too; not of the cone's.


def test_rows_that_were_met_count_against_the_limit_on_ram() -> None:
    world = Cells(5, NEIGHBOURS)
    few, many = (
        ram.sizes_found(Explored([1, 1], 1, 1, 10, met), world.spec).exploring_bytes
        for met in (0, 10**6)
    )
    assert many - few >= 16 * 10**6
