"""The latent world model: everything that is learned, in one module."""

from __future__ import annotations

import copy
from functools import partial
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import Parameter

from empo_core.distributions import BoundedNormal
from empo_latent.networks.encoders import Encoder
from empo_latent.networks.ensemble import MlpEnsemble
from empo_latent.networks.functions import TwoHot, simnorm
from empo_latent.networks.task_embedding import Task, TaskEmbedding
from empo_latent.params import LatentParams
from empo_latent.types import Interface

Network = Literal["online", "target"]
"""Values as they are learned, or their running average, from which targets are made."""
Part = TypeVar("Part", bound=nn.Module)


class LatentModel(nn.Module):
    """A latent world model, values and policies (Hansen et al. 2024), many heads at a time.

    Latents lie on the last axis. Heads are on the first axis of what comes back. Where a run has
    several tasks, each is embedded: encoders read the embedding beside what is seen, all others
    beside the latent. Numbers of an action that a task does not use reach nothing.
    """

    def __init__(
        self,
        params: LatentParams,
        interface: Interface,
        *,
        generator: torch.Generator,
        optimistic: bool = False,
    ) -> None:
        """Make the networks.

        Args:
            params: Sizes, numbers of heads and the like.
            interface: What is seen and done.
            generator: What weights are drawn with; parts that are optional draw last, so those
                that are always there do not depend on them.
            optimistic: Whether there is a second policy.
        """
        super().__init__()
        self._params, self._interface = params, interface
        self.two_hot = TwoHot(params.bins)
        self.task_embedding = TaskEmbedding(
            interface, params.latents.task_size, generator=generator
        )
        self._make(generator)
        self._make_optional(generator, optimistic)

    def _make(self, generator: torch.Generator) -> None:
        params, actions = self._params, self._interface.actions
        size, bins = params.latents.size, params.bins.number
        self.encoder = Encoder(
            params.encoder,
            params.latents,
            self._interface,
            embedding=self.task_embedding.size,
            generator=generator,
        )
        self.dynamics = MlpEnsemble(
            params.latents.heads,
            self._width(actions),
            [params.latents.width] * 2,
            size,
            final=partial(simnorm, group=params.latents.group),
            final_norm=params.latents.layer_norm,
            dropout=params.latents.dropout,
            generator=generator,
        )
        reward, value = params.reward, params.value
        self.reward_heads = self._head(
            generator, actions, bins, heads=reward.heads, divisor=reward.width_divisor
        )
        self.value_heads = self._head(
            generator,
            actions if value.critic == "q" else 0,
            bins,
            heads=value.heads,
            divisor=value.width_divisor,
            dropout=value.dropout,
        )
        self.policy_head = self._head(generator, 0, 2 * actions, zero_output=False)
        self.value_targets = constant_copy(self.value_heads)

    def _make_optional(self, generator: torch.Generator, optimistic: bool) -> None:
        params = self._params
        self.termination_head = self._head(generator, 0, 1) if params.reward.episodic else None
        discounts = len(params.auxiliary.discounts)
        self.auxiliary_heads = self.auxiliary_targets = None
        if discounts:
            joint = params.auxiliary.networks == "joint"
            self.auxiliary_heads = self._head(
                generator,
                0,
                params.bins.number * (discounts if joint else 1),
                heads=1 if joint else discounts,
                factor=params.auxiliary.width_factor,
                dropout=params.value.dropout,
            )
            self.auxiliary_targets = constant_copy(self.auxiliary_heads)
        self.optimistic_head = None
        if optimistic:
            actions = self._interface.actions
            self.optimistic_head = self._head(generator, 0, 2 * actions, zero_output=False)
        averaged = params.policy.proposal == "average"
        self.policy_average = constant_copy(self.policy_head) if averaged else None
        averaged = params.encoder.target == "average"
        self.encoder_average = constant_copy(self.encoder) if averaged else None

    def _width(self, actions: int) -> int:
        """Numbers that a network reads that reads latents, and ``actions`` more."""
        return self._params.latents.size + actions + self.task_embedding.size

    def _head(
        self,
        generator: torch.Generator,
        actions: int,
        outputs: int,
        *,
        heads: int = 1,
        divisor: int = 1,
        factor: int = 1,
        dropout: float = 0.0,
        zero_output: bool = True,
    ) -> MlpEnsemble:
        width = max(1, factor * self._params.latents.width // divisor)
        return MlpEnsemble(
            heads,
            self._width(actions),
            [width, width],
            outputs,
            dropout=dropout,
            zero_output=zero_output,
            generator=generator,
        )

    @property
    def active(self) -> Bool[Tensor, "task action"]:
        """Which numbers of an action each task uses."""
        return self.task_embedding.active

    def encode(
        self,
        observation: Shaped[Tensor, "*batch word"],
        *,
        task: Task | None = None,
        training: bool = False,
        average: bool = False,
    ) -> Float[Tensor, "*batch latent"]:
        """The latent of each observation.

        Args:
            observation: What was seen, flat.
            task: Which task it was seen in.
            training: Whether pictures are shifted and units dropped.
            average: Whether the running average of the encoder is asked.
        """
        encoder = self.encoder_average if average else self.encoder
        if encoder is None:
            raise ValueError("there is no average encoder: set encoder.target to 'average'")
        latent: Tensor = encoder(observation, self.task_embedding.embedded(task), training=training)
        return latent

    def next_latent(
        self,
        z: Float[Tensor, "*_batch latent"],
        action: Float[Tensor, "*_rest action"],
        *,
        task: Task | None = None,
        split: bool = False,
        training: bool = False,
    ) -> Float[Tensor, "dynamics *_batches latent"]:
        """Where an action leads, as each head sees it.

        Args:
            z: Latents; with ``split``, one for each head, heads first.
            action: Actions, the same for all heads.
            task: Which task it is.
            split: Whether each head goes on from a latent of its own.
            training: Whether there is dropout.
        """
        x = self.task_embedding.joined(z, task, action)
        latent: Tensor = self.dynamics(x, split=split, training=training)
        return latent

    def reward_logits(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"],
        *,
        task: Task | None = None,
        training: bool = False,
    ) -> Float[Tensor, "reward *batch bin"]:
        """What each head thinks an action pays, as a distribution."""
        logits: Tensor = self.reward_heads(
            self.task_embedding.joined(z, task, action), training=training
        )
        return logits

    def reward(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"],
        *,
        task: Task | None = None,
    ) -> Float[Tensor, "reward *batch 1"]:
        """What each head thinks an action pays."""
        return self.two_hot.decode(self.reward_logits(z, action, task=task))

    def termination_logits(
        self, next_z: Float[Tensor, "*batch latent"], *, task: Task | None = None
    ) -> Float[Tensor, "*batch 1"]:
        """Log-odds that the step which led to ``next_z`` ended the episode."""
        if self.termination_head is None:
            raise ValueError("nothing terminates: set reward.episodic to true")
        logits: Tensor = self.termination_head(self.task_embedding.joined(next_z, task))[0]
        return logits

    def terminates(
        self, next_z: Float[Tensor, "*batch latent"], *, task: Task | None = None
    ) -> Float[Tensor, "*batch 1"]:
        """1 where the step which led to ``next_z`` more likely than not ended the episode."""
        if self.termination_head is None:
            return next_z.new_zeros(*next_z.shape[:-1], 1)
        return (self.termination_logits(next_z, task=task) > 0).to(next_z.dtype)

    def value_logits(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        task: Task | None = None,
        network: Network = "online",
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "value *batch bin"]:
        """What each head thinks a state is worth, as a distribution.

        Args:
            z: Latents.
            action: Actions in them, for critic ``q``; critic ``v`` does not look at them.
            task: Which task it is.
            network: Which networks are asked.
            training: Whether there is dropout; targets never have any.
            heads: Which heads are evaluated; None: all.
        """
        is_q = self._params.value.critic == "q"
        if is_q and action is None:
            raise ValueError("critic 'q' values actions: say which, beside the latents")
        x = self.task_embedding.joined(z, task, action if is_q else None)
        if network == "target":
            logits: Tensor = self.value_targets(x, heads=heads)
        else:
            logits = self.value_heads(x, training=training, heads=heads)
        return logits

    def value(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        task: Task | None = None,
        network: Network = "online",
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "value *batch 1"]:
        """What each head thinks a state is worth; arguments as of ``value_logits``."""
        logits = self.value_logits(
            z, action, task=task, network=network, training=training, heads=heads
        )
        return self.two_hot.decode(logits)

    def auxiliary_logits(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Task | None = None,
        network: Network = "online",
        training: bool = False,
    ) -> Float[Tensor, "auxiliary *batch bin"]:
        """What a state is worth under each auxiliary discount, as a distribution."""
        heads = self.auxiliary_targets if network == "target" else self.auxiliary_heads
        if heads is None:
            raise ValueError("there are no auxiliary values: name some auxiliary.discounts")
        logits: Tensor = heads(
            self.task_embedding.joined(z, task), training=training and network == "online"
        )
        if self._params.auxiliary.networks == "separate":
            return logits
        return logits.reshape(*z.shape[:-1], -1, self.two_hot.number).movedim(-2, 0)

    def auxiliary(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Task | None = None,
        network: Network = "online",
    ) -> Float[Tensor, "auxiliary *batch 1"]:
        """What a state is worth under each auxiliary discount."""
        return self.two_hot.decode(self.auxiliary_logits(z, task=task, network=network))

    def policy(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Task | None = None,
        optimistic: bool = False,
    ) -> BoundedNormal:
        """How the policy, or the optimistic one, acts."""
        head = self.optimistic_head if optimistic else self.policy_head
        if head is None:
            raise ValueError("there is no optimistic policy: set optimistic_loss")
        return self._acting(head, z, task)

    def proposal(
        self, z: Float[Tensor, "*batch latent"], *, task: Task | None = None
    ) -> BoundedNormal:
        """Who proposes candidates: the policy, or where there is one its running average."""
        average = self.policy_average
        return self._acting(self.policy_head if average is None else average, z, task)

    def _acting(self, head: nn.Module, z: Tensor, task: Task | None) -> BoundedNormal:
        """How a network acts."""
        params = self._params.policy
        # Tasks' embeddings belong to the model, which policies leave alone.
        loc, raw = head(self.task_embedding.joined(z, task, constant_task=True))[0].chunk(2, -1)
        span = params.max_log_std - params.min_log_std
        log_std = params.min_log_std + 0.5 * span * (raw.tanh() + 1)
        loc = loc.tanh() if params.bound == "clip" else loc
        return BoundedNormal(
            loc, log_std, bound=params.bound, active=self.task_embedding.used(task)
        )

    def bounded(
        self, u: Float[Tensor, "*batch action"], *, task: Task | None = None
    ) -> Float[Tensor, "*batch action"]:
        """The action that ``u`` becomes, which is what policies measure actions by."""
        used = self.task_embedding.used(task)
        return BoundedNormal(u, u, bound=self._params.policy.bound, active=used).bounded(u)

    @property
    def critic(self) -> Literal["v", "q"]:
        """Whether values are of states or of actions in them."""
        return self._params.value.critic

    @torch.no_grad()
    def update_targets(self) -> None:
        """Let running averages follow their networks."""
        values, encoder = self._params.value.target_rate, self._params.encoder.target_rate
        for online, average, rate in (
            (self.value_heads, self.value_targets, values),
            (self.auxiliary_heads, self.auxiliary_targets, values),
            (self.encoder, self.encoder_average, encoder),
            (self.policy_head, self.policy_average, self._params.policy.proposal_rate),
        ):
            if online is not None and average is not None:
                torch._foreach_lerp_(
                    list(average.parameters()), list(online.parameters()), weight=rate
                )

    def groups(self) -> dict[str, list[Parameter]]:
        """All parameters that are trained, by what they belong to; averages are not among them."""
        parts: dict[str, nn.Module | None] = {
            "encoder": self.encoder,
            "dynamics": self.dynamics,
            "reward": self.reward_heads,
            "termination": self.termination_head,
            "value": self.value_heads,
            "auxiliary": self.auxiliary_heads,
            "policy": self.policy_head,
            "optimistic": self.optimistic_head,
        }
        groups = {name: list(part.parameters()) for name, part in parts.items() if part is not None}
        if self.task_embedding.table is not None:
            groups["task"] = [self.task_embedding.table]
        return groups


def constant_copy(module: Part) -> Part:
    """A copy that is not trained."""
    return copy.deepcopy(module).requires_grad_(False)
