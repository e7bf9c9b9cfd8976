"""What an update minimises, put together from its parts; no optimiser, no state of its own.

Both functions can be compiled as one graph each: what the second needs of the first goes through
a ``PolicyBatch`` of constants. So a policy's gradient cannot reach the model, and does not mind
that the model has been moved in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.distributions import BoundedNormal
from empo_core.protocols import PolicyLoss, WeighsCandidates
from empo_core.types import ImaginedBatch
from empo_latent.learning.latent_rollout import policy_rollout
from empo_latent.learning.policy_batch import alive, critic, policy_batch, step_weights
from empo_latent.learning.targets import (
    auxiliary_target,
    auxiliary_targets,
    target_metrics,
    td_targets,
    value_target,
)
from empo_latent.learning.values import (
    auxiliary_loss,
    prediction_latents,
    q_target,
    q_value_loss,
    value_loss,
)
from empo_latent.learning.world import world_losses
from empo_latent.networks.model import LatentModel, Network
from empo_latent.params import LatentParams
from empo_latent.types import Losses, PolicyRollout, SequenceBatch


class PolicyBatch(NamedTuple):
    """What policies learn from: the fields of an ``ImaginedBatch``, as plain constants.

    Attributes:
        start: See there; so are the next four.
        action: See there.
        target: See there.
        log_prob: See there.
        weight: See there.
        loc: Of the proposal.
        log_std: Of the proposal.
        active: Of the proposal.
        task: Which task each start is of; None where there is one.
        expert: Mean and log standard deviation of the expert; None where nobody asked.
    """

    start: Float[Tensor, "start latent"]
    action: Float[Tensor, "start candidate action"]
    target: Float[Tensor, "start candidate head"]
    log_prob: Float[Tensor, "start candidate"]
    weight: Float[Tensor, " start"]
    loc: Float[Tensor, "start action"]
    log_std: Float[Tensor, "start action"]
    active: Bool[Tensor, "*start action"] | None
    task: Int[Tensor, " start"] | None
    expert: Float[Tensor, "start 2 action"] | None


class ModelObjective:
    """The two losses of an update."""

    def __init__(
        self,
        model: LatentModel,
        losses: Mapping[str, PolicyLoss],
        params: LatentParams,
        discounts: Float[Tensor, " task"],
    ) -> None:
        """Prepare constants.

        Args:
            model: What is learned.
            losses: What each policy learns from, by the policy's name.
            params: Everything about the run.
            discounts: Per task.
        """
        self._model, self._losses, self._params, self._discounts = model, losses, params, discounts
        needs = [loss.needs for loss in losses.values()]
        wanted = params.imagination.candidates
        self._candidates = wanted or max(each.candidates for each in needs)
        self._with_expert = any(each.expert for each in needs)
        learning = params.learning
        rho, normalise = learning.rho, learning.normalise_rho
        device = discounts.device
        self._rho = step_weights(rho, learning.horizon, normalise).to(device)
        self._auxiliary_discounts = torch.tensor(params.auxiliary.discounts, device=device)
        self._start_rho = step_weights(rho, learning.horizon + 1, normalise).to(device)

    def model_loss(
        self, sequences: SequenceBatch, with_value: bool, with_policy: bool
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor], PolicyBatch | None]:
        """The loss of the model, metrics, and what policies are to learn from.

        Args:
            sequences: What happened.
            with_value: Whether values are to be learned.
            with_policy: Whether policies will be; without, there is no lesson.
        """
        model, params, task = self._model, self._params, sequences.task
        encodings = model.encode(sequences.observation, task=task, training=True)
        averaged = params.encoder.target == "average"
        with torch.no_grad():
            targets = (
                model.encode(sequences.observation, task=task, average=True)
                if averaged
                else encodings
            ).detach()
        world, predicted = world_losses(model, sequences, encodings, targets, params, self._rho)
        total, metrics = world.total, dict(world.metrics)
        if not (with_value or with_policy):
            return total, metrics, None
        weight = self._start_rho.unsqueeze(-1) * alive(sequences)
        source = encodings if params.imagination.start == "encoding" else predicted[:, 0]
        rollout = policy_rollout(model, source.detach(), candidates=self._candidates, task=task)
        discount = self._of(rollout.task)
        td, v_next = td_targets(model, rollout, discount)
        metrics |= target_metrics(td, v_next)
        judged = td
        if params.imagination.critic == "online":
            judged, _ = td_targets(model, rollout, discount, network="online")
        lesson = self._lesson(rollout, judged, sequences, weight)
        if with_value:
            latents = prediction_latents(encodings, predicted, params.value.gradient)
            parts = [self._value_loss(sequences, encodings, latents, td, weight, lesson)]
            if params.auxiliary.discounts:
                parts.append(self._auxiliary_loss(sequences, encodings, rollout, weight))
            for part in parts:
                total = total + part.total
                metrics |= part.metrics
        metrics["loss/total"] = total.detach()
        return total, metrics, lesson if with_policy else None

    def _value_loss(
        self,
        sequences: SequenceBatch,
        encodings: Float[Tensor, "moment sequence latent"],
        latents: Float[Tensor, "moment sequence latent"],
        td: Float[Tensor, "step reward dynamics value m 1"],
        weight: Float[Tensor, "moment sequence"],
        lesson: PolicyBatch,
    ) -> Losses:
        model, value, task = self._model, self._params.value, sequences.task
        if value.critic == "q":
            taken = self._rho.unsqueeze(-1) * alive(sequences)[:-1]
            target = q_target(model, sequences, encodings, self._of(task), value)
            return q_value_loss(model, sequences, latents, target, taken, value)
        weights = None
        if value.weighting == "policy":
            loss = self._losses["policy"]
            assert isinstance(loss, WeighsCandidates)
            with torch.no_grad():
                weights = loss.weights(self._batch(lesson, with_expert=False))
        moments, number = weight.shape
        target = value_target(td, value, moments, number, self._candidates, weights)
        kept = weights if value.average == "cross_entropy" else None
        return value_loss(model, latents, target, weight, value, task=task, weights=kept)

    def _auxiliary_loss(
        self,
        sequences: SequenceBatch,
        encodings: Float[Tensor, "moment sequence latent"],
        rollout: PolicyRollout,
        weight: Float[Tensor, "moment sequence"],
    ) -> Losses:
        auxiliary = self._params.auxiliary
        targets = auxiliary_targets(self._model, rollout, self._auxiliary_discounts)
        target = auxiliary_target(targets, auxiliary, *weight.shape)
        return auxiliary_loss(
            self._model, encodings, target, weight, auxiliary, task=sequences.task
        )

    def policy_loss(
        self, name: str, lesson: PolicyBatch
    ) -> tuple[Float[Tensor, ""], Mapping[str, Tensor], Mapping[str, Tensor]]:
        """The loss of a policy, metrics, and what the loss would remember.

        Args:
            name: Which policy, ``policy`` or ``optimistic``.
            lesson: What the model found.
        """
        loss, model = self._losses[name], self._model

        def policy(features: Tensor) -> BoundedNormal:
            return model.policy(features, task=lesson.task, optimistic=name == "optimistic")

        through = None
        if loss.needs.critic:
            wanted = self._params.imagination.critic
            network: Network = "target" if wanted == "target" else "online"
            through = critic(model, self._of(lesson.task), lesson.task, network)
        output = loss(policy, self._batch(lesson, with_expert=loss.needs.expert), through)
        metrics = {
            key: torch.as_tensor(number, device=output.loss.device)
            for key, number in output.metrics.items()
        }
        return output.loss, metrics, output.memory

    def _lesson(
        self,
        rollout: PolicyRollout,
        td: Tensor,
        sequences: SequenceBatch,
        weight: Float[Tensor, "moment sequence"],
    ) -> PolicyBatch:
        """What policies learn from these candidates, judged by these targets."""
        batch, proposal, task = policy_batch(rollout, td, weight), rollout.proposal, sequences.task
        return PolicyBatch(
            start=batch.start,
            action=batch.action,
            target=batch.target,
            log_prob=batch.log_prob,
            weight=batch.weight,
            loc=proposal.loc,
            log_std=proposal.log_std,
            active=proposal.active,
            task=None if task is None else task.repeat(len(weight)),
            expert=_padded(sequences.expert) if self._with_expert else None,
        )

    def _batch(self, lesson: PolicyBatch, *, with_expert: bool) -> ImaginedBatch:
        """A lesson as losses take it."""
        bound = self._params.policy.bound

        def normal(loc: Tensor, log_std: Tensor) -> BoundedNormal:
            return BoundedNormal(loc, log_std, bound=bound, active=lesson.active)

        weight, expert = lesson.weight, None
        if with_expert:
            assert lesson.expert is not None
            # Nobody planned before learning began, nor at the last moment of a sequence.
            known = lesson.expert.isfinite().all(-1).all(-1)
            weight = weight * known
            expert = normal(*lesson.expert.nan_to_num(0.0).unbind(1))
        return ImaginedBatch(
            lesson.start,
            lesson.action,
            lesson.target,
            lesson.log_prob,
            weight,
            proposal=normal(lesson.loc, lesson.log_std),
            expert=expert,
        )

    def _of(self, task: Int[Tensor, " row"] | None) -> Float[Tensor, "*per_task"]:
        """The discount: a number, or one per row where there are several tasks."""
        return self._discounts[0] if task is None else self._discounts[task].unsqueeze(-1)


def _padded(
    expert: Float[Tensor, "time sequence 2 action"] | None,
) -> Float[Tensor, "start 2 action"]:
    """The expert at every moment; NaN at the last, where there is none."""
    assert expert is not None
    return torch.cat((expert, torch.full_like(expert[:1], torch.nan))).flatten(0, 1)
