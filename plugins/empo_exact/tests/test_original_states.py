"""Original states are answered for by those that were solved, or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from comparison import exact_params
from random_games import Shape
from symmetric_games import symmetric_world

from empo_core.errors import SolveError
from empo_core.protocols import Tracker
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.reductions.original_states import found_states
from empo_exact.reductions.reduced import reduced_graph
from empo_worlds.row_table import RowTable

WORLD = symmetric_world(Shape(6, ("human", "robot"), (3, 2), 3, timed=False, masked=False), 3)
PARAMS = exact_params(keep="all", reduce=["symmetry"])


def test_a_state_that_nothing_stands_for_is_named() -> None:
    reduced = reduced_graph(WORLD, PARAMS, Assumptions(), Tracker())
    graph = build_graph(WORLD, WORLD.spec.horizon)
    fewer = replace(reduced, table=RowTable.of(reduced.graph.states[:-1]))
    lost = graph.states[reduced.find(graph.states)[0] == reduced.graph.num_states - 1]
    with pytest.raises(SolveError, match="state below") as error:
        found_states(WORLD, fewer, graph)
    assert error.match("leave symmetry and cone out of reduce")
    assert str(error.value).endswith(WORLD.describe(torch.from_numpy(lost[0])))


def test_a_state_that_is_reached_before_what_stands_for_it_is_named() -> None:
    reduced = reduced_graph(WORLD, PARAMS, Assumptions(), Tracker())
    graph = build_graph(WORLD, WORLD.spec.horizon)
    late = replace(reduced.graph, layers=np.array([1, 1, *reduced.graph.layers[1:]]))
    with pytest.raises(SolveError, match="state below"):
        found_states(WORLD, replace(reduced, graph=late), graph)
