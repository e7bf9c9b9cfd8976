"""Kernels compiled before they are used."""

from __future__ import annotations

import torch

from empo_benchmarks.blocks.inference import GoalInference
from empo_benchmarks.blocks.params import (
    BlocksParams,
    GoalInferenceParams,
    SoftmaxDistanceParams,
)
from empo_benchmarks.blocks.walkers import SoftmaxDistance
from empo_benchmarks.blocks.world import load_world as load_blocks
from empo_benchmarks.overcooked.params import OvercookedParams
from empo_benchmarks.overcooked.world import load_world as load_kitchen


def compile_kernels() -> None:
    """Compile the rules of worlds, symmetries of boards, goal inference, the planner of cooks."""
    blocks, kitchen = load_blocks(BlocksParams()), load_kitchen(OvercookedParams())
    for world in (blocks, kitchen):
        states = world.initial_state()[None]
        world.transitions(states)
        world.transitions(states, torch.zeros(1, len(world.spec.agents), dtype=torch.int64))
    for symmetry in blocks.symmetries():
        symmetry.rows(blocks.initial_state()[None])
    tiny = load_blocks(BlocksParams(size=2, boxes=1))
    GoalInference(GoalInferenceParams(), tiny, SoftmaxDistance(SoftmaxDistanceParams(), tiny))
    kitchen.goal_actions(kitchen.initial_state()[None])
