"""Saved tables that are sealed and contradict one another: kernels would index past arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from random_games import Shape, TableWorld, random_table

from empo_core.errors import StorageError
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import load
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_worlds.arrays import load_arrays, save_arrays

SHAPE = Shape(6, ("robot", "human"), (2, 2), 3, timed=False, masked=False)
PARAMS = ExactParams(theory=CompleteTheory(rho=2, counting="presence"), compute=Compute(workers=1))

Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def world() -> TableWorld:
    return TableWorld(random_table(SHAPE, 1))


@pytest.fixture(scope="module")
def saved(world: TableWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    solve(world, PARAMS).save(folder)
    return folder


def with_entry(place: int, value: float) -> Change:
    def change(array: np.ndarray) -> np.ndarray:
        changed = array.copy()
        changed.flat[place] = value
        return changed

    return change


def as_kind(kind: type) -> Change:
    return lambda array: array.astype(kind)


def shorter(array: np.ndarray) -> np.ndarray:
    return array[:-1]


CHANGES: list[tuple[str, Change]] = [
    ("graph_successor", with_entry(0, 10**6)),
    ("graph_successor", with_entry(0, -1)),
    ("graph_successor", as_kind(np.int64)),
    ("graph_offsets", with_entry(1, 2**31)),
    ("graph_offsets", with_entry(-1, 0)),
    ("graph_offsets", shorter),
    ("graph_code", with_entry(0, 60_000)),
    ("graph_code", shorter),
    ("graph_layers", with_entry(-1, 10**9)),
    ("graph_layers", with_entry(0, 0)),
    ("graph_states", as_kind(np.float64)),
    ("graph_states", lambda array: array[:, :1]),
    ("graph_prob", with_entry(0, np.nan)),
    ("graph_prob", with_entry(0, 2.0)),
    ("graph_duration", with_entry(0, -1.0)),
    ("graph_duration", lambda array: array[:, None]),
    ("start", lambda array: np.ones(99)),
    ("start", with_entry(0, np.inf)),
    ("humans_beta", lambda array: array[:, :-1]),
    ("humans_beta", with_entry(0, np.nan)),
    ("humans_nu", with_entry(1, np.inf)),
    ("humans_habit", with_entry(0, -1.0)),
    ("humans_nu", as_kind(np.float32)),
    ("humans_habit", lambda array: array[:, :1]),
    ("humans_belief", lambda array: np.zeros((1, 1, 1, 7))),
    ("humans_belief", lambda array: np.zeros((1, 1, 1, 0), bool)),
    ("time_1_v_m", lambda array: array[:, :-1]),
    ("time_1_v_r", lambda array: array[:0]),
    ("time_1_v_e", as_kind(np.float32)),
    ("time_1_norms", lambda array: array[:, :0]),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_sealed_arrays_that_do_not_fit_are_refused_by_name(
    world: TableWorld, saved: Path, tmp_path: Path, name: str, change: Change
) -> None:
    arrays, metadata = load_arrays(saved / "tables")
    save_arrays(tmp_path / "tables", {**arrays, name: change(arrays[name])}, metadata)
    with pytest.raises(StorageError, match=name.removeprefix("time_1_")):
        load(tmp_path, world)
