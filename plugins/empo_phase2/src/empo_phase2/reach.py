"""Whether anybody can reach anything: what can be found out before learning begins."""

from __future__ import annotations

import logging

import numpy as np
import torch

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.worlds.row_table import RowTable

log = logging.getLogger(__name__)

MOST_PAIRS = 500_000
"""Worlds with more (state, joint action) pairs than this are not looked through."""


def check_reach(world: WorldModel) -> None:
    """Look through a small world for goals that nobody can ever reach; warn of them.

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


def reachable_goals(world: WorldModel) -> list[bool] | None:
    """Whether each goal is achieved somewhere in reach; None where the world is too large."""
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
        after = world.transitions(rows).states
        reached |= world.achieved(after).any(0).numpy()
        table.number(after.numpy())
    return [bool(goal) for goal in reached]
