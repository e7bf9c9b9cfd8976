"""Devices of a learner."""

from __future__ import annotations

import torch

from empo_core.errors import ConfigError


def require_device(name: str) -> None:
    """Refuse a GPU that torch cannot use.

    Raises:
        ConfigError: if torch cannot use the GPU.
    """
    if problem := device_problem(name):
        raise ConfigError(f"algorithm.params.{problem}")


def device_problem(name: str) -> str | None:
    """A sentence on a GPU that torch cannot use; None for what it can."""
    if torch.device(name).type != "cuda" or torch.cuda.is_available():
        return None
    return f"compute.device: {name!r} needs a GPU that torch can use, and there is none; use cpu"
