"""Model predictive path integral control, for many environments at once.

Each round draws plans around a mean, judges them in the model and takes the weighted moments of the
best (the elites) for the next round (Williams et al., 2015; as in TD-MPC2, Hansen et al., 2024):

    w_e = exp(temperature * (G_e - max G)) / sum_e' exp(temperature * (G_e' - max G))
    mean = sum_e w_e a_e                std = clip(sqrt(sum_e w_e (a_e - mean)^2), min_std, max_std)

    G = sum_{t<T} gamma^t alive_t r(z_t, a_t) + gamma^T alive_T V(z_T)

where ``alive_t`` is 0 once the termination head says of any of ``z_1 ... z_t`` that it ends the
episode. Unlike TD-MPC2's, plans of the policy are scored once: nothing about their score is random,
since a critic of actions judges the likeliest action at ``z_T``, not a drawn one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_latent.params import Heads, PlannerParams
from empo_latent.planning.contract import Noise, Plan, PlanningModel

Chooser = Callable[[int, Tensor], Tensor]
"""From a step and the latents of the first head before it to the actions taken."""


class _Setting(NamedTuple):
    """What stays the same during a plan."""

    task: Tensor | None  # [env, 1]
    active: Tensor | None  # [env, 1, action], or 1 for env
    discount: Tensor  # [env, 1], or 0-d
    explore: bool
    optimistic: bool

    def masked(self, action: Tensor) -> Tensor:
        """Actions ``[..., env, sample, action]``, with 0 for numbers that are not used."""
        return action if self.active is None else action * self.active


class Planner:
    """Finds actions by trying plans in a model.

    It holds no state: what a plan starts from and all randomness can be handed to it, and so it
    compiles to one graph.
    """

    def __init__(
        self,
        model: PlanningModel,
        params: PlannerParams,
        *,
        horizon: int,
        discount: float | Tensor,
        episodic: bool,
        critic: Literal["v", "q"] = "v",
        precision: Literal["float32", "bfloat16"] = "float32",
        compile: bool = False,
    ) -> None:
        """Take the model.

        Args:
            model: Judges plans.
            params: How many are tried, and how.
            horizon: Steps of a plan where ``params`` does not say.
            discount: Per step; one number, or one per task.
            episodic: Whether the model knows where episodes end.
            critic: Whether its values are of states, or of actions in them.
            precision: Of matrix products.
            compile: Whether to compile what follows the drawing of random numbers.
        """
        self._model, self._params, self._critic = model, params, critic
        self._episodic, self._precision = episodic, precision
        self._discount = torch.as_tensor(discount, dtype=torch.float32, device=model.active.device)
        self._active = None if bool(model.active.all()) else model.active
        self._refine = self._refined
        if compile:
            # Graphs of CUDA spare thousands of launches, each of which is about as slow as what
            # is launched.
            mode = "reduce-overhead" if model.active.is_cuda else None
            self._refine = torch.compile(self._refined, fullgraph=True, dynamic=False, mode=mode)
        self.horizon = params.horizon or horizon

    def rounds(self, actions: int) -> int:
        """How many iterations there are for so many numbers per action."""
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
        proposals = (time, env, params.policy_plans, action)
        draws = (self.rounds(action), time, env, params.samples - params.policy_plans, action)
        shapes = [proposals, draws, (env, action)]
        if params.policy_noise:
            shapes.append(proposals)
        sizes = [torch.Size(shape).numel() for shape in shapes]
        kind = {"dtype": mean.dtype, "device": mean.device}
        numbers = torch.randn(sum(sizes), generator=generator, **kind).split(sizes)  # type: ignore[call-overload]
        parts = [part.view(shape) for part, shape in zip(numbers, shapes, strict=True)]
        choice = mean.new_empty(env, params.elites).exponential_(generator=generator)
        jitter = parts[3] if params.policy_noise else None
        return Noise(parts[0], jitter, parts[1], choice, parts[2])

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
            z: Where the environments are.
            mean: The plan made a step ago; zeros where there is none, as in new episodes.
            task: Which task each environment is of; None where there is one.
            explore: Whether to act as in training: with noise, and a bonus for disagreement. If
                not, what is random is which elite is followed.
            optimistic: Whether the optimistic policy proposes.
            noise: As ``noise`` draws it; None: it is drawn here.
        """
        noise = self.noise(mean) if noise is None else noise
        return self._refine(z, mean, task, noise, explore, optimistic)

    def _refined(
        self,
        z: Tensor,
        mean: Tensor,
        task: Tensor | None,
        noise: Noise,
        explore: bool,
        optimistic: bool,
    ) -> Plan:
        setting = self._setting(task, explore, optimistic)
        with torch.autocast(z.device.type, torch.bfloat16, enabled=self._precision == "bfloat16"):
            return self._rounds(z, mean, setting, noise)

    def _setting(self, task: Tensor | None, explore: bool, optimistic: bool) -> _Setting:
        discount, active = self._discount, self._active
        if discount.ndim:
            discount = discount[0] if task is None else discount[task].unsqueeze(-1)
        if active is not None:
            active = (active[:1] if task is None else active[task]).unsqueeze(1)
        task = None if task is None else task.unsqueeze(-1)
        return _Setting(task, active, discount, explore, optimistic)

    def _rounds(self, z: Tensor, mean: Tensor, setting: _Setting, noise: Noise) -> Plan:
        """What the rounds lead to."""
        params = self._params
        # Moments have an axis for the plans that are drawn from them: [time, env, 1, action].
        mean = torch.cat([mean[1:], torch.zeros_like(mean[:1])]).unsqueeze(2)
        start = mean = setting.masked(mean)
        std = setting.masked(torch.full_like(mean, params.max_std))
        plans, shares = [], []
        if params.policy_plans:
            choose = self._proposer(setting, noise)
            plans.append(self._judged(z, setting, params.policy_plans, choose))
        for number, draws in enumerate(noise.draws, start=1):
            tried = plans
            if draws.shape[2]:
                drawn = setting.masked((mean + std * draws).clamp(-1, 1))
                tried = [*plans, self._judged(z, setting, draws.shape[2], _taking(drawn))]
            actions = torch.cat([actions for actions, _ in tried], 2)
            best, index = torch.cat([scores for _, scores in tried], 1).topk(params.elites)
            shares.append((index < params.policy_plans).float().mean())
            elites = actions.gather(2, index[..., None].expand(len(mean), -1, -1, mean.shape[-1]))
            weight = torch.softmax(params.temperature * best, -1)
            mean = (weight[..., None] * elites).sum(2, keepdim=True)
            # Nobody is told how sure the last round is of later actions.
            some = 1 if number == len(noise.draws) else len(mean)
            offset = elites[:some] - mean[:some]
            std = (weight[..., None] * offset.square()).sum(2, keepdim=True).sqrt()
            std = setting.masked(std.clamp(params.min_std, params.max_std))
        chosen = (noise.choice / weight).argmin(-1)
        action = elites[0].gather(1, chosen[:, None, None].expand(-1, -1, mean.shape[-1]))
        if setting.explore:
            action = action + params.exploration * std[0] * noise.action.unsqueeze(1)
            action = setting.masked(action.clamp(-1, 1))
        metrics = _metrics(best, mean - start, shares if params.policy_plans else [])
        return Plan(action.squeeze(1), mean.squeeze(2), std[0].squeeze(1), metrics)

    def _proposer(self, setting: _Setting, noise: Noise) -> Chooser:
        """What the policy proposes."""

        def choose(step: int, latent: Tensor) -> Tensor:
            policy = self._model.policy(latent, task=setting.task, optimistic=setting.optimistic)
            action = policy.bounded(policy.mean + policy.scale * noise.proposals[step])
            if setting.explore and noise.jitter is not None:
                action = action + self._params.policy_noise * noise.jitter[step]
                action = action.clamp(-1, 1)
            return setting.masked(action)

        return choose

    def _judged(
        self, z: Tensor, setting: _Setting, plans: int, choose: Chooser
    ) -> tuple[Tensor, Tensor]:
        """Plans ``[time, env, plan, action]`` and their scores ``[env, plan]``.

        Every dynamics head goes its own way; the first one's latents are what is chosen from.
        """
        model, task = self._model, setting.task
        latent = z.unsqueeze(1).expand(-1, plans, -1)
        weight, total = torch.ones_like(setting.discount), z.new_zeros(())
        actions, returns, bootstraps = [], [], []
        for step in range(self.horizon):
            split = step > 0
            action = choose(step, latent[0] if split else latent)
            shared = action.expand(*latent.shape[:-1], -1)
            reward = model.reward(latent, shared, task=task).squeeze(-1)
            total = total + weight * (reward if split else reward.unsqueeze(1))
            latent = model.next_latent(latent, action, task=task, split=split)
            weight = weight * setting.discount
            if self._episodic:
                weight = weight * (1 - model.terminates(latent, task=task).squeeze(-1))
            actions.append(action)
            if self._params.depths == "all" or step == self.horizon - 1:
                returns.append(total)
                bootstraps.append(weight * self._value(latent, task))
        return torch.stack(actions), self._score(returns, bootstraps, setting.explore)

    def _value(self, latent: Tensor, task: Tensor | None) -> Tensor:
        """What latents ``[dynamics, env, plan, latent]`` are worth, by each value head."""
        action = None
        if self._critic == "q":
            policy = self._model.policy(latent, task=task)
            action = policy.bounded(policy.mode)
        network = self._params.critic
        return self._model.value(latent, action, task=task, network=network).squeeze(-1)

    def _score(self, returns: list[Tensor], bootstraps: list[Tensor], explore: bool) -> Tensor:
        """One number per plan; the worst there is where it cannot be told.

        Args:
            returns: Up to each depth, ``[reward, dynamics, env, plan]``.
            bootstraps: What comes after it, ``[value, dynamics, env, plan]``.
            explore: Whether disagreement counts.
        """
        params = self._params
        # Which reward head is least does not depend on the value head, nor the other way round:
        # so they are joined apart, and only then those of the dynamics.
        both = _joined(_mean(returns), params.heads) + _joined(_mean(bootstraps), params.heads)
        score = _joined(both, params.heads)
        if explore and params.disagreement:
            spread = _mean([_deviation(each.flatten(0, 1)) for each in bootstraps])
            score = score + params.disagreement * spread
        return score.masked_fill(~score.isfinite(), -torch.inf)


def _taking(actions: Tensor) -> Chooser:
    """Just take actions ``[time, env, plan, action]``."""
    return lambda step, _: actions[step]


def _joined(heads: Tensor, mode: Heads) -> Tensor:
    """One estimate instead of one per head, which lie on the first axis."""
    if mode == "mean":
        return heads.mean(0)
    return heads.amin(0) if mode == "min" else heads.amax(0)


def _mean(terms: list[Tensor]) -> Tensor:
    """The mean of tensors, which broadcast."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total if len(terms) == 1 else total / len(terms)


def _deviation(heads: Tensor) -> Tensor:
    """How much heads, which lie on the first axis, differ: nothing where there is one."""
    return heads.std(0, correction=int(len(heads) > 1))


def _metrics(best: Tensor, drift: Tensor, shares: list[Tensor]) -> dict[str, Tensor]:
    """Numbers for people."""
    known = best.isfinite()
    count = known.sum(-1, keepdim=True).clamp(min=1)
    kept = best.where(known, 0)
    mean = kept.sum(-1, keepdim=True) / count
    spread = ((kept - mean).square() * known).sum(-1, keepdim=True) / count
    return {
        "planner/elite_mean": mean.mean(),
        "planner/elite_std": spread.sqrt().mean(),
        "planner/elite_max": best[:, 0].mean(),
        "planner/drift": drift.abs().mean(),
        **{f"planner/policy_share_{i}": share for i, share in enumerate(shares, start=1)},
    }
