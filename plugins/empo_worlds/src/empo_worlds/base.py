"""A base class of world models: methods that follow from the transitions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from empo_pictures.notebooks import NotebookWorld
from empo_worlds import queries
from empo_worlds.contract import successors_of


class BaseWorld(NotebookWorld):
    """A base class of world models whose methods follow from the transitions."""

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state; a terminal state is returned as it is."""
        successors = successors_of(self, states, actions)
        return queries.sample_successors(successors, states, generator)

    def transition_probabilities(
        self, state: Int[Tensor, " word"] | Sequence[int], actions: Sequence[int]
    ) -> list[tuple[float, tuple[int, ...]]] | None:
        """Successors of a state in EMPO's form; see ``queries.transition_probabilities``."""
        return queries.transition_probabilities(self, state, actions)
