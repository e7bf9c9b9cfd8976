"""Specs and time steps of vectorised environments.

The agents of a vectorised environment are numbered: agent ``i`` is agent ``i % M`` of copy
``i // M``, where a copy has ``M`` agents. They come in *blocks* of equal size, contiguous ranges
that step together; while a learner computes actions for one block, the others may step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

Action: TypeAlias = Shaped[np.ndarray, "agent number"]
"""One row per agent of a block: int64 options or float32 numbers."""


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """Format of an agent's observation: one flat row of numbers.

    Attributes:
        words: Length of the row.
        dtype: ``uint8`` for a row that is one picture, which networks divide by ``scale``; else
            ``float32``, which they read as it is.
        grid: Channels, height and width of the picture that the first words are, channel first;
            None where there is no picture.
        scale: Greatest value of a row of bytes, as its space declares it.
    """

    words: int
    dtype: Literal["float32", "uint8"] = "float32"
    grid: tuple[int, int, int] | None = None
    scale: float = 255.0


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Format of an agent's action: options of some choices, or numbers; never both.

    Attributes:
        choices: Number of options of each choice; empty where actions are numbers.
        low: Least value of each number; -inf where unbounded. Empty where actions are choices.
        high: Greatest value of each number.
    """

    choices: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """Number of an action's dimensions."""
        return len(self.choices) or len(self.low)

    @property
    def is_discrete(self) -> bool:
        """True if actions are choices."""
        return bool(self.choices)


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Constants of a vectorised environment.

    Attributes:
        observations: Format of every agent's observation.
        actions: Format of every agent's action.
        agents: Names of the agents of one copy.
        num_envs: Number of copies.
        num_blocks: Number of blocks.
        masks: Whether time steps have a ``mask`` of available options.
        reasons: Names of the reasons for which episodes end, which ``TimeStep.reason`` counts.
        max_episode_steps: Most steps of an episode; None where that is unknown.
        action_repeat: Steps of the environment itself per step.
        render_fps: Steps per second for people who watch; None where that is unknown.
    """

    observations: ObservationSpec
    actions: ActionSpec
    agents: tuple[str, ...]
    num_envs: int
    num_blocks: int = 1
    masks: bool = False
    reasons: tuple[str, ...] = ("terminated", "truncated")
    max_episode_steps: int | None = None
    action_repeat: int = 1
    render_fps: float | None = None

    @property
    def num_agents(self) -> int:
        """Agents of all copies together."""
        return self.num_envs * len(self.agents)

    @property
    def block_agents(self) -> int:
        """Agents of a block."""
        return self.num_agents // self.num_blocks

    def agents_of(self, block: int) -> slice:
        """Indices of the agents of a block."""
        return slice(block * self.block_agents, (block + 1) * self.block_agents)


@dataclass(slots=True)
class TimeStep:
    """Observations of a block, and the outcome of its previous actions.

    Arrays may be views into memory that the environments overwrite after ``send``: copy what is
    to be kept. Episodes restart by themselves. ``reward``, ``terminated``, ``truncated`` and
    ``reason`` are the outcome of the previous action, 0 or False in the first step, and are
    defined only where ``acts`` of the step before is True. Both flags can be True.

    Attributes:
        block: The block's number.
        observation: What each agent observes now; the first of a new episode after an end.
        reward: Reward of the previous action.
        terminated: The previous action ended the episode; later rewards are 0.
        truncated: The episode was cut off after the previous action.
        starts: The observation is the first of an episode, so recurrent state is reset.
        acts: The next action has an effect. False for agents that are dead, and for
            observations after which the environment resets and ignores the action.
        final_row: Rows (ascending) whose last observation of a truncated episode is known, and of
            a terminated one with ``VectorLayout.terminal_observations``.
        final_observation: Those last observations, which the previous actions led to.
        mask: Available options, choice by choice, at least one each; None unless
            ``EnvSpec.masks``.
        reason: Position in ``EnvSpec.reasons`` where an episode ended; -1 elsewhere and where it
            is unknown. None stands for the flags.
        success: 1 where the previous action achieved the task, 0 where it did not, -1 where the
            environment does not say. None: it never says.
    """

    block: int
    observation: Shaped[np.ndarray, "agent word"]
    reward: Float[np.ndarray, " agent"]
    terminated: Bool[np.ndarray, " agent"]
    truncated: Bool[np.ndarray, " agent"]
    starts: Bool[np.ndarray, " agent"]
    acts: Bool[np.ndarray, " agent"]
    final_row: Int[np.ndarray, " final"]
    final_observation: Shaped[np.ndarray, "final word"]
    mask: Bool[np.ndarray, "agent option"] | None = None
    reason: Int[np.ndarray, " agent"] | None = None
    success: Int[np.ndarray, " agent"] | None = None

    @property
    def reasons(self) -> Int[np.ndarray, " agent"]:
        """``reason``, taken from the flags where it is None."""
        if self.reason is not None:
            return self.reason
        return np.where(self.terminated, 0, np.where(self.truncated, 1, -1))
