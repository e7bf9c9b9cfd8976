"""Rollouts in latent space: along recorded actions, and along those that the policy draws."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_latent.networks.model import LatentModel
from empo_latent.types import PolicyRollout, SequenceBatch


def latent_rollout(
    model: LatentModel,
    start: Float[Tensor, "sequence latent"],
    sequences: SequenceBatch,
    training: bool = False,
) -> Float[Tensor, "moment dynamics sequence latent"]:
    """Latents predicted along recorded actions: ``p_0 = start``, ``p_{t+1} = f_h(p_t, a_t)``.

    Each dynamics head ``h`` goes on from its own latent, the first of which is the same for all.
    Gradients go back to the start and to the heads; there is dropout where ``training`` says so.
    """
    latent = model.next_latent(start, sequences.action[0], task=sequences.task, training=training)
    path = [start.expand_as(latent), latent]
    for action in sequences.action[1:].unbind(0):
        latent = model.next_latent(
            latent, action, task=sequences.task, split=True, training=training
        )
        path.append(latent)
    return torch.stack(path)


@torch.no_grad()
def policy_rollout(
    model: LatentModel,
    start: Float[Tensor, "moment sequence latent"],
    *,
    candidates: int,
    steps: int = 1,
    task: Int[Tensor, " sequence"] | None = None,
) -> PolicyRollout:
    """Steps that the model predicts for actions of the policy, or of its average; constants.

    Row ``m = (moment * B + sequence) * N + candidate`` of the results belongs to that start and
    candidate. An action is drawn once and given to all dynamics heads, each of which then goes
    on from its own latent. Beyond the first step these latents differ between heads, and actions
    are drawn at those of head 0: what the others say is what they make of head 0's plan.

    Rewards of the first step, where all heads are still at the start, are computed once. The
    probability that a step ends the episode is read from the latent that it leads to.
    """
    moments, latents = start.shape[0], start.shape[-1]
    flat = start.detach().reshape(-1, latents)
    starts_task = None if task is None else task.repeat(moments)
    row_task = None if starts_task is None else _repeated(starts_task, candidates)
    proposal = model.proposal(flat, task=starts_task).detach()
    drawn = proposal.sample((candidates,))
    u, log_prob = _rows(drawn), _rows(proposal.log_prob(drawn))
    action = _rows(proposal.bounded(drawn))
    here = _repeated(flat, candidates)
    after = model.next_latent(here, action, task=row_task)
    path = [here.expand_as(after), after]
    us, actions, log_probs = [u], [action], [log_prob]
    rewards = [model.reward(here, action, task=row_task).unsqueeze(1)]
    for _ in range(steps - 1):
        policy = model.policy(after[0], task=row_task)
        u = policy.sample()
        action = policy.bounded(u)
        everywhere = action.expand(*after.shape[:-1], action.shape[-1])
        rewards.append(model.reward(after, everywhere, task=row_task))
        after = model.next_latent(after, action, task=row_task, split=True)
        path.append(after)
        us.append(u)
        actions.append(action)
        log_probs.append(policy.log_prob(u))
    latent = torch.stack(path)
    return PolicyRollout(
        start=flat,
        latent=latent,
        presquash=torch.stack(us),
        action=torch.stack(actions),
        log_prob=torch.stack(log_probs),
        reward=rewards,
        termination=model.termination(latent[1:], task=row_task),
        proposal=proposal,
        task=row_task,
    )


def _repeated(x: Tensor, candidates: int) -> Tensor:
    """Each row as often as there are candidates, next to each other."""
    repeated = x.unsqueeze(1).expand(x.shape[0], candidates, *x.shape[1:])
    return repeated.reshape(x.shape[0] * candidates, *x.shape[1:])


def _rows(x: Tensor) -> Tensor:
    """From ``[candidate start ...]`` to ``[m ...]``."""
    return x.transpose(0, 1).reshape(x.shape[0] * x.shape[1], *x.shape[2:])
