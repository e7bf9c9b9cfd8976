"""Batches as losses take them: how much each start counts, candidates, and a critic of them.

All losses of the agent are means, over steps and over sequences, of a weight times a loss.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import Critic
from empo_core.types import ImaginedBatch
from empo_latent.networks.model import LatentModel, Network
from empo_latent.types import PolicyRollout, SequenceBatch


def step_weights(rho: float, steps: int, normalise: bool) -> Float[Tensor, " {steps}"]:
    """How much each step of a sequence counts in a mean over all of them.

    ``rho ** s``, so that a loss is ``1 / S * sum_s rho ** s * loss_s``; normalised
    ``rho ** s * S / sum(rho ** s)``, so that it is ``sum_s rho ** s * loss_s / sum_s rho ** s``.

    Args:
        rho: Weight of each step relative to the one before.
        steps: How many there are: T for losses about transitions, T + 1 for those about starts.
        normalise: Whether the weights have mean 1.
    """
    weights = torch.tensor([rho**step for step in range(steps)], dtype=torch.float64)
    if normalise:
        weights = weights / weights.mean()
    return weights.to(torch.float32)


def alive(sequences: SequenceBatch) -> Float[Tensor, "moment sequence"]:
    """1 at moments before which no step ended the episode, else 0.

    An episode that ended is worth nothing, whatever its last observation looks like, and there
    is nothing to decide in it.
    """
    going_on = torch.cumprod(1 - sequences.terminated.squeeze(-1), 0)
    return torch.cat([torch.ones_like(going_on[:1]), going_on])


def policy_batch(
    rollout: PolicyRollout,
    td: Float[Tensor, "step reward dynamics value m 1"],
    weight: Float[Tensor, "moment sequence"],
) -> ImaginedBatch:
    """Starts and their candidates as a policy loss takes them.

    Args:
        rollout: What the candidates lead to.
        td: Their one-step targets, of which those of the first step are used.
        weight: How much each start counts: ``step_weights`` times ``alive``.

    Returns:
        A batch whose targets list all heads, ``(reward * H + dynamics) * Ve + value``.
    """
    starts = len(rollout.start)
    target = td[0].flatten(0, 2).squeeze(-1)
    return ImaginedBatch(
        rollout.start,
        rollout.presquash[0].reshape(starts, -1, rollout.presquash.shape[-1]),
        target.t().reshape(starts, -1, target.shape[0]),
        rollout.log_prob[0].reshape(starts, -1),
        weight.reshape(-1),
        rollout.proposal,
    )


def critic(
    model: LatentModel,
    discount: Float[Tensor, "*per_task"],
    task: Int[Tensor, "*batch"] | None = None,
    network: Network = "online",
) -> Critic:
    """What actions are worth, differentiable in them.

    For critic ``v`` that is ``r(z, a) + discount * (1 - d(z')) * V(z')`` with ``z' = f(z, a)``,
    by each reward, dynamics and value head; for ``q`` it is ``Q(z, a)`` by each value head.
    Whether a step ends the episode, ``d``, counts as a constant.

    The model's parameters are used as they are: a loss that must leave them without gradients
    asks for the gradient in the actions alone, as the policy losses do.

    Args:
        model: The world model.
        discount: One, or ``[..., 1]`` one for each start.
        task: Which task each start is of; its shape broadcasts against the starts'.
        network: Which value networks.

    Returns:
        A function of features ``[... feature]`` and actions ``u`` as the policy's distribution
        measures them, ``[... action]``, which returns ``[... head]``. Actions may have axes in
        front that features lack.
    """

    def values(features: Tensor, u: Tensor) -> Tensor:
        features = features.expand(*u.shape[:-1], features.shape[-1])
        action = model.bounded(u, task=task)
        if model.critic == "q":
            found = model.value(features, action, task=task, network=network)
        else:
            latent = model.next_latent(features, action, task=task)
            going_on = 1 - model.terminates(latent.detach(), task=task)
            value = model.value(latent, task=task, network=network).transpose(0, 1)
            reward = model.reward(features, action, task=task)[:, None, None]
            # [reward dynamics value ...]
            found = (reward + discount * going_on[:, None] * value).flatten(0, 2)
        return found.squeeze(-1).movedim(0, -1)

    return values
