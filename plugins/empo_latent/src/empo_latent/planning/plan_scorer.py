"""Scores of plans: predicted rewards, then the value of the last latent.

    G = sum_{t<T} gamma^t alive_t r(z_t, a_t) + gamma^T alive_T V(z_T)

where ``alive_t`` is the probability that none of ``z_1 ... z_t`` ends the episode, by the
termination head. A critic of actions judges the policy's likeliest action at ``z_T``; where TD-MPC2
(Hansen et al. 2024) draws one, nothing here is random, so that plans need to be judged only once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_latent.networks.ensemble import reduced
from empo_latent.params.networks import Heads
from empo_latent.params.planner import PlannerParams
from empo_latent.planning.plan import PlanningModel

Chooser = Callable[[int, Tensor], Tensor]
"""From a step and the latents of the first head before it to the actions taken."""


class PlanContext(NamedTuple):
    """Constants of one call of the planner.

    Attributes:
        z: Where the environments are.
        task: Their tasks; None where there is one.
        active: Which numbers of actions they use; None: all.
        discount: Per step, ``[env, 1]`` or 0-d.
        heads: Which value heads judge; None: all.
        curious: Whether what they do not agree on is worth more.
        reduction: Over heads.
    """

    z: Float[Tensor, "env latent"]
    task: Int[Tensor, "env 1"] | None
    active: Bool[Tensor, "#env 1 action"] | None
    discount: Float[Tensor, "*per_task"]
    heads: Int[Tensor, " chosen"] | None
    curious: bool
    reduction: Heads

    def masked(
        self, action: Float[Tensor, "*time env plan action"]
    ) -> Float[Tensor, "*time env plan action"]:
        """Actions with 0 for numbers that are not used."""
        return action if self.active is None else action * self.active


class PlanScorer:
    """Scores plans in the model."""

    def __init__(
        self,
        model: PlanningModel,
        params: PlannerParams,
        *,
        horizon: int,
        episodic: bool,
        critic: Literal["v", "q"],
        precision: Literal["float32", "bfloat16"],
    ) -> None:
        """Take the model; arguments are as of the planner."""
        self._model, self._params, self._horizon = model, params, horizon
        self.episodic, self._critic, self._precision = episodic, critic, precision

    def scores(
        self, context: PlanContext, actions: Float[Tensor, "time env plan action"]
    ) -> Float[Tensor, "env plan"]:
        """Scores of plans."""
        return self._policy_plans(context, actions.shape[2], lambda step, _: actions[step])[1]

    def proposals(
        self,
        context: PlanContext,
        noise: Float[Tensor, "time env plan action"],
        jitter: Float[Tensor, "time env plan action"] | None,
        *,
        optimistic: bool,
    ) -> tuple[Float[Tensor, "time env plan action"], Float[Tensor, "env plan"]]:
        """Plans that the policy proposes, and their scores.

        Actions are drawn with standard normal noise; ``jitter`` is added to them.
        """

        def choose(
            step: int, latent: Float[Tensor, "env plan latent"]
        ) -> Float[Tensor, "env plan action"]:
            policy = self._model.policy(latent, task=context.task, optimistic=optimistic)
            action = policy.bounded(policy.mean + policy.scale * noise[step])
            if jitter is not None:
                action = (action + jitter[step]).clamp(-1, 1)
            return context.masked(action)

        return self._policy_plans(context, noise.shape[2], choose)

    def _policy_plans(
        self, context: PlanContext, plans: int, choose: Chooser
    ) -> tuple[Tensor, Tensor]:
        """The actions of so many plans, and their scores.

        Every dynamics head goes its own way; actions are chosen from the latents of the first.
        """
        model, task, z = self._model, context.task, context.z
        latent = z.unsqueeze(1).expand(-1, plans, -1)
        weight, total = torch.ones_like(context.discount), z.new_zeros(())
        actions, returns, bootstraps = [], [], []
        with torch.autocast(z.device.type, torch.bfloat16, enabled=self._precision == "bfloat16"):
            for step in range(self._horizon):
                split = step > 0
                action = choose(step, latent[0] if split else latent)
                shared = action.expand(*latent.shape[:-1], -1)
                reward = model.reward(latent, shared, task=task).squeeze(-1)
                total = total + weight * (reward if split else reward.unsqueeze(1))
                latent = model.next_latent(latent, action, task=task, split=split)
                weight = weight * context.discount
                if self.episodic:
                    weight = weight * (1 - model.termination(latent, task=task).squeeze(-1))
                actions.append(action)
                if self._params.depths == "all" or step == self._horizon - 1:
                    returns.append(total)
                    bootstraps.append(weight * self._value(context, latent))
        return torch.stack(actions), self._score(context, returns, bootstraps)

    def _value(self, context: PlanContext, latent: Tensor) -> Tensor:
        """Values of latents ``[dynamics, env, plan, latent]``, by each value head."""
        action, task = None, context.task
        if self._critic == "q":
            policy = self._model.policy(latent, task=task)
            action = policy.bounded(policy.mode)
        network, heads = self._params.critic, context.heads
        return self._model.value(latent, action, task=task, network=network, heads=heads).squeeze(
            -1
        )

    def _score(
        self, context: PlanContext, returns: list[Tensor], bootstraps: list[Tensor]
    ) -> Tensor:
        """One number per plan; the worst there is where it cannot be told.

        Args:
            context: Says how heads are reduced, and whether disagreement counts.
            returns: Up to each depth, ``[reward, dynamics, env, plan]``.
            bootstraps: What comes after it, ``[value, dynamics, env, plan]``.
        """
        # Which reward head is least does not depend on the value head, nor the other way round:
        # so they are reduced apart, and only then those of the dynamics.
        mode = context.reduction
        both = [reduced(_mean(terms), mode, (0,)) for terms in (returns, bootstraps)]
        score = reduced(both[0] + both[1], mode, (0,))
        if context.curious:
            spread = _mean([_deviation(values.flatten(0, 1)) for values in bootstraps])
            score = score + self._params.disagreement * spread
        return score.masked_fill(~score.isfinite(), -torch.inf)


def _mean(terms: list[Tensor]) -> Tensor:
    """The mean of tensors, which broadcast."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total if len(terms) == 1 else total / len(terms)


def _deviation(heads: Tensor) -> Tensor:
    """Standard deviation over heads, the first axis; 0 for one head."""
    return heads.std(0, correction=int(len(heads) > 1))
