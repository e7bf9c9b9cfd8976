"""The latent world model: everything that is learned, in one module."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import Parameter

from empo_latent.networks.encoders import Encoder
from empo_latent.networks.functions import TwoHot
from empo_latent.networks.heads import Head, made_dynamics, made_heads, made_termination
from empo_latent.networks.network_inputs import Task, TaskEmbedding
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.distributions import BoundedNormal

Network = Literal["online", "target"]
"""Values as they are learned, or their running average, from which targets are made."""
Part = TypeVar("Part", bound=nn.Module)
ORDER: tuple[Head, ...] = ("reward", "termination", "value", "auxiliary", "policy", "optimistic")
"""Heads in the order of the groups of parameters."""
MISSING: Mapping[str, str] = {
    "termination": "nothing has terminated so far: set reward.episodic to true",
    "auxiliary": "there are no auxiliary values: set auxiliary",
    "optimistic": "there is no optimistic policy: set optimistic_loss",
}
"""Why an optional head does not exist, and what to do."""


class LatentModel(nn.Module):
    """A latent world model, values and policies (Hansen et al. 2024), many heads at a time.

    Latents lie on the last axis. Networks of an ensemble are on the first axis of what comes back.
    Where a run has several tasks, each is embedded: encoders read the embedding beside what is
    seen, all others beside the latent. Numbers of an action that a task does not use reach nothing.
    """

    def __init__(
        self,
        params: LatentParams,
        spec: MultiTaskSpec,
        *,
        generator: torch.Generator,
        optimistic: bool = False,
    ) -> None:
        """Make the networks; with ``optimistic`` there is a second policy.

        Optional parts draw their weights last: those that are always there do not depend on them.
        """
        super().__init__()
        self._params = params
        latents, actions = params.latents, spec.actions
        self.two_hot = TwoHot(params.bins)
        self.task_embedding = TaskEmbedding(spec, latents.task_size, generator=generator)
        self._inputs = inputs = latents.size + self.task_embedding.size
        self.encoder = Encoder(
            params.encoder, latents, spec, embedding=self.task_embedding.size, generator=generator
        )
        self.dynamics = made_dynamics(params, actions, inputs, generator)
        self.heads = made_heads(params, actions, inputs, optimistic=optimistic, generator=generator)
        self.averages = nn.ModuleDict(
            {name: constant_copy(online) for name, (online, _) in self._averaged().items()}
        )

    def _averaged(self) -> dict[str, tuple[nn.Module, float]]:
        """Networks that have a running average, each with the rate at which that follows."""
        params = self._params
        averaged = {"value": (self.heads["value"], params.value.target_rate)}
        if "auxiliary" in self.heads:
            averaged["auxiliary"] = (self.heads["auxiliary"], params.value.target_rate)
        if params.policy.average_rate is not None:
            averaged["policy"] = (self.heads["policy"], params.policy.average_rate)
        if params.encoder.average_rate is not None:
            averaged["encoder"] = (self.encoder, params.encoder.average_rate)
        return averaged

    @property
    def terminates(self) -> bool:
        """True if a head learns where episodes end; otherwise none ends by itself."""
        return "termination" in self.heads

    def add_termination(
        self, *, generator: torch.Generator, probability: float | None = None
    ) -> None:
        """Make the head that learns where episodes end; nothing if there is one.

        Args:
            generator: Draws the weights.
            probability: How likely each step ends the episode as long as the head has learned
                nothing; None: 1/2.
        """
        if self.terminates:
            return
        head = made_termination(self._params, self._inputs, generator)
        if probability is not None:
            nn.init.constant_(head.biases[-1], math.log(probability) - math.log1p(-probability))
        self.heads["termination"] = head.to(self.active.device)

    def fit_heads(self, weights: Mapping[str, Tensor]) -> bool:
        """Make the termination head if weights to be loaded have one; whether it was made."""
        has_one = any(name.startswith("heads.termination.") for name in weights)
        if self.terminates or not has_one:
            return False
        self.add_termination(generator=torch.Generator())
        return True

    @property
    def active(self) -> Bool[Tensor, "task action"]:
        """True for the numbers of an action that each task uses."""
        return self.task_embedding.active

    def encode(
        self,
        observation: Shaped[Tensor, "*batch word"],
        *,
        task: Task | None = None,
        training: bool = False,
        average: bool = False,
    ) -> Float[Tensor, "*batch latent"]:
        """The latent of each flat observation, by the encoder or its running average.

        In training pictures are shifted and units dropped.
        """
        if average and "encoder" not in self.averages:
            raise ValueError("there is no average encoder: set encoder.average_rate")
        encoder = self.averages["encoder"] if average else self.encoder
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
        """The next latent after an action, as each dynamics head predicts it.

        With ``split`` each head goes on from a latent of its own, heads first.
        """
        x = self.task_embedding.concatenated(z, task, action)
        latent: Tensor = self.dynamics(x, split=split, training=training)
        return latent

    def logits(
        self,
        head: Head,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        task: Task | None = None,
        network: Network = "online",
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *batch output"]:
        """Outputs of a head's networks: log-probabilities of bins, or log-odds of termination.

        Args:
            head: Which head: ``reward``, ``value``, ``termination`` or ``auxiliary``. A step's
                termination is read from the latent that it led to.
            z: Latents.
            action: Actions in them, for ``reward``, and for ``value`` where the critic is ``q``;
                others do not look at them.
            task: Which task it is.
            network: Whether the networks are asked or their running average.
            training: Whether there is dropout; averages never have any.
            heads: Which networks of the ensemble are evaluated; None: all.
        """
        if head not in self.heads:
            raise ValueError(MISSING[head])
        acts = head == "reward" or (head == "value" and self.critic == "q")
        if acts and action is None:
            raise ValueError("critic 'q' values actions: say which, beside the latents")
        x = self.task_embedding.concatenated(z, task, action if acts else None)
        part = self.averages[head] if network == "target" else self.heads[head]
        logits: Tensor = part(x, training=training and network == "online", heads=heads)
        return logits

    def reward(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"],
        *,
        task: Task | None = None,
    ) -> Float[Tensor, "reward *batch 1"]:
        """The reward of an action, as each reward head expects it."""
        return self.two_hot.decode(self.logits("reward", z, action, task=task))

    def termination(
        self, next_z: Float[Tensor, "*batch latent"], *, task: Task | None = None
    ) -> Float[Tensor, "*batch 1"]:
        """Probability that the step which led to ``next_z`` ended the episode; 0 if none may."""
        if "termination" not in self.heads:
            return next_z.new_zeros(*next_z.shape[:-1], 1)
        return self.logits("termination", next_z, task=task)[0].sigmoid()

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
        """The value of a state, or of an action in it, by each head; see ``logits``."""
        logits = self.logits(
            "value", z, action, task=task, network=network, training=training, heads=heads
        )
        return self.two_hot.decode(logits)

    def auxiliary(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Task | None = None,
        network: Network = "online",
    ) -> Float[Tensor, "auxiliary *batch 1"]:
        """The value of a state under each auxiliary discount."""
        return self.two_hot.decode(self.logits("auxiliary", z, task=task, network=network))

    def policy(
        self,
        z: Float[Tensor, "*batch latent"],
        *,
        task: Task | None = None,
        optimistic: bool = False,
    ) -> BoundedNormal:
        """The distribution of actions of the policy, or of the optimistic one."""
        head: Head = "optimistic" if optimistic else "policy"
        if head not in self.heads:
            raise ValueError(MISSING[head])
        return self._distribution(self.heads[head], z, task)

    def proposal(
        self, z: Float[Tensor, "*batch latent"], *, task: Task | None = None
    ) -> BoundedNormal:
        """The policy that proposes candidates: the policy itself, or its running average."""
        networks = self.averages if "policy" in self.averages else self.heads
        return self._distribution(networks["policy"], z, task)

    def _distribution(self, head: nn.Module, z: Tensor, task: Task | None) -> BoundedNormal:
        params = self._params.policy
        # Tasks' embeddings belong to the model, which policies leave alone.
        x = self.task_embedding.concatenated(z, task, constant_task=True)
        loc, raw = head(x)[0].chunk(2, -1)
        span = params.max_log_std - params.min_log_std
        log_std = params.min_log_std + 0.5 * span * (raw.tanh() + 1)
        return BoundedNormal(loc, log_std, active=self.task_embedding.used(task))

    def bounded(
        self, u: Float[Tensor, "*batch action"], *, task: Task | None = None
    ) -> Float[Tensor, "*batch action"]:
        """The action that ``u`` becomes, which is what policies measure actions by."""
        used = self.task_embedding.used(task)
        return BoundedNormal(u, u, active=used).bounded(u)

    @property
    def critic(self) -> Literal["v", "q"]:
        """The kind of critic: values of states (``v``) or of actions in them (``q``)."""
        return self._params.value.critic

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move running averages to their networks: ``average += rate * (online - average)``."""
        for name, (online, rate) in self._averaged().items():
            average = self.averages[name]
            torch._foreach_lerp_(list(average.parameters()), list(online.parameters()), weight=rate)

    def groups(self) -> dict[str, list[Parameter]]:
        """All parameters that are trained, by what they belong to; averages are not among them."""
        parts: dict[str, nn.Module] = {"encoder": self.encoder, "dynamics": self.dynamics}
        parts |= {name: self.heads[name] for name in ORDER if name in self.heads}
        groups = {name: list(part.parameters()) for name, part in parts.items()}
        if self.task_embedding.table is not None:
            groups["task"] = [self.task_embedding.table]
        return groups


def constant_copy(module: Part) -> Part:
    """A copy that is not trained."""
    return copy.deepcopy(module).requires_grad_(False)
