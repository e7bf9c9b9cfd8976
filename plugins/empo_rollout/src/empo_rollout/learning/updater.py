"""Policy updates from one rollout: advantages, minibatches, and a step of PPO on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols import PolicyLoss
from empo_core.protocols.environments import EnvSpec
from empo_core.trees import StateDict, whole_number
from empo_learning.distributed import Group
from empo_learning.optimiser_moments import load_moments, moments_of
from empo_rollout.buffer import Batch, Rollout, advantages, annealed_beta, minibatches, normalised
from empo_rollout.learning.checks import require_fit
from empo_rollout.learning.forward import ForwardPass
from empo_rollout.learning.learning_rate import learning_rate
from empo_rollout.learning.losses import PolicyLosses
from empo_rollout.learning.optimisers import build_optimiser
from empo_rollout.learning.ppo import LOG_RATIO_LIMIT
from empo_rollout.learning.step import BeyondLimit, StepContext, ppo_step
from empo_rollout.learning.values import explained_variance
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policies.protocols import ActorCritic


class Updater:
    """Improves a policy by what happened in rollouts.

    A step of the optimiser is about one minibatch (of all processes together), and minimises::

        sum_i weight_i * policy_loss_i + value_coef * value_loss

    where means are over the steps in which an agent acted and of which the outcome is known.
    A minibatch may be gone through in several passes; that changes no gradient.
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
        self._context = StepContext(
            ForwardPass(policy, params.compute),
            PolicyLosses(losses, target_kl=params.update.target_kl, device=self._device),
            weights,
            build_optimiser(params.optimiser, weights),
            self._group,
            params,
        )
        self._by_steps = params.update.sampling == "steps"
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
            losses, weighted) and ``loss/value``, what policy losses report
            (``policy/approx_kl``, ``policy/clip_fraction``, ``policy/entropy``,
            ``policy/importance`` of ``ppo``; where two report the same, the later one's has its
            class before its name), and ``optim/grad_norm`` (before it is cut). Besides,
            ``optim/lr`` and ``optim/steps`` in the end, the number of minibatches learned from
            as ``optim/minibatches``, the share of steps that count as ``optim/usable``, and
            ``value/explained_variance`` before the update. Where ``target_kl`` ended the phase,
            ``policy/stopping_kl`` is the divergence that did.

        Raises:
            NonFiniteError: if a loss or gradient is infinite or NaN; the weights are those before
                its minibatch.
            ConfigError: if ``target_kl`` is set, and no policy loss says how far the policy moved.
        """
        update, optimiser = self._params.update, self._params.optimiser
        sums: dict[str, float] = {}
        count, lr = 0, 0.0
        whole, report = self._batch(rollout)
        for name, batch, total_weight in self._minibatches(rollout, whole, progress):
            lr = learning_rate(
                optimiser.lr,
                optimiser.lr_schedule,
                progress,
                step=self._steps,
                warm_up=optimiser.lr_warm_up,
            )
            # The first comes from the policy that acted: without a step, nothing would be learned.
            limit = update.target_kl if count else None
            parts = [batch]
            if self._plan.accumulate > 1:
                positions = torch.arange(len(batch.agent), device=self._device)
                parts = [batch.segments(p) for p in positions.tensor_split(self._plan.accumulate)]
            metrics = ppo_step(self._context, name, parts, total_weight, lr, progress, limit)
            if isinstance(metrics, BeyondLimit):
                report["policy/stopping_kl"] = metrics.kl
                break
            self._steps += 1
            for key, value in metrics.items():
                sums[key] = sums.get(key, 0.0) + value
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
            "optimiser": moments_of(context.optimiser),
            "generator": self._generator.get_state(),
            "losses": context.losses.state_dict(),
        }

    def reseed(self, seed: int) -> None:
        """Draw what is drawn from now on by another seed."""
        self._generator.manual_seed(seed)

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            StorageError: if the state belongs to another optimiser, or to another policy.
        """
        load_moments(self._context.optimiser, state_dict["optimiser"])
        self._steps = whole_number(state_dict["steps"])
        self._generator.set_state(state_dict["generator"])
        self._context.losses.load_state_dict(state_dict["losses"])

    def _batch(self, rollout: Rollout) -> tuple[Batch, dict[str, float]]:
        """The rollout as losses see it, and metrics about all of it."""
        advantage, returns = advantages(rollout, self._params.advantages, self._params.gamma)
        whole = Batch.of(
            rollout,
            advantage,
            returns,
            num_agents=len(self._spec.agents),
            by_steps=self._by_steps,
        )
        variance = explained_variance(whole.value, whole.returns, whole.weight)
        numbers = torch.stack((variance, whole.weight.mean())).tolist()
        shares = {"value/explained_variance": numbers[0], "optim/usable": numbers[1]}
        size = self._group.size
        return whole, self._group.totals({name: share / size for name, share in shares.items()})

    def _minibatches(
        self, rollout: Rollout, whole: Batch, progress: float
    ) -> Iterator[tuple[str, Batch, float]]:
        """Name, steps and total weight of each minibatch of all epochs that has any weight."""
        update, vtrace = self._params.update, self._params.advantages.vtrace
        size = self._plan.minibatch_size // len(whole.value)
        beta = annealed_beta(update.prio_beta0, progress)
        has_changed = False
        for epoch in range(update.update_epochs):
            if epoch and vtrace == "epoch":
                whole.advantage = self._corrected(rollout, whole).view_as(whole.value)
            draws = minibatches(whole.advantage, update, size, beta=beta, generator=self._generator)
            for number, (chosen, importance) in enumerate(draws):
                name = f"minibatch {number + 1} of epoch {epoch + 1}"
                batch = whole.segments(chosen)
                if has_changed and vtrace == "minibatch":
                    batch.advantage = self._corrected(rollout.segments(chosen), batch)
                scaled, total_weight = normalised(batch.advantage, batch.weight, name, self._group)
                if update.normalise_advantages:
                    batch.advantage = scaled
                batch.advantage = batch.advantage * importance
                if total_weight > 0:
                    has_changed = True
                    yield name, batch, total_weight

    @torch.no_grad()
    def _corrected(self, rollout: Rollout, batch: Batch) -> Float[Tensor, "time segment"]:
        """V-trace's advantages of a rollout, by the ratio to the policy as it is now."""
        size = self._plan.minibatch_size // self._plan.accumulate // len(batch.value)
        ratios = []
        for chosen in torch.split(torch.arange(len(batch.agent), device=self._device), size):
            part = batch.segments(chosen)
            log_prob = self._context.forward(part).distribution.log_prob(part.action.flatten(0, 1))
            log_ratio = log_prob.view_as(part.log_prob) - part.log_prob
            ratios.append(log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp())
        ratio = torch.cat(ratios, 1).view_as(rollout.value)
        ratio = ratio.masked_fill(~rollout.learnable, 1.0)
        return advantages(rollout, self._params.advantages, self._params.gamma, ratio)[0]
