"""Devices and threads of a learner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from empo_core.errors import ConfigError


@contextlib.contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """So many threads for torch while entered; None leaves their number as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def require_device(name: str) -> None:
    """Refuse a GPU that torch cannot use.

    Raises:
        ConfigError: It is one.
    """
    if problem := device_problem(name):
        raise ConfigError(f"algorithm.params.{problem}")


def device_problem(name: str) -> str | None:
    """A sentence on a GPU that torch cannot use; None for what it can."""
    if torch.device(name).type != "cuda" or torch.cuda.is_available():
        return None
    return f"compute.device: {name!r} needs a GPU that torch can use, and there is none; use cpu"
