"""Checks of a world before learning begins: roles, goals, and which goals can be reached."""

from __future__ import annotations

import logging

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import WorldModel
from empo_core.terminal_states import best_reward, first_terminal, warning_of
from empo_core.theory import TheoryParams
from empo_core.types import WorldSpec
from empo_core.worlds.contract import achieved_in, available_in, successors_of
from empo_core.worlds.roles import check_humans
from empo_core.worlds.row_table import RowTable

log = logging.getLogger(__name__)

MOST_PAIRS = 500_000
"""Worlds with more (state, joint action) pairs than this are not searched for reachable goals."""


def check_world(spec: WorldSpec) -> None:
    """Refuse worlds in which there is nothing to learn.

    Raises:
        UnsuitableWorldError: Humans, robots or goals are missing, or an agent has no role.
    """
    if not spec.robots:
        raise UnsuitableWorldError(
            f"{spec.name!r} has no robot, so there is nothing to learn. Give an agent the role "
            "'robot' in the world."
        )
    check_humans(spec)
    for human in spec.humans:
        if not any(spec.goals[goal].weight > 0 for goal in spec.goals_of(human)):
            raise UnsuitableWorldError(
                f"{spec.agents[human].name} (agent {human}) of {spec.name!r} has goals of weight 0 "
                "only, so its power is undefined. Add goals to the world."
            )


def check_starts(world: WorldModel, starts: Int[Tensor, "layout word"]) -> None:
    """Refuse worlds that start in a terminal state.

    Raises:
        SolveError: Episodes are over when they begin.
    """
    stuck = ~available_in(world, starts).any(2).all(1)
    if bool(stuck.any()):
        raise SolveError(
            f"episodes of {world.spec.name!r} start in a terminal state, so there is nothing to "
            f"learn:\n{world.describe(starts[stuck][0])}"
        )


def check_reach(world: WorldModel) -> None:
    """Search a small world for goals that its human can never achieve; log those.

    Raises:
        SolveError: A human cannot reach any goal that counts, so its power is always 0.
    """
    spec = world.spec
    reached = reachable_goals(world)
    if reached is None:
        return
    for human in spec.humans:
        goals = [g for g in spec.goals_of(human) if spec.goals[g].weight > 0]
        never = [spec.goals[g].name for g in goals if not reached[g]]
        who = f"{spec.agents[human].name} (agent {human}) of {spec.name!r}"
        if len(never) == len(goals):
            raise SolveError(
                f"{who} cannot reach any of its goals ({', '.join(never)}), so its power is 0 and "
                "U_r infinite whatever the robots do. Add goals that it can reach."
            )
        if never:
            log.info("%s can never reach %s of its %d goals", who, ", ".join(never), len(goals))


def warning(world: WorldModel, theory: TheoryParams) -> str | None:
    """A warning of a terminal state that is better than any other can be."""
    state = first_terminal(world)
    if state is None:
        return None
    return warning_of(world, state, theory.terminal_value, best_reward(world, theory))


def reachable_goals(world: WorldModel) -> list[bool] | None:
    """True per goal that is achieved in some reachable state; None if the world is too large."""
    spec = world.spec
    start = world.initial_state()[None]
    table = RowTable(spec.state_words, start.numpy().dtype)
    table.number(start.numpy())
    reached = np.zeros(len(spec.goals), np.bool_)
    known = 0
    for _ in range(spec.horizon or MOST_PAIRS):
        rows = torch.from_numpy(table.rows[known:].copy())
        if not len(rows) or reached.all():
            break
        if table.count * spec.num_joint_actions > MOST_PAIRS:
            return None
        known = table.count
        after = successors_of(world, rows).states
        reached |= achieved_in(world, after).any(0).numpy()
        table.number(after.numpy())
    return [bool(goal) for goal in reached]
