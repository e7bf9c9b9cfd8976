"""Learned policies outside of their runs: load one, and let it act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Shaped

from empo_core.errors import CollectError, ConfigError
from empo_core.experiment import Experiment
from empo_core.protocols import Agent, CheckpointChoice, RobotPolicy, WorldModel
from empo_worlds.policy_checks import robot_policy


def load_agent(
    run_dir: str | Path,
    *,
    member: str | None = None,
    checkpoint: CheckpointChoice = "newest",
    env: Callable[[], object] | None = None,
) -> Agent:
    """The agent that a finished or interrupted run learned, whatever its algorithm.

    In a run with goals of humans in a world the agent is all robots, and observes state rows.

    Args:
        run_dir: The run directory.
        member: Name of the agent or task, where the environments have several; None: the first.
        checkpoint: Which weights of the run.
        env: Makes an environment, where the run was given one from Python.

    Raises:
        ConfigError: if the path is no run directory, its algorithm cannot act, or it has no such
            agent or task.
        StorageError: if the run left nothing that can be loaded.
    """
    run = Experiment.load(run_dir, env=env)
    policies = run.policies(checkpoint)
    if not isinstance(policies, tuple):
        return policies.agent(member)
    if member is not None or run.context.world is None:
        raise ConfigError(f"{run_dir}: the robots act together; leave out member={member!r}")
    return WorldAgent(run.context.world, policies[0])


def observation_row(
    observation: Shaped[np.ndarray, "*shape"],
    *,
    words: int,
    dtype: str,
    picture: tuple[int, ...] | None = None,
) -> Shaped[np.ndarray, " word"]:
    """What an environment shows as one flat row, as networks read it.

    Args:
        observation: In the environment's own shape, pictures with their channels first or last.
        words: How many numbers it must have.
        dtype: Type of the row.
        picture: Channels, height and width, where it is one picture.

    Raises:
        CollectError: if the observation is no numbers, or another number of them, or one of them is
            NaN, infinite, or no byte where the policy learned from bytes.
    """
    if observation.dtype.kind not in "biuf":
        raise CollectError(
            f"the observation has dtype {observation.dtype}; give an array of numbers, and flatten "
            "what is a dictionary with gymnasium.spaces.flatten"
        )
    if observation.size != words:
        raise CollectError(
            f"the observation has shape {observation.shape}, and the policy learned from {words} "
            "numbers: flatten what is a dictionary with gymnasium.spaces.flatten, and stack and "
            "resize pictures as in training"
        )
    if picture is not None and observation.ndim == 3 and observation.shape != picture:
        observation = observation.transpose(2, 0, 1)
    row = observation.astype(dtype).reshape(-1)
    same = np.isfinite(row) if dtype == "float32" else row == observation.reshape(-1)
    if not same.all():
        place = int(np.argmin(same))
        needs = "finite numbers" if dtype == "float32" else "whole numbers from 0 to 255"
        raise CollectError(
            f"the observation has {observation.reshape(-1)[place]} at place {place} of its flat "
            f"row; the policy reads {needs}"
        )
    return row


class WorldAgent(Agent):
    """All robots of a world, by their policy in its states; actions are drawn."""

    def __init__(self, world: WorldModel, robots: RobotPolicy) -> None:
        """Act in episodes that begin at time 0."""
        self._world, self._robots, self._time = world, robots, 0

    def reset(self) -> None:
        """Begin an episode: the next state is its first."""
        self._time = 0

    def act(self, observation: Shaped[np.ndarray, "*shape"]) -> Int[np.ndarray, " robot"]:
        """The action of each robot in a state, given as its row; the episode has a step less then.

        Raises:
            CollectError: if it is no row of the world, or the episode is over.
            SolveError: if the policy is not defined there.
        """
        spec, row = self._world.spec, np.asarray(observation)
        if row.shape != (spec.state_words,) or row.dtype.kind not in "biu":
            raise CollectError(
                f"the observation has shape {row.shape} and dtype {row.dtype}; a state of "
                f"{spec.name!r} is a row of {spec.state_words} whole numbers"
            )
        steps_left = 1 if spec.horizon is None else spec.horizon - self._time
        if steps_left < 1:
            raise CollectError(f"the episode is over after {spec.horizon} steps: call reset")
        states = torch.from_numpy(row).to(spec.state_dtype)[None]
        policy = robot_policy(self._world, self._robots, states, steps_left)[0]
        joint, actions = int(torch.multinomial(policy, 1)), []
        for robot in spec.robots:  # Robot 0 counts fastest.
            joint, action = divmod(joint, spec.num_actions[robot])
            actions.append(action)
        self._time += 1
        return np.array(actions)
