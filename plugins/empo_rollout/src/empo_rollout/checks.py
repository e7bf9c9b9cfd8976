"""Checks before learning and in each step: parameters that fit, numbers that are finite."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

import torch

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import PolicyLoss
from empo_core.types import RecordedBatch
from empo_learning.distributed import Group
from empo_learning.finite import check_finite
from empo_rollout.distributions import MultiCategorical, diagonal_normal
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks


def require_fit(
    policy: Networks,
    losses: Sequence[tuple[PolicyLoss, float]],
    params: RolloutParams,
    plan: VecPlan,
    group: Group,
) -> None:
    """Refuse what cannot be learned with.

    Raises:
        ConfigError: if the losses or parameters do not fit the policy, or each other.
    """
    parts = plan.accumulate > 1 or group.size > 1
    for position, (loss, _) in enumerate(losses):
        if loss.takes is not RecordedBatch:
            raise ConfigError(
                f"losses[{position}]: {type(loss).__name__} learns from imagined candidates, and "
                "algorithm 'rollout' records the one action that was taken; choose another, e.g. "
                "'ppo'"
            )
        if parts and next(loss.buffers(), None) is not None:
            raise ConfigError(
                f"losses[{position}]: {type(loss).__name__} adapts to whole minibatches, and would "
                "see parts of them; learn in one process and without accumulation, or choose "
                "another, e.g. 'ppo'"
            )
    if params.update.sampling == "steps":
        if policy.memory_size:
            raise ConfigError(
                "update.sampling: 'steps' tears segments apart, and the policy has a memory; "
                "choose 'shuffled', or a policy.network without"
            )
        if params.advantages.vtrace == "minibatch":
            raise ConfigError(
                "advantages.vtrace: 'minibatch' needs whole segments in a minibatch, and "
                "update.sampling 'steps' has none; choose 'epoch', or 'shuffled'"
            )
    sizes = (plan.batch_size, plan.minibatch_size)
    first = group.shared(sizes)
    if group.sum(int(sizes != first)):  # All ranks refuse: none waits for another.
        raise ConfigError(
            f"update: rank {group.rank} has rollouts of {sizes[0]} steps and minibatches of "
            f"{sizes[1]}, rank 0 of {first[0]} and {first[1]}, and not all ranks have the same; "
            "give all of them the same vectorisation"
        )


def require_divergence(policy: Networks, losses: Sequence[tuple[PolicyLoss, float]]) -> None:
    """Refuse losses none of which reports the divergence that ``target_kl`` limits.

    A copy of each is asked about two steps of a policy that does not prefer any action.

    Raises:
        ConfigError: if no loss does.
    """
    choices, outputs = (
        policy.members[0].choices,
        torch.zeros(2, policy.members[0].head.out_features),
    )
    distribution = (
        MultiCategorical(outputs, choices) if choices else diagonal_normal(outputs, outputs[0])
    )
    action = distribution.mode.to(outputs.dtype)
    ones = torch.ones(2)
    batch = RecordedBatch(action, ones, distribution.log_prob(action), ones, torch.zeros(()))
    with torch.random.fork_rng(devices=[]):
        for loss, _ in losses:
            if "approx_kl" in copy.deepcopy(loss)(distribution, batch).metrics:
                return
    raise ConfigError(
        "update.target_kl: no policy loss reports 'approx_kl', the divergence that it limits; add "
        "'ppo' to losses, or set target_kl to null"
    )


def refuse_step(metrics: Mapping[str, float], name: str, policy: Networks) -> NoReturn:
    """Say what is not finite, of a step that is not taken.

    Raises:
        NonFiniteError: if a loss, the gradient, or a weight is infinite or NaN, as one is.
    """
    check_finite(policy.state_dict(), "a weight of the policy")
    quantities = {
        "policy loss": "loss/policy",
        "value loss": "loss/value",
        "loss": "loss/total",
        "gradient": "optim/grad_norm",
    }
    numbers = {quantity: metrics[key] for quantity, key in quantities.items()}
    quantity = next(name for name, number in numbers.items() if not math.isfinite(number))
    raise NonFiniteError(
        f"the {quantity} of {name} is not finite ({numbers[quantity]}), though the weights are; "
        "they are left as they were. Check what environments return, or try a lower optimiser.lr"
    )
