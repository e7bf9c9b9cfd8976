"""A solved world with other goals, on the same graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import Expansion, Goal, InitialStates, Successors
from empo_exact.inspection import follows_parameters
from empo_exact.solution import Solution
from empo_worlds.row_table import RowTable


class RelabelledWorld(WorldModel):
    """A world with other goals, which are known in some of its states."""

    def __init__(
        self,
        world: WorldModel,
        goals: tuple[Goal, ...],
        table: RowTable,
        achieved: Bool[np.ndarray, "state goal"],
    ) -> None:
        """The same world.

        Args:
            world: The world.
            goals: Its new goals.
            table: State rows.
            achieved: The new goals that each of these achieves.
        """
        self.spec = replace(world.spec, goals=goals)
        self._world, self._table, self._achieved = world, table, achieved

    def initial_state(self) -> Int[Tensor, " word"]:
        """See ``WorldModel``."""
        return self._world.initial_state()

    def initial_states(self) -> InitialStates:
        """See ``WorldModel``."""
        return self._world.initial_states()

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """See ``WorldModel``."""
        return self._world.transitions(states, actions)

    def expand(self, states: Int[Tensor, "state word"]) -> Expansion | None:
        """See ``WorldModel``; states are so numbered as in a graph of the world itself."""
        return self._world.expand(states)

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """See ``WorldModel``."""
        return self._world.available(states)

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """See ``WorldModel``."""
        return torch.from_numpy(self._achieved[self._table.find(states.numpy())])

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """See ``WorldModel``."""
        return self._world.step(states, actions, generator)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """See ``WorldModel``."""
        return self._world.describe(state)


def refuse_other_humans(solution: Solution, name: str) -> None:
    """Refuse humans of whom it is not known how they would pursue another goal.

    Raises:
        SolveError: if they do not act by equations (1)-(3) with the parameters alone.
    """
    if not follows_parameters(solution):
        raise SolveError(
            f"algorithm.params.diagnostics: {name} asks how humans pursue goals that are not "
            "listed, which a prior, a habit or beliefs do not say; leave "
            f"{name} out, or let humans act by theory.beta_h alone"
        )
