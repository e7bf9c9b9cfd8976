"""Advantage estimates: generalised advantages (GAE), V-trace, and their normalisation."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from empo_rollout.experience.rollout import Rollout
from empo_rollout.params import AdvantageParams


@torch.no_grad()
def advantages(
    rollout: Rollout,
    params: AdvantageParams,
    gamma: float,
    ratio: Float[Tensor, "time segment"] | None = None,
) -> tuple[Float[Tensor, "time segment"], Float[Tensor, "time segment"]]:
    """Advantages and returns by GAE (Schulman et al. 2016) and V-trace (Espeholt et al. 2018).

    With ``rho = min(ratio, rho_clip)`` and ``c = min(ratio, c_clip)``, both 1 without ratios::

        delta_t = rho_t (r_t + gamma V'_t - V_t)
        A_t     = delta_t + gamma lambda c_t A_{t+1}
        R_t     = A_t + V_t

    ``V'`` is ``rollout.next_value``, or what ``params.truncation`` says where an episode was cut
    off; if that is ``last``, and the observation after it is unknown, it is ``V_t``. The second
    term is missing where an episode ends and in the last step of a segment. Steps that are not
    ``learnable`` have advantage 0, so nothing reaches what precedes them.

    Args:
        rollout: Steps, values and outcomes.
        params: Reach of credit, clips, truncation.
        gamma: Discount per step, in [0, 1].
        ratio: Of the probabilities of each action under the policy now and under the one that
            acted; read only where steps are ``learnable``. None: both are the same.

    Returns:
        Advantages, and returns as targets of the value function.
    """
    # Operations of numpy start sooner, and torch is slow with booleans on the CPU.
    compute = with_numpy if rollout.value.device.type == "cpu" else with_torch
    advantage = compute(rollout, params, gamma, None if ratio is None else ratio.detach())
    return advantage, advantage + rollout.value


def advantage_sums(
    advantage: Float[Tensor, "time minibatch column"],
    weight: Float[Tensor, "time minibatch column"],
) -> Float[Tensor, "3 minibatch"]:
    """Weighted sums of 1, A and A² of each minibatch, in float64.

    Sums of several processes may be added up before ``normalised`` gets them.
    """
    # In float64, since the variance is a small difference of large numbers.
    exact, weights = advantage.double(), weight.double()
    weighted = weights * exact
    return torch.stack((weights, weighted, weighted * exact)).sum((1, 3))


def normalised(
    advantage: Float[Tensor, "time minibatch column"], sums: Float[Tensor, "3 minibatch"]
) -> Float[Tensor, "time minibatch column"]:
    """``(A - mean) / (std + 1e-8)`` within each minibatch, with its biased standard deviation.

    A minibatch of one step has no deviation: minus its own mean, its advantage would be 0 and
    teach nothing. There mean and deviation are those of all minibatches, if that is more than one
    step; else the advantage stays as it is.

    Args:
        advantage: Of each step.
        sums: What ``advantage_sums`` returned for the minibatches, or for those of all processes.
    """
    sums = torch.where(sums[0] > 1, sums, sums.sum(1, keepdim=True))
    total, first, second = sums.unbind()
    safe_total = total.clamp(min=1e-300)  # Without any weight nothing is learned anyway.
    mean = first / safe_total
    deviation = (second / safe_total - mean.square()).clamp(min=0).sqrt()
    shifted = (advantage.double() - mean[:, None]) / (deviation[:, None] + 1e-8)
    return torch.where(total[:, None] > 1, shifted, advantage.double()).to(advantage.dtype)


def with_numpy(
    rollout: Rollout,
    params: AdvantageParams,
    gamma: float,
    ratio: Float[Tensor, "time segment"] | None,
) -> Float[Tensor, "time segment"]:
    """Advantages, on the CPU."""
    reward, value, next_value = (
        tensor.numpy() for tensor in (rollout.reward, rollout.value, rollout.next_value)
    )
    terminated, truncated = rollout.terminated.numpy(), rollout.truncated.numpy()
    learnable = rollout.valid.numpy() & rollout.is_known.numpy()
    goes_on = np.greater(learnable, terminated | truncated)

    # Contiguous rows, whatever the inputs are.
    advantage, factor = (np.empty(value.shape, np.float32) for _ in range(2))
    last = params.truncation == "last"
    cut = rollout.unseen.numpy() if last else np.greater(truncated, terminated)
    if cut.any():
        next_value = next_value.copy()
        np.copyto(next_value, 0 if params.truncation == "zero" else value, where=cut)
    np.multiply(next_value, gamma, out=advantage)
    advantage += reward
    advantage -= value
    reach = gamma * params.gae_lambda
    if ratio is None:
        np.multiply(goes_on, np.float32(reach), out=factor)
    else:
        advantage *= np.minimum(ratio.numpy(), params.rho_clip, out=factor)
        np.minimum(ratio.numpy(), params.c_clip, out=factor)
        factor *= reach
        _keep(factor, goes_on)
    if not learnable.all():
        _keep(advantage, learnable)

    rows, factors = list(advantage), list(factor)
    product, later = np.empty_like(rows[-1]), rows.pop()
    for row, row_factor in zip(reversed(rows), factors[-2::-1], strict=True):
        np.multiply(later, row_factor, product)
        np.add(row, product, row)
        later = row
    return torch.from_numpy(advantage)


def _keep(values: np.ndarray, mask: np.ndarray) -> None:
    """Put 0 where the mask is False.

    By bits: a product would make NaN of 0 * NaN, and to decide at each element takes twenty times
    as long where the mask is irregular.
    """
    bits = values.view(np.int32)
    np.bitwise_and(bits, np.negative(mask.view(np.int8)), out=bits)


def with_torch(
    rollout: Rollout,
    params: AdvantageParams,
    gamma: float,
    ratio: Float[Tensor, "time segment"] | None,
) -> Float[Tensor, "time segment"]:
    """Advantages, on any device."""
    value, learnable = rollout.value, rollout.learnable
    goes_on = learnable & ~(rollout.terminated | rollout.truncated)
    last = params.truncation == "last"
    cut = rollout.unseen if last else rollout.truncated & ~rollout.terminated
    next_value = torch.where(cut, 0.0 if params.truncation == "zero" else value, rollout.next_value)
    advantage = rollout.reward + gamma * next_value - value
    factor = torch.full_like(value, gamma * params.gae_lambda)
    if ratio is not None:
        advantage *= ratio.clamp(max=params.rho_clip)
        factor *= ratio.clamp(max=params.c_clip)
    factor.masked_fill_(~goes_on, 0.0)
    advantage.masked_fill_(~learnable, 0.0)

    rows, factors = advantage.unbind(), factor.unbind()
    for time in range(len(rows) - 2, -1, -1):
        rows[time].addcmul_(rows[time + 1], factors[time])
    return advantage
