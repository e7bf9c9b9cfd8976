"""The compiled induction and the reference solver agree, on random games of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from random_policies import PreciseValues, least_power, question_of, random_game

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.effort import Effort
from empo_bounds.induction import PairBounds
from empo_bounds.recorded import Recorded
from empo_bounds.rounds import Certification, certify
from empo_bounds.second_opinion import ExpandedWorld, reference_bounds
from empo_core.protocols import Tracker


def by_reference(outcome: Certification) -> dict[int, PairBounds]:
    """Bounds of the pairs of each time."""
    arrays, unrolled = arrays_of(outcome), outcome.unrolled
    recorded = Recorded(unrolled.question, arrays, outcome.assumed, unrolled.is_timed)
    recorded.require_sense()
    world = ExpandedWorld(recorded)
    times = dict(reference_bounds(recorded, world, lambda done, of: None))
    assert world.num_transitions == unrolled.transitions
    assert world.outside() == pytest.approx(outcome.rounds[-1].outside, rel=1e-9, abs=1e-15)
    return times


@pytest.mark.parametrize("epsilon", [0.2, 0.0])
@pytest.mark.parametrize("seed", range(300, 306))
def test_bounds_are_those_of_the_reference(seed: int, epsilon: float) -> None:
    question = question_of(random_game(seed), seed)
    assumed = Assumptions(least_power(question) if seed % 2 else None)
    outcome = certify(question, assumed, Effort(epsilon), Tracker())
    times = by_reference(outcome)
    for time, fast in enumerate(outcome.induced.times):
        for name in ("x_h", "lack", "loss"):
            for mine, right in zip(getattr(fast, name), getattr(times[time], name), strict=True):
                np.testing.assert_allclose(mine, right, rtol=1e-11)
    for mine, right in zip(outcome.induced.start.v_e, times[0].v_e, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-11, atol=1e-15)


def test_without_outward_rounding_some_values_would_be_outside() -> None:
    """The reference, which does not round outwards, is no proof."""
    missed = 0
    for seed in range(300, 312):
        question = question_of(random_game(seed), seed)
        outcome = certify(question, Assumptions(), Effort(0.0), Tracker())
        low, high = (side[0] for side in by_reference(outcome)[0].v_e)
        right = PreciseValues(question).at(0, 0).v_e
        for column, goal in enumerate(question.order.tolist()):
            missed += not low[column] <= right[goal] <= high[column]
    assert missed > 2
