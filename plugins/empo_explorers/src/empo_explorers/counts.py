"""Preferring what was seen rarely."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import Explorer
from empo_core.trees import StateDict
from empo_core.types import Scene, WorldSpec
from empo_explorers.expectation import boosted, expected
from empo_explorers.params import CountBonusParams
from empo_worlds.row_table import RowTable

LEAST = 1e-6
"""No bonus is smaller than this."""


class CountBonus(Explorer):
    """Multiplies probabilities by exp(coefficient * bonus), where visits n earn a bonus.

    Where successors are known, visits of states count, and a choice has the expected bonus of
    its successors; else visits of states with the choice made there.
    """

    def __init__(self, params: CountBonusParams, spec: WorldSpec, agents: Sequence[int]) -> None:
        """Prepare for the rows and the choices of some agents."""
        self._params, self._words = params, spec.state_words
        self._dtype = torch.empty(0, dtype=spec.state_dtype).numpy().dtype
        choices = 1
        for agent in agents:
            choices *= spec.num_actions[agent]
        self._table = RowTable(self._words, self._dtype)
        self._visits = torch.zeros(1024, choices, dtype=torch.int64)
        self._total = 0

    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """The policy, tilted towards rare states; see ``empo_core.protocols.Explorer``."""
        if scene.successors is None:
            bonus = self._bonus(self._visits_of(scene.states))
        else:
            visits = self._visits_of(scene.successors.states).sum(1)
            bonus = expected(self._bonus(visits), scene.successors).view(policy.shape)
        return boosted(policy, self._params.coefficient * bonus)

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Count the states, and what was chosen there."""
        rows = scene.states.numpy()
        if self._table.count >= self._params.max_states:
            is_known = self._table.find(rows) >= 0
            rows, choice = rows[is_known], choice[torch.from_numpy(is_known)]
        number = torch.from_numpy(self._table.number(rows)).long()
        if self._table.count > len(self._visits):
            size = max(self._table.count, 2 * len(self._visits))
            larger = torch.zeros(size, self._visits.shape[1], dtype=torch.int64)
            larger[: len(self._visits)] = self._visits
            self._visits = larger
        ones = torch.ones(len(number), dtype=torch.int64)
        self._visits.index_put_((number, choice.long()), ones, accumulate=True)
        self._total += len(scene.states)

    def state_dict(self) -> StateDict:
        """The states and their visits."""
        rows = torch.from_numpy(self._table.rows.copy())
        return {"rows": rows, "visits": self._visits[: len(rows)].clone(), "total": self._total}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        rows = state_dict["rows"]
        self._table = RowTable(self._words, self._dtype)
        self._table.number(rows.numpy())
        size = max(len(rows), 1024)
        self._visits = torch.zeros(size, self._visits.shape[1], dtype=torch.int64)
        self._visits[: len(rows)] = state_dict["visits"]
        self._total = state_dict["total"]

    def _visits_of(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state choice"]:
        """Visits ``[state choice]``; 0 for states that were never seen."""
        number = torch.from_numpy(self._table.find(rows.numpy())).long()
        return torch.where(number[:, None] >= 0, self._visits[number.clamp(min=0)], 0)

    def _bonus(self, visits: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        share = 1 / (visits.double() + 1)
        if self._params.ucb:
            share = share * np.log(max(self._total, 1))
        return (self._params.scale * share.sqrt()).clamp(min=LEAST)
