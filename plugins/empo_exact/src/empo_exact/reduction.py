"""One reduction of a solve, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, JsonValue, TypeAdapter


@dataclass(frozen=True)
class Reduction:
    """One reduction and its effect.

    Attributes:
        name: As in ``reduce``.
        before: Number of states before it; None: unknown, since they were not explored.
        after: Number of states after it.
        seconds: Wall-clock time of it alone, checks included; exploration belongs to none.
        qualifier: ``at most``: the states before it are those that the others stand for, of which
            some may not be reachable.
        note: What else there is to say; empty: nothing.
    """

    name: str
    before: int | None
    after: int
    seconds: float
    qualifier: Annotated[Literal["", "at most"], Field(alias="known")] = ""
    note: str = ""

    @classmethod
    def of(cls, data: Mapping[str, JsonValue]) -> Reduction:
        """A reduction from its ``data``."""
        return TypeAdapter(cls).validate_python(data)

    @property
    def data(self) -> dict[str, JsonValue]:
        """For files and for ``--json``."""
        data: dict[str, JsonValue] = TypeAdapter(Reduction).dump_python(self, by_alias=True)
        return data

    @property
    def sentence(self) -> str:
        """For people: ``symmetry at most 7,500 → 989 states in 0.12 s``."""
        before = "unknown" if self.before is None else f"{self.before:,}"
        qualifier = f" {self.qualifier}" * bool(self.qualifier)
        note = f" ({self.note})" * bool(self.note)
        return (
            f"{self.name}{qualifier} {before} → {self.after:,} states in {self.seconds:.2f} s{note}"
        )
