"""Animations of episodes, with the goal that is pursued and what everybody is about to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from empo_core.errors import ConfigError
from empo_core.pictures import write_gif
from empo_core.protocols import Drawable
from empo_core.types import Overlay, WorldSpec
from empo_core.worlds.roles import check_humans
from empo_learning.evaluation.episodes import EpisodeSampler, EpisodeStep, pursued

FRAMES_PER_SECOND = 2


def film(sampler: EpisodeSampler, directory: Path, *, episodes: int, seed: int) -> list[Path]:
    """Animations of a few episodes, the goals taking turns; where they were written.

    Raises:
        ConfigError: The world cannot draw itself.
        StorageError: They cannot be written.
    """
    world, spec = sampler.world, sampler.spec
    if not isinstance(world, Drawable):
        raise ConfigError(f"{spec.name!r} cannot draw itself; ask for --gifs 0")
    check_humans(spec)
    generator = torch.Generator().manual_seed(seed)
    asked = torch.arange(episodes) % len(spec.goals)
    reached = torch.zeros(episodes, dtype=torch.bool)
    frames: list[list[UInt8[np.ndarray, "height width 3"]]] = [[] for _ in range(episodes)]
    for step in sampler.play(pursued(spec, asked, generator), generator):
        achieved = world.achieved(step.states)
        for position, episode in enumerate(step.episode.tolist()):
            goal = int(asked[episode])
            reached[episode] |= achieved[position, goal] & (step.time > 0)
            overlay = _overlay(spec, step, position, goal, bool(reached[episode]))
            frames[episode].append(world.render(step.states[position], overlay))
    return [
        write_gif(shots, directory / f"episode_{number}.gif", FRAMES_PER_SECOND)
        for number, shots in enumerate(frames)
    ]


def _overlay(
    spec: WorldSpec, step: EpisodeStep, position: int, goal: int, is_reached: bool
) -> Overlay:
    """The goal that is pursued, what everybody is about to do, and a line about it."""
    policies: dict[int, Sequence[float]] = {}
    shape = [spec.num_actions[robot] for robot in reversed(spec.robots)]
    grid = step.robot[position].reshape(shape)
    for axis, robot in enumerate(reversed(spec.robots)):
        others = [other for other in range(len(shape)) if other != axis]
        policies[robot] = (grid.sum(others) if others else grid).tolist()
    for number, human in enumerate(spec.humans):
        policies[human] = step.humans[position, number, : spec.num_actions[human]].tolist()
    wanted = spec.goals[goal]
    word = "has reached" if is_reached else "wants"
    return Overlay(
        goal_values=[float(other == goal) for other in range(len(spec.goals))],
        human=wanted.human,
        policies=policies,
        caption=f"t = {step.time}   {spec.agents[wanted.human].name} {word} {wanted.name}",
    )
