"""Learning rate schedules."""

from __future__ import annotations

import math

from empo_rollout.optimiser import learning_rate


def test_the_learning_rate_falls_over_the_run() -> None:
    for schedule, half in (("constant", 2.0), ("linear", 1.0), ("cosine", 1.0)):
        assert learning_rate(2.0, schedule, 0.0) == 2.0
        assert math.isclose(learning_rate(2.0, schedule, 0.5), half)
    assert learning_rate(2.0, "constant", 1.0) == 2.0
    assert math.isclose(learning_rate(2.0, "linear", 0.25), 1.5)
    assert math.isclose(learning_rate(2.0, "cosine", 0.25), 1 + math.sqrt(0.5))
    for schedule in ("linear", "cosine"):
        assert learning_rate(2.0, schedule, 1.0) == 0.0
        assert learning_rate(2.0, schedule, 1.2) == 0.0  # The last rollout may go past the end.


def test_the_learning_rate_warms_up_over_its_first_steps() -> None:
    rates = [learning_rate(1.0, "constant", 0.0, step=step, warm_up=4) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert learning_rate(1.0, "linear", 0.5, step=1, warm_up=4) == 0.25
