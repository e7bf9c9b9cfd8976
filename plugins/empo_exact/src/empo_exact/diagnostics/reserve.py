"""Whether a goal that nobody listed would change what the robots do."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool

from empo_core.errors import SolveError
from empo_core.types import Goal
from empo_exact.diagnostics.guarded import Guarded
from empo_exact.diagnostics.layers import layers_of
from empo_exact.diagnostics.other_goals import RelabelledWorld, refuse_other_humans
from empo_exact.diagnostics.sweep import Sweep, achieved_in
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.bits import aggregate_power
from empo_theory.diagnostics import ReserveCheck, ReserveWeight, finite
from empo_worlds.row_table import RowTable

WEIGHTS = (1 / 50, 1 / 10, 1 / 3, 1.0)
"""Weights of the further goal, where those of listed ones are 1 on average."""
NAME = "not listed"


def reserve_check(
    result: ExactResult, named: Bool[np.ndarray, " state"] | None = None
) -> ReserveCheck | None:
    """What changes if states in no listed goal are a goal of each human, too.

    Args:
        result: The solved world.
        named: The states of that goal; None: those in no goal of the human.

    Returns:
        The check; None where there are no such states.

    Raises:
        SolveError: if it is not known how humans would pursue that goal, or how it would weigh.
    """
    refuse_other_humans(result, "reserve")
    spec, achieved = result.spec, achieved_in(result.problem)
    reserve = {
        human: ~achieved[:, list(spec.goals_of(human))].any(1) if named is None else named
        for human in spec.humans
    }
    reserve = {human: states for human, states in reserve.items() if states.any()}
    if not reserve:
        return None
    return ReserveCheck(
        states=int(np.any([*reserve.values()], axis=0).sum()),
        action=_best_action(result),
        weights=[_with_weight(result, reserve, weight) for weight in WEIGHTS],
    )


def _with_weight(
    result: ExactResult, reserve: dict[int, Bool[np.ndarray, " state"]], weight: float
) -> ReserveWeight:
    """What changes if the goal has this weight."""
    spec, params = result.spec, result.params
    goals, theory = list(spec.goals), params.theory
    if theory.x_agg == "sum":
        # Weighted sums, since the further goal has a weight of its own.
        goals = [replace(goal, weight=1.0) for goal in _equal_goals(result)]
        theory = theory.model_copy(update={"x_agg": "weighted"})
    for human in reserve:
        mean = float(np.mean([goal.weight for goal in goals if goal.human == human]))
        features = (0.0,) * len(goals[0].features)
        goals.append(Goal(human=human, name=NAME, weight=weight * mean, features=features))
    achieved = np.column_stack([achieved_in(result.problem), *reserve.values()])
    knowing = solved_again(result, tuple(goals), achieved, {"theory": theory})
    action = _best_action(knowing)
    power = aggregate_power(knowing.at_start().U_r, theory.eta)
    return ReserveWeight(
        weight=weight,
        action=action,
        is_change=action != _best_action(result),
        lost=finite((power - _unaware(knowing, result)) / theory.xi),
    )


def solved_again(
    result: ExactResult,
    goals: tuple[Goal, ...],
    achieved: Bool[np.ndarray, "state goal"],
    changes: dict[str, object],
) -> ExactResult:
    """The same world, solved with other goals and parameters; states have the same numbers.

    Args:
        result: The solved world.
        goals: The goals.
        achieved: Which of them each state achieves.
        changes: Parameters that differ.
    """
    table = RowTable.of(result.graph.states)
    world = RelabelledWorld(result.world, goals, table, achieved)
    compute = result.params.compute.model_copy(
        update={"graph": "memory", "parts": None, "processes": 1}
    )
    quiet = {"keep": "all", "reduce": [], "diagnostics": [], "compute": compute}
    params: ExactParams = result.params.model_copy(update={**quiet, **changes})
    starts = result.graph.states[: len(result.start)]
    is_usual = np.array_equal(starts, result.world.initial_states().states.numpy())
    return solve(world, params, start=None if is_usual else starts)


def _equal_goals(result: ExactResult) -> list[Goal]:
    """The goals, where those of each human weigh the same.

    Raises:
        SolveError: if they do not.
    """
    spec = result.spec
    for human in spec.humans:
        weights = {spec.goals[goal].weight for goal in spec.goals_of(human)}
        if len(weights) > 1:
            raise SolveError(
                "algorithm.params.diagnostics: reserve weighs a further goal against listed ones, "
                f"and with theory.x_agg: sum those of {spec.agents[human].name} count the same but "
                f"are pursued with weights {sorted(weights)}; set x_agg: weighted, or leave "
                "reserve out"
            )
    return list(spec.goals)


def _best_action(result: ExactResult) -> str:
    names = result.spec.robot_action_names
    return names[int(np.argmax(result.at_start().pi_r))]


def _unaware(knowing: ExactResult, unaware: ExactResult) -> float:
    """P at the start with all goals, if robots act as they do who do not know of one of them."""
    problem, theory = knowing.problem, knowing.params.theory
    achieved, spec = achieved_in(problem), knowing.spec
    guarded = [Guarded(spec, achieved, human, "others", math.inf) for human in spec.humans]
    sweep = Sweep(problem, layers_of(knowing, robots=unaware))
    capabilities = sweep.at(guarded, np.arange(len(knowing.start)))
    powers = []
    for human, capability in zip(spec.humans, capabilities, strict=True):
        weight = np.array([spec.goals[goal].weight for goal in spec.goals_of(human)])
        powers.append((capability**theory.zeta) @ weight)
    counted = problem.theory.is_counted > 0
    with np.errstate(divide="ignore"):
        lack = (np.stack(powers, axis=1)[:, counted] ** -theory.xi).sum(1)
    if theory.u_agg == "mean":
        lack = lack / counted.sum()
    return aggregate_power(-float(knowing.start @ lack**theory.eta), theory.eta)
