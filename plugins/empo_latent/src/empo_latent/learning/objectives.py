"""What an update minimises, put together from its parts; no optimiser, no state of its own.

Both functions can be compiled as one graph each: what the second needs of the first goes through
a ``Lesson`` of constants. So a policy's gradient cannot reach the model, and does not mind that
the model has been moved in between.
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
from empo_latent.contract import Imagined, Slices
from empo_latent.learning.batches import alive, critic, policy_batch, step_weights
from empo_latent.learning.imagination import imagine
from empo_latent.learning.targets import auxiliary_targets, td_targets, value_target
from empo_latent.learning.values import auxiliary_loss, replayed_value_loss, value_loss
from empo_latent.learning.world import world_losses
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams


class Lesson(NamedTuple):
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
        self._start_rho = step_weights(rho, learning.horizon + 1, normalise).to(device)

    def model_loss(
        self, slices: Slices, with_value: bool, with_policy: bool
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor], Lesson | None]:
        """The loss of the model, metrics, and what policies are to learn from.

        Args:
            slices: What happened.
            with_value: Whether values are to be learned.
            with_policy: Whether policies will be; without, there is no lesson.
        """
        model, params, task = self._model, self._params, slices.task
        encodings = model.encode(slices.observation, task=task, training=True)
        averaged = params.encoder.target == "average"
        with torch.no_grad():
            targets = (
                model.encode(slices.observation, task=task, average=True) if averaged else encodings
            ).detach()
        world, rolled = world_losses(model, slices, encodings, targets, params, self._rho)
        total, metrics = world.total, dict(world.metrics)
        if not (with_value or with_policy):
            return total, metrics, None
        weight = self._start_rho.unsqueeze(-1) * alive(slices)
        source = encodings if params.imagination.start == "encoding" else rolled[:, 0]
        imagined = imagine(model, source.detach(), candidates=self._candidates, task=task)
        lesson, td, v_next = self._lesson(imagined, slices, weight)
        if with_value:
            for part in self._value_losses(slices, encodings, rolled, imagined, td, weight, lesson):
                total = total + part.total
                metrics |= part.metrics
        metrics["loss/total"] = total.detach()
        return total, metrics, lesson if with_policy else None
