"""Terminal states that attract robots: V_r is about 0 there, and negative everywhere else."""

from __future__ import annotations

from collections.abc import Collection

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_theory.equations import robot_reward
from empo_theory.parameters import TheoryParams
from empo_worlds.contract import available_in, successors_of
from empo_worlds.row_table import RowTable

MOST_PAIRS = 50_000
"""Pairs of states and joint actions among which a terminal state is looked for."""


def best_reward(
    world: WorldModel, theory: TheoryParams, names: Collection[str] | None = None
) -> float:
    """The highest U_r that there could be: every human attains every goal with certainty.

    Args:
        world: The world.
        theory: The theory.
        names: The humans that count; None: all.
    """
    spec, is_weighted = world.spec, theory.x_agg == "weighted"
    powers = [
        sum(spec.goals[goal].weight if is_weighted else 1.0 for goal in spec.goals_of(human))
        for human in spec.humans
        if names is None or spec.agents[human].name in names
    ]
    highest = torch.tensor(powers, dtype=torch.float64)
    return float(robot_reward(highest, theory.xi, theory.eta, theory.u_agg))


def first_terminal(world: WorldModel) -> Int[Tensor, " word"] | None:
    """A terminal state near the start; None without one within ``MOST_PAIRS`` pairs."""
    start = world.initial_states().states
    table = RowTable(world.spec.state_words, start.numpy().dtype)
    table.number(start.numpy())
    num_expanded = 0
    while num_expanded < table.count and table.count * world.spec.num_joint_actions <= MOST_PAIRS:
        rows = torch.from_numpy(table.rows[num_expanded:].copy())
        num_expanded = table.count
        is_terminal = ~available_in(world, rows).any(2).all(1)
        if bool(is_terminal.any()):
            return rows[is_terminal][0]
        table.number(successors_of(world, rows).states.numpy())
    return None


def warning_of(world: WorldModel, state: Tensor, value: float, best: float) -> str | None:
    """A warning where V_r is higher in a terminal state than the best anywhere else."""
    if value <= best:
        return None
    compared = (
        f"its V_r is {value:.3g} (theory.terminal_value), that of all others at most {best:.3g}"
    )
    remedy = "; or, with gamma_r < 1 or without a horizon, lower theory.terminal_value"
    return attraction(world, state, compared, remedy)


def early_end_warning(world: WorldModel, state: Tensor, value: float, best: float) -> str | None:
    """The same where presence counts, so that it is the short life that attracts."""
    if value <= best:
        return None
    compared = (
        f"its V_r, of the steps that are counted there, is {value:.3g}, that of all others, which "
        f"go on, at most {best:.3g}"
    )
    return attraction(world, state, compared, "; or set theory.early_end: absorb")


def attraction(world: WorldModel, state: Tensor, compared: str, remedy: str = "") -> str:
    """The warning, with the comparison that shows it, and another remedy where there is one."""
    return (
        f"A terminal state is better than every other state: {compared}. Robots are drawn there, "
        "even where humans lose everything. If that is not meant, let the state go on to itself, "
        f"with a goal of small weight that the human still attains there{remedy}. See "
        f"docs/explanation/conventions.md. The state is:\n{world.describe(state.clone())}"
    )
