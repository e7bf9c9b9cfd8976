"""A least power that is proved bounds X_h in every state, and makes intervals of V_r finite."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_games import Table
from random_policies import PreciseValues, question_of, random_game
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.effort import Effort
from empo_bounds.least_power import prove
from empo_bounds.question import Question
from empo_bounds.rounds import certify
from empo_core.protocols import Tracker

QUICK, ALL = range(30), range(300)


def covered(table: Table, seed: int) -> Table:
    """The game in which each human's goals cover the states, and none of them has all."""
    rng, goals = random.Random(seed), []
    states = range(len(table.outcomes))
    for human in sorted({human for human, _, _ in table.goals}):
        parts = [rng.randrange(2) for _ in states]
        for part in (0, 1):
            members = frozenset(state for state in states if parts[state] == part)
            goals.append((human, rng.choice([0.2, 1.0, 3.0]), members))
    return replace(table, goals=tuple(goals))


def question(seed: int) -> Question:
    table = random_game(seed)
    return question_of(covered(table, seed) if seed % 2 else table, seed)


def reachable(question: Question) -> list[tuple[int, int]]:
    """States from which episodes go on, and times at which they may be met."""
    table: Table = question.world.table  # type: ignore[attr-defined]
    met, todo = set[tuple[int, int]](), [(table.start, 0)]
    while todo:
        state, time = todo.pop()
        if (state, time) in met or not table.outcomes[state] or time == table.horizon:
            continue
        met.add((state, time))
        after = 0 if table.horizon is None else time + 1
        for items in table.outcomes[state].values():
            todo += [(later, after) for p, later, _ in items if p > 0]
    return sorted(met)


def check(seed: int) -> bool:
    asked = question(seed)
    proof, right = prove(asked, lambda: True), PreciseValues(asked)
    if proof is None:
        return False
    for state, time in reachable(asked):
        powers = right.at(state, time).x_h
        assert powers is not None
        assert all(proof.min_power <= power for power in powers)
    return True


def test_a_proved_power_is_a_lower_bound_in_all_states_at_all_times() -> None:
    assert sum(check(seed) for seed in QUICK) > len(QUICK) / 2


@pytest.mark.slow
def test_a_proved_power_is_a_lower_bound_in_many_more_games() -> None:
    assert sum(check(seed) for seed in ALL[len(QUICK) :]) > 130


def test_where_it_is_proved_intervals_of_v_r_are_finite_and_contain_the_exact_value() -> None:
    num_bounded = 0
    for seed in QUICK:
        asked = question(seed)
        if prove(asked, lambda: True) is None:
            continue
        found = certify(asked, Assumptions(), Effort(0.3), Tracker())
        assert found.assumed.power_source == "proved"
        start, right = found.rounds[-1].start.loss, PreciseValues(asked).at(0, 0)
        assert start.low[0] <= -right.v_r <= start.high[0]
        if not found.unrolled.is_timed and asked.spec.horizon is not None:
            assert np.isfinite(start.high[0])
            num_bounded += found.unrolled.open_pairs > 0
    assert num_bounded > 3


Moves = Callable[[int, int, int], int]
"""The next state, by the state, the human's action and the robot's."""


@pytest.mark.parametrize(
    ("goals", "moves", "is_proved"),
    [
        (({0}, {1}), lambda state, human, robot: (state + human) % 2, True),  # It can stay.
        (({0, 1},), lambda state, human, robot: robot, True),  # All states are in its goal.
        (({0},), lambda state, human, robot: state | human, False),  # No goal holds state 1.
        (({0}, {1}), lambda state, human, robot: robot, False),  # It is pushed about.
    ],
)
def test_a_power_is_proved_where_goals_cover_the_states_and_humans_can_stay(
    goals: tuple[set[int], ...], moves: Moves, is_proved: bool
) -> None:
    profiles = list(itertools.product((0, 1), (0, 1)))
    outcomes = tuple(
        {profile: ((1.0, moves(state, *profile), 1.0),) for profile in profiles} for state in (0, 1)
    )
    listed = tuple((0, 0.5, frozenset(states)) for states in goals)
    asked = question_of(Table(("human", "robot"), (2, 2), outcomes, listed, (0, 1), 5), 7)
    everything = replace(asked, humans=Even(len(goals)))
    assert (prove(everything, lambda: True) is not None) == is_proved


class Even:
    """Humans who do everything with the same chance."""

    def __init__(self, goals: int) -> None:
        self._goals = goals

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.full((len(states), self._goals, 2), 0.5, dtype=torch.float64)


def test_a_proof_that_takes_too_long_is_given_up() -> None:
    asked = question_of(random_game(0), 0)
    assert prove(asked, lambda: True) is not None
    assert prove(asked, lambda: False) is None
