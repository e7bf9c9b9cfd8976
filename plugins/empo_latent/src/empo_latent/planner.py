"""Model predictive path integral control, for many environments at once.

Each round draws plans around a mean, scores them in the model and takes the weighted moments of the
best (the elites) for the next round (Williams et al. 2015, as in TD-MPC2, Hansen et al. 2024):

    G = sum_{t<T} gamma^t alive_t r(z_t, a_t) + gamma^T alive_T V(z_T)
    w_e = exp(temperature * (G_e - max G)) / sum_e' exp(temperature * (G_e' - max G))
    mean = sum_e w_e a_e                std = clip(sqrt(sum_e w_e (a_e - mean)^2), min_std, max_std)

where ``alive_t`` is the probability that none of ``z_1 ... z_t`` ends the episode. Plans of the
policy stand beside those of every round, and are scored once. At last one elite is drawn with the
probability of its weight, in evaluations too (as in TD-MPC2): the best of many plans is the one
that the model is most wrong about, more often than the others.

Axes: ``time`` counts the steps of a plan, ``proposal`` the plans that the policy proposes, ``draw``
those that are drawn in each ``round``, ``elite`` the best of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_latent.networks.ensemble import drawn_heads
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams, PlannerParams
from empo_latent.types import MultiTaskSpec
from empo_learning.policy_losses import joined_heads

ScoredPlans = tuple[Tensor, Tensor]
"""Plans ``[time, env, plan, action]`` and their scores ``[env, plan]``."""


class Noise(NamedTuple):
    """Everything that is random about a plan; standard normal where nothing else is said.

    Attributes:
        proposals: For the actions that the policy proposes.
        draws: For the plans of each round.
        choice: Standard exponential; the elite with the least of it per weight is chosen, which
            is each with the probability of its weight.
        action: Added to the first action, scaled.
        heads: Value heads that score; None: all.
    """

    proposals: Float[Tensor, "time env proposal action"]
    draws: Float[Tensor, "round time env draw action"]
    choice: Float[Tensor, "env elite"]
    action: Float[Tensor, "env action"]
    heads: Int[Tensor, " chosen"] | None = None


class Plan(NamedTuple):
    """The chosen action, and the plan that it begins.

    Attributes:
        action: What to do now.
        mean: The plan; the next one starts from it.
        std: Standard deviation of the elites' first actions.
        metrics: Numbers for people, 0-d tensors.
    """

    action: Float[Tensor, "env action"]
    mean: Float[Tensor, "time env action"]
    std: Float[Tensor, "env action"]
    metrics: Mapping[str, Tensor]


class _Situation(NamedTuple):
    """Constants of one call of the planner.

    Attributes:
        z: Latents of the environments.
        task: Their tasks; None where there is one.
        active: Numbers of actions that they use; None: all.
        discount: Per step, ``[env, 1]`` or 0-d.
        heads: Value heads that score; None: all.
        explore: Whether disagreement of heads raises scores.
    """

    z: Float[Tensor, "env latent"]
    task: Int[Tensor, "env 1"] | None
    active: Bool[Tensor, "#env 1 action"] | None
    discount: Float[Tensor, "*per_task"]
    heads: Int[Tensor, " chosen"] | None
    explore: bool

    def masked(
        self, action: Float[Tensor, "*time env plan action"]
    ) -> Float[Tensor, "*time env plan action"]:
        """Actions with 0 for numbers that are not used."""
        return action if self.active is None else action * self.active


class _Round(NamedTuple):
    """Elites of one round and their moments.

    Attributes:
        best: Scores of the elites, the best first, ``[env, elite]``.
        weight: How much each of them counts.
        action: First action of each, ``[env, elite, action]``.
        mean: Their mean, ``[time, env, 1, action]``.
        std: Their standard deviation.
        share: Share of them that the policy proposed.
    """

    best: Tensor
    weight: Tensor
    action: Tensor
    mean: Tensor
    std: Tensor
    share: Tensor


class Planner:
    """Finds actions by trying plans in a model.

    It holds no state: what a plan starts from and all randomness can be handed to it, and so it
    compiles to one graph.

    Attributes:
        horizon: Steps of a plan.
    """

    def __init__(
        self,
        model: Any,
        params: PlannerParams,
        *,
        horizon: int,
        discount: float | Tensor,
        critic: Literal["v", "q"] = "v",
        value_heads: int = 1,
        compiled: bool = False,
    ) -> None:
        """Take the model.

        Args:
            model: A ``LatentModel``, or what answers as one; scores plans.
            params: How many are tried, and how.
            horizon: Steps of a plan.
            discount: Per step; one number, or one per task.
            critic: Whether its values are of states, or of actions in them.
            value_heads: Number of its value heads.
            compiled: Whether to compile what follows the drawing of random numbers.
        """
        self._model, self._params, self._critic = model, params, critic
        self.horizon, self._value_heads = horizon, value_heads
        self._discount = torch.as_tensor(discount, dtype=torch.float32, device=model.active.device)
        self._active = None if bool(model.active.all()) else model.active
        self._compiled_refine, self._compiled_round = self._refine, self._round
        self._compiled_proposals = self._proposals
        self._compiled = compiled
        if compiled:
            compile_ = partial(torch.compile, fullgraph=True, dynamic=False)
            if model.active.is_cuda:  # One graph of all rounds replaces thousands of launches.
                self._compiled_refine = compile_(self._refine, mode="reduce-overhead")
            else:  # All rounds together would be no faster, and take minutes to compile.
                self._compiled_round = compile_(self._round)
                self._compiled_proposals = compile_(self._proposals)

    def rounds(self, actions: int) -> int:
        """Number of rounds for so many numbers per action."""
        if self._params.policy_plans == self._params.samples:
            return 1  # Nothing is drawn, and so nothing would change.
        return self._params.iterations or (8 if actions >= 20 else 6)

    def noise(
        self, mean: Float[Tensor, "time env action"], generator: torch.Generator | None = None
    ) -> Noise:
        """Draw everything random about a plan.

        Args:
            mean: As for ``plan``; only its shape, type and device matter.
            generator: Where randomness comes from; None: torch's own.
        """
        params = self._params
        time, env, action = mean.shape
        shapes = [
            (time, env, params.policy_plans, action),
            (self.rounds(action), time, env, params.samples - params.policy_plans, action),
            (env, action),
        ]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        numbers = torch.randn(sum(sizes), generator=generator, dtype=mean.dtype, device=mean.device)
        proposals, draws, first = (
            piece.view(shape)
            for piece, shape in zip(torch.split(numbers, sizes), shapes, strict=True)
        )
        choice = mean.new_empty(env, params.elites).exponential_(generator=generator)
        heads = None
        if params.value_heads is not None and params.value_heads < self._value_heads:
            heads = drawn_heads(self._value_heads, params.value_heads, mean.device, generator)
        return Noise(proposals, draws, choice, first, heads)

    def plan(
        self,
        z: Float[Tensor, "env latent"],
        mean: Float[Tensor, "time env action"],
        *,
        task: Int[Tensor, " env"] | None = None,
        explore: bool,
        optimistic: bool = False,
        noise: Noise | None = None,
    ) -> Plan:
        """Find out what to do.

        Args:
            z: Latents of the environments.
            mean: The plan made a step ago; zeros where there is none, as in new episodes.
            task: Task of each environment; None where there is one.
            explore: Whether to act as in training: with noise, and a bonus for disagreement. If
                not, what is random is which elite is followed.
            optimistic: Whether the optimistic policy proposes.
            noise: As ``noise`` draws it; None: it is drawn here.
        """
        noise = self.noise(mean) if noise is None else noise
        if self._compiled:
            # CUDA graphs may write over what they returned for the last plan.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return self._compiled_refine(z, mean, task, noise, explore, optimistic)

    def _refine(
        self,
        z: Tensor,
        mean: Tensor,
        task: Tensor | None,
        noise: Noise,
        explore: bool,
        optimistic: bool,
    ) -> Plan:
        """The plan after all rounds."""
        params, situation = self._params, self._situation(z, task, noise, explore)
        # Moments have an axis for the plans that are drawn from them: [time, env, 1, action].
        mean = torch.cat([mean[1:], torch.zeros_like(mean[:1])]).unsqueeze(2)
        start = mean = situation.masked(mean)
        std = situation.masked(torch.full_like(mean, params.max_std))
        proposals, shares = None, {}
        if params.policy_plans:
            proposals = self._compiled_proposals(situation, noise.proposals, optimistic)
        for number, draws in enumerate(noise.draws, start=1):
            result = self._compiled_round(situation, mean, std, draws, proposals)
            mean, std = result.mean, result.std
            if proposals is not None:
                shares[f"policy/planner_policy_share_{number}"] = result.share
        chosen = (noise.choice / result.weight).argmin(-1)
        action = result.action.gather(1, chosen[:, None, None].expand(-1, -1, mean.shape[-1]))
        if explore:
            action = action + params.exploration * std[0] * noise.action.unsqueeze(1)
            action = situation.masked(action.clamp(-1, 1))
        metrics = {**_metrics(result.best, mean - start, std[0]), **shares}
        return Plan(action.squeeze(1), mean.squeeze(2), std[0].squeeze(1), metrics)

    def _situation(self, z: Tensor, task: Tensor | None, noise: Noise, explore: bool) -> _Situation:
        discount, active = self._discount, self._active
        if discount.ndim:
            discount = discount[0] if task is None else discount[task].unsqueeze(-1)
        if active is not None:
            active = (active[:1] if task is None else active[task]).unsqueeze(1)
        task = None if task is None else task.unsqueeze(-1)
        return _Situation(z, task, active, discount, noise.heads, explore)

    def _round(
        self,
        situation: _Situation,
        mean: Tensor,
        std: Tensor,
        draws: Tensor,
        proposals: ScoredPlans | None,
    ) -> _Round:
        """Draw plans around a mean, and take the moments of the best of them and the proposals."""
        params, scored = self._params, [] if proposals is None else [proposals]
        if draws.shape[2]:
            plans = situation.masked((mean + std * draws).clamp(-1, 1))
            scored.append(self._scored(situation, plans.shape[2], lambda step, _: plans[step]))
        actions = torch.cat([actions for actions, _ in scored], 2)
        best, index = torch.cat([scores for _, scores in scored], 1).topk(params.elites)
        elites = actions.gather(2, index[..., None].expand(len(mean), -1, -1, mean.shape[-1]))
        weight = torch.softmax(params.temperature * best, -1)
        mean = (weight[..., None] * elites).sum(2, keepdim=True)
        variance = (weight[..., None] * (elites - mean).square()).sum(2, keepdim=True)
        std = situation.masked(variance.sqrt().clamp(params.min_std, params.max_std))
        share = (index < (params.policy_plans if proposals else 0)).float().mean()
        return _Round(best, weight, elites[0], mean, std, share)

    def _proposals(self, situation: _Situation, noise: Tensor, optimistic: bool) -> ScoredPlans:
        """Plans of the policy, whose actions are drawn with standard normal noise."""

        def choose(
            step: int, latent: Float[Tensor, "env plan latent"]
        ) -> Float[Tensor, "env plan action"]:
            policy = self._model.policy(latent, task=situation.task, optimistic=optimistic)
            return situation.masked(policy.bounded(policy.mean + policy.scale * noise[step]))

        return self._scored(situation, noise.shape[2], choose)

    def _scored(
        self, situation: _Situation, plans: int, choose: Callable[[int, Tensor], Tensor]
    ) -> ScoredPlans:
        """The actions of so many plans, and their scores ``G``.

        Every dynamics head goes its own way; actions are chosen from the latents of the first.
        """
        model, task, z = self._model, situation.task, situation.z
        latent = z.unsqueeze(1).expand(-1, plans, -1)
        weight, total, actions = torch.ones_like(situation.discount), z.new_zeros(()), []
        for step in range(self.horizon):
            split = step > 0
            action = choose(step, latent[0] if split else latent)
            shared = action.expand(*latent.shape[:-1], -1)
            reward = model.reward(latent, shared, task=task).squeeze(-1)
            # [reward dynamics env plan]
            total = total + weight * (reward if split else reward.unsqueeze(1))
            latent = model.next_latent(latent, action, task=task, split=split)
            weight = weight * situation.discount
            if model.terminates:
                weight = weight * (1 - model.termination(latent, task=task).squeeze(-1))
            actions.append(action)
        bootstrap = weight * self._value(situation, latent)  # [value dynamics env plan]
        # Which reward head is least does not depend on the value head, nor the other way round:
        # so they are reduced apart, and only then those of the dynamics.
        mode = self._params.heads
        of_models = joined_heads(total, mode, 0) + joined_heads(bootstrap, mode, 0)
        score = joined_heads(of_models, mode, 0)
        if situation.explore and self._params.disagreement:
            heads = bootstrap.flatten(0, 1)
            spread = heads.std(0, correction=int(len(heads) > 1))
            score = score + self._params.disagreement * spread
        # The worst there is where it cannot be told.
        return torch.stack(actions), score.masked_fill(~score.isfinite(), -torch.inf)

    def _value(self, situation: _Situation, latent: Tensor) -> Tensor:
        """Values of latents ``[dynamics, env, plan, latent]``, by each value head.

        A critic of actions values the policy's likeliest action; where TD-MPC2 draws one, nothing
        here is random, so that plans need to be scored only once.
        """
        action, task = None, situation.task
        if self._critic == "q":
            policy = self._model.policy(latent, task=task)
            action = policy.bounded(policy.mode)
        value: Tensor = self._model.value(latent, action, task=task, heads=situation.heads)
        return value.squeeze(-1)


def _metrics(best: Tensor, drift: Tensor, std: Tensor) -> dict[str, Tensor]:
    """Numbers for people: scores of elites, how far the plan moved, and how wide it still is."""
    is_finite = best.isfinite()
    count = is_finite.sum(-1, keepdim=True).clamp(min=1)
    finite = best.where(is_finite, 0)
    mean = finite.sum(-1, keepdim=True) / count
    spread = ((finite - mean).square() * is_finite).sum(-1, keepdim=True) / count
    return {
        "policy/planner_elite_mean": mean.mean(),
        "policy/planner_elite_std": spread.sqrt().mean(),
        "policy/planner_elite_max": best[:, 0].mean(),
        "policy/planner_drift": drift.abs().mean(),
        "policy/planner_std": std.mean(),
    }


def planner_of(
    model: LatentModel, params: LatentParams, spec: MultiTaskSpec, *, compiled: bool
) -> Planner:
    """The planner of a run in such tasks."""
    return Planner(
        model,
        params.planner,
        horizon=params.learning.horizon,
        discount=torch.tensor(params.discounts(spec.episode_lengths)),
        critic=params.value.critic,
        value_heads=params.value.heads,
        compiled=compiled,
    )
