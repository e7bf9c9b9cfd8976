"""The state of a vector of environments that can play their episodes again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from empo_core.errors import ConfigError
from empo_core.trees import StateDict, whole_number
from empo_environments.shared_buffers import SharedBuffers

T = TypeVar("T")


class Snapshot(NamedTuple):
    """States of environments, independent of how many processes step them.

    Attributes:
        queue: The blocks, in the order in which they arrive next.
        seeds: The seed that each environment was started with.
        environments: What each says of itself.
        outcome: What the board says.
    """

    queue: list[int]
    seeds: list[int]
    environments: list[StateDict]
    outcome: StateDict

    @staticmethod
    def of(state_dict: StateDict, board: SharedBuffers) -> Snapshot:
        """The snapshot whose ``_asdict`` this is.

        Raises:
            ConfigError: if it is of another number of environments.
            ValueError: if a seed is no whole number of at least 0.
        """
        for seed in state_dict["seeds"]:
            whole_number(seed)
        snapshot = Snapshot(**{name: state_dict[name] for name in Snapshot._fields})
        env_spec = board.spec
        if len(snapshot.environments) != env_spec.num_envs:
            raise ConfigError(
                f"the state is that of {len(snapshot.environments)} environments, and there are "
                f"{env_spec.num_envs}; go on with as many as before"
            )
        if len(snapshot.queue) == env_spec.num_blocks:
            return snapshot
        return snapshot._replace(queue=list(range(env_spec.num_blocks)))


def shares(items: Sequence[T], count: int) -> list[list[T]]:
    """Cut a sequence into ``count`` pieces of equal length."""
    size = len(items) // count
    return [list(items[i * size : (i + 1) * size]) for i in range(count)]
