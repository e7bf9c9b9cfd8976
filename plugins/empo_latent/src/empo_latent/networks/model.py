"""The latent world model: everything that is learned, in one module."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import Parameter

from empo_latent.networks.bins import TwoHot
from empo_latent.networks.encoders import Encoder
from empo_latent.networks.ensemble import MlpEnsemble, simnorm
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.distributions import BoundedNormal

Task: TypeAlias = Int[Tensor, "..."]
"""Ids of tasks; the shape broadcasts against the axes of what they are about."""
Part: TypeAlias = Literal["reward", "value", "policy", "termination", "auxiliary", "optimistic"]
"""Names of ensembles of perceptrons that read a latent, whose members are heads; the last three
are optional."""
Network = Literal["online", "target"]
"""Values as they are learned, or their running average, from which targets are made."""
EMBEDDING_BOUND = 0.02
"""Greatest absolute number of embeddings at first."""
ORDER: tuple[Part, ...] = ("reward", "termination", "value", "auxiliary", "policy", "optimistic")
"""Parts in the order of the groups of parameters."""
MISSING: Mapping[str, str] = {
    "termination": "nothing has terminated so far: set reward.episodic to true",
    "auxiliary": "there are no auxiliary values: set auxiliary",
    "optimistic": "there is no optimistic policy: set optimistic_loss",
}
"""Why an optional part does not exist, and what to do."""


class TaskEmbedding(nn.Module):
    """Puts together what networks read: latents, actions, and what stands for the task.

    Of several tasks, each is embedded in a vector no longer than 1 (Hansen et al. 2024, sec. 3).
    Numbers of an action that a task does not use are read as 0.
    """

    active: Tensor

    def __init__(self, spec: MultiTaskSpec, size: int, *, generator: torch.Generator) -> None:
        """Embed the tasks of ``spec`` in ``size`` numbers; a single one in none."""
        super().__init__()
        self._tasks = spec.tasks
        self.size = size if len(spec.tasks) > 1 else 0
        self.table: nn.Parameter | None = None
        if self.size:
            table = torch.empty(len(spec.tasks), size)
            self.table = nn.Parameter(
                table.uniform_(-EMBEDDING_BOUND, EMBEDDING_BOUND, generator=generator)
            )
        self._is_masked = not all(map(all, spec.active))
        self.register_buffer("active", torch.tensor(spec.active), persistent=False)

    def embedded(self, task: Task | None) -> Float[Tensor, "*task task_feature"] | None:
        """Embeddings of tasks, of norm at most 1; None where there is one task."""
        if self.table is None:
            return None
        chosen = F.embedding(self._named(task), self.table)
        norm: Tensor = torch.linalg.vector_norm(chosen, dim=-1, keepdim=True)
        return chosen / norm.clamp(min=1)

    def used(self, task: Task | None) -> Bool[Tensor, "*task action"] | None:
        """True for numbers of an action that tasks use; None where all tasks use all."""
        if not self._is_masked:
            return None
        return self.active[0] if len(self._tasks) == 1 else self.active[self._named(task)]

    def concatenated(
        self,
        z: Float[Tensor, "*batch latent"],
        task: Task | None,
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        constant_task: bool = False,
    ) -> Float[Tensor, "*batch input"]:
        """Latent, action and task embedding side by side; ``constant_task`` detaches the last."""
        parts = [z]
        if action is not None:
            used = self.used(task)
            parts.append(action if used is None else action.masked_fill(~used, 0.0))
        embedding = self.embedded(task)
        if embedding is not None:
            parts.append(embedding.detach() if constant_task else embedding)
        if len(parts) == 1:
            return z
        return torch.cat([part.expand(*z.shape[:-1], part.shape[-1]) for part in parts], -1)

    def _named(self, task: Tensor | None) -> Tensor:
        if task is None:
            tasks = ", ".join(self._tasks)
            raise ValueError(f"there are several tasks ({tasks}): say which one it is")
        return task


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
        self._params, self.critic = params, params.value.critic
        latents, bins, value = params.latents, params.bins.number, params.value
        actions, average_rate = spec.actions, params.encoder.average_rate
        self.two_hot = TwoHot(params.bins)
        self.task_embedding = TaskEmbedding(spec, latents.task_size, generator=generator)
        self._inputs = latents.size + self.task_embedding.size
        self.encoder = Encoder(
            params.encoder, latents, spec, embedding=self.task_embedding.size, generator=generator
        )
        self.dynamics = self._part(
            latents.size,
            actions=actions,
            heads=latents.heads,
            final=partial(simnorm, group=latents.group),
            generator=generator,
        )
        part = partial(self._part, generator=generator)
        parts: dict[str, nn.Module] = {
            "reward": part(bins, actions=actions, heads=params.reward.heads, zero_output=True),
            "value": part(
                bins,
                actions=actions if value.critic == "q" else 0,
                heads=value.heads,
                dropout=value.dropout,
                zero_output=True,
            ),
            "policy": part(2 * actions),
        }
        rates = {"value": value.target_rate}
        if params.reward.episodic:
            parts["termination"] = part(1, zero_output=True)
        if params.auxiliary is not None:
            number = len(params.auxiliary.discounts)
            parts["auxiliary"] = part(bins, heads=number, dropout=value.dropout, zero_output=True)
            rates["auxiliary"] = value.target_rate
        if optimistic:
            parts["optimistic"] = part(2 * actions)
        self.parts = nn.ModuleDict(parts)
        if params.policy.average_rate is not None:
            rates["policy"] = params.policy.average_rate
        if average_rate is not None:
            rates["encoder"] = average_rate
        self._rates = rates
        online = {**parts, "encoder": self.encoder}
        self.averages = nn.ModuleDict(
            {name: copy.deepcopy(online[name]).requires_grad_(False) for name in rates}
        )

    def _part(
        self,
        outputs: int,
        *,
        generator: torch.Generator,
        actions: int = 0,
        heads: int = 1,
        dropout: float = 0.0,
        zero_output: bool = False,
        final: Callable[[Tensor], Tensor] | None = None,
    ) -> MlpEnsemble:
        """An ensemble that reads latents, and so many numbers of actions."""
        latents = self._params.latents
        return MlpEnsemble(
            heads,
            self._inputs + actions,
            [latents.width] * latents.layers,
            outputs,
            final=final,
            dropout=dropout,
            zero_output=zero_output,
            generator=generator,
        )

    @property
    def terminates(self) -> bool:
        """True if a part learns where episodes end; otherwise none ends by itself."""
        return "termination" in self.parts

    def add_termination(
        self, *, generator: torch.Generator, probability: float | None = None
    ) -> None:
        """Make the part that learns where episodes end; nothing if there is one.

        Args:
            generator: Draws the weights.
            probability: How likely each step ends the episode as long as the part has learned
                nothing; None: 1/2.
        """
        if self.terminates:
            return
        part = self._part(1, zero_output=True, generator=generator)
        if probability is not None:
            nn.init.constant_(part.biases[-1], math.log(probability) - math.log1p(-probability))
        self.parts["termination"] = part.to(self.active.device)

    def fit_parts(self, weights: Mapping[str, Tensor]) -> bool:
        """Make the termination part if weights to be loaded have one; whether it was made."""
        has_one = any(name.startswith("parts.termination.") for name in weights)
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

        In training pictures are shifted.
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
    ) -> Float[Tensor, "dynamics *_batches latent"]:
        """The next latent after an action, as each dynamics head predicts it.

        With ``split`` each head goes on from a latent of its own, heads first.
        """
        x = self.task_embedding.concatenated(z, task, action)
        latent: Tensor = self.dynamics(x, split=split)
        return latent

    def logits(
        self,
        part: Part,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        task: Task | None = None,
        network: Network = "online",
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *batch output"]:
        """Outputs of the heads of a part: log-probabilities of bins, or log-odds of termination.

        Args:
            part: Which part: ``reward``, ``value``, ``termination`` or ``auxiliary``. A step's
                termination is read from the latent that it led to.
            z: Latents.
            action: Actions in them, for ``reward``, and for ``value`` where the critic is ``q``;
                others do not look at them.
            task: Which task it is.
            network: Whether the networks are asked or their running average.
            training: Whether there is dropout; averages never have any.
            heads: Which heads are evaluated; None: all.
        """
        if part not in self.parts:
            raise ValueError(MISSING[part])
        acts = part == "reward" or (part == "value" and self.critic == "q")
        if acts and action is None:
            raise ValueError("critic 'q' values actions: say which, beside the latents")
        x = self.task_embedding.concatenated(z, task, action if acts else None)
        networks = self.averages if network == "target" else self.parts
        online = network == "online"
        logits: Tensor = networks[part](x, training=training and online, heads=heads)
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
        if "termination" not in self.parts:
            return next_z.new_zeros(*next_z.shape[:-1], 1)
        return self.logits("termination", next_z, task=task)[0].sigmoid()

    def value(
        self,
        z: Float[Tensor, "*batch latent"],
        action: Float[Tensor, "*#batch action"] | None = None,
        *,
        task: Task | None = None,
        network: Network = "online",
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "value *batch 1"]:
        """The value of a state, or of an action in it, by each head; see ``logits``."""
        logits = self.logits("value", z, action, task=task, network=network, heads=heads)
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
        average: bool = False,
    ) -> BoundedNormal:
        """The distribution of actions of the policy, or of the optimistic one.

        With ``average`` that of the policy's running average, where there is one, which proposes
        candidates.
        """
        part: Part = "optimistic" if optimistic else "policy"
        if part not in self.parts:
            raise ValueError(MISSING[part])
        networks = self.averages if average and part in self.averages else self.parts
        # Tasks' embeddings belong to the model, which policies leave alone.
        x = self.task_embedding.concatenated(z, task, constant_task=True)
        loc, raw = networks[part](x)[0].chunk(2, -1)
        low, high = self._params.policy.min_log_std, self._params.policy.max_log_std
        log_std = low + 0.5 * (high - low) * (raw.tanh() + 1)
        return BoundedNormal(loc, log_std, active=self.task_embedding.used(task))

    @torch.no_grad()
    def update_targets(self) -> None:
        """Move running averages to their networks: ``average += rate * (online - average)``."""
        online = {**self.parts, "encoder": self.encoder}
        for name, rate in self._rates.items():
            average, weights = self.averages[name].parameters(), online[name].parameters()
            torch._foreach_lerp_(list(average), list(weights), weight=rate)

    def groups(self) -> dict[str, list[Parameter]]:
        """All parameters that are trained, by what they belong to; averages are not among them."""
        groups = {"encoder": list(self.encoder.parameters())}
        if self.task_embedding.table is not None:
            groups["task"] = [self.task_embedding.table]
        groups["dynamics"] = list(self.dynamics.parameters())
        for name in sorted(self.parts, key=ORDER.index):
            groups[name] = list(self.parts[name].parameters())
        return groups
