"""Checks of a tracker's inputs: numbers of the right kind and shape."""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int64, Shaped
from torch import Tensor

Real = float | int
"""A number; some type checkers that look at values do not take an int for a float."""
Reals = Sequence[float] | Sequence[int] | np.ndarray | Tensor
"""Numbers in a row."""
OTHER = "other"
"""Name in statistics of all reasons without one."""


def tensor_of(values: object, name: str) -> Shaped[Tensor, " *batch"]:
    """Numbers as a tensor that no gradient goes through.

    Args:
        values: A tensor, an array, a sequence or a number.
        name: What to call them in an error.

    Raises:
        ValueError: if the values are no real numbers.
    """
    if not isinstance(values, Tensor):
        try:
            # A copy: torch takes neither arrays that are read-only nor such that run backwards.
            values = torch.from_numpy(np.array(values))
        except (TypeError, ValueError) as error:
            kind = type(values).__name__
            raise ValueError(f"{name} must be numbers, got {kind}: {error}") from error
    if values.dtype.is_complex:
        raise ValueError(f"{name} must be real numbers, got {values.dtype}")
    return values.detach() if values.requires_grad else values


def vector(values: object, name: str, like: Shaped[Tensor, " env"]) -> Shaped[Tensor, " env"]:
    """One number per environment, where they are needed; a scalar would reach all of them."""
    if not isinstance(values, Tensor) or values.requires_grad or values.is_complex():
        values = tensor_of(values, name)
    if values.shape != like.shape:
        raise ValueError(
            f"{name} must have shape ({len(like)},), one number per environment, "
            f"got {tuple(values.shape)}"
        )
    return values if values.device == like.device else values.to(like.device)


def flags(values: object, name: str, like: Shaped[Tensor, " env"]) -> Bool[Tensor, " env"]:
    """One yes or no per environment; anything but 0 is a yes."""
    numbers = vector(values, name, like)
    return numbers if numbers.dtype is torch.bool else numbers != 0


def checked_reasons(values: object, like: Shaped[Tensor, " env"]) -> Int64[Tensor, " env"]:
    """One integer per environment."""
    reasons = vector(values, "termination_reasons", like)
    if reasons.dtype is torch.int64:
        return reasons
    if reasons.is_floating_point() and len(reasons):
        raise ValueError(f"termination_reasons must be integers, got {reasons.dtype}")
    return reasons.to(torch.int64)


def checked_count(num_envs: int) -> int:
    """Number of environments, at least 0."""
    try:
        number = operator.index(num_envs)
    except TypeError:
        number = -1
    if number < 0 or isinstance(num_envs, bool):
        raise ValueError(f"num_envs is {num_envs!r}; it must be a whole number, at least 0")
    return number


def checked_alpha(alpha: float) -> float:
    """A weight in (0, 1]."""
    if not 0 < alpha <= 1:
        raise ValueError(f"alpha is {alpha}; it must be greater than 0 and at most 1")
    return float(alpha)


def checked_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    """One of the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; choose from {', '.join(choices)}")
    return value


def checked_names(reasons: Sequence[str]) -> tuple[str, ...]:
    """Different names, none of them taken."""
    names = tuple(reasons)
    if isinstance(reasons, str) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"reasons must be names, got {reasons!r}")
    if OTHER in names:
        raise ValueError(f"no reason can be called {OTHER!r}: that stands for those without a name")
    if len(set(names)) < len(names):
        raise ValueError(f"reasons must have different names, got {', '.join(names)}")
    return names
