"""Types of trees of plain data: JSON, and the states that checkpoints keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pydantic import JsonValue

    Json: TypeAlias = JsonValue
    JsonData: TypeAlias = (
        bool | int | float | str | Sequence["JsonData"] | Mapping[str, "JsonData"] | None
    )
else:  # Nothing checks at run time what contains itself.
    Json = JsonData = object
"""``Json`` is JSON data as it is read, in lists and dictionaries; ``JsonData`` as it is written."""


def whole_number(value: object) -> int:
    """A value of a saved state that counts something, such as a step or a seed.

    Raises:
        ValueError: if the value is no whole number of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{repr(value)[:40]} is no whole number of at least 0")
    return value


StateDict: TypeAlias = dict[str, Any]
"""State of an object by name, as ``state_dict`` returns and ``load_state_dict`` takes it.

A tree of dictionaries, lists and tuples with tensors, numbers, strings, booleans and None.
The types of its values are known to the class that made it.
"""
