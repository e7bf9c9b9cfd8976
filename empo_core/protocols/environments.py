"""Environments without a world model, and vectors of copies of them.

The agents of a vectorised environment are numbered: agent ``i`` is agent ``i % M`` of copy
``i // M``, where a copy has ``M`` agents. They come in *blocks* of equal size, contiguous ranges
that step together; while a learner computes actions for one block, the others may step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from empo_core.protocols.worlds import WorldModel
from empo_core.trees import StateDict

Action: TypeAlias = Shaped[np.ndarray, "agent number"]
"""One row per agent of a block: int64 options or float32 numbers."""
Order: TypeAlias = Literal["rotation", "arrival"]
"""Blocks in the order in which they were sent, which is repeatable, or as they get ready."""
OnCrash: TypeAlias = Literal["stop", "restart"]
"""When a worker process dies: fail, or start it anew."""


class Environment(ABC):
    """An environment of which vectorised copies can be made.

    Attributes:
        name: Short name, for people and run directories, e.g. ``CartPole-v1``.
        uses_world: Whether it is made from the run's world model.
        uses_workers: Whether copies can step in worker processes.
        steps_together: Whether copies in this process step in one call, which is faster than
            worker processes.
    """

    name: str
    uses_world: bool = False
    uses_workers: bool = False
    steps_together: bool = False

    @abstractmethod
    def spec(self) -> EnvSpec:
        """Constants of one copy; may build that copy, takes no step, and closes it.

        Raises:
            ConfigError: if there is no such environment, or its spaces do not fit.
        """

    @abstractmethod
    def vector(self, num_envs: int, layout: VectorLayout) -> VectorEnv:
        """Make copies; they begin no episode before ``start``.

        Raises:
            ConfigError: if the environments cannot be made, or the layout does not fit.
            CollectError: if a copy fails while it is made.
        """


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
        bounds: Least and greatest value of the words, as their space declares them: how many
            words, and the two, for each run of words that have the same. Empty: not known, or
            infinite. Formats that differ in nothing else are equal.

    Raises:
        ValueError: if the bounds are not those of all words.
    """

    words: int
    dtype: Literal["float32", "uint8"] = "float32"
    grid: tuple[int, int, int] | None = None
    scale: float = 255.0
    bounds: tuple[tuple[int, float, float], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse bounds of another number of words.

        Raises:
            ValueError: if ``bounds`` are not those of ``words`` words.
        """
        lengths = [length for length, _, _ in self.bounds]
        if lengths and (min(lengths) < 1 or sum(lengths) != self.words):
            words = sum(lengths)
            raise ValueError(f"bounds are those of {words} words, and there are {self.words}")


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
    def last_observation(self) -> Shaped[np.ndarray, "agent word"]:
        """What the previous actions led to: where an episode ended, its last, if that is known."""
        if not len(self.final_row):
            return self.observation
        observation = self.observation.copy()
        observation[self.final_row] = self.final_observation
        return observation

    @property
    def reasons(self) -> Int[np.ndarray, " agent"]:
        """``reason``, taken from the flags where it is None."""
        if self.reason is not None:
            return self.reason
        return np.where(self.terminated, 0, np.where(self.truncated, 1, -1))


@runtime_checkable
class VectorEnv(Protocol):
    """Copies of an environment that step together, a block at a time."""

    @property
    def spec(self) -> EnvSpec:
        """Constants of what was built, which may differ from what was asked for."""

    def start(self, seed: int) -> None:
        """Begin an episode in every copy, before anything else.

        Called again while every block waits for ``send``, it begins anew.

        Raises:
            CollectError: if a copy cannot be reset.
        """

    def recv(self) -> TimeStep:
        """Wait for the next block; each comes once after ``start`` and after each ``send``.

        Raises:
            CollectError: if an environment fails or returns invalid data (NaN, wrong shapes); the
                message names the copy.
            ValueError: if every block waits for ``send``.
        """

    def send(self, block: int, action: Action) -> None:
        """Step a block that was received; rows that do not act (``acts``) are ignored.

        Raises:
            ValueError: if the block was not received, or the action has a wrong shape or dtype.
        """

    def state_dict(self) -> StateDict:
        """State from which to go on exactly, at any time after ``start``.

        Time steps that were received and not answered are received again after loading.
        """

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Restore ``state_dict`` instead of ``start``; False where new episodes were begun."""

    def close(self) -> None:
        """Release everything within seconds; may be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLayout:
    """Placement of the copies of a vectorised environment.

    Attributes:
        workers: Number of worker processes; 0 steps in this process.
        blocks: Number of blocks.
        order: Order in which blocks are received.
        on_crash: What happens when a worker dies.
        answer_limit_s: Seconds of waiting after which a worker that has not answered counts as
            dead; None: never. Copies in this process have no limit.
        desync: Cut the first episode of each copy at a random length, so that ends spread out.
        first: Number of the first copy, from which and the run's seed its episodes' seeds follow.
        terminal_observations: Tell last observations of episodes that terminated, too; workers
            need not.
        rendering: Make copies that draw pictures for people, where they can.
        seed: Seeds the process-wide generators (``random``, numpy's and torch's) of each worker
            process, together with the number of the worker and of its restarts, before its copies
            are made. Copies in this process draw from the generators that are there.
    """

    workers: int = 0
    blocks: int = 1
    order: Order = "rotation"
    on_crash: OnCrash = "stop"
    answer_limit_s: float | None = None
    desync: bool = False
    first: int = 0
    terminal_observations: bool = False
    rendering: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentContext:
    """Everything that an environment component is given besides its params.

    Attributes:
        world: The run's world model, if it has one.
        directory: A folder of the run for files of the environment's own.
        seed: The run's seed.
    """

    world: WorldModel | None = None
    directory: Path = Path()
    seed: int = 0
