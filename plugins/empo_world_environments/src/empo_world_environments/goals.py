"""Goals that humans pursue: which they are, and what reaching them pays."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_worlds.contract import achieved_in


class Goals:
    """Draws a goal for each human, by weight."""

    def __init__(self, spec: WorldSpec) -> None:
        """Prepare to draw.

        Raises:
            SolveError: if a human has no goal that it could pursue.
        """
        self._goals, self._weights = [], []
        for human in spec.humans:
            goals = spec.goals_of(human)
            weights = [spec.goals[goal].weight for goal in goals]
            if not sum(weights) > 0:
                problem = "has no goals" if not goals else "has goals of weight 0 only"
                raise SolveError(
                    f"{spec.agents[human].name} (agent {human}) of {spec.name!r} {problem}, so "
                    "nothing says what it pursues. Give it a goal with a positive weight."
                )
            self._goals.append(torch.tensor(goals))
            self._weights.append(torch.tensor(weights, dtype=torch.float64))

    def draw(self, count: int, generator: torch.Generator) -> Int[Tensor, "env human"]:
        """Goals drawn for each human in so many episodes, as positions on the ``goal`` axis."""
        drawn = [
            goals[draw(weights.expand(count, -1), generator)]
            for goals, weights in zip(self._goals, self._weights, strict=True)
        ]
        return torch.stack(drawn, 1)


def arrived(
    world: WorldModel, rows: Int[Tensor, "env word"], goals: Int[Tensor, "env human"]
) -> Bool[Tensor, "env human"]:
    """True where each human is where it wants to be."""
    return achieved_in(world, rows).gather(1, goals)


def draw(
    chances: Float[Tensor, "*batch action"], generator: torch.Generator
) -> Int[Tensor, "*batch"]:
    """One position per row, with probability proportional to its chance; one number is drawn each.

    A chance of 0 is never drawn, and each row needs a positive one.
    """
    total = chances.to(torch.float64).cumsum(-1)
    uniform = torch.rand(total.shape[:-1], generator=generator, dtype=torch.float64)
    # A number below 1 times the total is below the total, whatever is rounded.
    return (total <= (uniform * total[..., -1])[..., None]).sum(-1)
