"""The batches that policies learn from, and a critic of actions."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.protocols import Critic
from empo_core.types import CandidateBatch
from empo_latent.networks.model import LatentModel, Network
from empo_latent.types import PolicyRollout
from empo_learning.distributions import Bound, BoundedNormal


class PolicyBatch(NamedTuple):
    """An ``CandidateBatch`` as plain constants, which one compiled graph can hand to another.

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
        expert: Mean and log standard deviation of the expert; None where no loss needs it.
    """

    start: Float[Tensor, "start latent"]
    action: Float[Tensor, "candidate start action"]
    target: Float[Tensor, "candidate start head"]
    log_prob: Float[Tensor, "candidate start"]
    weight: Float[Tensor, " start"]
    loc: Float[Tensor, "start action"]
    log_std: Float[Tensor, "start action"]
    active: Bool[Tensor, "*start action"] | None
    task: Int[Tensor, " start"] | None
    expert: Float[Tensor, "start 2 action"] | None = None

    def candidates(
        self, *, bound: Bound, with_expert: bool, progress: Float[Tensor, ""]
    ) -> CandidateBatch:
        """The batch as policy losses take it, with distributions bounded by ``bound``.

        ``progress`` is the share of the run that is done, for schedules.
        """

        def normal(
            loc: Float[Tensor, "start action"], log_std: Float[Tensor, "start action"]
        ) -> BoundedNormal:
            return BoundedNormal(loc, log_std, bound=bound, active=self.active)

        weight, expert = self.weight, None
        if with_expert:
            assert self.expert is not None
            # There is no plan before learning began, nor at the last moment of a sequence.
            is_finite = self.expert.isfinite().all(-1).all(-1)
            weight = weight * is_finite
            expert = normal(*self.expert.nan_to_num(0.0).unbind(1))
        proposal = normal(self.loc, self.log_std)
        return CandidateBatch(
            self.start,
            self.action,
            self.target,
            self.log_prob,
            weight,
            proposal,
            expert,
            progress,
        )


def judged_batch(
    rollout: PolicyRollout,
    td: Float[Tensor, "step reward dynamics value m 1"],
    weight: Float[Tensor, "moment sequence"],
    task: Int[Tensor, " sequence"] | None = None,
) -> PolicyBatch:
    """Starts and their candidates, judged by targets of the first step.

    Each start counts by its weight, ``step_weights`` times ``alive``. Targets list all heads,
    ``(reward * H + dynamics) * Ve + value``.
    """
    starts = len(rollout.start)
    target = td[0].flatten(0, 2).squeeze(-1)
    return PolicyBatch(
        rollout.start,
        rollout.presquash[0].reshape(starts, -1, rollout.presquash.shape[-1]).transpose(0, 1),
        target.t().reshape(starts, -1, target.shape[0]).transpose(0, 1),
        rollout.log_prob[0].reshape(starts, -1).t(),
        weight.reshape(-1),
        *_moments(rollout.proposal),
        task=_of_starts(task, len(weight)),
    )


def unjudged_batch(
    model: LatentModel,
    start: Float[Tensor, "moment sequence latent"],
    weight: Float[Tensor, "moment sequence"],
    candidates: int,
    task: Int[Tensor, " sequence"] | None,
) -> PolicyBatch:
    """The same for losses that read no targets: what candidates lead to is not predicted."""
    flat, start_task = start.detach().flatten(0, 1), _of_starts(task, len(start))
    proposal = model.proposal(flat, task=start_task).detach()
    drawn = proposal.sample((candidates,))
    log_prob = proposal.log_prob(drawn)
    unknown = torch.full_like(log_prob, torch.nan).unsqueeze(-1)
    return PolicyBatch(
        flat, drawn, unknown, log_prob, weight.reshape(-1), *_moments(proposal), task=start_task
    )


def _moments(proposal: BoundedNormal) -> tuple[Tensor, Tensor, Tensor | None]:
    return proposal.loc, proposal.log_std, proposal.active


def _of_starts(task: Int[Tensor, " sequence"] | None, moments: int) -> Int[Tensor, " start"] | None:
    return None if task is None else task.repeat(moments)


def critic(
    model: LatentModel,
    discount: Float[Tensor, "*per_task"],
    task: Int[Tensor, "*batch"] | None = None,
    network: Network = "online",
    heads: Int[Tensor, " chosen"] | None = None,
) -> Critic:
    """A critic of actions, differentiable in them.

    For critic ``v`` that is ``r(z, a) + discount * (1 - d(z')) * V(z')`` with ``z' = f(z, a)``,
    by each reward, dynamics and value head; for ``q`` it is ``Q(z, a)`` by each value head.
    Of value heads, ``heads`` are asked, or all. The probability ``d`` that a step ends the
    episode depends on the action. There is one discount, or ``[..., 1]`` one for each start; tasks
    broadcast against the starts.

    The model's parameters are used as they are: a loss that must leave them without gradients
    asks for the gradient in the actions alone, as the policy losses do.

    Returns:
        A function of features ``[... feature]`` and actions ``u`` as the policy's distribution
        measures them, ``[... action]``, which returns ``[... head]``. Actions may have axes in
        front that features lack.
    """

    def values(
        features: Float[Tensor, "*some feature"], u: Float[Tensor, "*batch action"]
    ) -> Float[Tensor, "*batch head"]:
        features = features.expand(*u.shape[:-1], features.shape[-1])
        action = model.bounded(u, task=task)
        if model.critic == "q":
            returns = model.value(features, action, task=task, network=network, heads=heads)
        else:
            latent = model.next_latent(features, action, task=task)
            going_on = 1 - model.termination(latent, task=task)
            value = model.value(latent, task=task, network=network, heads=heads)
            reward = model.reward(features, action, task=task)[:, None, None]
            # [reward dynamics value ...]
            returns = (reward + discount * going_on[:, None] * value.transpose(0, 1)).flatten(0, 2)
        return returns.squeeze(-1).movedim(0, -1)

    return values
