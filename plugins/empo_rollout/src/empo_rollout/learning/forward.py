"""Forward passes of a policy over recorded steps, with gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_rollout.buffer import Batch
from empo_rollout.params import ComputeParams
from empo_rollout.policies.precision import autocast
from empo_rollout.policies.protocols import ActorCritic


class PolicyOutput(NamedTuple):
    """The policy at the recorded steps of a batch.

    Attributes:
        features: What the policy's head reads.
        value: Value estimates.
        distribution: Over actions ``[row number]``.
    """

    features: Float[Tensor, "row feature"]
    value: Float[Tensor, " row"]
    distribution: Distribution


class ForwardPass:
    """Evaluates a policy at recorded steps, in the precision that was asked for.

    Attributes:
        policy: The policy.
    """

    def __init__(self, policy: ActorCritic, compute: ComputeParams) -> None:
        self.policy, self._compute = policy, compute
        self._unroll = torch.compile(policy.unroll) if compute.compile else policy.unroll

    def __call__(self, batch: Batch) -> PolicyOutput:
        """Unroll the segments of ``batch`` from their first memory; float32 whatever computes."""
        with autocast(self._compute):
            hidden, value = self._unroll(batch.observation, batch.memory, batch.starts, batch.agent)
        features = hidden.flatten(0, 1).float()
        with autocast(self._compute):
            distribution = self.policy.distribution(
                features,
                batch.row_agent,
                None if batch.mask is None else batch.mask.flatten(0, 1),
            )
        return PolicyOutput(features, value.flatten().float(), distribution)
