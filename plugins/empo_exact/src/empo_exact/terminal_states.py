"""Terminal states that attract robots: V_r is about 0 there, and negative everywhere else."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_exact.graph import StateGraph
from empo_exact.plugin import ExactParams
from empo_exact.problem import Problem
from empo_exact.solution import Solution
from empo_exact.values import Store
from empo_theory.equations import end_weight, reward_weight, robot_reward
from empo_worlds.terminal_states import best_reward, early_end_warning, warning_of


def first_terminal(graph: StateGraph) -> int | None:
    """The number of the terminal state that the fewest steps lead to; None: there is none."""
    ended = np.flatnonzero(~graph.alive[: graph.num_expanded])
    return int(ended[0]) if len(ended) else None


def warning_before(world: WorldModel, graph: StateGraph, params: ExactParams) -> str | None:
    """A warning where the first terminal state is better than any other can be.

    V_r is at most U_r, and no human attains a goal with more than certainty.
    """
    number = first_terminal(graph)
    if number is None:
        return None
    durations = float(graph.duration.min(initial=1.0)), float(graph.duration.max(initial=1.0))
    return warning_at(world, graph.states[number], soonest(graph, number), durations, params)


def warning_at(
    world: WorldModel,
    terminal: Shaped[np.ndarray, " word"],
    time: int,
    durations: tuple[float, float],
    params: ExactParams,
) -> str | None:
    """A warning where this terminal state is better than any other can be, whatever is done.

    Args:
        world: The world.
        terminal: The row of the state.
        time: The steps that it takes to get there, at least.
        durations: The least and the greatest duration of any transition.
        params: The parameters.
    """
    theory, row = params.theory, torch.from_numpy(terminal)
    best, discount = best_reward(world, theory, params.counts), -float(np.log(theory.gamma_r))
    least = reward_weight(discount, durations[0], theory.accrual)
    if theory.counting == "arrival":
        return warning_of(world, row, theory.terminal_value, best * least)
    horizon = world.spec.horizon
    if horizon is not None and time >= horizon:
        return None
    # Who goes on counts U_r here, and once more at least.
    least += theory.gamma_r ** durations[1] * reward_weight(discount, 1.0, theory.accrual)
    value = end_weight(theory, None if horizon is None else horizon - time)
    value *= end_reward(world, row, params)
    return early_end_warning(world, row, value, best * least)


def end_reward(world: WorldModel, terminal: Tensor, params: ExactParams) -> float:
    """U_r in a terminal state, where presence counts: by the goals that it achieves."""
    spec, theory = world.spec, params.theory
    achieved = world.achieved(terminal[None])[0].tolist()
    is_weighted, names = theory.x_agg == "weighted", params.counts
    powers = [
        sum(spec.goals[g].weight if is_weighted else 1.0 for g in spec.goals_of(h) if achieved[g])
        for h in spec.humans
        if names is None or spec.agents[h].name in names
    ]
    powers_of = torch.tensor(powers, dtype=torch.float64)
    return float(robot_reward(powers_of, theory.xi, theory.eta, theory.u_agg))


def soonest(graph: StateGraph, number: int) -> int:
    """The steps that it takes to reach a state, at least."""
    return int(np.searchsorted(graph.layers, number, side="right"))


def warning_after(solution: Solution) -> str | None:
    """A warning where a terminal state is better than all others that are reached as soon."""
    return terminal_warning(solution.problem, solution.store)


def terminal_warning(problem: Problem, store: Store) -> str | None:
    """The same of the values of a problem."""
    graph, number = problem.graph, first_terminal(problem.graph)
    if number is None:
        return None
    time = 0 if problem.horizon is None else soonest(graph, number)
    time = min(store.times, key=lambda stored: abs(stored - time))
    values = store.at(time).v_r
    is_known = np.isfinite(values)
    best = float(values[graph.alive[: len(values)] & is_known].max(initial=-np.inf))
    if not problem.counts_presence:
        row = torch.from_numpy(graph.states[number])
        return warning_of(problem.world, row, problem.theory.terminal_value, best)
    ended = np.flatnonzero(~graph.alive[: len(values)] & is_known)
    if not len(ended):  # It is reached in the last step only.
        return None
    number = int(ended[values[ended].argmax()])
    row = torch.from_numpy(graph.states[number])
    return early_end_warning(problem.world, row, float(values[number]), best)


def uncovered_state(problem: Problem) -> str | None:
    """A warning where a human who counts is in none of its goals (of positive weight) somewhere."""
    graph, game, spec = problem.graph, problem.game, problem.graph.spec
    for h, human in enumerate(spec.humans):
        goals = slice(game.first_goal[h], game.last_goal[h])
        counts = game.weight[goals] > 0 if problem.theory.is_weighted else np.array([True])
        covered = ((game.achieved[: graph.num_states, goals] > 0) & counts).any(1)
        if problem.theory.is_counted[h] and not covered.all():
            row = torch.from_numpy(graph.states[int(covered.argmin())].copy())
            return (
                f"The goals of {spec.agents[human].name} (agent {human}) do not cover all states, "
                "so that with counting: presence its power may be below 0 bits, or none; add a "
                "goal of what is in no other. A state in none of them is:\n"
                f"{problem.world.describe(row)}"
            )
    return None
