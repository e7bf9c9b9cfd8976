"""Pictures of a solved world: the start with its policy and heat map, and a rollout."""

from __future__ import annotations

from pathlib import Path

import torch

from empo_core.pictures import write_gif, write_png
from empo_core.protocols import Drawable
from empo_core.types import Overlay
from empo_exact.rollout import play
from empo_exact.solution import Solution

FRAMES_PER_SECOND = 2


def draw(solution: Solution, directory: Path, *, rollouts: int, seed: int) -> list[Path]:
    """Write ``start.png`` and ``rollout_<i>.gif`` where the world can draw itself."""
    world = solution.problem.world
    if not isinstance(world, Drawable):
        return []
    files = []
    for human in solution.spec.humans:
        only = len(solution.spec.humans) == 1
        file = directory / ("start.png" if only else f"start_human_{human}.png")
        write_png(world.render(world.initial_state(), overlay(solution, 0, 0, human)), file)
        files.append(file)
    generator = torch.Generator().manual_seed(seed)
    for number in range(rollouts if _has_all_times(solution) else 0):
        frames = []
        for time, (state, _) in enumerate(play(solution, generator, {})):
            row = torch.from_numpy(solution.graph.states[state].copy())
            frames.append(world.render(row, overlay(solution, state, time, None)))
        files.append(directory / f"rollout_{number}.gif")
        write_gif(frames, files[-1], FRAMES_PER_SECOND)
    return files


def overlay(solution: Solution, state: int, time: int, human: int | None) -> Overlay:
    """The robots' policy and a human's attainable goals at a state."""
    values = solution.at(state, time)
    policies, spec = {}, solution.spec
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


def _has_all_times(solution: Solution) -> bool:
    """The values of all times were kept, which a rollout needs."""
    return solution.horizon is None or len(solution.times) == solution.horizon
