"""Warnings of what runs without an error and teaches little: before a run, and of its rollouts."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from empo_core.protocols.environments import ActionSpec, EnvSpec
from empo_learning.finite import LARGE
from empo_rollout.buffer import Rollout
from empo_rollout.distributions import missed_bounds
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan

log = logging.getLogger(__name__)

MISSED = 0.977
"""Share of a normal distribution below its mean + 2 standard deviations."""


def warnings_before(params: RolloutParams, plan: VecPlan, env_spec: EnvSpec) -> Iterator[str]:
    """Warnings of a config, whatever the environments will do."""
    update = params.update
    if update.normalise_advantages and plan.minibatch_size == 1:
        yield (
            "update.minibatch_size: the advantage of a minibatch of one step cannot be normalised "
            "in it, for minus its own mean it would be 0; it stays as it is, and learning from "
            "single steps is slow and unsteady: use more of them"
        )
    clips = any(entry.loss.name == "ppo" for entry in params.losses)
    if clips and update.update_epochs == 1 and plan.minibatches == 1:
        yield (
            "update: with one minibatch and one epoch, a rollout is learned from in one step, in "
            "which the policy is the one that acted, so that 'clip' has no effect; raise "
            "update_epochs, or lower minibatch_size"
        )
    if params.num_envs is None and plan.batch_size > params.total_steps:
        yield (
            f"total_steps: {params.total_steps:,} steps are less than one rollout, which has "
            f"{plan.batch_size:,} in {plan.envs:,} environments; set num_envs, e.g. to 8"
        )
    for number in missed_bounds(env_spec.actions, params.policy.log_std):
        yield _missed(env_spec.actions, number, "at first")


def _missed(actions: ActionSpec, number: int, when: str) -> str:
    return (
        f"actions: number {number}, from {actions.low[number]:g} to {actions.high[number]:g}, is "
        f"nearly always cut to a bound {when}: mean ± 2 standard deviations of the policy miss "
        "these bounds, so that it explores nothing; shift and scale the environment's actions, or "
        "choose another policy.log_std"
    )


class RolloutWatch:
    """Looks at rollouts, and warns once of each thing.

    Attributes:
        warnings: What was warned of.
    """

    def __init__(self, params: RolloutParams, env_spec: EnvSpec) -> None:
        """Watch rollouts of environments like this."""
        self.warnings: list[str] = []
        self._actions = env_spec.actions
        normalise = params.normalise
        self._sizes = {
            "observation": env_spec.observations.dtype == "float32"
            and not (normalise and normalise.observations),
            "reward": params.experience.reward_clip is None
            and not (normalise and normalise.rewards),
        }
        self._bounds = bool(self._actions.low)
        if self._bounds:
            self._low, self._high = (
                torch.tensor(bound, dtype=torch.float32)
                for bound in (self._actions.low, self._actions.high)
            )

    def see(self, rollout: Rollout) -> None:
        """Look at a rollout; what was warned of is not looked for again."""
        if self._bounds and len(self._actions.low):
            self._see_actions(rollout.action[rollout.valid])
        for name, is_raw in self._sizes.items():
            if is_raw:
                self._see_size(name, getattr(rollout, name))

    def _see_actions(self, action: Float[Tensor, "step number"]) -> None:
        low, high = self._low.to(action.device), self._high.to(action.device)
        below, above = (action < low).float().mean(0), (action > high).float().mean(0)
        missed = torch.maximum(below, above) > MISSED
        if missed.any():
            self._bounds = False
            number = int(missed.float().argmax())
            self._warn(_missed(self._actions, number, "in the newest rollout"))

    def _see_size(self, name: str, values: Tensor) -> None:
        low, high = values.aminmax()
        largest = max(-float(low), float(high))
        if largest > LARGE:
            self._sizes[name] = False
            self._warn(
                f"normalise: there is {'an' if name == 'observation' else 'a'} {name} of size "
                f"{largest:.3g}, and networks learn badly from numbers beyond {LARGE:g}; set "
                f"normalise: {{{name}s: true}}, or divide by a constant in the environment"
            )

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        log.warning("%s", text)
