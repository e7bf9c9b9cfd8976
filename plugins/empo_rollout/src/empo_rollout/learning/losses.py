"""The sum of policy losses that a config names, as one loss of recorded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.errors import ConfigError
from empo_core.protocols import PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch
from empo_rollout.buffer import Batch
from empo_rollout.learning.forward import PolicyOutput

KL = "approx_kl"
"""Metric of a policy loss: the divergence between the policy that acted and the policy now."""


class LossSum(NamedTuple):
    """The sum of policy losses on a batch.

    Attributes:
        loss: To be minimised.
        metrics: Numbers of all losses, ``policy/...``; where two report the same name, the later
            one's has its class before it.
        statistics: ``LossOutput.statistics`` of each loss.
    """

    loss: Float[Tensor, ""]
    metrics: dict[str, float]
    statistics: list[Mapping[str, Tensor]]


class PolicyLosses:
    """Policy losses and their weights."""

    def __init__(
        self, losses: Sequence[tuple[PolicyLoss, float]], *, target_kl: float | None
    ) -> None:
        self._losses, self._needs_kl = list(losses), target_kl is not None
        self._adaptive = {i: loss for i, (loss, _) in enumerate(self._losses) if loss.is_adaptive}

    def __call__(self, output: PolicyOutput, batch: Batch) -> LossSum:
        """``sum_i weight_i * loss_i`` of the actions that were taken.

        Raises:
            ConfigError: if the divergence is limited by ``target_kl``, and no loss reports it.
        """
        start = output.features.detach()
        policy = RecordedPolicy(start, output.distribution)
        imagined = ImaginedBatch(
            start,
            batch.action.flatten(0, 1)[None],
            batch.advantage.flatten()[None, :, None],
            batch.log_prob.flatten()[None],
            batch.weight.flatten(),
        )
        terms, statistics = [], []
        metrics: dict[str, float] = {}
        for loss, factor in self._losses:
            result = loss(policy, imagined)
            terms.append(result.loss if factor == 1 else factor * result.loss)
            statistics.append(result.statistics)
            for name, number in result.metrics.items():
                key = f"policy/{name}"
                if key in metrics:
                    key = f"policy/{type(loss).__name__.lower()}_{name}"
                metrics[key] = float(number)
        if self._needs_kl and f"policy/{KL}" not in metrics:
            raise ConfigError(
                f"update.target_kl: no policy loss reports '{KL}', the divergence that it limits; "
                "add 'ppo' to losses, or set target_kl to null"
            )
        total = terms[0] if len(terms) == 1 else torch.stack(terms).sum()
        return LossSum(total, metrics, statistics)

    def adapt(self, statistics: Sequence[Mapping[str, Tensor]], progress: float) -> None:
        """Let losses that change in training do so, after a step of the optimiser."""
        for i, loss in self._adaptive.items():
            loss.adapt(statistics[i], progress)

    def state_dict(self) -> StateDict:
        """State of the losses that adapt, by position."""
        return {str(i): loss.state_dict() for i, loss in self._adaptive.items()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        for i, loss in self._adaptive.items():
            loss.load_state_dict(state_dict[str(i)])


class RecordedPolicy:
    """The policy as policy losses see it: at the features of recorded steps, and at no others.

    Its distributions were made by the whole network, so that gradients reach all of it, though
    the features that the loss was given are constants.
    """

    def __init__(self, start: Float[Tensor, "row feature"], distribution: Distribution) -> None:
        self._start, self._distribution = start, distribution

    def __call__(self, features: Float[Tensor, "start feature"]) -> Distribution:
        """The distributions at these features.

        Raises:
            ValueError: if the features are not the ``start`` of the batch.
        """
        if not _equal(features, self._start):
            raise ValueError(
                f"the policy was asked about features of shape {tuple(features.shape)} that are "
                f"not batch.start, of shape {tuple(self._start.shape)}: a policy loss of algorithm "
                "'rollout' can ask about the observed states alone, since there is no world model"
            )
        return self._distribution


def _equal(left: Tensor, right: Tensor) -> bool:
    """True if two tensors have the same numbers; NaN counts as equal to itself."""
    return torch.equal(left, right) or torch.equal(left.nan_to_num(), right.nan_to_num())
