"""Refuses saved arrays that contradict one another: kernels index by them without looking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Shaped

from empo_core.errors import StorageError
from empo_core.types import WorldSpec
from empo_exact.game import Humans, Values
from empo_exact.graph import StateGraph
from empo_exact.problem import Problem

_OFFSETS, _CODES = (np.uint32, np.int64), (np.uint16, np.int32)
Array = Shaped[np.ndarray, "*axes"]


def check_graph(arrays: Mapping[str, Array], spec: WorldSpec, num_expanded: int) -> None:
    """Refuse the arrays of a graph, and the chances of its first states, that do not fit.

    Args:
        arrays: The arrays by name, of any shapes and types; see ``StateGraph``.
        spec: The world's specification.
        num_expanded: How many states have their transitions stored.

    Raises:
        StorageError: if an array has another type or shape, or points to what is not there.
    """
    states, layers, offsets, successor, code, prob, duration = (
        arrays[f"graph_{name}"]
        for name in ("states", "layers", "offsets", "successor", "code", "prob", "duration")
    )
    dtype = np.dtype(str(spec.state_dtype).removeprefix("torch."))
    _check("graph_states", states, (None, spec.state_words), dtype.type)
    _check("graph_layers", layers, (None,), np.int64)
    if not 0 <= num_expanded <= len(states):
        raise StorageError(f"num_expanded: {num_expanded} of {len(states)} states")
    _check("graph_offsets", offsets, (num_expanded * spec.num_joint_actions + 1,), *_OFFSETS)
    _check("graph_successor", successor, (None,), np.int32)
    _check("graph_code", code, successor.shape, *_CODES)
    _check("graph_prob", prob, (None,), np.float64)
    _check("graph_duration", duration, prob.shape, np.float64)
    _check_steps("graph_layers", layers, 1, len(states))
    _check_steps("graph_offsets", offsets, 0, len(successor))
    _check_range("graph_successor", successor, len(states))
    _check_range("graph_code", code, len(prob))
    _check_chances("graph_prob", prob)
    if not ((duration > 0) & np.isfinite(duration)).all():
        raise StorageError("graph_duration: has an entry that is no positive time")
    start = arrays["start"]
    _check("start", start, (None,), np.float64)
    if not 0 < len(start) <= layers[0]:
        raise StorageError(f"start: has the chances of {len(start)} of {layers[0]} states")
    _check_chances("start", start)


def check_humans(humans: Humans, problem: Problem) -> None:
    """Refuse assumptions of Phase 1 that do not fit a problem.

    Raises:
        StorageError: if an array has another type or shape.
    """
    graph, game = problem.graph, problem.game
    num_goals, num_actions = problem.game.achieved.shape[1], int(game.num_actions.max())
    for name in ("beta", "nu"):
        _check_rows(f"humans_{name}", getattr(humans, name), graph, (num_goals,))
    if not (humans.beta >= 0).all():
        raise StorageError("humans_beta: has an entry that is no rationality")
    _check_chances("humans_nu", humans.nu)
    _check_rows("humans_habit", humans.habit, graph, (num_actions, num_goals))
    if humans.belief.shape == (1, 1, 1, 0):  # Another type compiles kernels anew.
        _check("humans_belief", humans.belief, humans.belief.shape, np.float64)
    else:
        axes = (len(graph.spec.humans), num_actions, int(game.others.max()) + 1)
        _check_rows("humans_belief", humans.belief, graph, axes)
    _check_chances("humans_habit", humans.habit)
    _check_chances("humans_belief", humans.belief)


def _check_rows(name: str, array: Array, graph: StateGraph, axes: Sequence[int]) -> None:
    """Refuse an array that has neither one row for all states nor one for each."""
    rows = len(array) if array.ndim and len(array) in (graph.num_expanded, graph.num_states) else 1
    _check(name, array, (rows, *axes), np.float64)


def check_values(values: Values, num_states: int, num_goals: int, rho: int) -> None:
    """Refuse values that are not those of this many states.

    Args:
        values: The values of a time.
        num_states: States that have values at that time.
        num_goals: Goals as the sweep orders them.
        rho: The order of the mean.

    Raises:
        StorageError: if an array has another type or shape.
    """
    count = len(values.v_r) if values.v_r.ndim else 0
    if count < num_states:
        raise StorageError(f"v_r: has the values of {count} of {num_states} states")
    _check("v_r", values.v_r, (count,), np.float64)
    _check("v_m", values.v_m, (count, num_goals), np.float64)
    _check("v_e", values.v_e, (count, num_goals), np.float64)
    _check("norms", values.norms, (count, rho - 1), np.float64)


def _check(name: str, array: Array, shape: Sequence[int | None], *types: type) -> None:
    """Refuse an array of another type or shape; None is any length."""
    if array.dtype not in [np.dtype(kind) for kind in types]:
        raise StorageError(f"{name}: is of {array.dtype}, not {np.dtype(types[0])}")
    fits = len(array.shape) == len(shape) and all(
        expected in (None, length) for expected, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        axes = ", ".join("any" if expected is None else str(expected) for expected in shape)
        raise StorageError(f"{name}: has shape {array.shape}, not ({axes})")


def _check_steps(name: str, array: Array, first: int, end: int) -> None:
    """Refuse an array that does not rise from ``first`` or more to ``end``."""
    rises = (array[1:] >= array[:-1]).all()
    if not len(array) or array[0] < first or array[-1] != end or not rises:
        raise StorageError(f"{name}: does not rise to {end}")


def _check_range(name: str, array: Array, end: int) -> None:
    """Refuse an array that points before 0 or behind ``end``."""
    if len(array) and not (array.min() >= 0 and array.max() < end):
        raise StorageError(f"{name}: points to what is not among {end}")


def _check_chances(name: str, array: Array) -> None:
    """Refuse what is no probability."""
    if not ((array >= 0) & (array <= 1 + 1e-9)).all():
        raise StorageError(f"{name}: has an entry that is no probability")
