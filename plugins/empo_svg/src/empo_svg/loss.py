"""Stochastic value gradients: sampled actions follow the gradient of a critic."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import (
    EntropyBonus,
    RunningScale,
    disagreement,
    joined_heads,
    policy_metrics,
    weighted_mean,
)
from empo_svg.params import SvgParams


class _ActionValues(NamedTuple):
    """Values of sampled actions and their gradients in the action; constants.

    Attributes:
        slope: Derivative of ``objective`` in the action.
        objective: What is maximised: value and disagreement over the scale.
        value: The critic's heads joined.
        disagreement: Their standard deviation.
    """

    slope: Float[Tensor, "sample start action"]
    objective: Float[Tensor, "sample start"]
    value: Float[Tensor, "sample start"]
    disagreement: Float[Tensor, "sample start"]


class Svg(PolicyLoss):
    """The value of actions the policy would take, maximised through the actions (Heess 2015).

    With fresh actions ``u_n = mu(z) + sigma(z) eps_n``, which are measured before they are
    bounded, ``q`` the critic's heads joined and ``d`` their standard deviation::

        L = -mean_i w_i [ mean_n (q(z_i, u_in) + lambda d(z_i, u_in)) / S + alpha H(z_i) ]

    No gradient goes through the scale ``S``, which follows ``q`` alone, and none into the critic:
    only its slope in ``u`` is taken. Candidates of the batch are not used.
    """

    takes = CandidateBatch
    needs = LossNeeds(critic=True, targets=False)

    def __init__(self, params: SvgParams) -> None:
        super().__init__()
        self._params = params
        self.scale = RunningScale(params.scale_rate if params.normaliser != "none" else 0.0)
        self.entropy = EntropyBonus(params.entropy)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss: minus the weighted mean of objective and entropy bonus over starts.

        Noise comes from torch's global generator.
        """
        assert critic is not None
        u = distribution.rsample(torch.Size([self._params.samples]))
        scale = self.scale.value.to(u, copy=True)
        values = self._action_values(critic, batch.start, u.detach(), scale)
        # What is maximised, with its slope in place of the critic's whole graph.
        objective = values.objective + ((u - u.detach()) * values.slope).sum(-1)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        loss = -(batch.weight * (objective.mean(0) + bonus.paid)).mean()

        weight = batch.weight.expand_as(values.value)
        self.scale(values.value, weight)
        metrics = {
            "value": weighted_mean(values.value, weight),
            "disagreement": weighted_mean(values.disagreement, weight),
            "slope": weighted_mean(values.slope.norm(dim=-1), weight),
            "scale": scale,
        }
        return LossOutput(
            loss, metrics | policy_metrics(distribution, batch.weight) | bonus.metrics
        )

    def _action_values(
        self,
        critic: Critic,
        start: Float[Tensor, "start feature"],
        u: Float[Tensor, "sample start action"],
        scale: Float[Tensor, ""],
    ) -> _ActionValues:
        """Values of actions, and their gradients in the action.

        Differentiating by ``u`` alone spends nothing on gradients of the critic's weights and
        leaves them as they are.
        """
        if not torch.compiler.is_compiling():
            with torch.enable_grad():
                u = u.detach().requires_grad_()
                total, terms = self._objective(u, start.expand(len(u), -1, -1), critic, scale)
                (slope,) = torch.autograd.grad(total, u)
            return _ActionValues(slope, *(part.detach() for part in terms))
        # The same in a way that compiles; it costs more where nothing is compiled.
        slope_of = torch.func.grad_and_value(self._objective, has_aux=True)
        # Otherwise the graph of all this would be recorded once more, for the weights.
        with torch.no_grad():
            slope, (_, parts) = slope_of(u, start.expand(len(u), -1, -1), critic, scale)
        return _ActionValues(slope, *parts)

    def _objective(
        self, u: Tensor, start: Tensor, critic: Critic, scale: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The sum of the objective, and the terms of ``_ActionValues``."""
        heads = critic(start, u)
        value, spread = joined_heads(heads, self._params.reduction), disagreement(heads)
        objective = (value + self._params.disagreement * spread) / scale
        return objective.sum(), (objective, value, spread)
