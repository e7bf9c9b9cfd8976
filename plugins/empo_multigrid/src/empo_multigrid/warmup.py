"""Kernels compiled before they are used."""

from __future__ import annotations

import torch

from empo_multigrid.heuristic import PathHeuristic
from empo_multigrid.paths import can_forward
from empo_multigrid.plugin import MultigridParams, PathHeuristicParams
from empo_multigrid.world import load_world


def compile_kernels() -> None:
    """Compile the transition law, the drawing of successors, features, and paths."""
    world = load_world(MultigridParams(file=MultigridParams.library / "trivial.yaml"))
    states = world.initial_state()[None]
    actions = torch.zeros(1, len(world.spec.agents), dtype=torch.int64)
    world.expand(states)
    world.transitions(states, actions)
    after = world.step(states, actions, torch.Generator())
    features = world.spec.features
    assert features is not None
    features.update(features(states).flat()[:, None].numpy(), states, after)
    PathHeuristic(PathHeuristicParams(), world).policy(states, torch.ones(1, dtype=torch.int64))
    can_forward(world.layout, states.numpy(), 0)
