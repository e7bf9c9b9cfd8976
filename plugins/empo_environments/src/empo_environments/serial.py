"""Environments that step in the learner's own process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from empo_core.errors import ConfigError
from empo_core.protocols.environments import Action, Order, TimeStep
from empo_core.trees import StateDict
from empo_environments.block_schedule import BlockScheduler
from empo_environments.env_group import EnvGroup, close_all, common_spec
from empo_environments.shared_buffers import SharedBuffers
from empo_environments.single_env import MakeEnv
from empo_environments.snapshots import Snapshot, shares


class SerialVectorEnv:
    """A vector without processes: a block steps when it is received."""

    def __init__(
        self,
        make: Sequence[MakeEnv],
        *,
        blocks: int,
        order: Order,
        first: int = 0,
        terminal_observations: bool = False,
    ) -> None:
        """Make the environments.

        Args:
            make: Makes each of them.
            blocks: Into how many blocks they are divided.
            order: With "arrival", blocks arrive in the order in which they were sent.
            first: Number of the first environment.
            terminal_observations: Whether last observations of episodes that terminated are told.

        Raises:
            ConfigError: if the environments do not fit each other, or the sizes do not.
            CollectError: if an environment cannot be made.
        """
        if not make or blocks < 1 or len(make) % blocks:
            raise ConfigError(
                f"{len(make)} environments cannot be divided into {blocks} blocks of equal size"
            )
        self._groups: list[EnvGroup] = []
        size = len(make) // blocks
        try:
            for place in range(0, len(make), size):
                self._groups.append(EnvGroup(make[place : place + size], place, first))
            specs = [env_spec for group in self._groups for env_spec in group.specs()]
            self.spec = common_spec(specs, blocks)
        except BaseException:
            self.close()
            raise
        self._board = SharedBuffers(self.spec, terminal=terminal_observations)
        for group in self._groups:
            group.attach(self._board)
        self._turns = BlockScheduler(blocks, order)
        self._acting: set[int] = set()
        self._seeds: list[int] = []

    def start(self, seed: int) -> None:
        """Begin an episode in every environment; again, whatever they are at."""
        self._acting.clear()
        self._seeds = [seed] * self.spec.num_envs
        for group, seeds in zip(self._groups, self._shares(self._seeds), strict=True):
            group.start(seeds)
        self._turns.begin()

    def recv(self) -> TimeStep:
        """Let the block whose turn it is act."""
        block = self._turns.awaited()[0]
        self._act(block)
        self._turns.arrive(block)
        return self._board.arrival(block)

    def send(self, block: int, action: Action) -> None:
        """Note what the agents of a block do."""
        self._turns.check(block)
        self._board.answer(block, action)
        self._turns.leave(block)
        self._acting.add(block)

    def state_dict(self) -> StateDict:
        """State of every environment, after what it was sent."""
        for block in sorted(self._acting):
            self._act(block)
        states = [state for group in self._groups for state in group.state_dict()]
        queue = self._turns.queue()
        return Snapshot(queue, self._seeds, states, self._board.state_dict())._asdict()

    def load_state_dict(self, state_dict: StateDict) -> bool:
        """Play every episode again."""
        snapshot = Snapshot.of(state_dict, self._board)
        self._seeds = snapshot.seeds
        exact: list[bool] = []
        for group, seeds, states in zip(
            self._groups, self._shares(snapshot.seeds), self._shares(snapshot.environments),
            strict=True,
        ):  # fmt: skip
            exact += group.load_state_dict(seeds, states)
        self._board.load_state_dict(snapshot.outcome, exact)
        self._turns.begin(snapshot.queue)
        self._acting.clear()
        return all(exact)

    def render(self, number: int) -> UInt8[np.ndarray, "height width 3"]:
        """A picture of a copy for people, where the layout has ``rendering``.

        Raises:
            ConfigError: if no environment can be drawn; the message says why.
        """
        size = self.spec.num_envs // len(self._groups)
        return self._groups[number // size].render(number)

    def close(self) -> None:
        """Close the environments."""
        close_all(("closing environments", group.close) for group in self._groups)

    def _shares(self, items: Sequence[Any]) -> list[list[Any]]:
        return shares(items, len(self._groups))

    def _act(self, block: int) -> None:
        if block in self._acting:
            self._groups[block].step()
            self._acting.remove(block)
