"""What moves the weights along their gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from empo_core.errors import StorageError
from empo_rollout.params import OptimiserParams


class Optimiser:
    """One of ``adam``, ``adamw``, ``sgd`` and ``muon``, with a rate that is given at each step.

    ``betas`` are the two decay rates of Adam; the momentum of ``sgd`` and ``muon`` is the first.
    ``weight_decay`` adds to the gradient, with ``adamw`` and ``muon`` it shrinks weights directly.
    ``muon`` moves matrices by orthogonalised momentum, as far as Adam would move them; whatever is
    no matrix (biases, convolutions) is moved by AdamW.
    """

    def __init__(self, params: OptimiserParams, weights: Sequence[nn.Parameter]) -> None:
        """Move some weights from now on.

        Args:
            params: Which optimiser; its learning rate and schedule are the caller's business.
            weights: All on one device, where they must stay.
        """
        self._groups = _groups(params, list(weights))
        self._optimisers = [_optimiser(name, params, some) for name, some in self._groups]

    def step(self, lr: float) -> None:
        """Move the weights by their gradients; those without one stay where they are."""
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = lr
            optimiser.step()

    def state_dict(self) -> dict[str, Any]:
        """What it remembers of each weight; tensors are its own, not copies."""
        return {
            name: {str(i): dict(memory) for i, memory in optimiser.state_dict()["state"].items()}
            for (name, _), optimiser in zip(self._groups, self._optimisers, strict=True)
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore copies of what ``state_dict`` returned.

        Raises:
            StorageError: It belongs to another optimiser, or to other weights.
        """
        names = [name for name, _ in self._groups]
        if sorted(state_dict) != sorted(names):
            raise StorageError(
                f"the memory is one of {' and '.join(sorted(state_dict)) or 'nothing'}, and the "
                f"optimiser consists of {' and '.join(names)}"
            )
        for (name, weights), optimiser in zip(self._groups, self._optimisers, strict=True):
            memories = {int(i): _copies(memory) for i, memory in state_dict[name].items()}
            for number, memory in memories.items():
                _require_fit(name, number, memory, weights)
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": memories, "param_groups": groups})


def _groups(
    params: OptimiserParams, weights: list[nn.Parameter]
) -> list[tuple[str, list[nn.Parameter]]]:
    if params.name != "muon":
        return [(params.name, weights)]
    parts = {
        "muon": [weight for weight in weights if weight.ndim == 2],
        "adamw": [weight for weight in weights if weight.ndim != 2],
    }
    return [(name, part) for name, part in parts.items() if part]


def _optimiser(
    name: str, params: OptimiserParams, weights: list[nn.Parameter]
) -> torch.optim.Optimizer:
    fused = all(each.device.type in ("cpu", "cuda") for each in weights)
    # A rate is given with every step; this one is never used.
    if name == "sgd":
        return torch.optim.SGD(
            weights, 0.0, params.betas[0], weight_decay=params.weight_decay, fused=fused
        )
    if name == "muon":
        return torch.optim.Muon(
            weights,
            0.0,
            params.weight_decay,
            params.betas[0],
            eps=params.eps,
            adjust_lr_fn="match_rms_adamw",
        )
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(weights, 0.0, params.betas, params.eps, params.weight_decay, fused=fused)


def _copies(memory: Mapping[str, Any]) -> dict[str, Any]:
    # Torch keeps the tensors it is given, and would change those of whoever gave them.
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in memory.items()
    }


def _require_fit(
    name: str, number: int, memory: Mapping[str, Any], weights: list[nn.Parameter]
) -> None:
    shape = weights[number].shape if number < len(weights) else None
    for key, value in memory.items():
        if isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape != shape:
            raise StorageError(
                f"the {key} that {name} remembers of weight {number}, of shape "
                f"{tuple(value.shape)}, belongs to other weights"
            )
