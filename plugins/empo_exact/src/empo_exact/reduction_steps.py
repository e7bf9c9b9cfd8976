"""The reductions of a solve, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter


@dataclass(frozen=True)
class Step:
    """One reduction and its effect.

    Attributes:
        name: As in ``reduce``.
        before: Number of states before it, as far as they are known: those that the others stand
            for.
        after: Number of states after it.
        seconds: Wall-clock time of it alone; exploration belongs to none.
    """

    name: str
    before: int
    after: int
    seconds: float

    @classmethod
    def of(cls, data: Mapping[str, JsonValue]) -> Step:
        """A reduction from what ``vars`` gives of it."""
        return TypeAdapter(cls).validate_python(data)

    @property
    def sentence(self) -> str:
        """For people: ``symmetry 7,500 → 989 states in 0.12 s``."""
        return f"{self.name} {self.before:,} → {self.after:,} states in {self.seconds:.2f} s"
