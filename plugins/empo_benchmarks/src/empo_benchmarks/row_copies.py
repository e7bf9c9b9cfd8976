"""Copies of a world whose states are rows, in the middle of their episodes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_core.trees import StateDict


@dataclass(slots=True)
class RowCopies:
    """Copies in the middle of their episodes, and the outcome of the last step.

    Attributes:
        rows: The state of each copy.
        left: Steps left in its episode.
        reward: What was paid in the last step, once or to each learner.
        over: Whether the episode ended in it.
        begins: Whether another one begins, for all or for each learner.
        final: The last states of the episodes that ended.
        generator: Draws whatever is random in the copies.
    """

    rows: Int16[Tensor, "env word"]
    left: Int[Tensor, " env"]
    reward: Float[Tensor, "env ..."]
    over: Bool[Tensor, " env"]
    begins: Bool[Tensor, "env ..."]
    final: Int16[Tensor, "final word"]
    generator: torch.Generator

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so."""
        state = {name: getattr(self, name).clone() for name in self._tensors()}
        return state | {"generator": self.generator.get_state()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for name in self._tensors():
            setattr(self, name, state_dict[name].clone())
        self.generator.set_state(state_dict["generator"])

    def _tensors(self) -> list[str]:
        return [field.name for field in fields(self) if field.name != "generator"]


def steps_left(
    steps: int, count: int, generator: torch.Generator, *, desync: bool
) -> Int[Tensor, " env"]:
    """The lengths of the first episodes of so many copies: ``steps``, or drawn from 1 on."""
    if desync:
        return torch.randint(1, steps + 1, (count,), generator=generator)
    return torch.full((count,), steps)
