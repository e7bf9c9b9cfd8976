"""Moments of gradients that torch's optimisers keep, as checkpoints take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.trees import StateDict


def moments_of(optimiser: torch.optim.Optimizer) -> StateDict:
    """Moments by name, for each weight that has been updated, by its number.

    The tensors are the optimiser's own, not copies.
    """
    return {str(i): dict(moments) for i, moments in optimiser.state_dict()["state"].items()}


def load_moments(optimiser: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Put copies of what ``moments_of`` returned into an optimiser of the same weights.

    Raises:
        KeyError: if a moment of a weight is missing.
        StorageError: if the moments are of other weights, or no moments.
    """
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state = {}
    for number in saved:
        if not (number.isdecimal() and int(number) < len(weights)):
            raise StorageError(f"there is no weight {number}: there are {len(weights)}")
        moments = saved[number]
        names = dict.fromkeys((*_names(optimiser), *moments))
        state[int(number)] = {
            name: _checked(f"{name} of weight {number}", moments[name], weights[int(number)])
            for name in names
        }
    optimiser.load_state_dict(
        {"state": state, "param_groups": optimiser.state_dict()["param_groups"]}
    )


def _names(optimiser: torch.optim.Optimizer) -> tuple[str, ...]:
    """The moments that an optimiser cannot do without."""
    if not isinstance(optimiser, torch.optim.Adam | torch.optim.AdamW):
        return ()
    largest = ("max_exp_avg_sq",) * any(group["amsgrad"] for group in optimiser.param_groups)
    return ("step", "exp_avg", "exp_avg_sq", *largest)


def _checked(name: str, moment: Any, weight: Tensor) -> Tensor | None:
    """A copy of a moment: torch keeps the tensors it gets, and changes them."""
    if moment is None and name.startswith("momentum_buffer "):  # Of SGD without momentum.
        return None
    shape = torch.Size() if name.startswith("step ") else weight.shape
    if not isinstance(moment, Tensor):
        raise StorageError(f"{name} is {type(moment).__name__} and must be a tensor")
    if moment.shape != shape:
        raise StorageError(
            f"{name} has shape {list(moment.shape)}, and the weight needs {list(shape)}: the "
            "moments belong to other weights"
        )
    return moment.clone()
