"""Predictions of the effect of each reduction, from a graph that was explored for some seconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Shaped
from pydantic import JsonValue

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.graph import StateGraph
from empo_exact.images import Images
from empo_exact.plugin import ExactParams
from empo_exact.reductions.bisimulation import partition
from empo_exact.reductions.canonical import Canonical
from empo_exact.reductions.declarations import RefusedError
from empo_exact.reductions.preparation import prepare
from empo_worlds.contract import achieved_in

MOST_STATES = 50_000
"""States, the first ones, by which symmetry and cone are judged."""
MOST_TRANSITIONS = 5_000_000
"""Transitions beyond which lumping takes too long to try."""


def predictions(
    world: WorldModel, params: ExactParams, graph: StateGraph, *, is_complete: bool
) -> Mapping[str, JsonValue]:
    """A line about each reduction, as ``empo check`` prints it.

    Args:
        world: The world.
        params: The parameters.
        graph: Its graph, already reduced by what ``params.reduce`` asks for.
        is_complete: Whether that is all of it.
    """
    note = "asked for: the states above are those that remain"
    report: dict[str, JsonValue] = {
        f"reduce {name}": note
        if name in params.reduce
        else _fewer(world, params, graph, name, is_complete=is_complete)
        for name in ("symmetry", "cone")
    }
    return report | {"reduce lump": _lump(world, params, graph, is_complete=is_complete)}


def _fewer(
    world: WorldModel, params: ExactParams, graph: StateGraph, name: str, *, is_complete: bool
) -> str:
    """The effect of symmetry or the cone of influence alone, in words."""
    alone = params.model_copy(update={"reduce": [name]})
    try:
        canonical = prepare(world, alone, Assumptions()).canonical
    except UnsuitableWorldError:
        return "the world declares nothing that it needs"
    except RefusedError as error:
        return f"refused: {error.reason}"
    except SolveError as error:
        return f"refused: {str(error).splitlines()[0]}"
    rows = graph.states[:MOST_STATES]
    if is_complete and len(rows) == graph.num_states:
        return f"{graph.num_states:,} → {_distinct(canonical, rows):,} states"
    if name == "symmetry":
        # Other states of the same orbits come later.
        return f"up to 1 state in {len(rows) / (1 / canonical.orbit_sizes(rows)).sum():.1f}"
    return f"about 1 state in {len(rows) / _distinct(canonical, rows):.1f}"


def _distinct(canonical: Canonical, rows: Shaped[np.ndarray, "state word"]) -> int:
    """Number of states that are solved in place of these."""
    return len(np.unique(canonical(rows)[0], axis=0))


def _lump(world: WorldModel, params: ExactParams, graph: StateGraph, *, is_complete: bool) -> str:
    """The effect of lumping, alone or after what is asked for, in words."""
    if params.human_prior is not None or params.habit is not None:
        return "does not go with human_prior or habit"
    if not is_complete or graph.num_transitions > MOST_TRANSITIONS:
        return "not predicted: it takes the whole graph"
    achieved = achieved_in(world, torch.from_numpy(graph.states)).numpy()
    parts = int(partition(graph, Images.none(graph), achieved).max(initial=-1)) + 1
    atmost = "" if params.reduce in ([], ["lump"]) else "at best "
    return f"{graph.num_states:,} → {atmost}{parts:,} states"
