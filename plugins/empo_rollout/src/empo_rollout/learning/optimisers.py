"""Optimisers: Adam, AdamW, SGD and Muon over one flat gradient, and a pull to initial weights."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from empo_core.errors import StorageError
from empo_core.trees import StateDict
from empo_learning.optimiser_moments import load_moments, moments_of
from empo_rollout.params import OptimiserParams


class Optimiser:
    """One of ``adam``, ``adamw``, ``sgd`` and ``muon``, with a rate that is given at each step.

    ``betas`` are the two decay rates of Adam; the momentum of ``sgd`` and ``muon`` is the first.
    ``weight_decay`` adds to the gradient, with ``adamw`` and ``muon`` it shrinks weights directly.
    ``muon`` moves matrices by orthogonalised momentum, as far as Adam would move them; whatever is
    no matrix (biases, convolutions) is moved by AdamW.
    """

    def __init__(
        self,
        params: OptimiserParams,
        weights: Sequence[nn.Parameter],
        row: Float[Tensor, " weight"] | None = None,
    ) -> None:
        """Optimise weights, which stay on one device, from now on; rates come with every step.

        Args:
            params: The optimiser.
            weights: What to move.
            row: What the weights are views of, one behind the other; None: they stand alone.
        """
        is_muon = params.name == "muon"
        self.weights = list(weights)
        self._size = sum(weight.numel() for weight in self.weights)
        self._matrices = [weight for weight in self.weights if is_muon and weight.ndim == 2]
        self._others = [weight for weight in self.weights if not (is_muon and weight.ndim == 2)]
        self._optimisers: dict[str, torch.optim.Optimizer] = {}
        if self._matrices:
            self._optimisers["muon"] = _muon(params, self._matrices)
        self._in_place = row is not None and not self._matrices
        if self._others:
            # Moved as one row: a step takes as long for one tensor as for a hundred times more.
            whole = row if row is not None and self._in_place else flattened(self._others)
            self._row = nn.Parameter(whole)
            name = "adamw" if is_muon else params.name
            self._optimisers[name] = _elementwise(name, params, self._row)

    def zeros(self) -> Float[Tensor, " weight"]:
        """A gradient of 0, to add others to."""
        return torch.zeros(self._size, dtype=self.weights[0].dtype, device=self.weights[0].device)

    @torch.no_grad()
    def step(self, gradient: Float[Tensor, " weight"], lr: float) -> None:
        """Move the weights along a gradient of all of them, one behind the other."""
        if self._in_place:
            self._row.grad = gradient
        else:
            self._spread(gradient)
        for optimiser in self._optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = lr
            # Without hooks and marks for profilers, which take as long as a step of a small row.
            inspect.unwrap(type(optimiser).step)(optimiser)
        if not self._in_place:
            self._collect()

    def _spread(self, gradient: Float[Tensor, " weight"]) -> None:
        """Give the optimisers their parts of a gradient, and the weights as they are now."""
        slopes = dict(zip(map(id, self.weights), _parts(gradient, self.weights), strict=True))
        for weight in self._matrices:
            weight.grad = slopes[id(weight)]
        if self._others:
            self._row.copy_(flattened(self._others))
            self._row.grad = flattened(slopes[id(weight)] for weight in self._others)

    def _collect(self) -> None:
        """Give the weights what the optimisers made of them."""
        for matrix in self._matrices:
            matrix.grad = None
        if self._others:
            for weight, part in zip(self._others, _parts(self._row, self._others), strict=True):
                weight.copy_(part)

    def state_dict(self) -> StateDict:
        """Moments of the gradients; tensors are its own, not copies."""
        return {name: moments_of(optimiser) for name, optimiser in self._optimisers.items()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore copies of what ``state_dict`` returned.

        Raises:
            KeyError: if a moment is missing.
            StorageError: if the moments belong to another optimiser, or to other weights.
        """
        if sorted(state_dict) != sorted(self._optimisers):
            raise StorageError(
                f"the moments are of {' and '.join(sorted(state_dict)) or 'nothing'}, and the "
                f"optimiser consists of {' and '.join(sorted(self._optimisers))}"
            )
        for name, optimiser in self._optimisers.items():
            load_moments(optimiser, state_dict[name])


def flattened(tensors: Iterable[Tensor]) -> Float[Tensor, " weight"]:
    """A copy of all numbers of some tensors, one behind the other."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _parts(row: Float[Tensor, " weight"], weights: Sequence[Tensor]) -> list[Tensor]:
    """The parts of a row, in the shapes of weights that stand one behind the other in it."""
    parts = torch.split(row.detach(), [weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


class L2Init:
    """A pull of weights towards their initial values (L2 Init, Kumar et al. 2023).

    Adds ``strength * |W - W_init|^2`` to the loss, over matrices and filters alone: biases are
    free to go where they are needed.
    """

    def __init__(self, weights: Sequence[nn.Parameter], strength: float) -> None:
        self._weights, self._strength = list(weights), strength
        self._initial = flattened(weights)
        self._pulled = flattened([torch.full_like(weight, weight.ndim > 1) for weight in weights])

    def add_gradient(self, gradient: Float[Tensor, " weight"]) -> float:
        """Add the pull to ``gradient``; the loss."""
        deviation = (flattened(self._weights) - self._initial) * self._pulled
        gradient.add_(deviation, alpha=2 * self._strength)
        return self._strength * float(deviation.square().sum())

    def state_dict(self) -> StateDict:
        """The initial weights; the tensor is its own, not a copy."""
        return {"initial": self._initial}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        self._initial.copy_(state_dict["initial"])


def _elementwise(name: str, params: OptimiserParams, row: nn.Parameter) -> torch.optim.Optimizer:
    """The optimiser of a row; a rate is given with every step, 0 is never used."""
    fused, decay = row.device.type in ("cpu", "cuda"), params.weight_decay
    if name == "sgd":
        return torch.optim.SGD([row], 0.0, params.betas[0], weight_decay=decay, fused=fused)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind([row], 0.0, params.betas, params.eps, decay, fused=fused)


def _muon(params: OptimiserParams, matrices: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Muon(
        matrices,
        0.0,
        params.weight_decay,
        params.betas[0],
        eps=params.eps,
        adjust_lr_fn="match_rms_adamw",
    )
