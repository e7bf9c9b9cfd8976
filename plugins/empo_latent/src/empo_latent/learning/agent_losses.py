"""The losses of an update, one after the other; no optimiser, no state of its own.

Both functions can be compiled as one graph each: what the second needs of the first goes through
a ``PolicyBatch`` of constants. So a policy's gradient cannot reach the model, and does not mind
that the model has been moved in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.protocols import PolicyLoss
from empo_latent.learning.latent_rollout import latent_rollout, policy_rollout
from empo_latent.learning.loss_terms import (
    alive,
    counted_steps,
    step_weights,
    total_loss,
    with_ends,
)
from empo_latent.learning.policy_batch import PolicyBatch, critic, judged_batch, unjudged_batch
from empo_latent.learning.targets import (
    auxiliary_target,
    auxiliary_targets,
    target_metrics,
    td_targets,
    value_target,
)
from empo_latent.learning.value_losses import (
    auxiliary_loss,
    prediction_latents,
    q_target,
    q_value_loss,
    value_loss,
)
from empo_latent.learning.world_losses import (
    consistency_loss,
    encoder_consistency_loss,
    latent_metrics,
    reward_loss,
    termination_loss,
)
from empo_latent.networks.ensemble import drawn_heads
from empo_latent.networks.model import LatentModel, Network
from empo_latent.params import LatentParams
from empo_latent.types import PolicyRollout, SequenceBatch, WeightedLoss


class AgentLosses:
    """The loss of the model, and the loss of each policy."""

    def __init__(
        self,
        model: LatentModel,
        losses: Mapping[str, PolicyLoss],
        params: LatentParams,
        discounts: Float[Tensor, " task"],
    ) -> None:
        """Prepare constants; ``losses`` are by the name of the policy that learns from each."""
        self._model, self._losses, self._params, self._discounts = model, losses, params, discounts
        needs = [loss.needs for loss in losses.values()]
        num_candidates = params.imagination.candidates
        self._candidates = num_candidates or max(need.candidates for need in needs)
        self._with_expert = any(need.expert for need in needs)
        # Values of actions learn from recorded ones, and some losses ask a critic instead.
        self._reads_targets = (
            params.value.critic == "v"
            or bool(params.auxiliary.discounts)
            or any(need.targets for need in needs)
        )
        learning = params.learning
        rho, normalise = learning.step_rho, learning.normalise_rho
        device = discounts.device
        self._rho = step_weights(rho, learning.horizon, normalise).to(device)
        self._auxiliary_discounts = torch.tensor(params.auxiliary.discounts, device=device)
        self._start_rho = step_weights(rho, learning.horizon + 1, normalise).to(device)

    def model_loss(
        self, sequences: SequenceBatch, with_value: bool, with_policy: bool
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor], PolicyBatch | None]:
        """The loss of world model and values (Hansen et al. 2024, eq. 3), and what comes with it.

            L = c_p consistency + c_r reward [+ c_d termination] + c_v value [+ c_x auxiliary]

        The world model is fitted to what happened. Values are fitted to one-step returns of
        candidate actions that the policy draws at every encoding; the same returns are what
        policies learn from, see ``policy_loss``.

        Returns:
            The loss, metrics, and the batch of policies; None without ``with_policy``.
        """
        model, params, task = self._model, self._params, sequences.task
        rho, mask = self._rho, counted_steps(sequences)
        # Encodings z, and latents predicted from z[0] along the actions that were taken.
        z = model.encode(sequences.observation, task=task, training=True)
        targets = self._consistency_targets(sequences, z)
        predicted = latent_rollout(model, z[0], sequences, training=True)

        # The world model: consistency, reward, termination.
        coefficient = params.latents.consistency_coef
        terms = [
            consistency_loss(predicted, targets, mask, rho, coefficient),
            reward_loss(model, sequences, z, predicted, rho, params.reward),
        ]
        if params.encoder.consistency_coef:
            coefficient = params.encoder.consistency_coef
            terms.append(encoder_consistency_loss(z, predicted, mask, rho, coefficient))
        if model.terminates:
            terms.append(termination_loss(model, sequences, z, predicted, params.reward))
        metrics = latent_metrics(z, predicted)
        if not (with_value or with_policy):
            world = total_loss(terms)
            return world.total, {**world.metrics, **metrics}, None

        # Candidate actions of the policy, one step of the model after each, and their returns.
        start = z if params.imagination.start == "encoding" else predicted[:, 0]
        weight = self._start_rho.unsqueeze(-1) * alive(sequences)
        rollout = td = None
        if self._reads_targets:
            rollout = policy_rollout(model, start.detach(), candidates=self._candidates, task=task)
            discount = self._discount_of(rollout.task)
            td, v_next = td_targets(model, rollout, discount)
            metrics |= target_metrics(td, v_next)
            action_targets = td
            if params.imagination.critic == "online":
                action_targets, _ = td_targets(model, rollout, discount, network="online")
            heads = self._drawn_heads()
            action_targets = (
                action_targets if heads is None else action_targets.index_select(3, heads)
            )
            batch = judged_batch(rollout, action_targets, weight, task)
        else:
            batch = unjudged_batch(model, start, weight, self._candidates, task)
        if self._with_expert:
            batch = batch._replace(expert=_padded(sequences.expert))

        # Values, and those under other discounts.
        if with_value:
            latents = prediction_latents(z, predicted, params.value.gradient)
            terms.append(self._value_loss(sequences, z, latents, td, batch))
            if params.auxiliary.discounts:
                assert rollout is not None
                terms.append(self._auxiliary_loss(sequences, z, rollout))
        loss = total_loss(terms)
        metrics = {**loss.metrics, **metrics, "loss/total": loss.total.detach()}
        return loss.total, metrics, batch if with_policy else None

    def _consistency_targets(
        self, sequences: SequenceBatch, z: Float[Tensor, "moment sequence latent"]
    ) -> Float[Tensor, "moment sequence latent"]:
        """Latents that dynamics should predict, as constants: of the encoder or its average."""
        if self._params.encoder.target == "online":
            return z.detach()
        with torch.no_grad():
            observation, task = sequences.observation, sequences.task
            return self._model.encode(observation, task=task, average=True).detach()

    def _value_loss(
        self,
        sequences: SequenceBatch,
        encodings: Float[Tensor, "moment sequence latent"],
        latents: Float[Tensor, "moment sequence latent"],
        td: Float[Tensor, "step reward dynamics value m 1"] | None,
        policy_batch: PolicyBatch,
    ) -> WeightedLoss:
        """The value loss: on candidates (critic ``v``) or on recorded actions (``q``)."""
        model, value, task = self._model, self._params.value, sequences.task
        if value.critic == "q":
            step_weights = self._rho.unsqueeze(-1) * counted_steps(sequences)
            target = q_target(model, sequences, encodings, self._discount_of(task), value)
            return q_value_loss(model, sequences, latents, target, step_weights, value)
        assert td is not None
        weights = None
        if value.weighting == "policy":
            loss = self._losses["policy"]
            assert loss.weighs_candidates
            with torch.no_grad():
                start = policy_batch.weight.new_zeros(())
                batch = policy_batch.candidates(
                    bound=self._params.policy.bound, with_expert=False, progress=start
                )
                weights = loss.weights(batch).t()
        moments, number = sequences.observation.shape[:2]
        target = value_target(td, value, moments, number, self._candidates, weights)
        target, weight = with_ends(target, sequences, self._start_rho)
        entropy_weights = weights if value.average == "cross_entropy" else None
        return value_loss(model, latents, target, weight, value, task=task, weights=entropy_weights)

    def _auxiliary_loss(
        self,
        sequences: SequenceBatch,
        encodings: Float[Tensor, "moment sequence latent"],
        rollout: PolicyRollout,
    ) -> WeightedLoss:
        """The loss of values under further discounts, which only shape the encoder."""
        auxiliary = self._params.auxiliary
        targets = auxiliary_targets(self._model, rollout, self._auxiliary_discounts)
        target = auxiliary_target(targets, auxiliary, *sequences.observation.shape[:2])
        target, weight = with_ends(target, sequences, self._start_rho)
        return auxiliary_loss(
            self._model, encodings, target, weight, auxiliary, task=sequences.task
        )

    def policy_loss(
        self, name: str, policy_batch: PolicyBatch, progress: Float[Tensor, ""]
    ) -> tuple[Float[Tensor, ""], Mapping[str, Tensor]]:
        """The loss of ``policy`` or ``optimistic``, a component of its own (``policy_loss``).

        ``progress`` is the share of the run that is done, for schedules.

        Returns:
            The loss, and metrics.
        """
        loss, model, task = self._losses[name], self._model, policy_batch.task
        through = None
        if loss.needs.critic:
            critic_kind = self._params.imagination.critic
            network: Network = "target" if critic_kind == "target" else "online"
            through = critic(model, self._discount_of(task), task, network, self._drawn_heads())
        bound, with_expert = self._params.policy.bound, loss.needs.expert
        batch = policy_batch.candidates(bound=bound, with_expert=with_expert, progress=progress)
        distribution = model.policy(batch.start, task=task, optimistic=name == "optimistic")
        output = loss(distribution, batch, through)
        metrics = {
            key: torch.as_tensor(number, device=output.loss.device)
            for key, number in output.metrics.items()
        }
        return output.loss, metrics

    def _drawn_heads(self) -> Int[Tensor, " chosen"] | None:
        """Value heads that judge actions for a policy loss; None: all."""
        chosen, heads = self._params.imagination.value_heads, self._params.value.heads
        if chosen is None or chosen >= heads:
            return None
        return drawn_heads(heads, chosen, self._discounts.device)

    def _discount_of(self, task: Int[Tensor, " row"] | None) -> Float[Tensor, "*per_task"]:
        """The discount: a number, or one per row where there are several tasks."""
        return self._discounts[0] if task is None else self._discounts[task].unsqueeze(-1)


def _padded(
    expert: Float[Tensor, "time sequence 2 action"] | None,
) -> Float[Tensor, "start 2 action"]:
    """The expert at every moment; NaN at the last, where there is none."""
    assert expert is not None
    return torch.cat((expert, torch.full_like(expert[:1], torch.nan))).flatten(0, 1)
