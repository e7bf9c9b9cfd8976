"""The same networks in plain torch, a loop over the heads; only tests and benchmarks use them."""

from __future__ import annotations

import copy
from functools import partial
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from empo_latent.networks.ensemble import MlpEnsemble, simnorm
from empo_latent.networks.model import LatentModel

Layer = TypeVar("Layer", nn.Linear, nn.LayerNorm)


class LoopEnsemble(nn.Module):
    """Reference for `MlpEnsemble`, computed head by head."""

    def __init__(self, networks: list[nn.Sequential]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(
        self,
        x: Float[Tensor, "*_batch input"],
        *,
        split: bool = False,
        training: bool = False,
        heads: Int[Tensor, " chosen"] | None = None,
    ) -> Float[Tensor, "head *_batches output"]:
        """As `MlpEnsemble.forward`; but all heads are evaluated, whichever are asked for."""
        self.train(training)
        results = torch.stack(
            [network(x[head] if split else x) for head, network in enumerate(self.networks)]
        )
        return results if heads is None else results[heads]


def reference_ensemble(ensemble: MlpEnsemble) -> LoopEnsemble:
    """A network of plain torch for each head, with copies of the ensemble's parameters."""
    return LoopEnsemble([_network(ensemble, head) for head in range(ensemble.heads)])


def reference_model(model: LatentModel) -> LatentModel:
    """A copy of a model that loops over the heads of each of its ensembles."""
    result = copy.deepcopy(model)
    for name, part in model.named_modules():
        if isinstance(part, MlpEnsemble):
            owner, _, attribute = name.rpartition(".")
            loop = reference_ensemble(part)
            loop.requires_grad_(any(parameter.requires_grad for parameter in part.parameters()))
            setattr(result.get_submodule(owner), attribute, loop)
    return result


class _GroupSoftmax(nn.Module):
    """SimNorm as its formula says it."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self._group = group

    def forward(self, x: Float[Tensor, "*batch latent"]) -> Float[Tensor, "*batch latent"]:
        return F.softmax(x.reshape(*x.shape[:-1], -1, self._group), -1).reshape(x.shape)


def _network(ensemble: MlpEnsemble, head: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    last = len(ensemble.weights) - 1
    for index, weight in enumerate(ensemble.weights):
        _, after, before = weight.shape
        linear = nn.Linear(before, after, device="meta")
        layers.append(_with(linear, weight[head], ensemble.biases[index][head]))
        if index == 0 and ensemble.dropout:
            layers.append(nn.Dropout(ensemble.dropout))
        if index < len(ensemble.scales):
            norm = nn.LayerNorm(after, device="meta")
            scale, shift = ensemble.scales[index], ensemble.shifts[index]
            layers.append(_with(norm, scale[head], shift[head]))
        if index < last:
            layers.append(nn.Mish())
    final = ensemble.final
    if isinstance(final, partial) and final.func is simnorm:
        layers.append(_GroupSoftmax(**final.keywords))
    elif final is not None:
        raise TypeError(f"there is no plain version of {final}: only of partial(simnorm, group=)")
    return nn.Sequential(*layers)


def _with(layer: Layer, weight: Tensor, bias: Tensor) -> Layer:
    """A layer with copies of these parameters."""
    layer.weight = nn.Parameter(weight.detach().clone())
    layer.bias = nn.Parameter(bias.detach().clone())
    return layer
