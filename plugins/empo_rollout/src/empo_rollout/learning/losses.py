"""The sum of policy losses that a config names, as one loss of recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_core.errors import ConfigError
from empo_core.protocols import PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import RecordedBatch
from empo_rollout.buffer import Batch

KL = "approx_kl"
"""Metric of a policy loss: the divergence between the policy that acted and the policy now."""


class LossSum(NamedTuple):
    """The sum of policy losses on a batch.

    Attributes:
        loss: To be minimised.
        metrics: Numbers of all losses, ``policy/...``; where two report the same name, the later
            one's has its class before it.
    """

    loss: Float[Tensor, ""]
    metrics: dict[str, float]


class PolicyLosses:
    """Policy losses and their weights."""

    def __init__(
        self,
        losses: Sequence[tuple[PolicyLoss, float]],
        *,
        target_kl: float | None,
        device: torch.device,
    ) -> None:
        self._modules = nn.ModuleList([loss for loss, _ in losses]).to(device)
        self._losses, self._needs_kl = list(losses), target_kl is not None

    def __call__(self, distribution: Distribution, batch: Batch, progress: float) -> LossSum:
        """``sum_i weight_i * loss_i`` of the actions that were taken.

        Args:
            distribution: The policy at the steps, with gradients.
            batch: The steps.
            progress: Share of the run that is done.

        Raises:
            ConfigError: if the divergence is limited by ``target_kl``, and no loss reports it.
        """
        weight = batch.weight.flatten()
        recorded = RecordedBatch(
            batch.action.flatten(0, 1),
            batch.advantage.flatten(),
            batch.log_prob.flatten().masked_fill(weight <= 0, 0.0),
            weight / weight.mean().clamp(min=torch.finfo(weight.dtype).tiny),
            weight.new_full((), progress),
        )
        total = weight.new_zeros(())
        metrics: dict[str, float | Tensor] = {}
        for loss, factor in self._losses:
            result = loss(distribution, recorded)
            total = total + factor * result.loss
            for name, number in result.metrics.items():
                key = f"policy/{name}"
                if key in metrics:
                    key = f"policy/{type(loss).__name__.lower()}_{name}"
                metrics[key] = number
        if self._needs_kl and f"policy/{KL}" not in metrics:
            raise ConfigError(
                f"update.target_kl: no policy loss reports '{KL}', the divergence that it limits; "
                "add 'ppo' to losses, or set target_kl to null"
            )
        return LossSum(total, numbers(metrics))

    def state_dict(self) -> StateDict:
        """What the losses remember, by position."""
        return dict(self._modules.state_dict())

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._modules.load_state_dict(state_dict)


def numbers(metrics: dict[str, float | Tensor]) -> dict[str, float]:
    """The same as plain numbers; one transfer from the device for all, since each waits for it."""
    tensors = {name: value for name, value in metrics.items() if isinstance(value, Tensor)}
    if not tensors:
        return {name: float(value) for name, value in metrics.items()}
    values = torch.stack([value.detach().float() for value in tensors.values()]).tolist()
    plain = dict(zip(tensors, values, strict=True))
    return {name: plain.get(name, value) for name, value in metrics.items()}
