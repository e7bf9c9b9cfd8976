"""A world that is too large to be solved: every goal of the household is bounded."""

from __future__ import annotations

import time

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.effort import Effort
from empo_bounds.question import Question
from empo_bounds.rounds import certify
from empo_core.components import build
from empo_core.config import HumanPriorRef, WorldModelRef
from empo_core.protocols import Tracker
from empo_theory.parameters import TheoryParams


class StandStill:
    """Robots that stand still, whatever happens."""

    is_stationary = True

    def __init__(self, actions: int) -> None:
        self._actions = actions

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        chances = torch.zeros(len(states), self._actions, dtype=torch.float64)
        chances[:, 0] = 1.0
        return chances


@pytest.mark.slow
def test_every_goal_of_the_household_is_bounded() -> None:
    world = build(WorldModelRef.model_validate("multigrid/household"))
    assert world.spec.horizon == 100
    humans = build(HumanPriorRef.model_validate("path-heuristic"), world)
    robots = StandStill(world.spec.num_robot_actions)
    question = Question(world, robots, humans, TheoryParams(gamma_h=0.95, gamma_r=0.95))
    begun = time.process_time()
    found = certify(question, Assumptions(), Effort(1e-6, minutes=15), Tracker())
    assert time.process_time() - begun < 300
    assert psutil.Process().memory_info().rss < 4 * 2**30
    v_e = found.rounds[-1].start.v_e
    widths = v_e.high - v_e.low
    assert widths.shape == (1, 20)
    assert np.median(widths) <= 0.1
    assert widths.max() < 0.11
