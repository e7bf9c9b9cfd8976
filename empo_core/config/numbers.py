"""The number of a config that is most unlike its default: the likely culprit where RAM runs out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import BaseModel


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
    numbers = _numbers(params, f"{key}." if key else "")
    return max(numbers, key=lambda number: number.times, default=None)


def _numbers(value: object, prefix: str, default_value: object = 1) -> Iterator[Number]:
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            default: object = 1
            if not field.is_required():
                default = field.get_default(call_default_factory=True, validated_data={})
            yield from _numbers(getattr(value, name), f"{prefix}{name}.", default)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _numbers(item, f"{prefix}{position}.")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _numbers(item, f"{prefix}{name}.")
    elif isinstance(value, int) and not isinstance(value, bool):
        reference = default_value if isinstance(default_value, int) else 1
        yield Number(value / max(1, reference), prefix.removesuffix("."), value)
