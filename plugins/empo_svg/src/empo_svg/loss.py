"""Stochastic value gradients: sampled actions follow the gradient of a critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_learning.policy_losses import (
    EntropyCoefficient,
    RunningScale,
    constants,
    disagreement,
    entropy_metrics,
    joined_heads,
    policy_metrics,
    require_needs,
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

    is_adaptive = True
    needs = LossNeeds(critic=True, targets=False)

    def __init__(self, params: SvgParams) -> None:
        self._params = params
        self._scale = RunningScale(params.scale_rate)
        self._entropy = EntropyCoefficient(params.entropy)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss: minus the weighted mean of objective and entropy bonus over starts.

        Noise comes from torch's global generator.

        Raises:
            ValueError: if there is no critic, or no candidate.
        """
        require_needs("svg", self.needs, batch, critic)
        assert critic is not None
        batch = constants(batch)
        distribution = policy(batch.start)
        u = distribution.rsample(torch.Size([self._params.samples]))
        values = self._action_values(critic, batch.start, u.detach())
        # What is maximised, with its slope in place of the critic's whole graph.
        objective = values.objective + ((u - u.detach()) * values.slope).sum(-1)
        bonus = self._entropy.bonus(distribution, batch.weight)
        loss = -(batch.weight * (objective.mean(0) + bonus.paid)).mean()
        weight = batch.weight.expand_as(values.value)
        metrics = {
            "value": weighted_mean(values.value, weight),
            "disagreement": weighted_mean(values.disagreement, weight),
            "slope": weighted_mean(values.slope.norm(dim=-1), weight),
            "scale": self._scale.value.clone(),
        }
        return LossOutput(
            loss,
            metrics | policy_metrics(distribution, batch.weight) | entropy_metrics(bonus),
            {"scale": self._new_scale(values.value, weight), "entropy_coef": bonus.next_value},
        )

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        """Follow the scale and the coefficient of entropy."""
        self._scale.adapt(statistics["scale"])
        self._entropy.adapt(statistics["entropy_coef"], progress)

    def state_dict(self) -> StateDict:
        """State of running scale and entropy coefficient."""
        return {"scale": self._scale.state_dict(), "entropy_coef": self._entropy.state_dict()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._scale.load_state_dict(state_dict["scale"])
        self._entropy.load_state_dict(state_dict["entropy_coef"])

    def _action_values(
        self,
        critic: Critic,
        start: Float[Tensor, "start feature"],
        u: Float[Tensor, "sample start action"],
    ) -> _ActionValues:
        """Values of actions, and their gradients in the action.

        Differentiating by ``u`` alone spends nothing on gradients of the critic's weights and
        leaves them as they are.
        """
        if not torch.compiler.is_compiling():
            with torch.enable_grad():
                u = u.detach().requires_grad_()
                total, terms = self._objective(u, start.expand(len(u), -1, -1), critic)
                (slope,) = torch.autograd.grad(total, u)
            return _ActionValues(slope, *(part.detach() for part in terms))
        # The same in a way that compiles; it costs more where nothing is compiled.
        slope_of = torch.func.grad_and_value(self._objective, has_aux=True)
        # Otherwise the graph of all this would be recorded once more, for the weights.
        with torch.no_grad():
            slope, (_, parts) = slope_of(u, start.expand(len(u), -1, -1), critic)
        return _ActionValues(slope, *parts)

    def _objective(
        self, u: Tensor, start: Tensor, critic: Critic
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The sum of the objective, and the terms of ``_ActionValues``."""
        heads = critic(start, u)
        value, spread = joined_heads(heads, self._params.reduction), disagreement(heads)
        objective = (value + self._params.disagreement * spread) / self._scale.value.to(u)
        return objective.sum(), (objective, value, spread)

    def _new_scale(
        self, value: Float[Tensor, "sample start"], weight: Float[Tensor, "sample start"]
    ) -> Float[Tensor, ""]:
        if self._params.normaliser == "none":
            return self._scale.value.to(value, copy=True)
        return self._scale.next_value(value, weight)
