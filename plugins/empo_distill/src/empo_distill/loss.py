"""Imitation of an expert: the policy moves towards the expert's distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.trees import StateDict
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_distill.params import DistillParams
from empo_learning.distributions import BoundedNormal
from empo_learning.policy_losses import (
    EntropyCoefficient,
    RunningScale,
    constants,
    entropy_metrics,
    normal_parameters,
    policy_metrics,
    require_needs,
    weighted_mean,
)


class Distill(PolicyLoss):
    """The divergence of the policy from an expert (BMPC, Wang 2025).

    With ``d_i`` the mean, over the numbers of an action that are active, of the divergence of two
    normal distributions of the number before it is bounded::

        L = mean_i w_i [ d_i / S - alpha H(z_i) ]

    where ``d`` is ``KL(policy || expert)``, or the other way round. Bounding both alike does not
    change it. No gradient goes through the scale ``S``, which follows the spread of ``d``, and none
    into the expert. Candidates and their values are not used.
    """

    is_adaptive = True
    needs = LossNeeds(expert=True, targets=False)

    def __init__(self, params: DistillParams) -> None:
        self._params = params
        self._scale = RunningScale(params.scale_rate)
        self._entropy = EntropyCoefficient(params.entropy)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss: the weighted mean over starts of the divergence from the expert.

        Raises:
            ValueError: if there is no expert or no candidate, or a distribution is not normal.
        """
        require_needs("distill", self.needs, batch)
        batch = constants(batch)
        distribution = policy(batch.start)
        divergence = self._divergence(distribution, batch)
        scale = self._scale.value.to(divergence, copy=True)
        bonus = self._entropy.bonus(distribution, batch.weight)
        loss = (batch.weight * (divergence / scale - bonus.paid)).mean()
        far = divergence.detach()
        new_scale = scale
        if self._params.normaliser == "running_scale":
            new_scale = self._scale.next_value(far, batch.weight)
        metrics = {"divergence": weighted_mean(far, batch.weight), "scale": scale}
        return LossOutput(
            loss,
            metrics | policy_metrics(distribution, batch.weight) | entropy_metrics(bonus),
            {"scale": new_scale, "entropy_coef": bonus.next_value},
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

    def _divergence(self, policy: Distribution, batch: ImaginedBatch) -> Float[Tensor, " start"]:
        """Divergence of policy and expert, per number of an action."""
        assert batch.expert is not None
        masked = (batch.weight <= 0)[:, None]
        # Whatever is said about starts that do not count has no influence, not even NaN.
        parameters = normal_parameters(batch.expert)
        mean, log_std = (part.detach().masked_fill(masked, 0.0) for part in parameters)
        expert = mean, log_std.clamp(min=math.log(self._params.min_expert_std))
        learned = normal_parameters(policy)
        if self._params.direction == "policy_from_expert":
            divergence = normal_divergence(*learned, *expert)
        else:
            divergence = normal_divergence(*expert, *learned)
        active = policy.active if isinstance(policy, BoundedNormal) else None
        if active is None:
            return divergence.mean(-1)
        return divergence.masked_fill(~active, 0.0).sum(-1) / active.sum(-1)


def normal_divergence(
    mean: Float[Tensor, "*shape"],
    log_std: Float[Tensor, "*shape"],
    other_mean: Float[Tensor, "*shape"],
    other_log_std: Float[Tensor, "*shape"],
) -> Float[Tensor, "*shape"]:
    """``KL(N(mean, std) || N(other_mean, other_std))``, of each number.

    ``log(s'/s) + (s^2 + (m - m')^2) / (2 s'^2) - 1/2``
    """
    ratio = log_std - other_log_std
    offset = (mean - other_mean) * torch.exp(-other_log_std)
    return 0.5 * (torch.exp(2 * ratio) + offset.square() - 1) - ratio
