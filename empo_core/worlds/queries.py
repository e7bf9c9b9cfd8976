"""Helpers that any world model can use: sampling, EMPO's own interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import SolveError, WorldError
from empo_core.types import Successors, WorldSpec

if TYPE_CHECKING:
    from empo_core.protocols import WorldModel

CHANCE_TOLERANCE = 1e-4
"""Tolerance of the sum of a policy's probabilities around 1."""


def sample_successors(
    successors: Successors, states: Int[Tensor, "pair word"], generator: torch.Generator
) -> Int[Tensor, "pair word"]:
    """Draw one successor per pair; a pair without successors keeps its own state.

    Args:
        successors: What can follow each pair.
        states: The state of each pair.
        generator: Source of the randomness; one uniform number is drawn per pair.
    """
    uniform = torch.rand(successors.num_pairs, generator=generator, dtype=torch.float64)
    start, end = successors.offsets[:-1].long(), successors.offsets[1:].long()
    total = torch.cat([torch.zeros(1, dtype=torch.float64), successors.prob.double().cumsum(0)])
    # The target lies in the pair's own stretch of the running total; rounding may push it out.
    target = total[start] + uniform * (total[end] - total[start])
    item = torch.searchsorted(total, target, right=True) - 1
    item = torch.minimum(torch.maximum(item, start), end - 1)
    chosen = states.clone()
    ends = end > start
    chosen[ends] = successors.states[item[ends]]
    return chosen


def checked_actions(
    spec: WorldSpec, actions: Int[Tensor, "state agent"], rows: int
) -> Int[Tensor, "state agent"]:
    """Actions that were asked about, one per state and agent, as ``int64``.

    Raises:
        WorldError: They have another shape, or one is out of range.
    """
    expected = (rows, len(spec.agents))
    if tuple(actions.shape) != expected or actions.dtype.is_floating_point:
        raise WorldError(
            f"actions must be integers of shape {expected}, one per state and agent; got "
            f"{actions.dtype} of shape {tuple(actions.shape)}"
        )
    wrong = (actions < 0) | (actions >= torch.tensor(spec.num_actions))
    if bool(wrong.any()):
        row, agent = (int(place) for place in wrong.nonzero()[0])
        who = spec.agents[agent]
        raise WorldError(
            f"action {int(actions[row, agent])} of {who.name} in row {row} is out of range; "
            f"it has actions 0 to {len(who.actions) - 1}"
        )
    return actions.long()


def is_terminal(world: WorldModel, states: Int[Tensor, "state word"]) -> Bool[Tensor, " state"]:
    """True where each state is terminal: no agent has an available action there."""
    return ~world.available(states).flatten(1).any(1)


def transition_probabilities(
    world: WorldModel, state: Int[Tensor, " word"] | Sequence[int], actions: Sequence[int]
) -> list[tuple[float, tuple[int, ...]]] | None:
    """The successors of one state under one joint action, as EMPO users know it.

    Args:
        world: Any world model.
        state: A state row, as a tensor or a tuple.
        actions: One action per agent.

    Returns:
        ``(probability, state row as a tuple)`` pairs, most probable first; None where the
        state is terminal or an action is unavailable.
    """
    row = torch.as_tensor([[int(word) for word in state]], dtype=world.spec.state_dtype)
    found = world.transitions(row, torch.tensor([list(actions)]))
    pairs = [
        (float(prob), tuple(words))
        for prob, words in zip(found.prob.tolist(), found.states.tolist(), strict=True)
    ]
    return sorted(pairs, key=lambda pair: -pair[0]) or None


def checked_chances(
    chances: Float[Tensor, "*batch action"], of: str
) -> Float[Tensor, "*batch action"]:
    """Probabilities of actions, on the CPU in double precision, after a look at them.

    Args:
        chances: What a policy says.
        of: The policy, for the message.

    Raises:
        SolveError: They are no probabilities.
    """
    chances = chances.detach().cpu().double()
    wrong = ~((chances.sum(-1) - 1).abs() <= CHANCE_TOLERANCE) | (chances < 0).any(-1)
    if wrong.any():
        first = chances[wrong][0].tolist()
        raise SolveError(
            f"{of} is no probability distribution in {int(wrong.sum())} of {wrong.numel()} "
            f"cases, e.g. {first}; the run is damaged, or its algorithm has a bug"
        )
    return chances
