"""Power where every state is a goal, with robots and other humans as they were solved."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float64, Int64

from empo_core.errors import SolveError
from empo_core.types import Goal
from empo_exact.diagnostics.guarded import Guarded
from empo_exact.diagnostics.layers import layers_of
from empo_exact.diagnostics.other_goals import RelabelledWorld, refuse_other_humans
from empo_exact.diagnostics.sweep import Behaviour, Sweep
from empo_exact.plugin import PriorParams
from empo_exact.prior import ExactPrior
from empo_exact.result import ExactResult
from empo_theory.bits import individual_power
from empo_theory.diagnostics import Canonical, finite
from empo_theory.parameters import HumanTheory
from empo_worlds.row_table import RowTable

MOST_STATES = 4096
"""States that are made goals."""
VALUES_AT_ONCE = 1 << 25
"""Values of humans in RAM: of all states and times, for so many goals at a time as fit."""


def canonical_powers(result: ExactResult) -> dict[int, Canonical]:
    """I_h of each human with one goal for each state, by agent index.

    Raises:
        SolveError: if there are too many states, or it is not known how humans pursue such goals.
    """
    refuse_other_humans(result, "canonical")
    count, humans = result.graph.num_states, result.spec.humans
    if count > MOST_STATES:
        raise SolveError(
            f"algorithm.params.diagnostics: canonical makes a goal of each of {count:,} states, "
            f"and that is done for up to {MOST_STATES:,}; leave canonical out"
        )
    if result.failed is not None:
        raise SolveError(
            "algorithm.params.diagnostics: canonical takes robots that do not fail; leave "
            "canonical or defunct out"
        )
    size = max(1, VALUES_AT_ONCE // (count * len(humans) * (result.horizon or 1)))
    x_h = np.zeros(len(humans))
    for first in range(0, count, size):
        x_h += _powers(result, np.arange(first, min(first + size, count)))
    return {
        human: Canonical(bits=finite(individual_power(x)), maximum=math.log2(count))
        for human, x in zip(humans, x_h.tolist(), strict=True)
    }


def _powers(
    result: ExactResult, states: Int64[np.ndarray, " goal"]
) -> Float64[np.ndarray, " human"]:
    """The part of X_h that comes from goals which are these states [human]."""
    graph, theory, humans = result.graph, result.params.theory, result.spec.humans
    is_goal = np.zeros((graph.num_states, len(states)), np.bool_)
    is_goal[states, np.arange(len(states))] = True
    goals = tuple(
        Goal(human=human, name=f"state {state}", weight=1.0) for human in humans for state in states
    )
    achieved = np.tile(is_goal, len(humans))
    world = RelabelledWorld(result.world, goals, RowTable.of(graph.states), achieved)
    symbols = theory.model_dump(include=set(HumanTheory.model_fields))
    pursuing = ExactPrior(PriorParams(theory=HumanTheory(**symbols)), world)
    (layer,) = layers_of(result)

    def acts(states: Int64[np.ndarray, " state"], time: int) -> Behaviour:
        left = torch.full(
            (len(states),), 1 if graph.spec.horizon is None else graph.spec.horizon - time
        )
        policy = pursuing.policy(torch.from_numpy(graph.states[states]), left)
        return layer.acts(states, time)._replace(pi_h=policy.numpy())

    guarded = [Guarded(world.spec, achieved, human, "others", math.inf) for human in humans]
    sweep = Sweep(result.problem, [replace(layer, acts=acts)])
    capabilities = sweep.at(guarded, np.arange(len(result.start)))
    return np.array([result.start @ (c**theory.zeta).sum(1) for c in capabilities])
