"""State of each block, and the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Shaped, UInt64

from empo_core.protocols.environments import EnvSpec, Order


class BlockScheduler:
    """Follows blocks as they arrive at the learner and leave it again."""

    def __init__(self, blocks: int, order: Order) -> None:
        """Nothing is under way yet.

        Args:
            blocks: How many there are.
            order: Whether they come in strict turns, or in whatever order they get ready.
        """
        self._blocks, self._order = blocks, order
        self._held: list[int] = []
        self._away: list[int] = []

    def begin(self, queue: Sequence[int] | None = None) -> None:
        """Every block is under way, in this order or, if None, in that of their numbers."""
        self._held, self._away = [], list(range(self._blocks) if queue is None else queue)

    def queue(self) -> list[int]:
        """All blocks in the order to ``begin`` with where what is held is to arrive again."""
        return self._held + self._away

    def awaited(self) -> list[int]:
        """Blocks that may arrive now, those that left first ahead.

        Raises:
            ValueError: if there is none.
        """
        if self._away:
            # Who left first comes first: turns that a block which is held for long does not stop.
            return self._away[:1] if self._order == "rotation" else self._away.copy()
        if not self._held:
            raise ValueError("nothing was started: call start or load_state_dict first")
        blocks = ", ".join(map(str, sorted(self._held)))
        raise ValueError(f"nothing can arrive before send was called for block {blocks}")

    def arrive(self, block: int) -> None:
        """Mark a block as received."""
        self._away.remove(block)
        self._held.append(block)

    def holds(self, block: int) -> bool:
        """True if the learner has it."""
        return block in self._held

    def check(self, block: int) -> None:
        """Raise ValueError unless the learner has it."""
        if block not in self._held:
            raise ValueError(
                f"block {block} cannot be sent: there are blocks 0 to {self._blocks - 1}, and "
                f"{', '.join(map(str, sorted(self._held))) or 'none'} has arrived"
            )

    def leave(self, block: int) -> None:
        """Mark a block as sent."""
        self.check(block)
        self._held.remove(block)
        self._away.append(block)


def check_action(
    env_spec: EnvSpec, action: Shaped[np.ndarray, "*_shape"], acts: Bool[np.ndarray, " agent"]
) -> None:
    """Raise ValueError unless these are actions for one block.

    Args:
        env_spec: What is acted in.
        action: One row per agent.
        acts: Which rows must make sense.
    """
    actions = env_spec.actions
    shape = (env_spec.block_agents, actions.size)
    dtype = np.int64 if actions.is_discrete else np.float32
    if action.shape != shape or action.dtype != dtype:
        raise ValueError(
            f"the action of a block must be {dtype.__name__} of shape {shape}; got "
            f"{action.dtype} of shape {action.shape}"
        )
    if actions.is_discrete:
        # Seen as unsigned, what is negative is too large as well.
        wrong = action.view(np.uint64) >= _counts(actions.choices)
    else:
        wrong = ~np.isfinite(action)
    if wrong.any() and (wrong := wrong & acts[:, None]).any():
        row, place = np.argwhere(wrong)[0].tolist()
        limit = f"from 0 to {actions.choices[place] - 1}" if actions.is_discrete else "finite"
        raise ValueError(
            f"the action of row {row} is {action[row].tolist()}; number {place} must be {limit}"
        )


@lru_cache(maxsize=16)
def _counts(choices: tuple[int, ...]) -> UInt64[np.ndarray, " choice"]:
    """Shared by all who ask, so not to be written to."""
    return np.array(choices, np.uint64)
