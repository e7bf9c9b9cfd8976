"""Pictures of a solved world: the start with its policy and heat map, and a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from empo_core.pictures import write_gif, write_png
from empo_core.protocols import Drawable
from empo_core.types import Overlay

if TYPE_CHECKING:
    from empo_exact.result import ExactResult

FRAMES_PER_SECOND = 2


def draw(result: ExactResult, directory: Path) -> list[Path]:
    """Write ``start.png`` and ``rollout_<i>.gif`` where the world can draw itself.

    Args:
        result: What to draw.
        directory: Where to write.
    """
    world = result.problem.world
    if not isinstance(world, Drawable):
        return []
    files = []
    for human in result.spec.humans:
        only = len(result.spec.humans) == 1
        file = directory / ("start.png" if only else f"start_human_{human}.png")
        write_png(world.render(world.initial_state(), overlay(result, 0, 0, human)), file)
        files.append(file)
    generator = torch.Generator().manual_seed(result.seed)
    for number in range(result.params.num_rollouts if _plays_on(result) else 0):
        frames = []
        for time, (state, _) in enumerate(result.rollout(generator)):
            row = torch.from_numpy(result.graph.states[state].copy())
            frames.append(world.render(row, overlay(result, state, time, None)))
        files.append(directory / f"rollout_{number}.gif")
        write_gif(frames, files[-1], FRAMES_PER_SECOND)
    return files


def overlay(result: ExactResult, state: int, time: int, human: int | None) -> Overlay:
    """The robots' policy and a human's attainable goals at a state."""
    values = result.at(state, time)
    policies, spec = {}, result.spec
    grid = values.pi_r.reshape([spec.num_actions[robot] for robot in reversed(spec.robots)])
    for axis, robot in enumerate(reversed(spec.robots)):
        others = tuple(a for a in range(len(spec.robots)) if a != axis)
        policies[robot] = grid.sum(others).tolist()
    powers = ", ".join(f"{x:.3g}" for x in values.X_h.values())
    worth = "the end" if values.terminal else f"V_r = {values.V_r:.4g}   X_h = {powers}"
    return Overlay(
        goal_values=values.V_e.clip(0, 1).tolist(),
        human=human,
        policies=policies,
        caption=f"t = {time}   {worth}",
    )


def _plays_on(result: ExactResult) -> bool:
    """Whether the values of all times are at hand, which a rollout needs."""
    return result.horizon is None or len(result.times) == result.horizon
