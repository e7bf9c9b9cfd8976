"""What world models can do by what they list, so that each need not write it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.protocols.world import WorldModel
from empo_pictures.notebooks import NotebookWorld
from empo_worlds import queries
from empo_worlds.contract import successors_of


class BaseWorld(NotebookWorld):
    """A base class of world models; nothing asks for it, ``WorldModel`` is what counts."""

    def step(
        self: WorldModel,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state; a terminal state is returned as it is."""
        successors = successors_of(self, states, actions)
        return queries.sample_successors(successors, states, generator)

    def transition_probabilities(
        self: WorldModel, state: Int[Tensor, " word"] | Sequence[int], actions: Sequence[int]
    ) -> list[tuple[float, tuple[int, ...]]] | None:
        """As EMPO users know it; see ``empo_worlds.queries.transition_probabilities``."""
        return queries.transition_probabilities(self, state, actions)
