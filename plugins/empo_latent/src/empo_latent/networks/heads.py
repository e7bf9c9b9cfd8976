"""The heads of the latent model: ensembles of perceptrons that read a latent, by name."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import nn

from empo_latent.networks.ensemble import MlpEnsemble
from empo_latent.networks.functions import simnorm
from empo_latent.params import LatentParams

Head: TypeAlias = Literal["reward", "value", "policy", "termination", "auxiliary", "optimistic"]
"""Names of heads; the last three are optional."""


def made_heads(
    params: LatentParams, actions: int, inputs: int, *, optimistic: bool, generator: torch.Generator
) -> nn.ModuleDict:
    """All heads by name, in the order in which their weights are drawn.

    Args:
        params: Which heads there are, and how wide.
        actions: Numbers of an action, which some heads read beside the latent.
        inputs: Numbers that all of them read.
        optimistic: Whether there is a second policy.
        generator: Draws the weights.

    Returns:
        The heads that always exist first, so that optional ones do not change their weights.
    """
    width, bins, layers = params.latents.width, params.bins.number, params.latents.layers
    reward, value, auxiliary = params.reward, params.value, params.auxiliary

    def head(
        outputs: int,
        *,
        actions: int = 0,
        heads: int = 1,
        dropout: float = 0.0,
        zero_output: bool = True,
    ) -> MlpEnsemble:
        return MlpEnsemble(
            heads,
            inputs + actions,
            [width] * layers,
            outputs,
            dropout=dropout,
            zero_output=zero_output,
            generator=generator,
        )

    modules: dict[str, nn.Module] = {"reward": head(bins, actions=actions, heads=reward.heads)}
    acts = actions if value.critic == "q" else 0
    modules["value"] = head(bins, actions=acts, heads=value.heads, dropout=value.dropout)
    modules["policy"] = head(2 * actions, zero_output=False)
    if reward.episodic:
        modules["termination"] = made_termination(params, inputs, generator)
    if auxiliary is not None:
        modules["auxiliary"] = head(bins, heads=len(auxiliary.discounts), dropout=value.dropout)
    if optimistic:
        modules["optimistic"] = head(2 * actions, zero_output=False)
    return nn.ModuleDict(modules)


def made_termination(params: LatentParams, inputs: int, generator: torch.Generator) -> MlpEnsemble:
    """The head that learns where episodes end; at first a step does with probability 1/2."""
    hidden = [params.latents.width] * params.latents.layers
    return MlpEnsemble(1, inputs, hidden, 1, zero_output=True, generator=generator)


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
        generator=generator,
    )
