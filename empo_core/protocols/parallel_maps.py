"""Parallel maps: one function, applied to many items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar, runtime_checkable

Item = TypeVar("Item")
Output = TypeVar("Output")


@runtime_checkable
class ParallelMap(Protocol):
    """Opens a function for being applied to many items, e.g. in worker processes."""

    def __call__(
        self, function: Callable[[Item], Output], /
    ) -> AbstractContextManager[Callable[[Iterable[Item]], Iterator[Output]]]:
        """From a function to a map over items that keeps their order; closed on leaving."""
