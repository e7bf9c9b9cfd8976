"""Targets along what really happened: n steps, or the rest of the episode (spec D.3).

They need no model, but judge the robot by what it did while it explored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Follow = Callable[[Tensor], Tensor]
"""From positions in a replay to those of the next transitions of the episode, or -1."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The states that followed each transition of a batch.

    Attributes:
        state: Ids of the states after 1, 2, ... steps; repeats the last known one.
        steps_left: Remaining steps there.
        length: How many steps are known, at least 1.
        of_q_r: Whether Q_r uses them.
        of_v_h_e: Whether V_h^e uses them.
    """

    state: Int[Tensor, "transition step"]
    steps_left: Int[Tensor, "transition step"]
    length: Int[Tensor, " transition"]
    of_q_r: bool
    of_v_h_e: bool


def paths_from(
    index: Int[Tensor, " transition"],
    follow: Follow,
    next_state: Callable[[Tensor], Tensor],
    steps_left: Int[Tensor, " transition"],
    *,
    steps: int,
    counts_down: bool,
    of_q_r: bool,
    of_v_h_e: bool,
) -> Paths:
    """The paths of some transitions of a replay.

    Args:
        index: Their positions.
        follow: Gives the next transition of the episode.
        next_state: Gives the id of the state that followed transitions.
        steps_left: Remaining steps where the transitions start.
        steps: How many steps to follow at most.
        counts_down: Whether each step leaves one fewer.
        of_q_r: Whether Q_r uses them.
        of_v_h_e: Whether V_h^e uses them.
    """
    states, left, length = [], [], torch.zeros_like(index)
    here, state, remaining = index, next_state(index), steps_left.long()
    going = torch.ones_like(index, dtype=torch.bool)
    for step in range(steps):
        if step:
            after = follow(here)
            going = going & (after >= 0)
            if not going.any():
                break
            here = torch.where(going, after, here)
            state = torch.where(going, next_state(here), state)
        remaining = remaining - going.long() * int(counts_down)
        length = length + going.long()
        states.append(state)
        left.append(remaining)
    return Paths(torch.stack(states, 1), torch.stack(left, 1), length, of_q_r, of_v_h_e)


def along_q_r(
    paths: Paths,
    u_r: Float[Tensor, "transition step"],
    v_r: Float[Tensor, "transition step"],
    gamma_r: float,
) -> Float[Tensor, " transition"]:
    """Q_r of the action taken: discounted U_r on the way, and V_r at the end of the path."""
    before_last, last = _parts(paths, u_r)
    step = torch.arange(1, u_r.shape[1] + 1, dtype=u_r.dtype, device=u_r.device)
    return (gamma_r**step * (before_last * u_r + last * v_r)).sum(1)


def along_v_h_e(
    paths: Paths,
    achieved: Bool[Tensor, "transition step human"],
    v_h_e: Float[Tensor, "transition step human"],
    gamma_h: float,
) -> Float[Tensor, "transition human"]:
    """V_h^e of the goals pursued: 1 where they were reached first, else V_h^e at the end."""
    before_last, last = _parts(paths, v_h_e)
    within = before_last + last
    step = torch.arange(1, v_h_e.shape[1] + 1, dtype=v_h_e.dtype, device=v_h_e.device)[:, None]
    reached = achieved.to(v_h_e.dtype) * within[..., None]
    # How often the goal was reached before each step: only the first time pays.
    earlier = reached.cumsum(1) - reached
    first = reached * (earlier == 0)
    never = (reached.sum(1) == 0).to(v_h_e.dtype)
    # The payoff is made on arrival, so it is discounted by the steps before that.
    paid = (first * gamma_h ** (step - 1)).sum(1)
    return paid + never * (last[..., None] * gamma_h**step * v_h_e).sum(1)


def _parts(paths: Paths, like: Tensor) -> tuple[Tensor, Tensor]:
    """Which steps lie before the end of each path, and which is the last, as 0 and 1."""
    step = torch.arange(1, paths.state.shape[1] + 1, device=paths.state.device)
    length = paths.length[:, None]
    return (step < length).to(like.dtype), (step == length).to(like.dtype)
