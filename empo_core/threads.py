"""Threads of torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """So many threads for torch while entered; None leaves their number as it is.

    Small arrays gain nothing from several threads, which wait for each other at full load.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
