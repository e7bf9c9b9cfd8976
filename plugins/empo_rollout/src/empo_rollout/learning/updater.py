"""Learning from one rollout: minibatches, losses, gradients, and steps of the optimiser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributions import Distribution

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols import AdaptivePolicyLoss, PolicyLoss
from empo_core.types import ImaginedBatch
from empo_environments.specs import Interface
from empo_learning.distributed import Group
from empo_learning.finite import check_finite
from empo_rollout.experience.advantages import advantages
from empo_rollout.experience.flat_rollout import FlatRollout, Microbatch, PolicyAtStarts
from empo_rollout.experience.minibatches import annealed_beta, minibatches
from empo_rollout.experience.rollout import Rollout
from empo_rollout.learning.checks import require_fit
from empo_rollout.learning.learning_rate import learning_rate
from empo_rollout.learning.optimisers import Optimiser, flattened
from empo_rollout.learning.ppo import LOG_RATIO_LIMIT
from empo_rollout.learning.values import explained_variance, value_loss
from empo_rollout.params import ComputeParams, RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policies.protocols import ActorCritic

KL = "approx_kl"
"""What a policy loss calls how far the policy has moved."""


def arithmetic(compute: ComputeParams) -> contextlib.AbstractContextManager[Any]:
    """The precision in which networks compute, for acting and learning alike."""
    if compute.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(compute.device).type, torch.bfloat16)


@dataclass(slots=True)
class _Step:
    """What one step of the optimiser is about, in all processes together.

    ``total`` is the sum of all weights, by which every mean of a loss is divided.
    """

    name: str
    columns: Int[Tensor, " chosen"]
    target: Float[Tensor, "time chosen"]
    total: float


class Updater:
    """Improves a policy by what happened in rollouts.

    A step of the optimiser is about one minibatch (of all processes together), and minimises::

        sum_i weight_i * policy_loss_i + value_coef * value_loss + l2_init * |W - W_init|^2

    where means are over the steps that somebody acted in and of which the outcome is known, behind
    the burn-in. A minibatch may be gone through in several passes; that changes no gradient.
    """

    def __init__(
        self,
        policy: ActorCritic,
        losses: Sequence[tuple[PolicyLoss, float]],
        params: RolloutParams,
        plan: VecPlan,
        interface: Interface,
        *,
        device: torch.device | str,
        generator: torch.Generator,
        group: Group | None = None,
    ) -> None:
        """Learn from now on; in several processes, from the weights of rank 0.

        Args:
            policy: What to improve; it must stay on its device.
            losses: What improves it, and how much each counts.
            params: How.
            plan: How a rollout divides into minibatches, and these into passes.
            interface: Who acts.
            device: Where the policy is, and where rollouts are.
            generator: Decides which steps come together; each process needs a seed of its own.
            group: The processes that learn together; None: this one alone.

        Raises:
            ConfigError: The losses or parameters do not fit the policy, or each other.
        """
        self._policy, self._losses = policy, list(losses)
        self._params, self._plan, self._interface = params, plan, interface
        self._device, self._generator = torch.device(device), generator
        self._group = group or Group()
        require_fit(policy, losses, params, plan, self._group)
        self._weights = [weight for weight in policy.parameters() if weight.requires_grad]
        self._group.spread(self._weights)
        self._optimiser = Optimiser(params.optimiser, self._weights)
        self._unroll = torch.compile(policy.unroll) if params.compute.compile else policy.unroll
        unit = 1 if params.update.sampling == "steps" else plan.horizon
        self._columns_per_pass = plan.minibatch_size // plan.accumulate // unit
        self._steps = 0
        self._initial: Tensor | None = None
        if params.update.l2_init:
            self._initial = flattened(self._weights)
            # Matrices and filters alone: nothing keeps biases from where they are needed.
            kinds = [torch.full_like(each, each.ndim > 1) for each in self._weights]
            self._pulled = flattened(kinds)

    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            rollout: What happened, on the device of the policy.
            progress: How much of the run is over, in [0, 1].

        Returns:
            Means over the minibatches: ``loss/total`` and its parts ``loss/policy`` (all policy
            losses, weighted), ``loss/value`` and ``loss/l2_init`` (if there is such a pull), what
            policy losses report (``policy/approx_kl``, ``policy/clip_fraction``,
            ``policy/entropy``, ``policy/importance`` of ``ppo``; where two report the same, the
            later one's has its class before its name), and ``optimiser/grad_norm`` (before it is
            cut). Besides, ``optimiser/lr`` and ``optimiser/steps`` in the end, the number of
            minibatches learned from as ``update/minibatches``, the share of steps that count as
            ``update/usable``, and ``value/explained_variance`` before the update.

        Raises:
            NonFiniteError: A loss or gradient is infinite or NaN; the weights are those before its
                minibatch.
            ConfigError: ``target_kl`` is set, and no policy loss says how far the policy moved.
        """
        update, optimiser = self._params.update, self._params.optimiser
        sums: dict[str, float] = {}
        count, lr = 0, 0.0
        with torch.no_grad():
            material, advantage, report = self._material(rollout)
        beta = annealed_beta(update.prio_beta0, progress)
        for step in self._phase(rollout, material, advantage, beta):
            lr = learning_rate(
                optimiser.lr,
                optimiser.lr_schedule,
                progress,
                step=self._steps,
                warm_up=optimiser.lr_warm_up,
            )
            for name, value in self._learn(material, step, lr, progress).items():
                sums[name] = sums.get(name, 0.0) + value
            count += 1
            if update.target_kl is not None and sums[f"policy/{KL}"] / count > update.target_kl:
                break
        means = {name: value / count for name, value in sums.items()}
        ends = {"optimiser/lr": lr, "optimiser/steps": self._steps, "update/minibatches": count}
        return means | ends | report

    def state_dict(self) -> dict[str, Any]:
        """Everything but the policy that is needed to go on exactly so; tensors are live."""
        return {
            "steps": self._steps,
            "optimiser": self._optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "initial": self._initial,
            "losses": {
                str(i): loss.state_dict()
                for i, (loss, _) in enumerate(self._losses)
                if isinstance(loss, AdaptivePolicyLoss)
            },
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            StorageError: It belongs to another optimiser, or to another policy.
        """
        self._optimiser.load_state_dict(state_dict["optimiser"])
        self._steps = int(state_dict["steps"])
        self._generator.set_state(state_dict["generator"])
        if self._initial is not None:
            self._initial.copy_(state_dict["initial"])
        for i, (loss, _) in enumerate(self._losses):
            if isinstance(loss, AdaptivePolicyLoss):
                loss.load_state_dict(state_dict["losses"][str(i)])

    def _material(self, rollout: Rollout) -> tuple[FlatRollout, Tensor, dict[str, float]]:
        """The rollout in columns, the advantages of its steps, and numbers about it."""
        advantage, returns = advantages(rollout, self._params.advantages)
        weight = rollout.learnable.to(returns.dtype)
        weight[: self._params.experience.burn_in] = 0
        counts = weight > 0
        advantage, returns = (x.masked_fill(~counts, 0.0) for x in (advantage, returns))
        material = FlatRollout(
            rollout,
            returns,
            weight,
            num_agents=len(self._interface.agents),
            by_steps=self._params.update.sampling == "steps",
        )
        group = self._group
        variance = explained_variance(rollout.value, returns, weight)
        numbers = torch.stack((variance, weight.mean())).tolist()
        shares = {"value/explained_variance": numbers[0], "update/usable": numbers[1]}
        means = {name: value / group.size for name, value in shares.items()}
        return material, advantage, group.totals(means)

    def _phase(
        self, rollout: Rollout, material: FlatRollout, advantage: Tensor, beta: float
    ) -> Iterator[_Step]:
        """The minibatches of all passes over a rollout, each with its targets."""
        update, recompute = self._params.update, self._params.advantages.recompute
        moved = False
        for epoch in range(update.update_epochs):
            if epoch and recompute == "epoch":
                advantage = self._renewed(rollout, material, None)
            batches = list(
                minibatches(advantage, update, self._plan, beta=beta, generator=self._generator)
            )
            names = [f"minibatch {i + 1} of epoch {epoch + 1}" for i in range(len(batches))]
            columns = torch.stack([material.chosen(batch) for batch in batches])
            weight = material.weight[:, columns]
            some = material.arranged(advantage)[:, columns]
            target, totals = self._targets(some, weight, names)
            for i, batch in enumerate(batches):
                if moved and recompute == "minibatch":
                    some = self._renewed(rollout, material, columns[i])[:, None]
                    target[:, i : i + 1], _ = self._targets(some, weight[:, i : i + 1], names[i:])
                if totals[i] > 0:
                    moved = True
                    yield _Step(names[i], columns[i], target[:, i] * batch.weight, totals[i])

    def _targets(
        self,
        advantage: Float[Tensor, "time minibatch chosen"],
        weight: Float[Tensor, "time minibatch chosen"],
        names: Sequence[str],
    ) -> tuple[Float[Tensor, "time minibatch chosen"], list[float]]:
        """Advantages as policy losses see them, and sums of weights in all processes.

        Of all minibatches at once, so that processes exchange one message about them.
        """
        # In float64, since the variance is a small difference of large numbers.
        exact, weights = advantage.double(), weight.double()
        weighted = weights * exact
        sums = torch.stack((weights, weighted, weighted * exact)).sum((1, 3))
        self._group.add_up([sums])
        total, first, second = sums.unbind()
        for name, size in zip(names, second.tolist(), strict=False):
            if not size < float("inf"):
                raise NonFiniteError(f"the advantages of {name} are not finite; check the rewards")
        if self._params.update.normalise_advantages:
            some = total.clamp(min=1e-300)  # Without any weight nothing is learned anyway.
            mean = first / some
            deviation = (second / some - mean.square()).clamp(min=0).sqrt()
            normalised = (exact - mean[:, None]) / (deviation[:, None] + 1e-8)
            advantage = normalised.to(advantage.dtype)
        return advantage, total.tolist()

    @torch.no_grad()
    def _renewed(
        self, rollout: Rollout, material: FlatRollout, columns: Tensor | None
    ) -> Float[Tensor, "time segment"]:
        """Advantages of some segments, or of all, with regard to how the policy has moved."""
        if columns is None:
            columns = torch.arange(material.num_columns, device=self._device)
        else:
            rollout = rollout.segments(columns)
        ratios = []
        for some in torch.split(columns, self._columns_per_pass):
            part = material.part(some)
            hidden, _ = self._forward(part)
            moved = self._distribution(part, hidden).log_prob(part.action) - part.log_prob
            ratio = moved.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
            ratios.append(ratio.view(-1, len(some)))
        ratio = torch.cat(ratios, 1).view(rollout.value.shape).masked_fill(~rollout.learnable, 1.0)
        advantage, _ = advantages(rollout, self._params.advantages, ratio)
        advantage = advantage.masked_fill(~rollout.learnable, 0.0)
        advantage[: self._params.experience.burn_in] = 0
        return advantage

    def _learn(
        self, material: FlatRollout, step: _Step, lr: float, progress: float
    ) -> dict[str, float]:
        """Take one step of the optimiser; numbers about it."""
        numbers: dict[str, float] = {}
        gradient: Tensor | None = None
        passes = self._plan.accumulate
        parts = zip(
            step.columns.tensor_split(passes), step.target.tensor_split(passes, 1), strict=True
        )
        for columns, target in parts:
            part = material.part(columns)
            share = float(part.weight.sum()) / step.total
            slope, found, memories = self._slope(part, target.flatten(), share)
            gradient = slope if gradient is None else gradient.add_(slope)
            for name, value in found.items():
                numbers[name] = numbers.get(name, 0.0) + (share * value if share else 0.0)
        assert gradient is not None
        if self._params.update.target_kl is not None and f"policy/{KL}" not in numbers:
            raise ConfigError(
                f"update.target_kl: no policy loss reports '{KL}', so nobody knows how far the "
                "policy has moved; add 'ppo' to losses, or set target_kl to null"
            )
        numbers = self._group.totals(numbers)
        self._group.add_up([gradient])
        numbers |= self._pull(gradient)
        numbers["loss/total"] += numbers.get("loss/l2_init", 0.0)
        norm = float(torch.linalg.vector_norm(gradient))
        numbers["optimiser/grad_norm"] = norm
        self._require_finite(numbers, step.name)
        longest = self._params.optimiser.max_grad_norm
        if longest is not None and norm > longest:
            gradient *= longest / norm
        self._optimiser.step(gradient, lr)
        self._steps += 1
        for (loss, _), memory in zip(self._losses, memories, strict=True):
            if isinstance(loss, AdaptivePolicyLoss):  # Then there was one pass.
                loss.adapt(memory, progress)
        return numbers

    def _slope(
        self, part: Microbatch, target: Tensor, share: float
    ) -> tuple[Float[Tensor, " weight"], dict[str, float], list[Mapping[str, Tensor]]]:
        """The gradient of one pass, times its share of all weights, and numbers about it.

        Besides, what each policy loss would remember.
        """
        hidden, value = self._forward(part)
        start = hidden.detach()
        policy = PolicyAtStarts(start, self._distribution(part, hidden))
        batch = ImaginedBatch(
            start, part.action[:, None], target[:, None, None], part.log_prob[:, None], part.weight
        )
        losses: list[Tensor] = []
        memories: list[Mapping[str, Tensor]] = []
        numbers: dict[str, float] = {}
        for loss, factor in self._losses:
            output = loss(policy, batch)
            losses.append(output.loss if factor == 1 else factor * output.loss)
            memories.append(output.memory)
            for name, number in output.metrics.items():
                key = f"policy/{name}"
                if key in numbers:
                    key = f"policy/{type(loss).__name__.lower()}_{name}"
                numbers[key] = float(number)
        improvement = losses[0] if len(losses) == 1 else torch.stack(losses).sum()
        update = self._params.update
        error = value_loss(value, part.value, part.returns, part.weight, update.value_clip)
        total = torch.add(improvement, error, alpha=update.value_coef)
        if share:
            gradients = torch.autograd.grad(total, self._weights, materialize_grads=True)
            slope = flattened(gradients)
        else:  # Not 0 times the gradient, which need not exist.
            slope = torch.zeros_like(flattened(self._weights))
        found = torch.stack((improvement, error, total)).tolist()
        numbers |= zip(("loss/policy", "loss/value", "loss/total"), found, strict=True)
        return (slope if share == 1 else slope.mul_(share)), numbers, memories

    def _forward(self, part: Microbatch) -> tuple[Tensor, Tensor]:
        """What the policy makes of each row: what distributions are made of, and values."""
        with arithmetic(self._params.compute):
            hidden, value = self._unroll(part.observation, part.memory, part.starts, part.agent)
        return hidden.flatten(0, 1).float(), value.flatten().float()

    def _distribution(self, part: Microbatch, hidden: Tensor) -> Distribution:
        with arithmetic(self._params.compute):
            return self._policy.distribution(hidden, part.row_agent, part.mask)

    def _pull(self, gradient: Float[Tensor, " weight"]) -> dict[str, float]:
        """Add the gradient of ``l2_init * |W - W_init|^2``, which is that of no data."""
        if self._initial is None:
            return {}
        strength = self._params.update.l2_init
        apart = (flattened(self._weights) - self._initial) * self._pulled
        gradient.add_(apart, alpha=2 * strength)
        return {"loss/l2_init": strength * float(apart.square().sum())}

    def _require_finite(self, numbers: Mapping[str, float], name: str) -> None:
        quantities = {
            "policy loss": "loss/policy",
            "value loss": "loss/value",
            "loss": "loss/total",
            "gradient": "optimiser/grad_norm",
        }
        for quantity, key in quantities.items():
            if not abs(numbers[key]) < float("inf"):
                check_finite(self._policy.state_dict(), "a weight of the policy")
                raise NonFiniteError(
                    f"the {quantity} of {name} is not finite ({numbers[key]}), though the weights "
                    "are; they are left as they were. Check what environments return, or try a "
                    "lower optimiser.lr"
                )
