"""Animations of episodes, with the goal that is pursued and what everybody is about to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8

from empo_core.errors import ConfigError
from empo_core.types import Overlay, WorldSpec
from empo_learning.evaluation.episodes import EpisodeSampler, EpisodeStep
from empo_pictures.pictures import EPISODE_FPS, episode_overlay, write_gif
from empo_worlds.roles import check_humans


def film(sampler: EpisodeSampler, directory: Path, *, episodes: int, seed: int) -> list[Path]:
    """Animations of a few episodes, the goals taking turns; where they were written.

    Raises:
        ConfigError: if the world cannot draw itself.
        StorageError: if the animations cannot be written.
    """
    world, spec = sampler.world, sampler.spec
    check_humans(spec)
    generator = torch.Generator().manual_seed(seed)
    goals, number = sampler.begins.goals(spec), torch.arange(episodes)
    goal_index, turn = goals[number % len(goals)], number // len(goals)
    reached = torch.zeros(episodes, dtype=torch.bool)
    frames: list[list[UInt8[np.ndarray, "height width 3"]]] = [[] for _ in range(episodes)]
    for step in sampler.play(goal_index, turn, generator):
        achieved = world.achieved(step.states)
        for position, episode in enumerate(step.episode.tolist()):
            goal = int(goal_index[episode])
            reached[episode] |= achieved[position, goal] & (step.played > 0)
            word = "has reached" if reached[episode] else "wants"
            goal_spec = spec.goals[goal]
            caption = (
                f"t = {step.time}: {spec.agents[goal_spec.human].name} {word} {goal_spec.name}"
            )
            overlay = _overlay(spec, step, position, caption)
            frame = world.render(step.states[position], overlay)
            if frame is None:
                raise ConfigError(f"{spec.name!r} cannot draw itself; ask for --gifs 0")
            frames[episode].append(frame)
    return [
        write_gif(shots, directory / f"episode_{number}.gif", EPISODE_FPS)
        for number, shots in enumerate(frames)
    ]


def _overlay(spec: WorldSpec, step: EpisodeStep, position: int, caption: str) -> Overlay:
    """The goals that are pursued, what everybody is about to do, and a line about it."""
    goal_of = dict(zip(spec.humans, step.goals[position].tolist(), strict=True))
    if not step.goes_on[position]:
        return episode_overlay(spec, goal_of, caption)
    humans = {
        human: step.humans[position, number, : spec.num_actions[human]].tolist()
        for number, human in enumerate(spec.humans)
    }
    actions = step.actions[position].tolist()
    return episode_overlay(spec, goal_of, caption, actions, step.robot[position], humans)
