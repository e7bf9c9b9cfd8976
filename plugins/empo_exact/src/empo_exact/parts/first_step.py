"""The first step of episodes, from what all parts know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Shaped

from empo_exact.game import Values
from empo_exact.graph import StateGraph, transitions_of
from empo_exact.parts.sweeps import PartSweeps
from empo_exact.problem import Problem
from empo_exact.result import Opening
from empo_exact.transition_arrays import Codes
from empo_worlds.row_table import RowTable


class Share(NamedTuple):
    """What a part contributes to the first step of episodes.

    Attributes:
        starts: Positions of its starts among all starts [start].
        rows: Rows of its starts, then of the states that follow them [state word].
        offsets: Start of the transitions of each pair of a start and a joint action [pair + 1].
        successor: Position among ``rows`` that a transition leads to [transition].
        code: Position among ``codes`` of its probability and duration [transition].
        codes: Probabilities and durations, as this process numbers them [code 2].
        values: Values of ``rows`` by time; of the starts alone at time 0 of a horizon.
    """

    starts: Int64[np.ndarray, " start"]
    rows: Shaped[np.ndarray, "state word"]
    offsets: Int64[np.ndarray, " offset"]
    successor: Int64[np.ndarray, " transition"]
    code: Codes
    codes: Float64[np.ndarray, "code 2"]
    values: dict[int, Values]


def share_of_opening(sweeps: PartSweeps, done: int) -> list[Share]:
    """What the parts of this process contribute to the first step after the last sweep."""
    parts, shares = sweeps.parts, []
    for part in parts.numbers:
        numbers = parts.starts_in(part)
        if not len(numbers):
            continue
        problem = sweeps.problem(part)
        graph = problem.graph
        offsets, items = transitions_of(graph, numbers)
        successor = graph.successor[items]
        others = np.setdiff1d(successor, numbers).astype(np.int64)
        states = np.concatenate([numbers, others])
        position = np.zeros(graph.num_states, np.int64)
        position[states] = np.arange(len(states))
        # With a horizon, values of time 1 follow those of time 0; else all are of time 0.
        later = done if problem.horizon is None else done - 1
        values = {} if later == 0 else {done - later: _rows(sweeps, problem, part, later, states)}
        if problem.horizon is not None:
            values[0] = _rows(sweeps, problem, part, done, numbers)
        shares.append(
            Share(
                starts=np.flatnonzero(parts.starts[:, 0] == part),
                rows=graph.states[states],
                offsets=offsets,
                successor=position[successor],
                code=graph.code[items],
                codes=parts.codes,
                values=values,
            )
        )
    return shares


def opening(sweeps: PartSweeps, shares: Sequence[Share]) -> Opening:
    """The first step after the last sweep, from what all parts contribute."""
    spec, count = sweeps.parts.world.spec, len(sweeps.parts.starts)
    table = RowTable(spec.state_words, shares[0].rows.dtype)
    first = np.concatenate([share.starts for share in shares])
    order = np.argsort(first)
    table.number(np.concatenate([share.rows[: len(share.starts)] for share in shares])[order])
    numbers = [table.number(share.rows) for share in shares]
    codes = RowTable.of(shares[0].codes)
    code = [codes.number(share.codes)[share.code] for share in shares]
    ends = np.cumsum([0] + [len(share.successor) for share in shares])
    offsets = [share.offsets[:-1] + end for share, end in zip(shares, ends[:-1], strict=True)]
    prob, duration = (np.ascontiguousarray(column) for column in codes.rows.T)
    # The starts by part: not yet in their order.
    graph = StateGraph(
        spec=spec,
        states=table.rows.copy(),
        layers=np.array([count, table.count]),
        num_expanded=count,
        offsets=np.concatenate([*offsets, ends[-1:]]),
        successor=np.concatenate(
            [number[share.successor] for number, share in zip(numbers, shares, strict=True)]
        ),
        code=np.concatenate(code),
        prob=prob,
        duration=duration,
    )
    bounds, items = transitions_of(graph, order)
    graph = replace(
        graph,
        offsets=bounds.astype(np.uint32) if bounds[-1] < 1 << 32 else bounds,
        successor=graph.successor[items],
        code=graph.code[items].astype(shares[0].code.dtype),
    )
    values: dict[int, Values] = {}
    for time in shares[0].values:
        time_values = [share.values[time] for share in shares]
        size = count if spec.horizon is not None and time == 0 else table.count
        values[time] = Values(
            *(np.full((size, *array.shape[1:]), np.nan) for array in time_values[0])
        )
        for number, part_values in zip(numbers, time_values, strict=True):
            for array, rows in zip(values[time], part_values, strict=True):
                array[number[: len(rows)]] = rows
    return Opening(graph, values, sweeps.parts.sizes, sweeps.parts.warning, sweeps.seconds)


def _rows(
    sweeps: PartSweeps, problem: Problem, part: int, done: int, states: Int64[np.ndarray, " state"]
) -> Values:
    table = sweeps.table(problem, part, done)
    return Values(*(array[states] for array in table))
