"""Policies as ONNX files: from an observation to the likeliest action, its chances and the value.

A policy with a memory also takes its state, zeros where an episode begins, and returns the next.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from empo_core.protocols.environments import EnvSpec
from empo_learning.distributions import BoundedNormal
from empo_learning.onnx_file import write_onnx
from empo_rollout.distributions import MultiCategorical
from empo_rollout.policy import Networks

ROW = "agent"


def export_policy(policy: Networks, env_spec: EnvSpec, index: int, path: str | Path) -> None:
    """Write the policy of one agent; those that share one differ in nothing.

    Inputs are ``observation`` (rows as in ``EnvSpec.observations``), ``mask`` where options are
    masked, and ``memory`` where there is one. Outputs are ``action``, as environments take it,
    ``log_probs`` of all options, or ``mean`` and ``log_std`` of numbers, ``value``, and ``memory``
    as ``next_memory``.

    Args:
        policy: The policy.
        env_spec: What it was made for.
        index: Number of the agent in ``env_spec.agents``.
        path: The file.

    Raises:
        ConfigError: if the package ``onnx`` is missing.
        StorageError: if the file cannot be written.
    """
    observations, actions = env_spec.observations, env_spec.actions
    dtype = torch.uint8 if observations.dtype == "uint8" else torch.float32
    inputs = {"observation": torch.zeros(2, observations.words, dtype=dtype)}
    if env_spec.masks:
        inputs["mask"] = torch.ones(2, sum(actions.choices), dtype=torch.bool)
    outputs = ["action", *(["log_probs"] if actions.is_discrete else ["mean", "log_std"]), "value"]
    if policy.memory_size:
        inputs["memory"] = torch.zeros(2, policy.memory_size)
        outputs.append("next_memory")
    write_onnx(_Graph(policy, env_spec, index, list(inputs)), inputs, outputs, path, row=ROW)


class _Graph(nn.Module):
    """A policy of one agent as a function of the inputs by position."""

    def __init__(self, policy: Networks, env_spec: EnvSpec, index: int, names: list[str]) -> None:
        super().__init__()
        alone = copy.deepcopy(policy).cpu()
        if len(alone.members) > 1:
            alone.members = [alone.members[index]]
            alone.networks = nn.ModuleList(alone.members)
        self._policy, self._actions, self._names = alone, env_spec.actions, names

    def forward(
        self, *inputs: Shaped[Tensor, "agent ..."]
    ) -> tuple[Shaped[Tensor, "agent ..."], ...]:
        """Outputs of the file, in their order."""
        named = dict(zip(self._names, inputs, strict=True))
        observation = named["observation"]
        nothing = torch.zeros_like(observation[:, 0], dtype=torch.int64)
        memory = named.get("memory", nothing[:, None][:, :0].float())
        starts = torch.zeros_like(observation[:, 0], dtype=torch.bool)
        step = self._policy.step(observation, memory, starts, nothing, named.get("mask"))
        actions = self._actions
        distribution = cast(MultiCategorical | BoundedNormal, step.distribution)
        if isinstance(distribution, MultiCategorical):
            parts = [
                distribution.log_probs[:, number, :options]
                for number, options in enumerate(actions.choices)
            ]
            acts: tuple[Tensor, ...] = (distribution.mode, torch.cat(parts, 1))
        else:
            low, high = torch.tensor(actions.low), torch.tensor(actions.high)
            mean = distribution.mean
            # A sum, since lengths that numbers are expanded to would be unknown.
            log_std = 0.0 * mean + distribution.log_std[:1].reshape(actions.size)
            acts = (mean.maximum(low).minimum(high), mean, log_std)
        return *acts, step.value, *([step.memory] if "memory" in named else [])
