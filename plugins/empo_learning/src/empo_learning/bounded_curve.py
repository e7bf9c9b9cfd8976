"""Curves over a run whose memory does not grow with its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, overload

from empo_core.trees import StateDict, whole_number

MOST = 10_000
"""Rows of a curve; a longer one has every second, fourth, ... row, and the newest."""

T = TypeVar("T")


class BoundedCurve(Sequence[T], Generic[T]):
    """Rows in their order, evenly thinned out where they would be more than ``max_rows``.

    Row ``i`` of all that were ever added is kept where ``i`` is a multiple of a power of 2, or the
    newest. Curves that are added to alike keep the same rows.
    """

    def __init__(self, rows: Iterable[T] = (), *, max_rows: int = MOST) -> None:
        """Begin with some rows; keep at most so many, at least 2."""
        self._max_rows = max_rows
        self._rows: list[T] = []
        self._count, self._stride = 0, 1
        for row in rows:
            self.append(row)

    def append(self, row: T) -> None:
        """Add the newest row."""
        if self._has_extra:
            self._rows.pop()
        self._rows.append(row)
        self._count += 1
        if len(self._rows) > self._max_rows:
            even = self._rows[:-1] if self._has_extra else self._rows
            self._rows, self._stride = even[::2], 2 * self._stride
            if self._has_extra:
                self._rows.append(row)

    @property
    def _has_extra(self) -> bool:
        """True if the newest row is kept for no other reason."""
        return self._count > 0 and (self._count - 1) % self._stride > 0

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """A row that is kept, or several."""
        return self._rows[index]

    def __len__(self) -> int:
        """Number of rows that are kept."""
        return len(self._rows)

    def __iter__(self) -> Iterator[T]:
        """All rows that are kept."""
        return iter(self._rows)

    def state_dict(self) -> StateDict:
        """Everything to go on from."""
        return {"rows": list(self._rows), "count": self._count, "stride": self._stride}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Go on from what ``state_dict`` returned."""
        self._rows = list(state_dict["rows"])
        self._count = whole_number(state_dict["count"])
        self._stride = max(whole_number(state_dict["stride"]), 1)


def load_numbers(curve: BoundedCurve[tuple[int, dict[str, float]]], state_dict: StateDict) -> None:
    """Go on with a curve whose rows are a step and numbers by name.

    Raises:
        ValueError: if a row is none.
    """
    for row in state_dict["rows"]:
        if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[1], dict):
            raise ValueError(f"a row {repr(row)[:60]} is no step with numbers")
        whole_number(row[0])
        for name, number in row[1].items():
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(f"{name} {repr(number)[:40]} is no number")
    curve.load_state_dict(state_dict)
