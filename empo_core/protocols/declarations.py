"""Declarations of structure that worlds may make, so that solvers can do with fewer states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from empo_core.world_structure import Reads, Symmetry


@runtime_checkable
class Symmetric(Protocol):
    """A world that knows its symmetries; optional."""

    def symmetries(self) -> Sequence[Symmetry]:
        """Symmetries from which all others follow by repetition and combination.

        None at all is an answer. A solver that uses them checks them on sampled states first. It
        takes them in turn as long as no more than some number follow (``symmetry_group.MOST``), so
        that exchanges of neighbours are better than one exchange and a cycle.
        """


@runtime_checkable
class Factored(Protocol):
    """A world that knows which words of a row depend on which; optional."""

    def reads(self) -> Reads:
        """Dependencies of words, availability and goals; naming too many leaves out less.

        Words on which nothing that matters depends must go with all others: a row in which they
        have the values of another state is a state.
        """
