"""Model predictive path integral control, for many environments at once.

Each round draws plans around a mean, judges them in the model and takes the weighted moments of the
best (the elites) for the next round (Williams et al. 2015, as in TD-MPC2, Hansen et al. 2024):

    w_e = exp(temperature * (G_e - max G)) / sum_e' exp(temperature * (G_e' - max G))
    mean = sum_e w_e a_e                std = clip(sqrt(sum_e w_e (a_e - mean)^2), min_std, max_std)

Plans of the policy stand beside those of every round, or of the first, and are judged once. At last
one elite is drawn with the probability of its weight, in evaluations too (as in TD-MPC2): the best
of many plans is the one that the model is most wrong about, more often than the others.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import ConfigError
from empo_latent.networks.ensemble import drawn_heads, lack_of_heads
from empo_latent.params.planner import PlannerParams
from empo_latent.planning.plan import Noise, Plan, PlanningModel
from empo_latent.planning.plan_scorer import PlanContext, PlanScorer

ScoredPlans = tuple[Tensor, Tensor]
"""Plans ``[time, env, plan, action]`` and their scores ``[env, plan]``."""


class _Round(NamedTuple):
    """Elites of one round and their moments.

    Attributes:
        best: Scores of the elites, the best first, ``[env, elite]``.
        weight: How much each of them counts.
        action: What each of them would do now, ``[env, elite, action]``.
        mean: Their mean, ``[time, env, 1, action]``.
        std: Their standard deviation.
        share: How many of them the policy proposed.
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
        value_heads: int = 1,
        precision: Literal["float32", "bfloat16"] = "float32",
        compiled: bool = False,
    ) -> None:
        """Take the model.

        Args:
            model: Judges plans.
            params: How many are tried, and how.
            horizon: Steps of a plan where ``params`` does not say.
            discount: Per step; one number, or one per task.
            episodic: Whether the model knows where episodes end.
            critic: Whether its values are of states, or of actions in them.
            value_heads: How many it has; matters only where not all of them shall judge.
            precision: Of matrix products.
            compiled: Whether to compile what follows the drawing of random numbers.

        Raises:
            ConfigError: if more value heads shall judge than there are.
        """
        lack = lack_of_heads("planner", params.value_heads, value_heads, "plans")
        if lack is not None:
            raise ConfigError(lack)
        self._value_heads = value_heads
        self._params, self.horizon = params, params.horizon or horizon
        self._judge = PlanScorer(
            model,
            params,
            horizon=self.horizon,
            episodic=episodic,
            critic=critic,
            precision=precision,
        )
        self._discount = torch.as_tensor(discount, dtype=torch.float32, device=model.active.device)
        self._active = None if bool(model.active.all()) else model.active
        self._refine, self._round, self._propose = self._refined, self._tried, self._proposed
        self._compiles = compiled
        if compiled:
            self._compile(is_cuda=model.active.is_cuda)

    def expect_ends(self) -> None:
        """Ask the model from now on where episodes end."""
        self._judge.episodic = True

    def _compile(self, *, is_cuda: bool) -> None:
        compiled = partial(torch.compile, fullgraph=True, dynamic=False)
        if is_cuda:  # One graph of all rounds, since what it replaces is thousands of launches.
            self._refine = compiled(self._refined, mode="reduce-overhead")
        else:  # All rounds together would be no faster, and take minutes to compile.
            self._round, self._propose = compiled(self._tried), compiled(self._proposed)

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
        proposals = (time, env, params.policy_plans, action)
        draws = (self.rounds(action), time, env, params.samples - params.policy_plans, action)
        shapes = [proposals, draws, (env, action)]
        if params.policy_noise:
            shapes.append(proposals)
        sizes = [torch.Size(shape).numel() for shape in shapes]
        numbers = torch.randn(sum(sizes), generator=generator, dtype=mean.dtype, device=mean.device)
        pieces = torch.split(numbers, sizes)
        parts = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        choice = mean.new_empty(env, params.elites).exponential_(generator=generator)
        heads = None
        if params.value_heads is not None and params.value_heads < self._value_heads:
            heads = drawn_heads(self._value_heads, params.value_heads, mean.device, generator)
        jitter = parts[3] if params.policy_noise else None
        return Noise(parts[0], jitter, parts[1], choice, parts[2], heads)

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
        if self._compiles:
            # CUDA graphs may write over what they returned for the last plan.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
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
        """The plan after all rounds."""
        params, context = self._params, self._situation(z, task, noise, explore)
        # Moments have an axis for the plans that are drawn from them: [time, env, 1, action].
        mean = torch.cat([mean[1:], torch.zeros_like(mean[:1])]).unsqueeze(2)
        start = mean = context.masked(mean)
        std = context.masked(torch.full_like(mean, params.max_std))
        proposed, shares = None, {}
        if params.policy_plans:
            jitter = noise.jitter if explore else None
            proposed = self._propose(context, noise.proposals, jitter, optimistic)
        for number, draws in enumerate(noise.draws, start=1):
            if number > 1 and params.policy_rounds == "first":
                proposed = None
            result = self._round(context, mean, std, draws, proposed)
            mean, std = result.mean, result.std
            shares[f"policy/planner_policy_share_{number}"] = result.share
        chosen = (noise.choice / result.weight).argmin(-1)
        if explore and params.chosen == "best":
            chosen = torch.zeros_like(chosen)  # Elites come in the order of their scores.
        action = result.action.gather(1, chosen[:, None, None].expand(-1, -1, mean.shape[-1]))
        if explore:
            wide = params.exploration * std[0] + params.action_noise
            action = action + wide * noise.action.unsqueeze(1)
            action = context.masked(action.clamp(-1, 1))
        metrics = _metrics(result.best, mean - start, std[0])
        metrics |= shares if params.policy_plans else {}
        return Plan(action.squeeze(1), mean.squeeze(2), std[0].squeeze(1), metrics)

    def _situation(
        self, z: Tensor, task: Tensor | None, noise: Noise, explore: bool
    ) -> PlanContext:
        discount, active = self._discount, self._active
        if discount.ndim:
            discount = discount[0] if task is None else discount[task].unsqueeze(-1)
        if active is not None:
            active = (active[:1] if task is None else active[task]).unsqueeze(1)
        task = None if task is None else task.unsqueeze(-1)
        curious = explore and self._params.disagreement != 0
        reduction = None if explore else self._params.heads_evaluation
        return PlanContext(
            z, task, active, discount, noise.heads, curious, reduction or self._params.heads
        )

    def _proposed(
        self, context: PlanContext, noise: Tensor, jitter: Tensor | None, optimistic: bool
    ) -> ScoredPlans:
        """Plans of the policy."""
        if jitter is not None:
            jitter = self._params.policy_noise * jitter
        return self._judge.proposals(context, noise, jitter, optimistic=optimistic)

    def _tried(
        self,
        context: PlanContext,
        mean: Tensor,
        std: Tensor,
        draws: Tensor,
        proposed: ScoredPlans | None,
    ) -> _Round:
        """One round."""
        params, scored = self._params, [] if proposed is None else [proposed]
        if draws.shape[2]:
            drawn = context.masked((mean + std * draws).clamp(-1, 1))
            scored.append((drawn, self._judge.scores(context, drawn)))
        actions = torch.cat([actions for actions, _ in scored], 2)
        best, index = torch.cat([scores for _, scores in scored], 1).topk(params.elites)
        elites = actions.gather(2, index[..., None].expand(len(mean), -1, -1, mean.shape[-1]))
        weight = torch.softmax(params.temperature * best, -1)
        mean = (weight[..., None] * elites).sum(2, keepdim=True)
        variance = (weight[..., None] * (elites - mean).square()).sum(2, keepdim=True)
        std = context.masked(variance.sqrt().clamp(params.min_std, params.max_std))
        share = (index < (params.policy_plans if proposed else 0)).float().mean()
        return _Round(best, weight, elites[0], mean, std, share)


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
