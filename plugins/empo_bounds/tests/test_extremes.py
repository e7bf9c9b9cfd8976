"""Bounds hold where chances underflow, powers overflow, and probabilities sum to a bit over 1."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from random_games import Table, TableWorld
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.effort import Effort
from empo_bounds.question import Question
from empo_bounds.recorded import Recorded
from empo_bounds.rounds import Certification, certify
from empo_bounds.second_opinion import ExpandedWorld, reference_bounds
from empo_core.protocols import Tracker
from empo_theory.parameters import TheoryParams


class Constant:
    """Robots or humans who act alike in all states."""

    def __init__(self, policy: list[float] | list[list[float]]) -> None:
        self._policy = torch.tensor(policy, dtype=torch.float64)

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._policy.expand(len(states), *self._policy.shape)


def certified(
    table: Table,
    robots: Constant,
    humans: Constant,
    theory: TheoryParams,
    epsilon: float = 0.0,
    assumed: Assumptions = Assumptions(),  # noqa: B008
) -> Certification:
    question = Question(TableWorld(table), robots, humans, theory)
    return certify(question, assumed, Effort(epsilon), Tracker())


def dies_together(chance: float, humans: int) -> Certification:
    """A game that ends all power where all agents act 1, which each does with a small chance."""
    roles = (*["human"] * humans, "robot")
    profiles = list(itertools.product((0, 1), repeat=len(roles)))
    lives = {profile: ((1.0, int(all(profile)), 1.0),) for profile in profiles}
    dead = dict.fromkeys(profiles, ((1.0, 1, 1.0),))
    goals = tuple((human, 1.0, frozenset([0])) for human in range(humans))
    table = Table(roles, (2,) * len(roles), (lives, dead), goals, (0, 1), 3)
    own = [[1 - chance, chance]] * humans
    return certified(table, Constant([1 - chance, chance]), Constant(own), TheoryParams())


@pytest.mark.parametrize("humans", [1, 2])
@pytest.mark.parametrize("chance", [1e-100, 1e-160, 1e-170])
def test_what_may_happen_with_a_chance_that_underflows_is_not_forgotten(
    chance: float, humans: int
) -> None:
    found = dies_together(chance, humans)
    assert len(found.unrolled.states.rows) == 2
    start = found.rounds[-1].start
    assert start.loss.high[0] == math.inf
    assert 0 < start.loss.low[0] < math.inf
    recorded = Recorded(found.unrolled.question, arrays_of(found), Assumptions(), is_timed=False)
    *_, (_, plain) = reference_bounds(recorded, ExpandedWorld(recorded), lambda done, of: None)
    assert plain.loss.high[0] == math.inf


def test_a_weight_times_a_chance_that_underflows_is_still_possible() -> None:
    profiles = ((0,), (1,))
    lives = {(action,): ((1.0, action, 1.0),) for (action,) in profiles}
    dead = dict.fromkeys(profiles, ((1.0, 1, 1.0),))
    goals = ((0, 1.0, frozenset([0])), (0, 1e-200, frozenset([0])))
    table = Table(("human",), (2,), (lives, dead), goals, (0, 1), 3)
    humans = Constant([[1.0, 0.0], [1.0, 1e-170]])
    start = certified(table, Constant([1.0]), humans, TheoryParams()).rounds[-1].start
    assert start.loss.high[0] == math.inf


@pytest.mark.parametrize(
    ("power", "xi", "eta"), [(1e-160, 2.0, 0.5), (1e-200, 2.0, 4.0), (1e200, 2.0, 0.1)]
)
def test_powers_that_overflow_or_underflow_on_the_way_are_bounded(
    power: float, xi: float, eta: float
) -> None:
    table = Table(("human",), (1,), ({(0,): ((1.0, 1, 1.0),)}, {}), ((0, power, {1}),), (0, 1), 1)  # type: ignore[arg-type]
    theory = TheoryParams(xi=xi, eta=eta, x_agg="weighted")
    lack = certified(table, Constant([1.0]), Constant([[1.0]]), theory).rounds[-1].start.lack
    right = (mpmath.mpf(power) ** -xi) ** eta
    assert lack.low[0] <= right <= lack.high[0]


def loop(chance: float) -> Table:
    """A game without a horizon; in one state, which is hardly ever met, episodes stay for ever."""
    start = {(0,): ((0.99, 2, 1.0), (0.01, 1, 1.0))}
    goal = (0, 1.0, frozenset([0, 1, 2]))
    return Table(
        ("human",), (1,), (start, {(0,): ((chance, 1, 1.0),)}, {}), (goal,), (0, 1, 2), None
    )


@pytest.mark.parametrize("gamma", [0.9, 1 - 1e-8, 1 - 1e-9])
def test_without_a_horizon_probabilities_beyond_1_add_up(gamma: float) -> None:
    surplus = 9e-10
    theory = TheoryParams(gamma_r=gamma, gamma_h=0.9)
    always = Constant([1.0]), Constant([[1.0]])
    found = certified(loop(1 + surplus), *always, theory, 0.5, Assumptions(0.999))
    loss = found.rounds[-1].start.loss
    with mpmath.workdps(40):
        step = 1 + mpmath.mpf(surplus)
        for_ever = 1 / step / (1 - mpmath.mpf(gamma) * step)
        right = 1 + mpmath.mpf(gamma) * (mpmath.mpf("0.01") * for_ever)
    assert loss.low[0] <= right <= loss.high[0]


def test_a_bound_without_a_horizon_is_infinite_where_probabilities_could_add_up() -> None:
    theory = TheoryParams(gamma_r=1 - 1e-9, gamma_h=0.9)
    always = Constant([1.0]), Constant([[1.0]])
    found = certified(loop(1.0), *always, theory, 0.5, Assumptions(0.999))
    assert np.isinf(found.rounds[-1].start.loss.high[0])
