"""A street with walls at both ends, and behaviours that need no values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from empo_core.protocols import Weights, WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_phase2.experience import States, Transitions
from empo_phase2.params import Phase2Params, Values, WarmUp
from empo_phase2.warmup import WarmUpSchedule

WALK = ("still", "left", "right", "forward")


class Street(WorldModel):
    """Walkers on five cells, who pass each other; a row is ``(cell, heading)`` of each.

    Heading 0 is east, 2 is west. Only who heads along the street can go forward, and only up
    to its ends. Everything is certain, and everything is always available.
    """

    def __init__(self, robots: int = 1, horizon: int | None = 6) -> None:
        agents = (
            AgentSpec(name="human", role="human", actions=WALK),
            *[AgentSpec(name=f"robot {i}", role="robot", actions=WALK) for i in range(robots)],
        )
        self.spec = WorldSpec(
            name="street",
            agents=agents,
            goals=tuple(Goal(human=0, name=str(cell), weight=1.0 + cell) for cell in (0, 2, 4)),
            state_words=2 * len(agents),
            state_dtype=torch.int16,
            horizon=horizon,
        )
        joint = torch.arange(self.spec.num_joint_actions)[:, None]
        self._joint = joint // torch.tensor(self.spec.strides) % len(WALK)

    def initial_state(self) -> Tensor:
        return torch.tensor([2, 0] * len(self.spec.agents), dtype=torch.int16)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            actions = self._joint.repeat(len(states), 1)
            states = states.repeat_interleave(len(self._joint), 0)
        cell, heading = states[:, ::2], states[:, 1::2].long()
        goes = torch.tensor([1, 0, -1, 0])[heading] * (actions == WALK.index("forward"))
        turns = torch.tensor([0, 3, 1, 0])[actions]
        parts = ((cell + goes).clamp(0, 4), (heading + turns) % 4)
        rows = torch.stack(parts, 2).flatten(1).to(torch.int16)
        count = len(rows)
        return Successors(torch.arange(count + 1), rows, torch.ones(count, dtype=torch.float64))

    def available(self, states: Tensor) -> Tensor:
        return torch.ones(len(states), len(self.spec.agents), len(WALK), dtype=torch.bool)

    def achieved(self, states: Tensor) -> Tensor:
        return states[:, :1] == torch.tensor([0, 2, 4])

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return self.transitions(states, actions).states

    def describe(self, state: Tensor) -> str:
        return str(state.tolist())


class Even:
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
