"""The usual update in plain torch, head by head, to compare numbers and speed with.

It computes what ``Updater`` does, but every head is an ``nn.Sequential`` of its own, every start is
valued once for each of its candidates, value heads are evaluated that nobody asked for, torch's
default Adam moves the weights, and a loop the running averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from reference_latent_networks import reference_model
from torch import Tensor, nn

from empo_core.protocols import PolicyLoss
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import SequenceBatch
from empo_latent.update import Updater


class PerCandidate(nn.Module):
    """Values that are learned, worked out at each start once for every candidate."""

    def __init__(self, heads: nn.Module, candidates: int) -> None:
        """Ask ``heads`` so many times."""
        super().__init__()
        self.heads, self._candidates = heads, candidates

    def forward(
        self,
        x: Float[Tensor, "*batch input"],
        *,
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *batch output"]:
        """As the heads' own: without dropout, the mean of equal answers is each of them."""
        if not training:
            once: Tensor = self.heads(x, heads=heads)
            return once
        again = x.unsqueeze(-2).expand(*x.shape[:-1], self._candidates, x.shape[-1])
        found: Tensor = self.heads(again, training=True, heads=heads)
        return found.mean(-2)


def loop_model(model: LatentModel, candidates: int) -> LatentModel:
    """A copy of a model that loops over heads and values starts for each candidate."""
    copied = reference_model(model)
    copied.parts["value"] = PerCandidate(copied.parts["value"], candidates)
    return copied


class LoopUpdater:
    """One update of a model and its one policy, without options that skip anything."""

    def __init__(
        self,
        model: LatentModel,
        losses: Mapping[str, PolicyLoss],
        params: LatentParams,
        discounts: Float[Tensor, " task"],
    ) -> None:
        """As of ``Updater``; of the losses, ``policy`` is used."""
        self._model, self._rate = model, params.value.target_rate
        self._losses = Updater(model, losses, params, discounts)
        groups, options = model.groups(), params.optimiser
        encoder, self._policy = groups.pop("encoder"), groups.pop("policy")
        rest = [weight for group in groups.values() for weight in group]
        self._weights, self._longest = [*encoder, *rest], options.max_grad_norm
        slow: dict[str, Any] = {"params": encoder, "lr": options.lr * options.encoder_lr_scale}
        self._optimiser = torch.optim.Adam([slow, {"params": rest}], options.lr)
        eps = options.policy_eps
        self._policy_optimiser = torch.optim.Adam(self._policy, options.lr, eps=eps)

    def update(self, sequences: SequenceBatch, progress: float) -> dict[str, Tensor]:
        """As ``Updater.update``."""
        total, metrics, imagined = self._losses.model_loss(sequences)
        metrics["optim/grad_norm_model"] = self._step(total, self._optimiser, self._weights)
        share_done = total.new_full((), progress)
        loss, numbers = self._losses.policy_loss("policy", imagined, share_done)
        norm = self._step(loss, self._policy_optimiser, self._policy)
        self._follow()
        metrics |= {f"policy/{name}": number for name, number in numbers.items()}
        return {**metrics, "loss/policy": loss.detach(), "optim/grad_norm_policy": norm}

    def _step(
        self, loss: Tensor, optimiser: torch.optim.Optimizer, weights: list[nn.Parameter]
    ) -> Tensor:
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(
            weights, math.inf if self._longest is None else self._longest
        )
        optimiser.step()
        return norm

    @torch.no_grad()
    def _follow(self) -> None:
        """Let averages of the values' weights follow."""
        pairs = (
            self._model.parts["value"].parameters(),
            self._model.averages["value"].parameters(),
        )
        for online, average in zip(*pairs, strict=True):
            average.lerp_(online, self._rate)
