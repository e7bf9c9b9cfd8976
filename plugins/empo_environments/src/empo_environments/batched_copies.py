"""Copies of a world that a program steps all at once, as a ``VectorEnv`` of blocks in turns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch

from empo_core.protocols.environments import Action, EnvSpec, TimeStep
from empo_core.random_streams import seed_of
from empo_core.trees import StateDict
from empo_environments.block_schedule import BlockScheduler


class Copies(Protocol):
    """The copies of one block, in the middle of their episodes."""

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


C = TypeVar("C", bound=Copies)


class BatchedCopies(ABC, Generic[C]):
    """A ``VectorEnv`` without processes; subclasses begin episodes, step blocks and observe them.

    Attributes:
        blocks: The copies of each block, once they have begun.
    """

    def __init__(self, copies: int, blocks: int, first: int = 0) -> None:
        """Divide so many copies into blocks; ``first`` is the number of the first copy.

        Raises:
            ValueError: if the copies cannot be divided into these blocks.
        """
        if copies % blocks:
            raise ValueError(f"{copies} copies cannot be divided into {blocks} equal blocks")
        self.blocks: list[C] = []
        self._copies, self._count, self._first = copies // blocks, blocks, first
        self._turns = BlockScheduler(blocks, "rotation")

    @property
    @abstractmethod
    def spec(self) -> EnvSpec:
        """Constants of the copies."""

    @abstractmethod
    def begun(self, count: int, generator: torch.Generator) -> C:
        """So many copies at the start of an episode."""

    @abstractmethod
    def act(self, copies: C, action: Action) -> None:
        """Let everybody in a block act; episodes that end are followed by the next ones at once.

        Raises:
            ValueError: if these are no actions for the block.
        """

    @abstractmethod
    def time_step(self, block: int, copies: C) -> TimeStep:
        """What the last step of a block led to."""

    def start(self, seed: int) -> None:
        """Begin an episode in every copy."""
        self._begin(seed)
        self._turns.begin()

    def recv(self) -> TimeStep:
        """The next block, in strict turns.

        Raises:
            ValueError: if no step is under way.
        """
        (block,) = self._turns.awaited()
        self._turns.arrive(block)
        return self.time_step(block, self.blocks[block])

    def send(self, block: int, action: Action) -> None:
        """Let a block act.

        Raises:
            ValueError: if the block has not arrived, or these are no actions for the block.
            CollectError: if the reward is no number.
        """
        self._turns.check(block)
        self.act(self.blocks[block], action)
        self._turns.leave(block)

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        blocks = [copies.state_dict() for copies in self.blocks]
        return {"queue": self._turns.queue(), "blocks": blocks}

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Go on from what ``state_dict`` returned; always exactly."""
        self._begin(0)
        for copies, state in zip(self.blocks, state_dict["blocks"], strict=True):
            copies.load_state_dict(state)
        self._turns.begin(state_dict["queue"])
        return True

    def close(self) -> None:
        """Nothing: no processes and no files belong to it."""

    def _begin(self, seed: int) -> None:
        # A generator per block, so that blocks do not depend on each other's turns; by the number
        # of its first copy, so that no two vectors of a run draw the same.
        self.blocks = []
        for block in range(self._count):
            number = self._first + block * self._copies
            block_seed = seed_of(np.random.SeedSequence(seed, spawn_key=(number,)))
            self.blocks.append(self.begun(self._copies, torch.Generator().manual_seed(block_seed)))
