"""n-step and Monte-Carlo targets along the trajectories that were observed.

They need no successors, but evaluate the behaviour policy: exploration biases them.
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
class Trajectories:
    """States observed after each transition of a batch, up to n steps.

    Attributes:
        state: Ids of the states after 1, 2, ... steps; repeats the last known one.
        steps_left: Remaining steps there.
        length: Number of known steps, at least 1.
        of_q_r: Whether targets of Q_r use them.
        of_v_h_e: Whether targets of V_h^e use them.
    """

    state: Int[Tensor, "transition step"]
    steps_left: Int[Tensor, "transition step"]
    length: Int[Tensor, " transition"]
    of_q_r: bool
    of_v_h_e: bool


def trajectories_from(
    index: Int[Tensor, " transition"],
    follow: Follow,
    next_state: Callable[[Tensor], Tensor],
    steps_left: Int[Tensor, " transition"],
    *,
    steps: int,
    counts_down: bool,
    of_q_r: bool,
    of_v_h_e: bool,
) -> Trajectories:
    """Trajectories from some transitions of a replay, given by position.

    ``follow`` gives the next transition of the episode, and ``next_state`` the id of the state that
    followed. Where ``counts_down``, each of at most ``steps`` steps leaves one fewer.
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
    return Trajectories(torch.stack(states, 1), torch.stack(left, 1), length, of_q_r, of_v_h_e)


def n_step_q_r(
    paths: Trajectories,
    u_r: Float[Tensor, "transition step"],
    v_r: Float[Tensor, "transition step"],
    gamma_r: float,
) -> Float[Tensor, " transition"]:
    """n-step Q_r of the action taken.

    It is the sum of gamma_r^k U_r(s_k) for 0 < k < n, plus gamma_r^n V_r(s_n), where s_n is the
    last state known.
    """
    before_last, last = _parts(paths, u_r)
    step = torch.arange(1, u_r.shape[1] + 1, dtype=u_r.dtype, device=u_r.device)
    return (gamma_r**step * (before_last * u_r + last * v_r)).sum(1)


def n_step_v_h_e(
    paths: Trajectories,
    achieved: Bool[Tensor, "transition step human"],
    v_h_e: Float[Tensor, "transition step human"],
    gamma_h: float,
) -> Float[Tensor, "transition human"]:
    """n-step V_h^e of the goals pursued.

    It is gamma_h^(k-1) where a goal is first achieved in s_k, else gamma_h^n V_h^e(s_n), where s_n
    is the last state known.
    """
    before_last, last = _parts(paths, v_h_e)
    within = before_last + last
    step = torch.arange(1, v_h_e.shape[1] + 1, dtype=v_h_e.dtype, device=v_h_e.device)[:, None]
    reached = achieved.to(v_h_e.dtype) * within[..., None]
    # Times the goal was reached before each step: only the first time pays.
    earlier = reached.cumsum(1) - reached
    first = reached * (earlier == 0)
    never = (reached.sum(1) == 0).to(v_h_e.dtype)
    # The payoff is made on arrival, so it is discounted by the steps before that.
    paid = (first * gamma_h ** (step - 1)).sum(1)
    return paid + never * (last[..., None] * gamma_h**step * v_h_e).sum(1)


def _parts(paths: Trajectories, like: Tensor) -> tuple[Tensor, Tensor]:
    """Masks (0 or 1) of the steps before the last known one, and of the last known one."""
    step = torch.arange(1, paths.state.shape[1] + 1, device=paths.state.device)
    length = paths.length[:, None]
    return (step < length).to(like.dtype), (step == length).to(like.dtype)
