"""Terminal states that attract robots: V_r is about 0 there, and negative everywhere else."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Shaped

from empo_core.protocols import WorldModel
from empo_exact.graph import StateGraph
from empo_exact.problem import Problem
from empo_exact.solution import Solution
from empo_exact.values import Store
from empo_theory.equations import reward_weight
from empo_theory.parameters import CompleteTheory
from empo_worlds.terminal_states import best_reward, warning_of


def first_terminal(graph: StateGraph) -> int | None:
    """The number of the terminal state that the fewest steps lead to; None: there is none."""
    ended = np.flatnonzero(~graph.alive[: graph.num_expanded])
    return int(ended[0]) if len(ended) else None


def warning_before(world: WorldModel, graph: StateGraph, theory: CompleteTheory) -> str | None:
    """A warning where the first terminal state is better than any other can be.

    V_r is at most U_r, and no human attains a goal with more than certainty.
    """
    number = first_terminal(graph)
    if number is None:
        return None
    return warning_at(world, graph.states[number], float(graph.duration.min(initial=1.0)), theory)


def warning_at(
    world: WorldModel,
    terminal: Shaped[np.ndarray, " word"],
    shortest: float,
    theory: CompleteTheory,
) -> str | None:
    """A warning where this terminal state is better than any other can be, whatever is done.

    Args:
        world: The world.
        terminal: The row of the state.
        shortest: The least duration of any transition.
        theory: The theory.
    """
    discount = -float(np.log(theory.gamma_r))
    best = best_reward(world, theory) * reward_weight(discount, shortest, theory.accrual)
    return warning_of(world, torch.from_numpy(terminal), theory.terminal_value, best)


def warning_after(solution: Solution) -> str | None:
    """A warning where a terminal state is better than all others that are reached as soon."""
    return terminal_warning(solution.problem, solution.store)


def terminal_warning(problem: Problem, store: Store) -> str | None:
    """The same of the values of a problem."""
    graph, number = problem.graph, first_terminal(problem.graph)
    if number is None:
        return None
    soonest = 0
    if problem.horizon is not None:
        soonest = int(np.searchsorted(graph.layers, number, side="right"))
    time = min(store.times, key=lambda stored: abs(stored - soonest))
    values = store.at(time).v_r
    others = values[graph.alive[: len(values)]]
    best = float(others[np.isfinite(others)].max(initial=-np.inf))
    value = problem.theory.terminal_value
    return warning_of(problem.world, torch.from_numpy(graph.states[number]), value, best)
