"""Certified intervals contain the values of policies in random games, rounding errors included."""

from __future__ import annotations

import numpy as np
import pytest
from random_policies import PreciseValues, least_power, question_of, random_game

from empo_bounds.assumptions import Assumptions, Proved
from empo_bounds.induction import Induced, induce
from empo_bounds.occupancy import deepen
from empo_bounds.question import Question
from empo_bounds.unrolled import Unrolled

QUICK, ALL = range(16), range(300)
LEVELS = (0.3, 0.03, 0.0)


def certified(question: Question, assumed: Assumptions) -> list[tuple[Unrolled, Induced]]:
    """Outcomes of deeper and deeper expansions."""
    unrolled, found = Unrolled(question), []
    for epsilon in LEVELS:
        deepen(unrolled, epsilon, lambda: True, lambda time: None)
        found.append((unrolled, induce(unrolled, assumed, keep=True)))
        inside(unrolled, found[-1][1])
    return found


def inside(unrolled: Unrolled, induced: Induced) -> None:
    """Fail unless the right values lie in the intervals, at the start and in every pair."""
    question = unrolled.question
    right = PreciseValues(question)
    start = right.at(0, 0)
    for column, goal in enumerate(question.order.tolist()):
        v_e = induced.start.v_e
        assert v_e.low[0, column] <= start.v_e[goal] <= v_e.high[0, column]
    for time, bounds in enumerate(induced.times):
        for pair, state in enumerate(unrolled.state(time).tolist()):
            row = unrolled.states.rows[state].tolist()
            values = right.at(question.world.number(row), time)  # type: ignore[attr-defined]
            assert bounds.loss.low[pair] <= -values.v_r <= bounds.loss.high[pair]
            if values.x_h is None or values.u_r is None:
                continue
            assert bounds.lack.low[pair] <= -values.u_r <= bounds.lack.high[pair]
            for human, power in enumerate(values.x_h):
                assert bounds.x_h.low[pair, human] <= power <= bounds.x_h.high[pair, human]


def check(seed: int) -> None:
    table = random_game(seed)
    question = question_of(table, seed, is_stationary=seed % 3 == 0)
    never_ends = table.horizon is not None and all(table.outcomes)
    assumed = Assumptions(least_power(question) if seed % 4 else None, never_ends)
    outcomes = certified(question, assumed)
    for _, found in outcomes[1:]:
        assert np.isfinite(found.start.v_e.high).all()
    widths = [found.start.v_e.high - found.start.v_e.low for _, found in outcomes]
    losses = [found.start.loss.high - found.start.loss.low for _, found in outcomes]
    for earlier, later in [*zip(widths, widths[1:]), *zip(losses, losses[1:])]:  # noqa: B905, RUF007
        assert (later <= earlier + 1e-12 * (1 + np.nan_to_num(earlier, posinf=0))).all()
    last = outcomes[-1][1].start
    assert widths[-1].max() <= 1e-11
    assert losses[-1][0] <= 1e-11 * last.loss.high[0] + 1e-200


@pytest.mark.parametrize("seed", QUICK)
def test_values_of_random_policies_lie_in_their_intervals(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ALL[len(QUICK) :])
def test_values_of_many_more_random_policies_lie_in_their_intervals(seed: int) -> None:
    check(seed)


def caught(monkeypatch: pytest.MonkeyPatch, assumed: Assumptions, untested: str) -> int:
    """In how many games a wrong claim that is not tested leads to wrong intervals."""
    monkeypatch.setattr(f"empo_bounds.induction.{untested}", lambda *_: Proved(0, 0))
    wrong = 0
    for seed in range(25):
        question = question_of(random_game(seed), seed)
        unrolled, right = Unrolled(question), PreciseValues(question).at(0, 0)
        deepen(unrolled, 0.3, lambda: True, lambda time: None)
        loss = induce(unrolled, assumed).start.loss
        wrong += not loss.low[0] <= -right.v_r <= loss.high[0]
    return wrong


def test_forgotten_early_ends_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(monkeypatch, Assumptions(1e-3, never_ends_early=True), "refuse_early_ends") > 0


def test_a_claim_of_too_much_power_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert caught(monkeypatch, Assumptions(3.0), "proved_pairs") > 0
