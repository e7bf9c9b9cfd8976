"""Worlds without a horizon: discounted occupancy ends the expansion, and bounds the widths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_games import Table
from random_policies import EndlessValues, PreciseValues, question_of, random_game

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.effort import Effort
from empo_bounds.question import Question
from empo_bounds.recorded import Recorded
from empo_bounds.rounds import Certification, certify
from empo_bounds.second_opinion import ExpandedWorld
from empo_core.protocols import Tracker
from empo_theory.parameters import TheoryParams

LEVELS = (0.1, 1e-3, 1e-5)
QUICK, ALL = range(400, 403), range(400, 500)


def endless(seed: int) -> Question:
    """A game that may go round in circles for ever, for policies that do not ask for the time."""
    table = replace(random_game(seed), horizon=None)
    gammas = {"gamma_h": (0.8, 0.5)[seed % 2], "gamma_r": (0.8, 0.7, 0.5)[seed % 3]}
    asked = question_of(table, seed, is_stationary=True)
    return replace(asked, theory=asked.theory.model_copy(update=gammas))


def certified(question: Question, epsilon: float, **assumptions: Any) -> Certification:
    return certify(question, Assumptions(**assumptions), Effort(epsilon), Tracker())


def check(seed: int) -> bool:
    """Fail unless intervals contain the right values and shrink; True if V_r has both bounds."""
    asked = endless(seed)
    if not asked.world.table.outcomes[0]:  # type: ignore[attr-defined]
        return False
    right, widths, losses = EndlessValues(asked), [], []
    for epsilon in LEVELS:
        found = certified(asked, epsilon)
        start = found.rounds[-1].start
        assert start.loss.low[0] <= -right.v_r[0] <= start.loss.high[0]
        for column, goal in enumerate(asked.order.tolist()):
            assert start.v_e.low[0, column] <= right.v_e[0][goal] <= start.v_e.high[0, column]
        widths.append((start.v_e.high - start.v_e.low).max())
        losses.append((start.loss.high - start.loss.low)[0] / start.loss.low[0])
    assert widths == sorted(widths, reverse=True)
    assert losses == sorted(losses, reverse=True)
    assert widths[-1] <= 1e-3
    if np.isfinite(losses[-1]):
        assert losses[-1] <= 1e-2
    return bool(np.isfinite(losses[-1]))


def test_intervals_contain_the_right_values_and_shrink_with_epsilon() -> None:
    assert sum(check(seed) for seed in QUICK) > 1


@pytest.mark.slow
def test_intervals_of_many_more_games_contain_the_right_values() -> None:
    assert sum(check(seed) for seed in ALL[len(QUICK) :]) > 30


def test_both_ways_to_solve_games_that_end_by_themselves_agree() -> None:
    """What these tests compare with is right where both know the answer."""
    for seed in (seed for seed in range(20) if random_game(seed).horizon is None):
        asked = endless(seed)
        if not asked.world.table.outcomes[0]:  # type: ignore[attr-defined]
            continue
        one, other = EndlessValues(asked), PreciseValues(asked).at(0, 0)
        assert float(one.v_r[0]) == pytest.approx(float(other.v_r), rel=1e-14)
        for own, value in zip(one.v_e[0], other.v_e, strict=True):
            assert float(own) == pytest.approx(float(value), rel=1e-14)


STAYS = Table(
    ("human",), (1,), ({(0,): ((1.0, 0, 1.0),)},), ((0, 1.0, frozenset([0])),), (3,), None
)


def stays(gamma: float) -> Question:
    """A human stays for ever where it wants to be; all powers are 1."""
    theory = TheoryParams(gamma_h=gamma, gamma_r=gamma)
    return replace(question_of(STAYS, 1), theory=theory, accrual="discrete")


@pytest.mark.parametrize("gamma", [0.9, 0.95])
def test_discounted_occupancy_ends_what_never_ends(gamma: float) -> None:
    found = certified(stays(gamma), 1e-4)
    steps = int(np.ceil(np.log(1e-4) / np.log(gamma)))
    assert found.rounds[-1].pairs == steps
    assert "no pair with an occupancy of 0.0001" in found.ended
    # All that is outside is the last pair, discounted.
    assert found.rounds[-1].outside == pytest.approx(gamma**steps)
    loss = found.rounds[-1].start.loss
    assert loss.low[0] <= 1 / (1 - gamma) <= loss.high[0]
    # Its share of the interval that is known without expanding.
    vacuous = found.vacuous.loss
    width = (vacuous.high - vacuous.low)[0] * gamma**steps
    assert loss.high[0] - loss.low[0] == pytest.approx(width, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gamma", "epsilon"), [(1.0, 1e-2), pytest.param(0.9, 0.0, marks=pytest.mark.slow)]
)
def test_without_discount_or_limit_it_ends_after_many_steps_and_says_so(
    gamma: float, epsilon: float
) -> None:
    found = certified(stays(gamma), epsilon)
    assert found.rounds[-1].pairs == 1000
    assert found.ended == "1,000 steps were followed, and episodes may go on for ever"
    v_e = found.rounds[-1].start.v_e
    assert v_e.low[0, 0] == pytest.approx(1.0)


def test_the_discounted_occupancy_is_worked_out_again() -> None:
    asked = endless(QUICK[0])
    found = certified(asked, 0.01)
    recorded = Recorded(asked, arrays_of(found), found.assumed, found.unrolled.is_timed)
    outside = ExpandedWorld(recorded).outside()
    assert 0 < outside == pytest.approx(found.rounds[-1].outside, rel=1e-9)
