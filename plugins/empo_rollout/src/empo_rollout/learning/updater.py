"""Policy updates from one rollout: advantages, minibatches, and a step of PPO on each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols import PolicyLoss
from empo_core.protocols.environments import EnvSpec
from empo_core.trees import StateDict, whole_number
from empo_learning.distributed import Group
from empo_rollout.experience.advantages import advantage_sums, advantages, normalised
from empo_rollout.experience.flat_rollout import FlatRollout, Minibatch
from empo_rollout.experience.minibatches import annealed_beta, sampled_columns
from empo_rollout.experience.rollout import Rollout
from empo_rollout.learning.checks import require_fit
from empo_rollout.learning.closed_form import closed_form
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.gradients import PlainGradient
from empo_rollout.learning.learning_rate import learning_rate
from empo_rollout.learning.losses import PolicyLosses
from empo_rollout.learning.optimisers import L2Init, Optimiser
from empo_rollout.learning.ppo import LOG_RATIO_LIMIT
from empo_rollout.learning.step import BeyondLimit, StepContext, ppo_step
from empo_rollout.learning.values import explained_variance
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policies.protocols import ActorCritic


class Updater:
    """Improves a policy by what happened in rollouts.

    A step of the optimiser is about one minibatch (of all processes together), and minimises::

        sum_i weight_i * policy_loss_i + value_coef * value_loss + l2_init * |W - W_init|^2

    where means are over the steps in which an agent acted and of which the outcome is known, behind
    the burn-in. A minibatch may be gone through in several passes; that changes no gradient.
    """

    def __init__(
        self,
        policy: ActorCritic,
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
        require_fit(policy, losses, params, plan, self._group)
        weights = [weight for weight in policy.parameters() if weight.requires_grad]
        self._group.spread(weights)
        strength = params.update.l2_init
        forward = ForwardPass(policy, params.compute)
        policy_losses = PolicyLosses(losses, target_kl=params.update.target_kl, device=self._device)
        self._losses = policy_losses
        closed = closed_form(policy, policy_losses, params)
        self._context = StepContext(
            forward,
            closed or PlainGradient(forward, policy_losses, params.update, weights),
            Optimiser(params.optimiser, weights, None if closed is None else closed.row),
            L2Init(weights, strength) if strength else None,
            self._group,
            params,
        )
        self._steps = 0

    def update(
        self,
        rollout: Rollout,
        progress: float,
        show: Callable[[float], object] = lambda share: None,
    ) -> dict[str, float]:
        """Learn from a rollout.

        Args:
            rollout: What happened, on the device of the policy.
            progress: How much of the run is over, in [0, 1].
            show: Told after each minibatch which share of all has been learned from.

        Returns:
            Means over the minibatches: ``loss/total`` and its parts ``loss/policy`` (all policy
            losses, weighted), ``loss/value`` and ``loss/l2_init`` (if there is such a pull), what
            policy losses report (``policy/approx_kl``, ``policy/clip_fraction``,
            ``policy/entropy``, ``policy/importance`` of ``ppo``; where two report the same, the
            later one's has its class before its name), and ``optim/grad_norm`` (before it is
            cut). Besides, ``optim/lr`` and ``optim/steps`` in the end, the number of
            minibatches learned from as ``optim/minibatches``, the share of steps that count as
            ``optim/usable``, and ``value/explained_variance`` before the update. Where
            ``target_kl`` ended the phase, ``policy/stopping_kl`` is the divergence that did.

        Raises:
            NonFiniteError: if a loss or gradient is infinite or NaN; the weights are those before
                its minibatch.
            ConfigError: if ``target_kl`` is set, and no policy loss says how far the policy moved.
        """
        update, optimiser = self._params.update, self._params.optimiser
        sums: dict[str, float] = {}
        count, lr = 0, 0.0
        with torch.no_grad():
            flat, advantage, report = self._flat(rollout)
        beta = annealed_beta(update.prio_beta0, progress)
        for minibatch in self._minibatches(rollout, flat, advantage, beta):
            lr = learning_rate(
                optimiser.lr,
                optimiser.lr_schedule,
                progress,
                step=self._steps,
                warm_up=optimiser.lr_warm_up,
            )
            parts = flat.microbatches(minibatch, self._plan.accumulate)
            # The first comes from the policy that acted: without a step, nothing would be learned.
            limit = update.target_kl if count else None
            metrics = ppo_step(self._context, minibatch.name, parts, lr, progress, limit)
            if isinstance(metrics, BeyondLimit):
                report["policy/stopping_kl"] = metrics.kl
                break
            self._steps += 1
            for name, value in metrics.items():
                sums[name] = sums.get(name, 0.0) + value
            count += 1
            show(count / (update.update_epochs * self._plan.minibatches))
        means = {name: value / count for name, value in sums.items()}
        ends = {"optim/lr": lr, "optim/steps": self._steps, "optim/minibatches": count}
        return means | ends | report

    def state_dict(self) -> StateDict:
        """Everything but the policy that is needed to go on exactly so; tensors are live."""
        context = self._context
        return {
            "steps": self._steps,
            "optimiser": context.optimiser.state_dict(),
            "generator": self._generator.get_state(),
            "l2_init": {} if context.pull is None else context.pull.state_dict(),
            "losses": self._losses.state_dict(),
        }

    def reseed(self, seed: int) -> None:
        """Draw what is drawn from now on by another seed."""
        self._generator.manual_seed(seed)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            StorageError: if the state belongs to another optimiser, or to another policy.
        """
        self._context.optimiser.load_state_dict(state_dict["optimiser"])
        self._steps = whole_number(state_dict["steps"])
        self._generator.set_state(state_dict["generator"])
        if self._context.pull is not None:
            self._context.pull.load_state_dict(state_dict["l2_init"])
        self._losses.load_state_dict(state_dict["losses"])

    def _flat(self, rollout: Rollout) -> tuple[FlatRollout, Tensor, dict[str, float]]:
        """The rollout in columns, the advantages ``[time, segment]``, and metrics."""
        advantage, returns = advantages(rollout, self._params.advantages, self._params.gamma)
        weight = rollout.learnable.to(returns.dtype)
        weight[: self._params.experience.burn_in] = 0
        counts = weight > 0
        advantage, returns = (x.masked_fill(~counts, 0.0) for x in (advantage, returns))
        flat = FlatRollout(
            rollout,
            returns,
            weight,
            num_agents=len(self._spec.agents),
            by_steps=self._params.update.sampling == "steps",
        )
        group = self._group
        variance = explained_variance(rollout.value, returns, weight)
        numbers = torch.stack((variance, weight.mean())).tolist()
        shares = {"value/explained_variance": numbers[0], "optim/usable": numbers[1]}
        means = {name: value / group.size for name, value in shares.items()}
        return flat, advantage, group.totals(means)

    def _minibatches(
        self,
        rollout: Rollout,
        flat: FlatRollout,
        advantage: Float[Tensor, "time segment"],
        beta: float,
    ) -> Iterator[Minibatch]:
        """The minibatches of all passes over a rollout, but those without any weight."""
        update, recompute = self._params.update, self._params.advantages.recompute
        has_changed = False
        for epoch in range(update.update_epochs):
            if epoch and recompute == "epoch":
                advantage = self._recomputed(rollout, flat, None)
            columns, importance = sampled_columns(
                advantage, update, self._plan, beta=beta, generator=self._generator
            )
            names = [f"minibatch {i + 1} of epoch {epoch + 1}" for i in range(len(columns))]
            weight = flat.weight[:, columns]
            # Of all minibatches at once, so that processes exchange one message about them.
            target, totals = self._normalised(flat.arranged(advantage)[:, columns], weight, names)
            target = target * importance
            for i, name in enumerate(names):
                if has_changed and recompute == "minibatch":
                    recomputed = self._recomputed(rollout, flat, columns[i])[:, None]
                    recomputed, _ = self._normalised(recomputed, weight[:, i : i + 1], [name])
                    target[:, i : i + 1] = recomputed * importance[i]
                if totals[i] > 0:
                    has_changed = True
                    yield Minibatch(name, columns[i], target[:, i], totals[i])

    def _normalised(
        self,
        advantage: Float[Tensor, "time minibatch column"],
        weight: Float[Tensor, "time minibatch column"],
        names: Sequence[str],
    ) -> tuple[Float[Tensor, "time minibatch column"], list[float]]:
        """Advantages as losses see them, and the total weight of each minibatch.

        Raises:
            NonFiniteError: if advantages of a minibatch are infinite or NaN.
        """
        sums = advantage_sums(advantage, weight)
        self._group.add_up([sums])
        for name, squares in zip(names, sums[2].tolist(), strict=True):
            if not math.isfinite(squares):
                raise NonFiniteError(f"the advantages of {name} are not finite; check the rewards")
        if self._params.update.normalise_advantages:
            advantage = normalised(advantage, sums)
        return advantage, sums[0].tolist()

    @torch.no_grad()
    def _recomputed(
        self, rollout: Rollout, flat: FlatRollout, columns: Int[Tensor, " column"] | None
    ) -> Float[Tensor, "time segment"]:
        """Advantages of some segments, or of all, by the ratio to the policy as it is now."""
        if columns is None:
            columns = torch.arange(flat.num_columns, device=self._device)
        else:
            rollout = rollout.segments(columns)
        unit = 1 if self._params.update.sampling == "steps" else self._plan.horizon
        size = self._plan.minibatch_size // self._plan.accumulate // unit
        ratios = []
        for chunk in torch.split(columns, size):
            part = flat.microbatch(chunk)
            log_ratio = self._context.forward(part).distribution.log_prob(part.action)
            log_ratio = (log_ratio - part.log_prob).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
            ratios.append(log_ratio.exp().view(-1, len(chunk)))
        ratio = torch.cat(ratios, 1).view(rollout.value.shape).masked_fill(~rollout.learnable, 1.0)
        advantage, _ = advantages(rollout, self._params.advantages, self._params.gamma, ratio)
        advantage = advantage.masked_fill(~rollout.learnable, 0.0)
        advantage[: self._params.experience.burn_in] = 0
        return advantage
