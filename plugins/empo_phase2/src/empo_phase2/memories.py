"""What human priors said before, so that they are not asked the same again."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import HumanPrior
from empo_core.types import WorldSpec
from empo_core.worlds.row_table import RowTable
from empo_phase2.experience import GoalSlots


class RememberedPrior:
    """A human prior by slot, for states at different times; remembers its latest answers.

    Actors meet the same states again and again, and priors are slow to answer: they plan.
    """

    def __init__(
        self, prior: HumanPrior, spec: WorldSpec, slots: GoalSlots, *, max_bytes: int = 2**26
    ) -> None:
        """Wrap a prior.

        Args:
            prior: Who is asked.
            spec: The world it is about.
            slots: The goals of each layout.
            max_bytes: Once answers take more memory than this, all are forgotten.
        """
        self._prior, self._slots = prior, slots
        self._dtype = torch.promote_types(spec.state_dtype, torch.int32)
        self._words = spec.state_words + 1
        actions = max(spec.num_actions[human] for human in spec.humans)
        self._shape = len(slots.human), actions
        self._limit = max(1, max_bytes // (4 * self._shape[0] * actions))
        self._forget()

    def __call__(
        self,
        rows: Int[Tensor, "env word"],
        steps_left: Int[Tensor, " env"],
        layout: Int[Tensor, " env"],
    ) -> Float[Tensor, "env slot action"]:
        """What each slot's human would do for its goal in each state; 0 for missing goals."""
        keys = torch.cat([rows.to(self._dtype), steps_left[:, None].to(self._dtype)], 1).numpy()
        known = self._table.count
        number = self._table.number(keys)
        if self._table.count > max(self._limit, len(rows)):
            self._forget()
            known, number = 0, self._table.number(keys)
        if self._table.count > known:
            new = np.flatnonzero(number >= known)
            first = np.empty(self._table.count - known, np.int64)
            first[number[new] - known] = new
            where = torch.from_numpy(first)
            self._learn(known, rows[where], steps_left[where], layout[where])
        return self._answers[torch.from_numpy(number)]

    def _forget(self) -> None:
        self._table = RowTable(self._words, torch.empty(0, dtype=self._dtype).numpy().dtype)
        self._answers = torch.empty(1024, *self._shape)

    def _learn(self, known: int, rows: Tensor, steps_left: Tensor, layout: Tensor) -> None:
        """Ask about new states and append the answers."""
        count = known + len(rows)
        if count > len(self._answers):
            larger = torch.empty(max(count, 2 * len(self._answers)), *self._shape)
            larger[:known] = self._answers[:known]
            self._answers = larger
        goal = self._slots.goal[layout]
        for steps in sorted(set(steps_left.tolist())):
            asked = (steps_left == steps).nonzero()[:, 0]
            policy = self._prior.policy(rows[asked], steps)
            own = goal[asked]
            by_slot = policy[torch.arange(len(asked))[:, None], own.clamp(min=0)]
            self._answers[known + asked] = torch.where(own[..., None] >= 0, by_slot, 0.0).float()
