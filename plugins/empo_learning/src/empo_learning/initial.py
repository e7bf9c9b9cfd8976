"""Comparison of a run with the saved model that it begins with, its ``initial``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue
from torch import Tensor

from empo_core.errors import ConfigError, StorageError

WHERE = "algorithm.params.initial"

Model = TypeVar("Model")


def read_initial(read: Callable[[Path], Model], path: Path) -> Model:
    """A saved model, as the learner's own function reads it.

    Raises:
        ConfigError: if it cannot be read.
    """
    try:
        return read(path)
    except StorageError as error:
        raise ConfigError(f"{WHERE}: {error}") from error


def require_equal_params(here: JsonValue, there: JsonValue, key: str, path: Path) -> None:
    """Refuse networks that are described otherwise than those that weights belong to.

    Args:
        here: Params of the run, as JSON data.
        there: Those of the saved model.
        key: Their place among the params of the algorithm.
        path: The saved model.

    Raises:
        ConfigError: if they differ; the message names the first that does.
    """
    ours, theirs = dict(_values(here, key)), dict(_values(there, key))
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"algorithm.params.{name}: {ours.get(name)!r} does not fit the weights of {WHERE}, "
                f"{path}, which were learned with {theirs.get(name)!r}; make them equal"
            )


def require_equal_sizes(
    here: Mapping[str, Tensor], there: Mapping[str, Tensor], path: Path, advice: str
) -> None:
    """Refuse weights of other names and shapes.

    Args:
        here: Those of the run, by name; on device ``meta`` is enough.
        there: Those of the saved model.
        path: The saved model.
        advice: What to do, for the message.

    Raises:
        ConfigError: if they differ; the message names the first that does.
    """
    ours, theirs = _sizes(here), _sizes(there)
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise ConfigError(
                f"{WHERE}: {path}: {name} is {theirs.get(name, 'missing')} there and "
                f"{ours.get(name, 'missing')} here; {advice}"
            )


def _values(data: JsonValue, key: str) -> Iterator[tuple[str, JsonValue]]:
    """Values of mappings in mappings by dotted key."""
    if not isinstance(data, dict):
        yield key, data
        return
    for name, value in data.items():
        yield from _values(value, f"{key}.{name}")


def _sizes(state: Mapping[str, Tensor]) -> dict[str, str]:
    """The shape of each tensor, as text."""
    return {name: "x".join(map(str, tensor.shape)) or "1" for name, tensor in state.items()}
