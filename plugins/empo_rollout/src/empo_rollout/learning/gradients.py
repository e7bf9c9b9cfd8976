"""The gradient of the loss of a microbatch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from empo_rollout.experience.flat_rollout import Microbatch
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.losses import PolicyLosses
from empo_rollout.learning.optimisers import flattened
from empo_rollout.learning.values import value_loss
from empo_rollout.params import UpdateParams


class LossGradient(NamedTuple):
    """The loss of a microbatch, and its gradient.

    Attributes:
        gradient: In all weights, one behind the other; valid until the next call.
        metrics: Parts of the loss, and what policy losses report.
    """

    gradient: Float[Tensor, " weight"]
    metrics: dict[str, float]


class PlainGradient:
    """The gradient by autograd, of any policy."""

    def __init__(
        self,
        forward: ForwardPass,
        losses: PolicyLosses,
        update: UpdateParams,
        weights: Sequence[nn.Parameter],
    ) -> None:
        """Evaluate by ``forward`` a policy that has these weights."""
        self._forward, self._losses, self._update = forward, losses, update
        self._weights = weights

    def __call__(self, batch: Microbatch, progress: float) -> LossGradient:
        """The loss on some steps when this share of the run is done, and its gradient."""
        output, update = self._forward(batch), self._update
        policy_loss, metrics = self._losses(output.distribution, batch, progress)
        error = value_loss(
            output.value, batch.value, batch.returns, batch.weight, update.value_clip
        )
        total = policy_loss + update.value_coef * error
        gradient = torch.autograd.grad(total, self._weights, materialize_grads=True)
        numbers = torch.stack((policy_loss, error, total)).tolist()
        metrics |= zip(("loss/policy", "loss/value", "loss/total"), numbers, strict=True)
        return LossGradient(flattened(gradient), metrics)
