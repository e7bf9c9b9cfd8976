"""Predictions of the effect of each reduction, from a graph that was explored for some seconds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from pydantic import JsonValue

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import Factored, Symmetric, WorldModel
from empo_exact.graph import StateGraph
from empo_exact.images import Images
from empo_exact.plugin import ExactParams
from empo_exact.reductions.bisimulation import partition
from empo_exact.reductions.preparation import canonical_of
from empo_exact.setup import Assumptions

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
    found: dict[str, JsonValue] = {}
    for name in ("symmetry", "cone", "lump"):
        if name == "lump":
            found["reduce lump"] = _lump(world, params, graph, is_complete=is_complete)
        elif name in params.reduce:
            found[f"reduce {name}"] = "asked for: the states above are those that remain"
        else:
            found[f"reduce {name}"] = _fewer(world, params, graph, name, is_complete=is_complete)
    return found


def _fewer(
    world: WorldModel, params: ExactParams, graph: StateGraph, name: str, *, is_complete: bool
) -> str:
    """The effect of symmetry or the cone of influence alone, in words."""
    declared = Symmetric if name == "symmetry" else Factored
    if not isinstance(world, declared):
        return "the world declares nothing that it needs"
    try:
        alone = params.model_copy(update={"reduce": [name]})
        canonical = canonical_of(world, alone, Assumptions())
    except UnsuitableWorldError:
        return "the world declares nothing that it needs"
    except SolveError as error:
        return f"refused: {error}"
    rows = graph.states[:MOST_STATES]
    stands = np.unique(canonical(rows)[0], axis=0)
    if is_complete and len(rows) == graph.num_states:
        return f"{graph.num_states:,} → {len(stands):,} states"
    return f"about 1 state in {len(rows) / len(stands):.1f}"


def _lump(world: WorldModel, params: ExactParams, graph: StateGraph, *, is_complete: bool) -> str:
    """The effect of lumping, alone or after what is asked for, in words."""
    if params.human_prior is not None or params.habit is not None:
        return "does not go with human_prior or habit"
    if not is_complete or graph.num_transitions > MOST_TRANSITIONS:
        return "not predicted: it takes the whole graph"
    achieved = world.achieved(torch.from_numpy(graph.states)).numpy()
    parts = int(partition(graph, Images.none(graph), achieved).max(initial=-1)) + 1
    atmost = "" if params.reduce in ([], ["lump"]) else "at best "
    return f"{graph.num_states:,} → {atmost}{parts:,} states"
