"""Checks before learning and in each step: parameters that fit, numbers that are finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

from torch import Tensor

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import PolicyLoss
from empo_core.types import RecordedBatch
from empo_learning.distributed import Group
from empo_learning.finite import check_finite
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


def refuse_step(metrics: Mapping[str, Tensor], name: str, policy: Networks) -> NoReturn:
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
    numbers = {quantity: float(metrics[key]) for quantity, key in quantities.items()}
    quantity = next(name for name, number in numbers.items() if not math.isfinite(number))
    raise NonFiniteError(
        f"the {quantity} of {name} is not finite ({numbers[quantity]}), though the weights are; "
        "they are left as they were. Check what environments return, or try a lower optimiser.lr"
    )
