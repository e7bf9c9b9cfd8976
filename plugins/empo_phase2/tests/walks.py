"""Behaviours that need no values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from empo_core.protocols import Weights, WorldModel
from empo_phase2.behaviour import RobotBehaviour
from empo_phase2.experience import States, Transitions
from empo_phase2.params import Phase2Params, Values, WarmUp
from empo_phase2.warmup import WarmUpSchedule


class Even(RobotBehaviour):
    """Robots that do anything with equal chances, and say which weights they were sent."""

    def __init__(self) -> None:
        self.weights: Weights = {}

    def load(self, weights: Weights) -> None:
        self.weights = weights

    def policy(self, states: States, transitions: Transitions, beta_r: float) -> Tensor:
        available = states.available[transitions.state].float()
        return available / available.sum(1, keepdim=True)


def schedule() -> WarmUpSchedule:
    """Stages of a hundred steps; the schedule only asks whether a quantity is learned."""
    learned = Values.model_construct(q_r=True, v_h_e=True)
    stages = WarmUp(v_h_e=100, q_r=100, ramp=100)
    params = Phase2Params.model_construct(values=learned, warm_up=stages)
    return WarmUpSchedule(params)


def favours_first(world: WorldModel) -> Any:
    """Humans that prefer earlier actions, the more so the later their goal is listed."""

    class Prior:
        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            spec = world.spec
            owners = [goal.human for goal in spec.goals]
            width = max(spec.num_actions[human] for human in spec.humans)
            available = world.available(states)[:, owners, :width].double()
            order = torch.arange(width) * (1 + torch.arange(len(owners)))[:, None]
            order = order / steps_left.double()[:, None, None]
            chances = available * (-0.3 * order).exp()
            return chances / chances.sum(-1, keepdim=True)

    return Prior()
