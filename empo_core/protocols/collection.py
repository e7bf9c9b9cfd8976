"""Collecting experience: actors, collectors and explorers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.trees import StateDict
from empo_core.types import Experience, Scene

Weights: TypeAlias = Mapping[str, Tensor]
"""Named tensors that a learner publishes to its actors, on the CPU."""


@runtime_checkable
class Actor(Protocol):
    """Acts in environments and records what happened; in the learner's process or its own."""

    def load(self, weights: Weights, version: int) -> None:
        """Act with these weights from now on; every ``Experience`` names their version."""

    def act(self, training_step: int) -> Experience:
        """Act for a while: every environment takes one step.

        Args:
            training_step: Training steps so far, on which exploration depends.
        """

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so: environments, generators, counts.

        A tree of dictionaries and lists with tensors, numbers, strings, booleans and None.
        """

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


ActorFactory = Callable[[int], Actor]
"""Builds the actor with a number, from 0; can be pickled by ``cloudpickle``."""


@runtime_checkable
class Collector(Protocol):
    """Produces experience by running actors."""

    def start(self, make_actor: ActorFactory, directory: Path) -> None:
        """Build the actors; files, if there must be any, go into ``directory``.

        Raises:
            CollectError: if an actor cannot be built; the message holds its traceback.
        """

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let all actors act with these weights as soon as possible."""

    def collect(self, training_step: int) -> Sequence[Experience]:
        """The experience that is due before the next training step; may be empty.

        Waits only while there is less than the learner may start with.

        Raises:
            CollectError: if no actor is alive.
        """

    def counters(self) -> dict[str, float]:
        """Numbers for people and trackers, ``env_steps`` among them."""

    def state_dict(self) -> StateDict:
        """Everything needed to go on; exactly so where the collector is synchronous."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Before that the collector is started, and what it had been told to publish last is
        published again.
        """

    def stop(self) -> None:
        """End all actors within seconds; may be called at any time and twice."""


class Explorer(ABC):
    """Changes what some agents do while experience is collected: the robots, or one human.

    ``agents`` of the factory call are who chooses, in index order: all robots jointly, or one
    human alone.

    Attributes:
        learns: Whether the explorer learns where experience is learned from. The learner then has
            an explorer of its own, trains it, and publishes its weights to those of the actors.
    """

    learns: bool = False

    @abstractmethod
    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """Action probabilities to act with, given those of the policy.

        Unavailable actions keep probability 0, and rows keep summing to 1.
        """

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Record which choice was made in a scene that ``explore`` answered."""

    def state_dict(self) -> StateDict:
        """The explorer's state, e.g. counts."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""

    def learn(
        self, states: Int[Tensor, "state word"], choice: Int[Tensor, " state"]
    ) -> dict[str, float]:
        """One training step on states and what was chosen there; returns numbers for people."""
        return {}

    def weights(self) -> dict[str, Tensor]:
        """The learned tensors that ``explore`` needs."""
        return {}

    def load_weights(self, weights: Weights) -> None:
        """Use what ``weights`` of another copy returned."""
