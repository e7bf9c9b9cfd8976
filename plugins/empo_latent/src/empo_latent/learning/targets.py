"""Targets of values: one imagined step, then the value by the target networks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from empo_latent.learning.loss_terms import disagreement
from empo_latent.networks.ensemble import drawn_heads, reduced
from empo_latent.networks.model import LatentModel, Network
from empo_latent.params.networks import AuxiliaryParams, ValueParams
from empo_latent.types import PolicyRollout


@torch.no_grad()
def td_targets(
    model: LatentModel,
    rollout: PolicyRollout,
    discount: Float[Tensor, "*per_task"],
    *,
    network: Network = "target",
) -> tuple[
    Float[Tensor, "step reward dynamics value m 1"], Float[Tensor, "step dynamics value m 1"]
]:
    """The return of each imagined step as each combination of heads estimates it.

    ``y[r, h, e] = reward_r(z_h, a) + discount * (1 - d_h) * V_e(z'_h)``, where ``z'_h`` is what
    dynamics head ``h`` expects and ``d_h`` the probability that it ends the episode. A critic of
    actions is asked about an action that the policy draws at ``z'_h``. There is one discount, or
    ``[m, 1]`` where tasks have their own.

    Returns:
        ``y``, and ``V`` alone; contiguous constants.
    """
    after = rollout.latent[1:]
    action = None
    if model.critic == "q":
        policy = model.policy(after, task=rollout.task)
        action = policy.bounded(policy.sample())
    value = model.value(after, action, task=rollout.task, network=network)
    return _discounted(rollout, value, discount), value.permute(1, 2, 0, 3, 4).contiguous()


@torch.no_grad()
def auxiliary_targets(
    model: LatentModel, rollout: PolicyRollout, discounts: Float[Tensor, " gamma"]
) -> Float[Tensor, "step reward dynamics gamma m 1"]:
    """The same for values under further discounts, by the target networks.

    Each auxiliary head has its own discount, which does not multiply the task's.
    """
    value = model.auxiliary(rollout.latent[1:], task=rollout.task, network="target")
    return _discounted(rollout, value, discounts[:, None, None])


def _discounted(
    rollout: PolicyRollout,
    value: Float[Tensor, "head step dynamics m 1"],
    discount: Float[Tensor, "*per_task"],
) -> Float[Tensor, "step reward dynamics head m 1"]:
    going_on = 1 - rollout.termination
    # [step dynamics head m 1]
    later = discount * (going_on * value).permute(1, 2, 0, 3, 4)
    steps = [reward.unsqueeze(2) + later[t] for t, reward in enumerate(rollout.reward)]
    return torch.stack(steps).contiguous()


def value_target(
    td: Float[Tensor, "step reward dynamics value m 1"],
    params: ValueParams,
    moments: int,
    sequences: int,
    candidates: int,
    weights: Float[Tensor, "start candidate"] | None = None,
) -> Float[Tensor, "value {moments} {sequences} target 1"]:
    """Targets of each value head at each start, from those of the first imagined step.

    ``params`` say how reward and dynamics heads become one (``dynamics``), which value heads a
    value head learns from (``bootstrap``), and what is averaged over candidates (``average``): the
    target, or the loss, for which there is one target per candidate. Weights of candidates add up
    to 1 at each start; without them all count alike.
    """
    heads = bootstrapped(reduced(td[0], params.dynamics, (0, 1)), params)
    target = heads.reshape(-1, moments, sequences, candidates, 1)
    if params.average == "cross_entropy":
        return target
    if weights is None:
        return target.mean(3, keepdim=True)
    return (target * weights.reshape(moments, sequences, candidates, 1)).sum(3, keepdim=True)


def auxiliary_target(
    targets: Float[Tensor, "step reward dynamics gamma m 1"],
    params: AuxiliaryParams,
    moments: int,
    sequences: int,
) -> Float[Tensor, "gamma {moments} {sequences} 1 1"]:
    """Targets of each auxiliary value at each start: the mean over candidates."""
    heads = reduced(targets[0], params.dynamics, (0, 1))
    return heads.reshape(heads.shape[0], moments, sequences, -1, 1).mean(3, keepdim=True)


def bootstrapped(
    heads: Float[Tensor, "chosen ..."], params: ValueParams
) -> Float[Tensor, "value ..."]:
    """The estimate that each value head learns from, given those of all heads, or of a pair."""
    if params.bootstrap == "local":
        return heads
    if params.bootstrap == "mean":
        value = heads.mean(0)
    else:
        if params.bootstrap == "pair" and len(heads) > 2:
            heads = heads.index_select(0, drawn_heads(len(heads), 2, heads.device))
        value = heads.amin(0)
    return value.expand(params.heads, *value.shape)


def target_metrics(
    td: Float[Tensor, "step reward dynamics value m 1"],
    v_next: Float[Tensor, "step dynamics value m 1"],
) -> dict[str, Tensor]:
    """Numbers for people about targets and how much heads disagree on them."""
    return {
        "td/mean": td.mean(),
        "td/std": td.std(correction=0),
        "td/min": td.min(),
        "td/max": td.max(),
        "td/disagreement": disagreement(td[0].flatten(0, 2)),
        "value/disagreement": disagreement(v_next[0].flatten(0, 1)),
    }
