"""From observations to actions: by planning, or by the policy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from empo_core.errors import NonFiniteError, StorageError
from empo_latent.networks.model import LatentModel
from empo_latent.params import Actor
from empo_latent.planner import Planner
from empo_learning.distributions import BoundedNormal

EDGE = 0.999
"""Actions beyond this count as this where tanh is inverted, which has no end."""
LEAST_STD = 1e-4
"""The least standard deviation an expert has: the logarithm of none has no end."""


@dataclass(frozen=True, slots=True)
class ControllerOutput:
    """Actions, and how they are distributed.

    Attributes:
        action: The actions, on the CPU.
        expert: Mean and log standard deviation of the first action of each plan, as the policy's
            distribution measures them; None where not asked for.
        metrics: Numbers for people, 0-d tensors.
    """

    action: Float[Tensor, "env action"]
    expert: Float[Tensor, "env 2 action"] | None
    metrics: Mapping[str, Tensor]


class Controller:
    """Lets environments act, each of which goes on from the plan it had a step ago."""

    def __init__(
        self, model: LatentModel, planner: Planner, *, envs: int, device: torch.device | str
    ) -> None:
        """Act with a model that is on ``device``, and a planner in it, in so many environments."""
        self._model, self._planner, self._device = model, planner, torch.device(device)
        actions = model.active.shape[-1]
        self._mean = torch.zeros(planner.horizon, envs, actions, device=self._device)

    @torch.no_grad()
    def act(
        self,
        observation: Shaped[np.ndarray, "env word"],
        first: Bool[np.ndarray, " env"],
        *,
        task: Int[Tensor, " env"] | Int[np.ndarray, " env"] | None,
        actor: Actor,
        explore: bool,
        expert: bool = False,
    ) -> ControllerOutput:
        """Choose actions.

        Args:
            observation: What the environments see, numbers or bytes.
            first: Which of them began a new episode: their plans are forgotten.
            task: Which task each is of; None where there is one.
            actor: Who chooses: the planner, or the policy alone.
            explore: Whether to act as in training: plans of the optimistic policy, if there is
                one, and with noise; the policy draws its actions. If not, the policy does what is
                likeliest, and a planner follows one of its best plans.
            expert: Whether to say how the actions are distributed.

        Raises:
            NonFiniteError: if an action is not a number.
        """
        ids = None if task is None else torch.as_tensor(task).to(self._device)
        z = self._model.encode(torch.tensor(observation, device=self._device), task=ids)
        if actor == "planner":
            self._mean.masked_fill_(torch.tensor(first, device=self._device)[:, None], 0.0)
            acted = self._planned(z, ids, explore, expert)
        else:
            acted = self._of_policy(z, ids, explore, expert)
        if not acted.action.isfinite().all():
            self._refuse(acted.action, observation, actor)
        return acted

    def _planned(
        self, z: Tensor, task: Tensor | None, explore: bool, expert: bool
    ) -> ControllerOutput:
        optimistic = explore and "optimistic" in self._model.parts
        plan = self._planner.plan(z, self._mean, task=task, explore=explore, optimistic=optimistic)
        # Copied, since compiled plans may lie where the next one will.
        self._mean.copy_(plan.mean)
        metrics = {name: metric.clone() for name, metric in plan.metrics.items()}
        distribution = None
        if expert:
            policy = self._model.policy(z, task=task)
            distribution = unbounded(plan.mean[0], plan.std, policy).cpu()
        # Where no plan can be judged, elites still are plans, but no mean comes of them.
        action = plan.action.masked_fill(~plan.mean[0].isfinite(), torch.nan)
        return ControllerOutput(action.cpu(), distribution, metrics)

    def _of_policy(
        self, z: Tensor, task: Tensor | None, explore: bool, expert: bool
    ) -> ControllerOutput:
        self._mean.zero_()  # What was planned is not what is done.
        policy = self._model.policy(z, task=task)
        action = policy.bounded(policy.sample() if explore else policy.mode)
        distribution = torch.stack([policy.loc, policy.log_std], 1).cpu() if expert else None
        return ControllerOutput(action.cpu(), distribution, {})

    def _refuse(self, action: Tensor, observation: np.ndarray, actor: Actor) -> None:
        env = int((~action.isfinite()).any(-1).nonzero()[0])
        if not np.isfinite(observation[env]).all():
            raise NonFiniteError(
                f"environment {env} shows numbers that are infinite or NaN, and no action can be "
                "chosen by them: mend the environment"
            )
        raise NonFiniteError(
            f"the {actor}'s action in environment {env} is infinite or NaN, and what it sees is "
            "not: the weights have diverged. Go back to a checkpoint, and lower optimiser.lr or "
            "optimiser.max_grad_norm"
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The plans that the next ones start from."""
        return {"mean": self._mean.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from other plans.

        Raises:
            StorageError: if the plans are of another number of environments, or of other plans.
        """
        mean = state["mean"]
        if mean.shape != self._mean.shape:
            raise StorageError(
                f"the plans that were saved have shape {tuple(mean.shape)} (steps, environments, "
                f"numbers of an action), and those made here {tuple(self._mean.shape)}: go on "
                "with the same learning.horizon, num_envs and tasks"
            )
        self._mean.copy_(mean)


def unbounded(
    mean: Float[Tensor, "env action"], std: Float[Tensor, "env action"], like: BoundedNormal
) -> Float[Tensor, "env 2 action"]:
    """The mean and log standard deviation of actions before they were bounded.

    Where ``f`` is the inverse of ``tanh``, of numbers that are cut off at 0.999 to stay finite,

        mean' = f(mean)                 std' = (f(mean + std) - f(mean - std)) / 2

    which is ``std / (1 - mean^2)`` where deviations are small (the delta method), but does not
    explode at the bounds. Numbers that are not used become standard normal.

    Args:
        mean: Of actions.
        std: Of actions.
        like: Which of their numbers are used.
    """
    low, mean, high = ((mean + sign * std).clamp(-EDGE, EDGE).atanh() for sign in (-1.0, 0.0, 1.0))
    std = (high - low) / 2
    distribution = torch.stack([mean, std.clamp(min=LEAST_STD).log()], 1)
    return (
        distribution
        if like.active is None
        else distribution.masked_fill(~like.active.unsqueeze(-2), 0.0)
    )
