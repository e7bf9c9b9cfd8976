"""States read from checkpoints: where one does not fit the run, its file and key are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from empo_core.errors import ConfigError, EmpoError, StorageError

MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError)
"""Errors of code that gets a tree of other types or shapes; ``ValueError`` besides."""
MAX_REASON = 200
"""Characters of an error that are repeated."""


@dataclass(slots=True)
class Source:
    """Where a state was read, and how far.

    Attributes:
        file: The file with the keys.
        newest: The way to the value that was read last, e.g. ``learner.updater.steps``.
    """

    file: Path
    newest: str = ""


class SavedState(dict[Any, Any]):
    """A dictionary of a checkpoint that knows the way to it.

    Copies, which are made from items alone, know no way.

    Raises:
        StorageError: if a key is read that is not there.
    """

    def __init__(
        self,
        items: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (),
        source: Source | None = None,
        path: str = "",
    ) -> None:
        """Take over the items.

        Args:
            items: Values by key.
            source: Where they were read.
            path: The keys that lead here, joined by dots.
        """
        super().__init__(items)
        self.source, self._path = source or Source(Path()), path

    def __getitem__(self, key: Any) -> Any:
        """The value of a key."""
        self.source.newest = f"{self._path}.{key}" if self._path else str(key)
        return super().__getitem__(key)

    def __missing__(self, key: Any) -> Any:
        """Refuse a key that is not there."""
        raise StorageError(
            f"{self.source.file}: {self.source.newest}: this key is missing, so the checkpoint "
            "does not belong to this run or is of another version; remove its folder to go on from "
            "an older checkpoint"
        )


def traced(tree: Any, source: Source, path: str = "") -> Any:
    """The same tree with ``SavedState`` for every dictionary."""
    if isinstance(tree, dict):
        items = {
            key: traced(value, source, f"{path}.{key}" if path else str(key))
            for key, value in tree.items()
        }
        return SavedState(items, source, path)
    if isinstance(tree, list | tuple):
        return type(tree)(traced(item, source, f"{path}.{i}") for i, item in enumerate(tree))
    return tree


def tensor_like(value: object, expected: Tensor) -> Tensor:
    """A copy of a tensor of a saved state.

    Raises:
        ValueError: if the value is no tensor of the expected shape and type.
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"{repr(value)[:40]} is no tensor")
    if (value.shape, value.dtype) != (expected.shape, expected.dtype):
        raise ValueError(
            f"a tensor of shape {list(value.shape)} and {value.dtype} is not one of shape "
            f"{list(expected.shape)} and {expected.dtype}"
        )
    return value.clone()


@contextmanager
def fitting(source: Source) -> Iterator[None]:
    """Code that reads a state; what it cannot read becomes a sentence with file and key.

    Raises:
        StorageError: if the code fails because a value has another type or shape.
    """
    try:
        yield
    except (ConfigError, StorageError) as error:
        if str(source.file) in str(error):
            raise
        kind = ConfigError if isinstance(error, ConfigError) else StorageError
        raise kind(f"{source.file}: {source.newest}: {error}") from error
    except EmpoError:
        raise
    except (*MISFITS, ValueError) as error:
        reason = " ".join(str(error).split())[:MAX_REASON] or type(error).__name__
        raise StorageError(
            f"{source.file}: {source.newest}: does not fit this run: {reason}; remove the "
            "checkpoint's folder to go on from an older one"
        ) from error
