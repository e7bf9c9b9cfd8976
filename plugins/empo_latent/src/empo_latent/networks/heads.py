"""The heads of the latent model: ensembles of perceptrons that read a latent, by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import nn

from empo_latent.networks.ensemble import MlpEnsemble
from empo_latent.networks.functions import simnorm
from empo_latent.params import LatentParams

Head: TypeAlias = Literal["reward", "value", "policy", "termination", "auxiliary", "optimistic"]
"""Names of heads; the last three are optional."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSizes:
    """Shape of one named head.

    Attributes:
        outputs: Numbers of its output.
        actions: Numbers of an action that it reads beside the latent.
        heads: Networks of the ensemble.
        width: Units of each of its hidden layers.
        dropout: Share of the first layer left out in training.
        zero_output: Whether the weights of the last layer are 0 at first.
    """

    outputs: int
    width: int
    actions: int = 0
    heads: int = 1
    dropout: float = 0.0
    zero_output: bool = True


def head_sizes(params: LatentParams, actions: int, *, optimistic: bool) -> dict[Head, HeadSizes]:
    """Sizes of all heads, in the order in which their weights are drawn.

    Args:
        params: Which heads there are, and how wide.
        actions: Numbers of an action.
        optimistic: Whether there is a second policy.

    Returns:
        The heads that always exist first, so that optional ones do not change their weights.
    """
    width, bins = params.latents.width, params.bins.number
    reward, value, auxiliary = params.reward, params.value, params.auxiliary
    policy = HeadSizes(outputs=2 * actions, width=width, zero_output=False)
    sizes: dict[Head, HeadSizes] = {
        "reward": HeadSizes(
            outputs=bins,
            width=max(1, width // reward.width_divisor),
            actions=actions,
            heads=reward.heads,
        ),
        "value": HeadSizes(
            outputs=bins,
            width=max(1, width // value.width_divisor),
            actions=actions if value.critic == "q" else 0,
            heads=value.heads,
            dropout=value.dropout,
        ),
        "policy": policy,
    }
    if reward.episodic:
        sizes["termination"] = HeadSizes(outputs=1, width=width)
    if auxiliary.discounts:
        number, joint = len(auxiliary.discounts), auxiliary.networks == "joint"
        sizes["auxiliary"] = HeadSizes(
            outputs=bins * (number if joint else 1),
            width=width * auxiliary.width_factor,
            heads=1 if joint else number,
            dropout=value.dropout,
        )
    if optimistic:
        sizes["optimistic"] = policy
    return sizes


def made_head(
    sizes: HeadSizes, inputs: int, layers: int, generator: torch.Generator
) -> MlpEnsemble:
    """A head that reads ``inputs`` numbers and an action, its weights drawn by ``generator``."""
    return MlpEnsemble(
        sizes.heads,
        inputs + sizes.actions,
        [sizes.width] * layers,
        sizes.outputs,
        dropout=sizes.dropout,
        zero_output=sizes.zero_output,
        generator=generator,
    )


def made_heads(
    params: LatentParams,
    actions: int,
    inputs: int,
    *,
    optimistic: bool,
    generator: torch.Generator,
) -> nn.ModuleDict:
    """All heads by name; arguments as of ``head_sizes`` and ``made_head``."""
    sizes = head_sizes(params, actions, optimistic=optimistic)
    layers = params.latents.layers
    return nn.ModuleDict(
        {name: made_head(each, inputs, layers, generator) for name, each in sizes.items()}
    )


def made_dynamics(
    params: LatentParams, actions: int, inputs: int, generator: torch.Generator
) -> MlpEnsemble:
    """The dynamics models: from a latent and an action to the next latent."""
    latents = params.latents
    return MlpEnsemble(
        latents.heads,
        inputs + actions,
        [latents.width] * latents.layers,
        latents.size,
        final=partial(simnorm, group=latents.group),
        final_norm=latents.layer_norm,
        dropout=latents.dropout,
        generator=generator,
    )
