"""Samples of the states of a world: those near its start, and those on random walks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec

WALKERS = 128
MOST_STEPS = 64
"""Steps of a walk, where episodes are longer."""
PATIENCE = 3
"""Steps without a new state after which walks end."""


def walked_states(
    world: WorldModel, max_states: int, seed: int = 0
) -> tuple[Int[Tensor, "state word"], Int[Tensor, " state"]]:
    """Distinct states on random walks from the start, and the steps after which each was met.

    Args:
        world: The world.
        max_states: No more states than this.
        seed: Seeds the walks.
    """
    generator = torch.Generator().manual_seed(seed)
    initial_states = world.initial_states()
    current = initial_states.states[initial_states.draw(WALKERS, generator)]
    steps = MOST_STEPS if world.spec.horizon is None else min(world.spec.horizon, MOST_STEPS)
    initial = torch.unique(current, dim=0)
    states, met, visited = [initial], [0] * len(initial), set(map(tuple, initial.tolist()))
    for step in range(1, steps + 1):
        available = world.available(current)
        goes_on = available.flatten(1).any(1)
        if not goes_on.any() or len(visited) >= max_states or step - met[-1] > PATIENCE:
            break
        current = current[goes_on]
        current = world.step(current, _random_actions(available[goes_on], generator), generator)
        for row in torch.unique(current, dim=0).tolist():
            if tuple(row) not in visited and len(visited) < max_states:
                visited.add(tuple(row))
                states.append(torch.tensor([row], dtype=current.dtype))
                met.append(step)
    return torch.cat(states), torch.tensor(met)


def _random_actions(
    available: Bool[Tensor, "state agent action"], generator: torch.Generator
) -> Int[Tensor, "state agent"]:
    """An available action of every agent, each as likely."""
    flat = available.flatten(0, 1).double()
    return torch.multinomial(flat, 1, generator=generator).view(available.shape[:2])


def joint_actions(spec: WorldSpec) -> Int[Tensor, "joint agent"]:
    """Every joint action, in the order of the joint index."""
    index = torch.arange(spec.num_joint_actions)
    columns = [
        index // stride % count
        for stride, count in zip(spec.strides, spec.num_actions, strict=True)
    ]
    return torch.stack(columns, dim=1)


def part_index(
    spec: WorldSpec, agents: Sequence[int], actions: Int64[np.ndarray, "joint agent"]
) -> Int64[np.ndarray, " joint"]:
    """The index of some agents' part of joint actions among all their parts, the first fastest."""
    index, stride = np.zeros(len(actions), np.int64), 1
    for agent in agents:
        index += actions[:, agent] * stride
        stride *= spec.num_actions[agent]
    return index


def action_names(spec: WorldSpec, joint: int) -> str:
    """A joint action, by its index, for people, e.g. ``human: left, robot: still``."""
    counts = zip(spec.strides, spec.num_actions, strict=True)
    return names_of(spec, [joint // stride % count for stride, count in counts])


def names_of(spec: WorldSpec, actions: Sequence[int]) -> str:
    """A joint action, one action per agent, for people."""
    return ", ".join(
        f"{agent.name}: {agent.actions[action]}"
        for agent, action in zip(spec.agents, actions, strict=True)
    )
