"""However a graph is cut into parts, every number comes out the same to the last bit."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from comparison import exact_params, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from random_games import Shape, Table, TableWorld, random_table, tables
from reference_solver import Parameters

from empo_core.errors import EmpoError, SolveError, StorageError
from empo_core.protocols import Tracker
from empo_exact.kernel_data import Values
from empo_exact.parts import commits
from empo_exact.parts.partition import choose_partition, slow_words
from empo_exact.parts.store import FileStore
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solver import solve

SHAPE = Shape(60, ("human", "robot", "human"), (3, 3, 2), 4, timed=True, masked=True)
TIMED = random_table(SHAPE, 3)


def in_parts(params: ExactParams, **compute: Any) -> ExactParams:
    chosen = {"workers": 1, **compute}
    return params.model_copy(update={"compute": Compute.model_validate(chosen)})


def assert_same(found: ExactResult, plain: ExactResult) -> None:
    """All values at all times, by state row, to the last bit."""
    assert found.graph.num_states == plain.graph.num_states
    assert found.graph.num_transitions == plain.graph.num_transitions
    assert found.times == plain.times
    number = plain.find_rows(found.graph.states)
    for time in plain.times:
        one, other = found.store.at(time), plain.store.at(time)
        assert len(one.v_r) == len(other.v_r)
        for name in Values._fields:
            ours, theirs = getattr(one, name), getattr(other, name)
            assert np.array_equal(ours, theirs[number[: len(ours)]], equal_nan=True), (time, name)


def assert_same_start(found: ExactResult, plain: ExactResult) -> None:
    one, other = found.at(0), plain.at(0)
    for name in ("V_r", "U_r", "Q_r", "pi_r", "V_m", "V_e", "pi_h"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
    assert (found.sizes.states, found.sizes.transitions) == (
        plain.graph.num_states,
        plain.graph.num_transitions,
    )


def outcome(table: Table, params: ExactParams) -> ExactResult | str:
    try:
        return solve(TableWorld(table), params)
    except EmpoError as error:
        return str(error)


@settings(max_examples=60)
@given(
    table=st.one_of(tables(acyclic=False), tables(acyclic=True)),
    params=parameters(),
    parts=st.sampled_from([1, 2, 5, 8]),
)
def test_values_of_random_games_do_not_depend_on_the_parts(
    table: Table, params: Parameters, parts: int
) -> None:
    exact = exact_params(params, keep="all", count_unrolled=False)
    plain, found = outcome(table, exact), outcome(table, in_parts(exact, parts=parts))
    if isinstance(plain, str) or isinstance(found, str):
        assert isinstance(plain, str) and isinstance(found, str)
        assert plain.split(". The state is")[0] == found.split(". The state is")[0]
    else:
        assert_same(found, plain)


@pytest.mark.parametrize("keep", ["all", "disk"])
def test_spilled_parts_give_the_same_values_and_leave_no_files(tmp_path: Path, keep: str) -> None:
    world, params = TableWorld(TIMED), ExactParams.model_validate({"keep": keep})
    plain = solve(world, params, directory=tmp_path / "plain")
    found = solve(world, in_parts(params, graph="spill", parts=5), directory=tmp_path / "parts")
    assert_same(found, plain)
    assert not (tmp_path / "parts" / "parts").exists()


def test_the_numbers_of_states_do_not_depend_on_the_parts() -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="all")
    one, seven = (solve(world, in_parts(params, parts=parts)) for parts in (1, 7))
    assert np.array_equal(one.graph.states, seven.graph.states)
    assert np.array_equal(one.graph.successor, seven.graph.successor)


@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_processes_find_the_same_start(tmp_path: Path, graph: str) -> None:
    world, params = TableWorld(TIMED), ExactParams(keep="none")
    plain = solve(world, ExactParams(keep="all"))
    shared = in_parts(params, processes=3, parts=4, graph=graph)
    assert_same_start(solve(world, shared, directory=tmp_path), plain)


class KillOnce(Tracker):
    """Kills a child process when a sweep is reported, once."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.killed = 0

    def log(self, step: int, metrics: Any) -> None:
        """A sweep is done."""
        if step == self.step and not self.killed:
            child = _workers()[0]
            self.killed = child.pid
            os.kill(child.pid, signal.SIGKILL)


def _workers() -> list[psutil.Process]:
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if any(part.startswith("worker-") for part in process.cmdline()) or not process.children()
    ]
