"""Types of trees of plain data: JSON, and the states that checkpoints keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from typing_extensions import TypeAliasType

JsonData = TypeAliasType(
    "JsonData", "bool | int | float | str | Sequence[JsonData] | Mapping[str, JsonData] | None"
)
"""JSON data, as it is written; what is read has lists and dictionaries."""

StateDict: TypeAlias = dict[str, Any]
"""State of an object by name, as ``state_dict`` returns and ``load_state_dict`` takes it.

A tree of dictionaries, lists and tuples with tensors, numbers, strings, booleans and None; see
``empo_core.storage.state_tree``. The types of its values are known to the class that made it.
"""
