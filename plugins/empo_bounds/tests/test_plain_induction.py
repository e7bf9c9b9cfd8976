"""The compiled induction and the plain one agree, on random games of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from random_policies import least_power, question_of, random_game

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.effort import Effort
from empo_bounds.plain_induction import plain_bounds
from empo_bounds.recorded import Recorded
from empo_bounds.rounds import Certification, certify
from empo_core.protocols import Tracker


def recorded_of(outcome: Certification, assumed: Assumptions) -> Recorded:
    return Recorded(
        outcome.unrolled.question,
        arrays_of(outcome),
        assumed.min_power,
        assumed.never_ends_early,
        outcome.unrolled.is_timed,
    )


@pytest.mark.parametrize("epsilon", [0.2, 0.0])
@pytest.mark.parametrize("seed", range(300, 305))
def test_both_inductions_give_the_same_bounds(seed: int, epsilon: float) -> None:
    question = question_of(random_game(seed), seed)
    assumed = Assumptions(least_power(question) if seed % 2 else None)
    found = certify(question, assumed, Effort(epsilon), Tracker())
    recorded = recorded_of(found, found.assumed)
    times = dict(plain_bounds(recorded, lambda done, of: None))
    for time, fast in enumerate(found.induced.times):
        for pair, plain in enumerate(times[time]):
            for side in range(2):
                assert fast.loss[side][pair] == pytest.approx(plain.loss[side], rel=1e-11)
                assert fast.lack[side][pair] == pytest.approx(plain.lack[side], rel=1e-11)
                np.testing.assert_allclose(fast.x_h[side][pair], plain.x_h[side], rtol=1e-11)
    first = times[0][0]
    for side, bound in enumerate(found.induced.start.v_e):
        np.testing.assert_allclose(bound[0], first.v_e[side], rtol=1e-11, atol=1e-15)


def test_without_outward_rounding_some_values_would_be_outside() -> None:
    """The plain induction, which does not round outwards, is no proof."""
    from random_policies import PreciseValues

    missed = 0
    for seed in range(300, 312):
        question = question_of(random_game(seed), seed)
        found = certify(question, Assumptions(), Effort(0.0), Tracker())
        recorded = recorded_of(found, found.assumed)
        *_, (_, start) = plain_bounds(recorded, lambda done, of: None)
        low, high = start[0].v_e
        right = PreciseValues(question).at(0, 0).v_e
        for column, goal in enumerate(question.order.tolist()):
            missed += not low[column] <= right[goal] <= high[column]
    assert missed > 2
