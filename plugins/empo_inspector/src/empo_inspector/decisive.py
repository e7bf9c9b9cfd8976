"""States in which it matters most which action the robots take, or how wrong learned values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_inspector.container import Lists
from empo_inspector.decision import OneStep, Policies
from empo_inspector.why import TIE
from empo_theory.inspection import NOT_KEPT, Inspection

MOST = 50
"""States that are listed."""
NEGLIGIBLE = 1e-6
"""Chance of being in a state, below which episodes are not followed."""


class Visits(NamedTuple):
    """Where episodes are at a time.

    Attributes:
        time: The time; 0 without a horizon.
        states: States from which they go on.
        chance: Chance of being in each.
        policies: Policies there.
    """

    time: int
    states: Int[Tensor, " state"]
    chance: Float[Tensor, " state"]
    policies: Policies


def worth_a_look(inspection: Inspection, start: int) -> Lists:
    """The states where chance of being there times something else is greatest.

    Each has its position, the time, the chance, and that: the gap between the best and the
    second best Q_r divided by the best; and, of learned values, the error of V_r divided by V_r,
    or the Bellman remainder where exact values are not known. Humans act by their averages over
    goals. The chance is counted from state ``start``, at the inspection's first time.
    """
    step, gaps, errors = OneStep(inspection), list[list[float]](), list[list[float]]()
    for visits in _visits(step, start):
        gaps += _listed(visits, _gap(visits.policies))
        if inspection.q_r is not None:
            errors += _listed(visits, _error(step, visits))
    return Lists(*(_largest(entries) for entries in (gaps, errors)))


def _visits(step: OneStep, start: int) -> Iterator[Visits]:
    inspection = step.inspection
    closed = _closed(inspection)
    states, chance = torch.tensor([start]), torch.ones(1).double()
    last = inspection.spec.horizon or inspection.num_states
    for time in range(inspection.first_time, last):
        now = 0 if inspection.spec.horizon is None else time
        follows = step.alive(states, now) & closed[states] & (chance > NEGLIGIBLE)
        states, chance = states[follows], chance[follows]
        if not len(states):
            return
        policies = step.policies(states, now)
        yield Visits(now, states, chance, policies)
        mass = chance[:, None, None] * policies.pi_r[:, None]
        states, reached = step.follow(states, policies.chance, mass, discounted=False)
        chance = reached[:, 0]


def _gap(policies: Policies) -> Float[Tensor, " state"]:
    """Gap between the best and the second best Q_r, divided by the best."""
    ranked = policies.q_r.nan_to_num(nan=-torch.inf).sort(1, descending=True).values
    if ranked.shape[1] < 2:
        return torch.zeros(len(ranked)).double()
    gap = (ranked[:, 0] - ranked[:, 1]) / ranked[:, 0].abs()
    return gap.masked_fill(gap.isinf(), 0.0)  # Only one action is available.


def _error(step: OneStep, visits: Visits) -> Float[Tensor, " state"]:
    """Error of V_r, divided by V_r, or what equation (9) leaves of it."""
    inspection, place = step.inspection, visits.time - step.inspection.first_time
    learned = torch.from_numpy(inspection.v_r[place])[visits.states]
    if inspection.right is None:
        off, scale = step.bellman_remainder(visits.states, visits.time, visits.policies), learned
    else:
        scale = torch.from_numpy(inspection.right.v_r[place])[visits.states]
        off = learned - scale
    return (off / scale).abs().nan_to_num()


def _listed(visits: Visits, matters: Float[Tensor, " state"]) -> list[list[float]]:
    columns = (visits.states, visits.chance, matters)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [[float(state), float(visits.time), there, much] for state, there, much in rows]


def _largest(entries: list[list[float]]) -> list[list[float]]:
    entries.sort(key=lambda entry: -entry[2] * entry[3])
    return [entry for entry in entries[:MOST] if entry[3] > TIE]


def _closed(inspection: Inspection) -> Bool[Tensor, " state"]:
    """True for states all of whose successors are kept [state]."""
    joint = inspection.spec.num_joint_actions
    lost = np.concatenate([[0], np.cumsum(inspection.successor == NOT_KEPT)])
    bounds = lost[inspection.offsets[::joint]]
    return torch.from_numpy(np.diff(bounds) == 0)
