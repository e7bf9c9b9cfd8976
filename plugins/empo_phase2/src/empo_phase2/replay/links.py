"""Links from each transition of a ring to the next one of the same episode."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int32
from numpy.typing import NDArray

from empo_core.trees import StateDict
from empo_phase2.experience import Block
from empo_phase2.replay.kernels import link
from empo_phase2.replay.storage import ArrayStorage

Places = NDArray[np.int64]


class EpisodeLinks:
    """Position of the transition that follows each one; -1 where there is none.

    Transitions are counted by *numbers* that only rise; number n lies at position n modulo the
    capacity of the ring. Numbers below ``oldest`` were evicted.
    """

    def __init__(self, storage: ArrayStorage, capacity: int) -> None:
        self._links = storage.zeros((capacity,), np.int32)
        self.clear()

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        return self._links.nbytes

    def clear(self) -> None:
        """Drop all links."""
        # Of each actor, the number of the last transition of each environment.
        self._last: dict[int, Places] = {}

    def add(
        self,
        block: Block,
        record: Int32[np.ndarray, "place column"],
        *,
        actor: int,
        number: int,
        oldest: int,
    ) -> None:
        """Link the transitions of a block with those before them.

        Args:
            block: The transitions.
            record: State and next state, first and second column, of each position in the ring.
            actor: The actor that recorded the block.
            number: Number of the block's first transition.
            oldest: Number of the oldest transition.
        """
        environment = np.ascontiguousarray(block.environment.numpy(), np.int64)
        last = self._last_of(actor, int(environment.max()), oldest)
        first = np.ascontiguousarray(block.first.numpy())
        link(environment, first, number, oldest, record, last, self._links)

    def follow(self, positions: Places, oldest: int, length: int) -> Places:
        """Positions of the following transitions, -1 where there is none.

        Args:
            positions: Positions in the ring; -1 stays -1.
            oldest: Position of the oldest transition.
            length: Number of transitions.
        """
        known = (positions >= 0) & ((positions - oldest) % len(self._links) < length)
        after = np.where(known, self._links[np.where(known, positions, 0)], -1)
        return after.astype(np.int64)

    def state_dict(self, filled: int, oldest: int) -> StateDict:
        """The first ``filled`` links, and the last transition of each environment."""
        alive = [
            [actor, environment, int(number)]
            for actor, numbers in self._last.items()
            for environment, number in enumerate(numbers)
            if number >= oldest
        ]
        return {
            "links": torch.from_numpy(self._links[:filled]),
            "last": torch.tensor(alive, dtype=torch.int64).reshape(-1, 3),
        }

    def load_state_dict(self, tree: StateDict, oldest: int) -> None:
        """Restore what ``state_dict`` returned."""
        self.clear()
        self._links[: len(tree["links"])] = tree["links"].numpy()
        for actor, environment, number in tree["last"].tolist():
            self._last_of(actor, environment, oldest)[environment] = number

    def _last_of(self, actor: int, environment: int, oldest: int) -> Places:
        """Last transitions of an actor's environments, up to ``environment`` at least."""
        if actor not in self._last:
            # Actors that were replaced must not be kept for ever.
            self._last = {a: last for a, last in self._last.items() if last.max() >= oldest}
            self._last[actor] = np.empty(0, np.int64)
        missing = environment + 1 - len(self._last[actor])
        if missing > 0:
            self._last[actor] = np.pad(self._last[actor], (0, missing), constant_values=-1)
        return self._last[actor]
