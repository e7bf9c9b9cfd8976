"""Terminal states that attract robots: V_r is about 0 there, and negative everywhere else."""

from __future__ import annotations

import numpy as np
import torch

from empo_core.equations import reward_weight, robot_reward
from empo_core.protocols import WorldModel
from empo_core.theory import CompleteTheory
from empo_exact.graph import StateGraph
from empo_exact.solution import Solution


def first_terminal(graph: StateGraph) -> int | None:
    """The number of the terminal state that the fewest steps lead to; None: there is none."""
    ended = np.flatnonzero(~graph.alive[: graph.num_expanded])
    return int(ended[0]) if len(ended) else None


def warning_before(world: WorldModel, graph: StateGraph, theory: CompleteTheory) -> str | None:
    """A warning where a terminal state is better than any other can be, whatever is done.

    V_r is at most U_r, and no human attains a goal with more than certainty.
    """
    spec, number = graph.spec, first_terminal(graph)
    if number is None:
        return None
    is_weighted = theory.x_agg == "weighted"
    powers = [
        sum(spec.goals[goal].weight if is_weighted else 1.0 for goal in spec.goals_of(human))
        for human in spec.humans
    ]
    reward = robot_reward(
        torch.tensor(powers, dtype=torch.float64), theory.xi, theory.eta, theory.u_agg
    )
    discount = -float(np.log(theory.gamma_r))
    shortest = float(graph.duration.min(initial=1.0))
    best = float(reward) * reward_weight(discount, shortest, theory.accrual)
    return _warning(world, graph, number, theory.terminal_value, best)


def warning_after(solution: Solution) -> str | None:
    """A warning where a terminal state is better than all others that are reached as soon."""
    graph, number = solution.graph, first_terminal(solution.graph)
    if number is None:
        return None
    soonest = 0
    if solution.horizon is not None:
        soonest = int(np.searchsorted(graph.layers, number, side="right"))
    time = min(solution.times, key=lambda kept: abs(kept - soonest))
    values = solution.store.at(time).v_r
    others = values[graph.alive[: len(values)]]
    best = float(others[np.isfinite(others)].max(initial=-np.inf))
    value = solution.problem.theory.terminal_value
    return _warning(solution.problem.world, graph, number, value, best)


def _warning(
    world: WorldModel, graph: StateGraph, number: int, value: float, best: float
) -> str | None:
    if value <= best:
        return None
    state = world.describe(torch.from_numpy(graph.states[number].copy()))
    return (
        f"A terminal state is better than every other state: its V_r is {value:.3g} "
        f"(theory.terminal_value), that of all others at most {best:.3g}. Robots are drawn there, "
        "even where humans lose everything. If that is not meant, let the state go on to itself, "
        "with a goal of small weight that the human still attains there; or, with gamma_r < 1 or "
        "without a horizon, lower theory.terminal_value. See docs/explanation/conventions.md. The "
        "state is:\n" + state
    )
