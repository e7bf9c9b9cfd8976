"""Helpers that any world model can use: sampling, EMPO's own interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from empo_core.errors import NonFiniteError, WorldError
from empo_core.types import Successors, WorldSpec
from empo_worlds.contract import successors_of
from empo_worlds.rows import state_row

if TYPE_CHECKING:
    from empo_core.protocols import WorldModel


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
) -> Int64[np.ndarray, "state agent"]:
    """One action per state and agent, checked and contiguous.

    Raises:
        WorldError: if the actions have another shape, or one is out of range.
    """
    expected = (rows, len(spec.agents))
    if tuple(actions.shape) != expected or actions.dtype.is_floating_point:
        raise WorldError(
            f"actions must be integers of shape {expected}, one per state and agent; got "
            f"{actions.dtype} of shape {tuple(actions.shape)}"
        )
    chosen = np.ascontiguousarray(actions.cpu().numpy().astype(np.int64, copy=False))
    counts = spec.num_actions
    # Nearly always all fit every agent, which is quicker to see than whom each fits.
    may_exceed = chosen.size > 0 and (chosen.min() < 0 or chosen.max() >= min(counts))
    if may_exceed and ((chosen < 0) | (chosen >= counts)).any():
        row, agent = np.argwhere((chosen < 0) | (chosen >= counts))[0].tolist()
        agent_spec = spec.agents[agent]
        raise WorldError(
            f"action {chosen[row, agent]} of {agent_spec.name} in row {row} is out of range; "
            f"it has actions 0 to {len(agent_spec.actions) - 1}: {', '.join(agent_spec.actions)}"
        )
    return chosen


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
    row = torch.from_numpy(state_row(world.spec, state))
    successors = successors_of(world, row, torch.tensor([list(actions)]))
    pairs = [
        (float(prob), tuple(words))
        for prob, words in zip(successors.prob.tolist(), successors.states.tolist(), strict=True)
    ]
    return sorted(pairs, key=lambda pair: -pair[0]) or None


def by_steps_left(
    policy: Callable[[Tensor, int], Tensor],
    states: Int[Tensor, "state word"],
    steps_left: Int[Tensor, " state"],
) -> Float[Tensor, "state ..."]:
    """``policy(states, steps)`` of states with several numbers of steps left, one call for each.

    For human priors and robots' policies that are worked out time by time.
    """
    steps = torch.unique(steps_left).tolist()
    if len(steps) <= 1:
        return policy(states, steps[0] if steps else 1)
    parts = [(steps_left == step).nonzero()[:, 0] for step in steps]
    values = [policy(states[part], step) for part, step in zip(parts, steps, strict=True)]
    return torch.cat(values)[torch.argsort(torch.cat(parts))]


def sample_actions(
    prob: Float[Tensor, "*batch choice"], uniform: Float[Tensor, "*batch"]
) -> Int[Tensor, "*batch"]:
    """Inverse-CDF sampling: the choice that a number in [0, 1) falls on, never one of chance 0.

    Similar distributions mostly give the same choice for the same number.

    Raises:
        NonFiniteError: if a probability is infinite or NaN.
    """
    total = prob.double().cumsum(-1)
    whole = total[..., -1]
    refuse_non_finite(prob, whole)
    # Rounding may lift the product to the whole itself, which lies behind the last choice.
    target = torch.minimum(uniform * whole, whole.nextafter(torch.zeros_like(whole)))
    return (total <= target[..., None]).sum(-1)


def refuse_non_finite(prob: Float[Tensor, "*batch choice"], whole: Float[Tensor, "*batch"]) -> None:
    """Refuse to act by probabilities whose sums are infinite or NaN.

    NaN would draw the first choice for ever.

    Raises:
        NonFiniteError: if a sum is.
    """
    if not bool(whole.isfinite().all()):
        index = tuple((~whole.isfinite()).nonzero()[0].tolist())
        raise NonFiniteError(
            f"a policy to act with is not finite: probabilities {prob[index].tolist()} in "
            f"environment {index[0] if index else 0}; the learned values have diverged: go on from "
            "an older checkpoint with a lower optimiser.lr"
        )
