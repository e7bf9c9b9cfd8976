"""Exact values beside learned ones."""

from __future__ import annotations

import numpy as np
import torch

from empo_core.errors import ConfigError
from empo_inspector.decision import OneStep
from empo_theory.inspection import Inspection, all_times
from empo_theory.parameters import TheoryParams
from empo_worlds.row_table import RowTable

MOST_COMPARED = 200
"""States at each time in which humans' policies are compared."""
SAME_POLICY = 1e-3
"""Difference of humans' probabilities above which two runs are about different humans."""


def compared(learned: Inspection, exact: Inspection) -> Inspection:
    """An inspection of learned values with those of a solved run beside them.

    Raises:
        ConfigError: if the run is learned itself, or about another problem.
    """
    _check_same(learned, exact)
    v_r, v_e = all_times(exact.v_r), all_times(exact.v_e)
    time, state = np.nonzero(~np.isnan(v_r))
    left = (exact.spec.horizon or 1) - exact.first_time - time
    place = RowTable.of(learned.rows).find(exact.rows[state])
    return learned.with_right_values(place, left, v_r[time, state], v_e[time, state])


def _check_same(learned: Inspection, exact: Inspection) -> None:
    if learned.q_r is None:
        raise ConfigError("--exact: is for learned runs, and this run is exact itself")
    if exact.q_r is not None:
        raise ConfigError("--exact: that run is learned, too; name one of algorithm exact")
    spec, other = learned.spec, exact.spec
    for part, mine, its in (
        ("agents", spec.agents, other.agents),
        ("goals", [(g.human, g.name, g.weight) for g in spec.goals],
         [(g.human, g.name, g.weight) for g in other.goals]),
        ("horizon", spec.horizon, other.horizon),
        ("state rows", spec.state_words, other.state_words),
    ):  # fmt: skip
        if mine != its:
            raise ConfigError(f"--exact: that run is about another world: its {part} differ")
    for symbol in (*TheoryParams.model_fields, "accrual"):
        mine, its = getattr(learned.theory, symbol), getattr(exact.theory, symbol)
        if mine != its:
            raise ConfigError(f"--exact: that run has {symbol} {its}, and this one {mine}")
    off = _difference_of_humans(learned, exact)
    if off is None:
        raise ConfigError("--exact: that run is about another world: it knows none of the states")
    if not off <= SAME_POLICY:
        raise ConfigError("--exact: humans act otherwise in that run; solve with the same humans")


def _difference_of_humans(learned: Inspection, exact: Inspection) -> float | None:
    """Largest difference of humans' probabilities in some states; None if none is common."""
    assert learned.pi_h is not None
    step, worst = OneStep(exact), list[float]()
    place = RowTable.of(exact.rows).find(learned.rows)
    for i, policies in enumerate(all_times(learned.pi_h)):
        time = learned.first_time + i
        common = np.flatnonzero((place >= 0) & ~np.isnan(policies[:, 0, 0]))[:MOST_COMPARED]
        states = torch.from_numpy(place[common].astype(np.int64))
        if len(common):
            off = step.policies(states, time).pi_h - torch.from_numpy(policies[common])
            worst.append(float(off.abs().max()))
    return max(worst, default=None)
