"""Value networks that are tables."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Tabular(Protocol):
    """A value network with a value of its own for each question about a state; optional."""

    @property
    def num_entries(self) -> int:
        """Number of states with values."""
