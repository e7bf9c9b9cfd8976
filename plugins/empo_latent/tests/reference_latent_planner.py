"""The same plans by plain loops over plans, heads and steps, to test the planner against."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from empo_latent.params import Heads, PlannerParams
from empo_latent.planner import Noise


class Asked(NamedTuple):
    """Settings and state of one environment.

    Attributes:
        discount: Its task's.
        episodic: Whether episodes end.
        critic: Whether values are of states, or of actions in them.
        task: Its number; None where there is one.
        active: Which numbers of an action it uses; None: all.
        explore: Whether to act as in training.
        optimistic: Whether the optimistic policy proposes.
    """

    discount: float
    episodic: bool = False
    critic: Literal["v", "q"] = "v"
    task: int | None = None
    active: Bool[Tensor, " action"] | None = None
    explore: bool = False
    optimistic: bool = False


class ReferencePlanner:
    """Plans for one environment."""

    def __init__(self, model: Any, params: PlannerParams, request: Asked) -> None:
        self._model, self._params, self._asked = model, params, request
        self._task = None if request.task is None else torch.tensor(request.task)

    def plan(
        self,
        z: Float[Tensor, " latent"],
        mean: Float[Tensor, "time action"],
        noise: Noise,
        env: int,
    ) -> tuple[Float[Tensor, " action"], Float[Tensor, "time action"], Float[Tensor, " action"]]:
        """The action, the plan and the standard deviation of its first action.

        Args:
            z: Where the environment is.
            mean: The plan made a step ago.
            noise: As the planner takes it, for many environments.
            env: Which of them this one is.
        """
        params, asked = self._params, self._asked
        mean = self._masked(torch.cat([mean[1:], torch.zeros_like(mean[:1])]))
        std = self._masked(torch.full_like(mean, params.max_std))
        proposals = [self._proposal(z, noise, env, i) for i in range(params.policy_plans)]
        for draws in noise.draws[:, :, env]:
            plans = list(proposals)
            for i in range(draws.shape[1]):
                plans.append(self._masked((mean + std * draws[:, i]).clamp(-1, 1)))
            scores = [self.score(z, plan, noise) for plan in plans]
            order = sorted(range(len(plans)), key=lambda i: -scores[i])[: params.elites]
            best = scores[order[0]]
            weights = [math.exp(params.temperature * (scores[i] - best)) for i in order]
            weights = [weight / sum(weights) for weight in weights]
            elites = [plans[i] for i in order]
            mean = torch.zeros_like(mean)
            for weight, plan in zip(weights, elites, strict=True):
                mean = mean + weight * plan
            variance = torch.zeros_like(mean)
            for weight, plan in zip(weights, elites, strict=True):
                variance = variance + weight * (plan - mean) ** 2
            std = self._masked(variance.sqrt().clamp(params.min_std, params.max_std))
        times = [
            float(e) / w if w else math.inf for e, w in zip(noise.choice[env], weights, strict=True)
        ]
        action = elites[times.index(min(times))][0]
        if asked.explore:
            action = action + params.exploration * std[0] * noise.action[env]
            action = self._masked(action.clamp(-1, 1))
        return action, mean, std[0]

    def score(
        self, z: Float[Tensor, " latent"], plan: Float[Tensor, "time action"], noise: Noise
    ) -> float:
        """Score of a plan; of the noise, only the choice of value heads is used."""
        paid, rest = self._estimates(z, plan)
        if noise.heads is not None:
            rest = [[values[i] for i in noise.heads] for values in rest]
        rewards, heads, values = len(paid), len(rest), len(rest[0])
        t = len(plan) - 1
        totals = [
            paid[r][h][t] + rest[h][v][t]
            for r in range(rewards)
            for h in range(heads)
            for v in range(values)
        ]
        score = _joined(totals, self._params.heads)
        if self._asked.explore:
            found = [rest[h][v][t] for h in range(heads) for v in range(values)]
            score += self._params.disagreement * _deviation(found)
        return score if math.isfinite(score) else -math.inf

    def _estimates(
        self, z: Tensor, plan: Tensor
    ) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
        """Discounted rewards until each step, and discounted values after it.

        Returns:
            ``[reward][dynamics][time]`` and ``[dynamics][value][time]``.
        """
        model, task = self._model, self._task
        num_rewards = len(model.reward(z, plan[0], task=task))
        paid: list[list[list[float]]] = [[] for _ in range(num_rewards)]
        rest = []
        for head in range(len(model.next_latent(z, plan[0], task=task))):
            latent, weight, sums = z, 1.0, [0.0] * num_rewards
            for each in paid:
                each.append([])
            ends: list[list[float]] = []
            for action in plan:
                rewards = model.reward(latent, action, task=task)
                for r in range(num_rewards):
                    sums[r] += weight * float(rewards[r])
                    paid[r][head].append(sums[r])
                latent = model.next_latent(latent, action, task=task)[head]
                weight *= self._asked.discount
                if self._asked.episodic:
                    weight *= 1 - float(model.termination(latent, task=task))
                ends.append([weight * value for value in self._values(latent)])
            rest.append([list(values) for values in zip(*ends, strict=True)])
        return paid, rest

    def _values(self, latent: Tensor) -> list[float]:
        model, task = self._model, self._task
        action = None
        if self._asked.critic == "q":
            policy = model.policy(latent, task=task)
            action = policy.bounded(policy.loc)
        return [float(v) for v in model.value(latent, action, task=task)]

    def _proposal(self, z: Tensor, noise: Noise, env: int, number: int) -> Tensor:
        """A plan of policy actions, along the latents that the first dynamics head predicts."""
        model, task, asked = self._model, self._task, self._asked
        actions, latent = [], z
        for step in range(len(noise.proposals)):
            policy = model.policy(latent, task=task, optimistic=asked.optimistic)
            u = policy.loc + policy.log_std.exp() * noise.proposals[step, env, number]
            actions.append(self._masked(policy.bounded(u)))
            latent = model.next_latent(latent, actions[-1], task=task)[0]
        return torch.stack(actions)

    def _masked(self, actions: Tensor) -> Tensor:
        active = self._asked.active
        return actions if active is None else actions * active


def _joined(values: list[float], mode: Heads) -> float:
    if mode == "mean":
        return sum(values) / len(values)
    return min(values) if mode == "min" else max(values)


def _deviation(values: list[float]) -> float:
    """The standard deviation of a sample; 0 for one value."""
    mean = sum(values) / len(values)
    total = sum((value - mean) ** 2 for value in values)
    return math.sqrt(total / (len(values) - 1)) if len(values) > 1 else 0.0
