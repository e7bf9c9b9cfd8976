"""A world of tokens on cells that are all alike, with as many symmetries as cells have orders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_core.world_structure import Symmetry
from empo_worlds.queries import sample_successors


class Cells(WorldModel):
    """A human moves the first token to a free cell, and succeeds in 7 of 10 tries.

    The robot exchanges it with another token. Goals are the cells of the first token.
    """

    def __init__(self, cells: int, generators: Sequence[Sequence[int]], tokens: int = 3) -> None:
        self.cells, self.tokens, self.generators = cells, tokens, generators
        moves, swaps = [f"to {i}" for i in range(cells)], [f"swap {i}" for i in range(1, tokens)]
        self.spec = WorldSpec(
            name="cells",
            agents=(
                AgentSpec(name="ann", role="human", actions=("stay", *moves)),
                AgentSpec(name="bot", role="robot", actions=("wait", *swaps)),
            ),
            goals=tuple(Goal(human=0, name=f"at {i}", weight=1.0) for i in range(cells)),
            state_words=tokens,
            state_dtype=torch.int16,
            horizon=3,
        )

    def initial_state(self) -> Tensor:
        return torch.tensor([3, 1, 2], dtype=torch.int16)[: self.tokens]

    def available(self, states: Tensor) -> Tensor:
        found = torch.ones(len(states), 2, self.cells + 1, dtype=torch.bool)
        found[:, 1, self.tokens :] = False
        return found

    def achieved(self, states: Tensor) -> Tensor:
        return states[:, :1] == torch.arange(self.cells)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        human = self.cells + 1
        if actions is None:
            joint = torch.arange(self.spec.num_joint_actions).repeat(len(states))
            states = states.repeat_interleave(self.spec.num_joint_actions, 0)
            actions = torch.stack([joint % human, joint // human], 1)
        stays = states.clone()
        pair = torch.arange(len(states))
        other = actions[:, 1].long()
        stays[:, 0], stays[pair, other] = states[pair, other], states[:, 0]
        moved = stays.clone()
        target = (actions[:, 0] - 1).to(states.dtype)
        goes = (target >= 0) & (target[:, None] != stays[:, 1:]).all(1) & (target != stays[:, 0])
        moved[goes, 0] = target[goes]
        rows = torch.stack([moved, stays], 1).flatten(0, 1)
        kept = torch.stack([torch.ones_like(goes), goes], 1).flatten()
        prob = torch.where(goes[:, None], torch.tensor([0.7, 0.3]), torch.tensor([1.0, 0.0]))
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (1 + goes.long()).cumsum(0)])
        return Successors(offsets, rows[kept], prob.double().flatten()[kept], None)

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return sample_successors(self.transitions(states, actions), states, generator)

    def describe(self, state: Tensor) -> str:
        return f"tokens on {state.tolist()}"

    def symmetries(self) -> list[Symmetry]:
        return [self._symmetry(tuple(order)) for order in self.generators]

    def _symmetry(self, order: tuple[int, ...]) -> Symmetry:
        becomes = torch.tensor(order, dtype=torch.int16)
        actions = torch.arange(self.cells + 1).repeat(2, 1)
        actions[0, 1:] = torch.tensor(order) + 1
        return Symmetry(
            name=f"order {order}",
            rows=lambda states: becomes[states.long()],
            agents=(0, 1),
            actions=lambda states: actions.expand(len(states), -1, -1),
            goals=order,
        )


def exchange(cells: int, first: int, other: int) -> tuple[int, ...]:
    """The order in which two cells are exchanged."""
    order = list(range(cells))
    order[first], order[other] = other, first
    return tuple(order)


def cycle(cells: int) -> tuple[int, ...]:
    """The order in which each cell becomes the next."""
    return (*range(1, cells), 0)
