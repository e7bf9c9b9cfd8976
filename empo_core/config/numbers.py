"""The number of a config that is most unlike its default: the likely culprit where RAM runs out."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel

from empo_core.config.models import walk


class Number(NamedTuple):
    """A whole number of a config.

    Attributes:
        times: How many times its default, or 1 where it has none, it is.
        key: Its path.
        value: The number.
    """

    times: float
    key: str
    value: int


def largest_number(params: BaseModel, key: str) -> Number | None:
    """The number that is the largest multiple of its default; None where there is none.

    Args:
        params: The model that holds it, directly or below.
        key: Path of that model; empty: it is the whole config.
    """
    numbers = []
    for loc, value, field in walk(params, (key,) if key else ()):
        if isinstance(value, int) and not isinstance(value, bool):
            default = field.default if field is not None else 1
            times = value / max(1, default if isinstance(default, int) else 1)
            numbers.append(Number(times, ".".join(map(str, loc)), value))
    return max(numbers, key=lambda number: number.times, default=None)
