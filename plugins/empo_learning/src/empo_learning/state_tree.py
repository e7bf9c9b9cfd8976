"""Trees of plain data and tensors as strict JSON beside named tensors.

What JSON lacks is an object with one key that starts with ``$``: ``{"$tensor": name}``,
``{"$float": "NaN"}``, ``{"$tuple": [...]}``, and ``{"$items": [[key, value], ...]}`` for a
dictionary whose keys are not all strings. Other keys that start with ``$`` get another ``$``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from empo_core.errors import StorageError
from empo_core.trees import Json, StateDict

_FLOATS = ("NaN", "Infinity", "-Infinity")
_RESERVED = "__metadata__"
"""The one name that a safetensors file does not allow for a tensor."""


def flatten(state: Mapping[str, object]) -> tuple[Json, dict[str, Tensor]]:
    """JSON data and tensors that ``unflatten`` makes an equal tree of.

    Tensors are named by the way to them, e.g. ``optimiser/0/exp_avg``.

    Raises:
        StorageError: if the tree holds something else; the message says where.
    """
    tensors: dict[str, Tensor] = {}
    try:
        return _encoded(dict(state), "", tensors), tensors
    except RecursionError as error:
        raise StorageError("the state is nested too deeply, or contains itself") from error


def unflatten(data: Json, tensors: Mapping[str, Tensor]) -> StateDict:
    """The tree that ``flatten`` took apart.

    Raises:
        StorageError: if the two do not belong together.
    """
    left = dict(tensors)
    try:
        state = _decoded(data, left)
    except RecursionError as error:
        raise StorageError("the state is nested too deeply") from error
    if left:
        raise StorageError(f"tensor {sorted(left)[0]!r} belongs nowhere in the state")
    if not isinstance(state, dict):
        raise StorageError("the state is not a dictionary")
    return state


def _encoded(value: object, path: str, tensors: dict[str, Tensor]) -> Json:
    if isinstance(value, Tensor):
        name = path
        while name in tensors or name == _RESERVED:
            name += "~"
        tensors[name] = value
        return {"$tensor": name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return _encoded_mapping(value, path, tensors)
    if isinstance(value, list | tuple):
        items = [_encoded(item, _below(path, i), tensors) for i, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    raise StorageError(
        f"{path}: a checkpoint cannot hold {type(value).__name__}; it takes tensors, numbers, "
        "strings, booleans, None, and dictionaries, lists and tuples of these"
    )


def _encoded_mapping(value: Mapping[object, object], path: str, tensors: dict[str, Tensor]) -> Json:
    items: dict[str | int, Json] = {}
    for key, item in value.items():
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise StorageError(f"{path}: a key is {key!r}; keys are strings or integers")
        items[key] = _encoded(item, _below(path, key), tensors)
    names = [key for key in items if isinstance(key, str)]
    if len(names) == len(items):
        return {f"${name}" if name.startswith("$") else name: items[name] for name in names}
    pairs: list[Json] = [[key, item] for key, item in items.items()]
    return {"$items": pairs}


def _below(path: str, key: object) -> str:
    return f"{path}/{key}" if path else str(key)


def _decoded(data: Json, tensors: dict[str, Tensor]) -> object:
    if isinstance(data, list):
        return [_decoded(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((key, value),) = data.items()
        if key == "$tensor" and isinstance(value, str) and value in tensors:
            return tensors.pop(value)
        if key == "$float" and isinstance(value, str) and value in _FLOATS:
            return float(value)
        if key == "$tuple" and isinstance(value, list):
            return tuple(_decoded(item, tensors) for item in value)
        if key == "$items" and isinstance(value, list):
            return _decoded_items(value, tensors)
    for key in data:
        if key.startswith("$") and not key.startswith("$$"):
            raise StorageError(f"the state has a wrong {key!r}")
    return {key.removeprefix("$"): _decoded(item, tensors) for key, item in data.items()}


def _decoded_items(pairs: list[Json], tensors: dict[str, Tensor]) -> dict[str | int, object]:
    items: dict[str | int, object] = {}
    for pair in pairs:
        key, item = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise StorageError("the state has a wrong '$items'")
        if key in items:
            raise StorageError("the state has a key twice in one '$items'")
        items[key] = _decoded(item, tensors)
    return items
