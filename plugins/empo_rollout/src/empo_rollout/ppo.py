"""Proximal policy optimisation (Schulman et al. 2017): the loss, and updates from rollouts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_core.protocols import Critic, PolicyLoss
from empo_core.protocols.environments import EnvSpec
from empo_core.trees import StateDict, whole_number
from empo_core.types import LossOutput, RecordedBatch
from empo_learning.distributed import Group
from empo_learning.optimiser_moments import load_moments, moments_of
from empo_learning.policy_losses import EntropyBonus, weighted_means
from empo_rollout.buffer import Batch, Rollout, advantages, drawn_segments, normalised
from empo_rollout.checks import refuse_step, require_divergence, require_fit
from empo_rollout.closed_form import ClosedForm, require_closed_form
from empo_rollout.optimiser import build_optimiser, flat_weights
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks, autocast
from empo_rollout.ppo_params import LOG_RATIO_LIMIT, PpoParams

KL = "policy/approx_kl"
"""Metric of a policy loss: the divergence between the policy that acted and the policy now."""


class Ppo(PolicyLoss):
    """Policy loss ``ppo``: the clipped surrogate objective, and a bonus for entropy.

    With the ratio ``r`` of the probabilities of an action under the policy and under the one that
    acted, its advantage ``A`` and entropy ``H``::

        r    = exp(clip(log pi(a|o) - log pi_old(a|o), -10, 10))
        loss = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A)) - coef * mean(H)

    The first mean is equation 7 of Schulman et al. (2017), and the second the entropy of equation
    9; ``coef`` is the paper's ``c2``. Means are weighted by ``batch.weight``. The bound of 10 is
    not in the paper: beyond it ``r`` stays, and teaches nothing.

    Attributes:
        params: The parameters.
        has_closed_form: True: ``ClosedForm`` computes the gradient; not inherited by subclasses.
    """

    takes = RecordedBatch
    has_closed_form = True

    def __init__(self, params: PpoParams) -> None:
        super().__init__()
        self.params = params
        self.entropy = EntropyBonus(params.entropy)

    def forward(
        self, distribution: Distribution, batch: RecordedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of a policy on ``batch``; ``critic`` is not used.

        Metrics: ``policy_loss``, ``entropy`` and its coefficient ``entropy_coef``, and how far the
        policy has moved: ``approx_kl``, ``clip_fraction`` (share of steps whose ratio is beyond
        the clip) and ``importance`` (mean ratio).
        """
        log_ratio = distribution.log_prob(batch.action) - batch.log_prob
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()
        clip, advantage = self.params.clip, batch.advantage
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
        bonus = self.entropy(distribution, batch.weight, batch.progress)
        loss = -(batch.weight * (surrogate + bonus.paid)).mean()

        with torch.no_grad():
            metrics = weighted_means(
                batch.weight,
                policy_loss=-surrogate,
                # Schulman's estimate of the divergence: never negative, and less noisy than the
                # mean of the log-ratios (http://joschu.net/blog/kl-approx.html).
                approx_kl=ratio - 1 - log_ratio,
                clip_fraction=((ratio - 1).abs() > clip).to(ratio),
                importance=ratio,
            )
        for name in ("entropy", "entropy_coef"):
            metrics[name] = bonus.metrics[name]
        return LossOutput(loss, metrics)


def value_loss(
    value: Float[Tensor, "*batch"],
    old_value: Float[Tensor, "*batch"],
    returns: Float[Tensor, "*batch"],
    weight: Float[Tensor, "*batch"],
    clip: float | None,
) -> Float[Tensor, ""]:
    """Half the weighted mean of squared errors; gradients reach ``value`` alone.

    Args:
        value: Value estimates now.
        old_value: Those of the policy that acted.
        returns: Targets.
        weight: How much each step counts, at least 0 and 1 on average; 0 masks it out.
        clip: A value that has moved further than this counts as moved so far, where that is the
            greater error; None lets it move any distance.

    Returns:
        ``mean(max((V - R)^2, (V_old + clip(V - V_old) - R)^2)) / 2``.
    """
    square = (value - returns).square()
    if clip is not None:
        clipped = old_value + (value - old_value).clamp(-clip, clip)
        square = torch.maximum(square, (clipped - returns).square())
    return 0.5 * (weight * square).mean()


def explained_variance(
    value: Float[Tensor, "*batch"],
    returns: Float[Tensor, "*batch"],
    weight: Float[Tensor, "*batch"],
) -> Float[Tensor, ""]:
    """``1 - Var(R - V) / Var(R)``; 0 where returns do not vary."""
    both = torch.stack((returns, returns - value)).flatten(1)
    normalised_weight = weight.flatten() / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
    centred = both - (normalised_weight * both).sum(1, keepdim=True)
    total, unexplained = (normalised_weight * centred.square()).sum(1)
    # Less than this is rounding of returns that are all the same.
    rounding = (8 * torch.finfo(returns.dtype).eps * returns.abs().amax()).square()
    return torch.where(total > rounding, 1 - unexplained / total, torch.zeros_like(total))


def require_learnable(
    policy: Networks,
    losses: Sequence[tuple[PolicyLoss, float]],
    params: RolloutParams,
    plan: VecPlan,
    group: Group,
) -> None:
    """Refuse what an ``Updater`` cannot learn with; the policy may be on device ``meta``.

    Raises:
        ConfigError: if the losses or parameters do not fit the policy, or each other.
    """
    require_fit(policy, losses, params, plan, group)
    if params.update.target_kl is not None:
        require_divergence(policy, losses)
    if params.update.gradient == "closed-form":
        require_closed_form(policy, _only_ppo(losses), params)


def _only_ppo(losses: Sequence[tuple[PolicyLoss, float]]) -> PpoParams | None:
    """The parameters of ``ppo``, where it is the only loss and has weight 1."""
    (loss, factor), *others = losses
    # A subclass may compute something else, so it has to say by itself that it does not.
    if not isinstance(loss, Ppo) or "has_closed_form" not in vars(type(loss)):
        return None
    return loss.params if factor == 1 and not others else None


class Updater:
    """Improves a policy by what happened in rollouts.

    A step of the optimiser is about one minibatch (of all processes together), and minimises::

        sum_i weight_i * policy_loss_i + value_coef * value_loss

    where means are over the steps in which an agent acted and of which the outcome is known.
    A minibatch may be gone through in several parts; that changes no gradient.
    """

    def __init__(
        self,
        policy: Networks,
        losses: Sequence[tuple[PolicyLoss, float]],
        params: RolloutParams,
        plan: VecPlan,
        env_spec: EnvSpec,
        *,
        device: torch.device | str,
        generator: torch.Generator,
        group: Group | None = None,
    ) -> None:
        """Learn from now on; in several processes, from the weights of rank 0.

        The policy must stay on its device, and each process needs a ``generator`` with a seed of
        its own, which decides what steps come together.

        Raises:
            ConfigError: if the losses or parameters do not fit the policy, or each other.
        """
        self._params, self._plan, self._spec = params, plan, env_spec
        self._device, self._generator = torch.device(device), generator
        self._group = group or Group()
        require_learnable(policy, losses, params, plan, self._group)
        self._policy, self._losses = policy, list(losses)
        self._loss_modules = nn.ModuleList([loss for loss, _ in losses]).to(device)
        self._remembered = list(self._loss_modules.buffers())
        self._weights, self._gradient = flat_weights(policy)
        self._group.spread([self._weights])
        self._optimiser = build_optimiser(params.optimiser, [self._weights])
        self._precision = autocast(params.compute)
        self._unroll = torch.compile(policy.unroll) if params.compute.compile else policy.unroll
        self._add_gradient = self._add_gradient_by_autograd
        if params.update.gradient == "closed-form":
            self._add_gradient = ClosedForm(policy, _only_ppo(losses), params)
        self._steps = 0

    def update(self, rollout: Rollout, progress: float, lr_factor: float = 1.0) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            rollout: What happened, on the device of the policy.
            progress: How much of the run is over, in [0, 1].
            lr_factor: Factor of the learning rate, at least 0.

        Returns:
            Means over the minibatches: ``loss/total`` and its parts ``loss/policy`` (all policy
            losses, weighted) and ``loss/value``, what policy losses report
            (``policy/approx_kl``, ``policy/clip_fraction``, ``policy/entropy``,
            ``policy/importance`` of ``ppo``; where two report the same, the later one's has its
            class before its name), and ``optim/grad_norm`` (before it is cut). Besides,
            ``optim/lr`` and ``optim/steps`` in the end, the number of minibatches learned from
            as ``optim/minibatches``, the share of steps that count as ``optim/usable``, and
            ``value/explained_variance`` before the update (the mean of those of all processes).
            Where ``target_kl`` ended the update, ``policy/stopping_kl`` is the divergence that did.

        Raises:
            NonFiniteError: if a loss or gradient is infinite or NaN; the weights, and what losses
                remember, are those before its minibatch. If an advantage is, those before its
                epoch.
        """
        params, limit = self._params, self._params.update.target_kl
        by_minibatch: list[dict[str, float]] = []
        advantage, returns = advantages(rollout, params.advantages, params.gamma)
        whole = Batch.of(
            rollout,
            advantage,
            returns,
            num_agents=len(self._spec.agents),
            by_steps=params.update.sampling == "steps",
        )
        variance = explained_variance(whole.value, whole.returns, whole.weight)
        numbers = torch.stack((variance, whole.weight.mean())) / self._group.size
        self._group.add_up([numbers])
        explained, usable = numbers.tolist()
        report = {"value/explained_variance": explained, "optim/usable": usable, "optim/lr": 0.0}
        for name, batch, total_weight in self._minibatches(rollout, whole, progress):
            steps, before = self._steps, [buffer.clone() for buffer in self._remembered]
            try:
                metrics = self._compute_gradient(batch, total_weight, progress)
                # The first comes from the policy that acted: without a step, nothing is learned.
                if by_minibatch and limit is not None and metrics.get(KL, 0.0) > limit:
                    report["policy/stopping_kl"] = metrics[KL]
                    break
                report["optim/lr"] = self._step(name, metrics, lr_factor)
            finally:
                if self._steps == steps:  # Losses adapt to what a step was taken for.
                    for buffer, value in zip(self._remembered, before, strict=True):
                        buffer.copy_(value)
            by_minibatch.append(metrics)
        learned = len(by_minibatch)
        means = {
            name: sum(metrics[name] for metrics in by_minibatch) / learned
            for name in (by_minibatch[0] if learned else ())
        }
        return {**means, **report, "optim/steps": self._steps, "optim/minibatches": learned}

    def _minibatches(
        self, rollout: Rollout, whole: Batch, progress: float
    ) -> Iterator[tuple[str, Batch, float]]:
        """Name, steps and total weight of each minibatch of all epochs that has any weight."""
        update, vtrace = self._params.update, self._params.advantages.vtrace
        size, before = self._plan.minibatch_size // len(whole.value), self._steps
        for epoch in range(update.update_epochs):
            if epoch and vtrace == "epoch":
                whole.advantage = self._vtrace_advantages(rollout, whole).view_as(whole.value)
            order, sampling_weight = drawn_segments(
                whole.advantage, update, size, progress=progress, generator=self._generator
            )
            name, group = f"epoch {epoch + 1}", self._group
            # Those of all minibatches at once, which saves a twentieth of a small update.
            advantage, weight = whole.advantage[:, order], whole.weight[:, order]
            normal, totals = normalised(advantage, weight, size, name, group)
            for number, batch in enumerate(whole.minibatches(order, size)):
                here = slice(number * size, (number + 1) * size)
                normal_here, total = normal[:, here], totals[number]
                if vtrace == "minibatch" and self._steps > before:
                    chosen = rollout.segments(order[here])
                    batch.advantage = advantage = self._vtrace_advantages(chosen, batch)
                    normal_here, (total,) = normalised(advantage, batch.weight, size, name, group)
                if update.normalise_advantages:
                    batch.advantage = normal_here
                if sampling_weight is not None:
                    batch.advantage = batch.advantage * sampling_weight[here]
                if total > 0:
                    yield f"minibatch {number + 1} of {name}", batch, total

    def _compute_gradient(
        self, batch: Batch, total_weight: float, progress: float
    ) -> dict[str, float]:
        """Fill the gradient of all weights, over all processes; returns the metrics.

        Args:
            batch: Steps of this process.
            total_weight: Sum of the weights of all steps, in all processes.
            progress: Share of the run that is done.
        """
        parts: Iterable[Batch] = [batch]
        if self._plan.accumulate > 1:
            positions = torch.arange(len(batch.agent), device=self._device)
            parts = map(batch.segments, positions.tensor_split(self._plan.accumulate))
        names, terms = list[str](), list[Tensor]()
        self._gradient.zero_()
        for part in parts:  # Means over a part, by its share of all weight, add up to the mean.
            part_weight = float(part.weight.sum())
            weight = part.weight * (part.weight.numel() / part_weight if part_weight else 0.0)
            share = part_weight / total_weight
            names, numbers = self._add_gradient(part, weight, share, progress)
            terms.append(share * numbers if share else torch.zeros_like(numbers))
        metrics = reduce(torch.add, terms)
        self._group.add_up([self._gradient, metrics])
        norm = torch.linalg.vector_norm(self._gradient, dtype=metrics.dtype)
        row = torch.cat((metrics, norm[None])).tolist()
        return dict(zip([*names, "optim/grad_norm"], row, strict=True))

    def _add_gradient_by_autograd(
        self, batch: Batch, weight: Float[Tensor, "time segment"], share: float, progress: float
    ) -> tuple[list[str], Float[Tensor, " metric"]]:
        """Add ``share`` times the gradient of a batch to that of the weights; names and metrics.

        Of equation 9 of Schulman et al. (2017), with means over the steps with weight::

            loss       = policy loss + value_coef * value loss
            value loss = mean((V - R)^2) / 2, clipped as ``value_loss`` says

        The policy loss is that of ``Ppo``, or the sum of whatever losses the config names. Since
        the value loss is halved, the paper's ``c1`` is ``value_coef / 2``.
        """
        update = self._params.update
        distribution, value = self._distribution_and_value(batch)
        recorded = RecordedBatch(
            batch.action.flatten(0, 1),
            batch.advantage.flatten(),
            batch.log_prob.flatten(),
            weight.flatten(),
            weight.new_full((), progress),
        )
        policy_loss, metrics = weight.new_zeros(()), dict[str, float | Tensor]()
        for policy_term, factor in self._losses:
            output = policy_term(distribution, recorded)
            policy_loss = policy_loss + factor * output.loss
            for name, number in output.metrics.items():
                is_new = f"policy/{name}" not in metrics
                prefix = "" if is_new else f"{type(policy_term).__name__.lower()}_"
                metrics[f"policy/{prefix}{name}"] = number
        value_error = value_loss(value, batch.value, batch.returns, weight, update.value_clip)
        loss = policy_loss + update.value_coef * value_error
        if share:  # Not 0 times the gradient, which need not exist.
            loss.backward(torch.full_like(loss, share))  # type: ignore[no-untyped-call]
        metrics |= {"loss/policy": policy_loss, "loss/value": value_error, "loss/total": loss}
        numbers = [torch.as_tensor(number).detach().to(loss) for number in metrics.values()]
        return list(metrics), torch.stack(numbers)

    def _step(self, name: str, metrics: dict[str, float], lr_factor: float) -> float:
        """Move the weights along their gradient, if all is finite; the learning rate."""
        params, norm = self._params.optimiser, metrics["optim/grad_norm"]
        if not math.isfinite(norm + metrics["loss/total"]):
            refuse_step(metrics, name, self._policy)
        if params.max_grad_norm is not None and norm > params.max_grad_norm:
            self._gradient.mul_(params.max_grad_norm / norm)
        warm_up = params.lr_warm_up
        rising = min(1.0, (self._steps + 1) / warm_up) if warm_up else 1.0
        rate = self._optimiser.param_groups[0]["lr"] = params.lr * rising * lr_factor
        self._optimiser.step()
        self._steps += 1
        return rate

    def _distribution_and_value(
        self, batch: Batch
    ) -> tuple[Distribution, Float[Tensor, "time segment"]]:
        """The policy's distributions ``[row number]`` and values; float32 whatever computes."""
        mask = None if batch.mask is None else batch.mask.flatten(0, 1)
        with self._precision:
            hidden, value, _ = self._unroll(
                batch.observation, batch.memory, batch.starts, batch.agent
            )
            agent = batch.agent.repeat(len(value))
            distribution = self._policy.distribution(hidden.flatten(0, 1).float(), agent, mask)
        return distribution, value.float()

    @torch.no_grad()
    def _vtrace_advantages(self, rollout: Rollout, batch: Batch) -> Float[Tensor, "time segment"]:
        """V-trace's advantages of a rollout, by the ratio to the policy as it is now."""
        size = self._plan.minibatch_size // self._plan.accumulate // len(batch.value)
        ratios = []
        for chosen in torch.split(torch.arange(len(batch.agent), device=self._device), size):
            part = batch.segments(chosen)
            distribution, _ = self._distribution_and_value(part)
            log_prob = distribution.log_prob(part.action.flatten(0, 1)).view_as(part.log_prob)
            log_ratio = (log_prob - part.log_prob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
            ratios.append(log_ratio.exp())
        ratio = torch.cat(ratios, 1).view_as(rollout.value)
        ratio = ratio.masked_fill(~rollout.learnable, 1.0)
        return advantages(rollout, self._params.advantages, self._params.gamma, ratio)[0]

    def state_dict(self) -> StateDict:
        """Everything but the policy that is needed to go on exactly so; tensors are live."""
        return {
            "steps": self._steps,
            "optimiser": moments_of(self._optimiser),
            "generator": self._generator.get_state(),
            "losses": dict(self._loss_modules.state_dict()),
        }

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            StorageError: if the state belongs to another optimiser, or to another policy.
        """
        load_moments(self._optimiser, state_dict["optimiser"])
        self._steps = whole_number(state_dict["steps"])
        self._generator.set_state(state_dict["generator"])
        self._loss_modules.load_state_dict(state_dict["losses"])

    def reseed(self, seed: int) -> None:
        """Draw what is drawn from now on by another seed."""
        self._generator.manual_seed(seed)
