"""What a learner and its environments say to each other.

Environments live in *slots*: one slot per agent of each environment, environment by
environment. Slots come in *blocks* of equal size, contiguous ranges that arrive together; while
the learner thinks about one block, the environments of the others may move on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

Order: TypeAlias = Literal["rotation", "arrival"]
"""Blocks in strict turns, which can be repeated exactly, or whichever is ready first."""


@dataclass(frozen=True, slots=True)
class Observations:
    """What an agent sees: one flat row of numbers.

    Attributes:
        words: Length of the row.
        dtype: ``float32``, or ``uint8`` for pictures, which networks scale to [0, 1].
        grid: Where the first ``channel * height * width`` words are a picture, channel first,
            these three lengths; None where there is no picture.
    """

    words: int
    dtype: Literal["float32", "uint8"] = "float32"
    grid: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Actions:
    """What an agent can do: choose from lists, or name numbers; never both.

    Attributes:
        choices: Number of options of each choice; empty where actions are numbers.
        low: Least value of each number; -inf where there is none. Empty where actions are
            choices.
        high: Greatest value of each number.
    """

    choices: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def size(self) -> int:
        """How many numbers an action consists of."""
        return len(self.choices) or len(self.low)

    @property
    def is_discrete(self) -> bool:
        """Whether actions are choices."""
        return bool(self.choices)


@dataclass(frozen=True, slots=True)
class Interface:
    """What never changes about a set of environments.

    Attributes:
        observations: What every agent sees.
        actions: What every agent can do.
        agents: Names of the agents of one environment; slot ``i`` is agent
            ``i % len(agents)`` of environment ``i // len(agents)``.
        envs: How many environments there are.
        blocks: How many blocks the slots are divided into.
        masks: Whether arrivals say which options are available.
        reasons: Names of the reasons for which episodes end; ``Arrival.reason`` counts them.
    """

    observations: Observations
    actions: Actions
    agents: tuple[str, ...]
    envs: int
    blocks: int = 1
    masks: bool = False
    reasons: tuple[str, ...] = ("terminated", "truncated")

    @property
    def slots(self) -> int:
        """How many agents act in all environments together."""
        return self.envs * len(self.agents)

    @property
    def block_slots(self) -> int:
        """How many slots one arrival brings."""
        return self.slots // self.blocks

    def slots_of(self, block: int) -> slice:
        """The slots of a block."""
        return slice(block * self.block_slots, (block + 1) * self.block_slots)


@dataclass(slots=True)
class Arrival:
    """One block, ready for its next actions, and what its last actions led to.

    Arrays may be views into memory that the environments write to after ``send``; whoever wants
    to keep them copies them before that.

    Whatever way an environment restarts its episodes, it looks like this: ``reward``,
    ``terminated``, ``truncated`` and ``reason`` are the outcome of the slot's previous action,
    the first arrival's being 0. They mean something only where that action was one (``acts`` of
    the arrival before). Both flags can be True; they are never joined.

    Attributes:
        block: Which block it is.
        observation: What each agent sees now.
        reward: Reward of the previous action.
        terminated: The previous action ended the episode; nothing is worth anything after it.
        truncated: The episode was cut off after the previous action, and would have gone on.
        starts: The observation is the first of an episode: memory of what came before is void.
        acts: Whether the next action is one. False where there is nobody to act: an agent that
            is dead, or an observation after which the environment resets and ignores the action.
        final_row: Rows of this block (ascending) whose ``final_observation`` follows: each that
            was truncated and of which the last observation of its episode is known.
        final_observation: That last observation, which the previous action led to.
        mask: Which option of which choice is available, choice by choice; at least one per
            choice. None unless ``Interface.masks``.
        reason: Why the episode ended, a position in ``Interface.reasons``, where it did; -1
            elsewhere and where it is unknown.
    """

    block: int
    observation: Shaped[np.ndarray, "slot word"]
    reward: Float[np.ndarray, " slot"]
    terminated: Bool[np.ndarray, " slot"]
    truncated: Bool[np.ndarray, " slot"]
    starts: Bool[np.ndarray, " slot"]
    acts: Bool[np.ndarray, " slot"]
    final_row: Int[np.ndarray, " final"]
    final_observation: Shaped[np.ndarray, "final word"]
    mask: Bool[np.ndarray, "slot option"] | None = None
    reason: Int[np.ndarray, " slot"] | None = None

    @property
    def reasons(self) -> Int[np.ndarray, " slot"]:
        """``reason``, after the flags where nothing else is said; -1 where nothing ended."""
        if self.reason is not None:
            return self.reason
        return np.where(self.terminated, 0, np.where(self.truncated, 1, -1))


Action: TypeAlias = Shaped[np.ndarray, "slot number"]
"""An action per slot of a block: int64 options or float32 numbers."""


@runtime_checkable
class Vector(Protocol):
    """Many environments that step together."""

    @property
    def interface(self) -> Interface:
        """What never changes about them; what was really built, not what was asked for."""

    def start(self, seed: int) -> None:
        """Begin an episode in every environment; called once, before anything else.

        Raises:
            CollectError: An environment cannot begin.
        """

    def recv(self) -> Arrival:
        """The next block: after ``start`` each block arrives once, and again after each ``send``.

        In order ``rotation`` blocks arrive in the order in which they were sent.

        Raises:
            CollectError: An environment failed or returned what it must not (NaN, wrong
                shapes); the message names it, and says what it did.
            ValueError: Nothing can arrive, for everything that could waits for ``send``.
        """

    def send(self, block: int, action: Action) -> None:
        """Let a block that has arrived act; rows that do not act (``acts``) are ignored.

        Raises:
            ValueError: The block has not arrived, or the action has a wrong shape or dtype.
        """

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so.

        May be asked for at any time after ``start``; waits for the blocks on their way. The
        arrivals that nobody has answered yet arrive again after ``load_state_dict``.
        """

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        """Go on from what ``state_dict`` returned, instead of ``start``.

        Returns whether the environments stand exactly where they stood; where they cannot (they
        are not deterministic, or cannot be asked), they begin new episodes, and it is False.
        """

    def close(self) -> None:
        """End everything that belongs to it, within seconds; may be called twice."""
