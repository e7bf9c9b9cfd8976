"""State rows cast to a world's dtype; rows with words out of range are refused."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.types import WorldSpec


def dtype_of(spec: WorldSpec) -> np.dtype[np.signedinteger]:
    """The dtype of a world's state rows, as numpy has it."""
    return torch.empty(0, dtype=spec.state_dtype).numpy().dtype


def surviving(
    rows: Shaped[np.ndarray, "state word"], dtype: np.dtype[np.signedinteger]
) -> Shaped[np.ndarray, " state"] | None:
    """Which rows of integers keep every word in another integer dtype [state]; None: all do."""
    if rows.dtype == dtype or np.can_cast(rows.dtype, dtype, "safe") or not rows.size:
        return None
    bounds = np.iinfo(dtype)
    if int(rows.min()) >= bounds.min and int(rows.max()) <= bounds.max:
        return None
    # Python's integers compare with those of any dtype by value.
    fits: Shaped[np.ndarray, " state"] = np.array(
        [all(bounds.min <= word <= bounds.max for word in row) for row in rows.tolist()], np.bool_
    )
    return fits


def state_rows(spec: WorldSpec, rows: object) -> Int[np.ndarray, "state word"]:
    """Rows as ``spec`` says, contiguous; the same memory where that is possible.

    Args:
        spec: The world's specification.
        rows: Integers [state word] of any dtype.

    Raises:
        WorldError: if the rows are not integers, have another shape, or exceed the range of
            ``spec.state_dtype``. Rows that are no states of the world are not detected.
    """
    return rows_as(spec.name, spec.state_words, dtype_of(spec), rows)


def rows_as(
    name: str, words: int, dtype: np.dtype[np.signedinteger], rows: object
) -> Int[np.ndarray, "state word"]:
    """State rows of the world called ``name``, so long and of this dtype; see ``state_rows``."""
    array = integer_rows(name, words, rows)
    fits = surviving(array, dtype)
    if fits is not None:
        row, bounds = array[int((~fits).argmax())].tolist(), np.iinfo(dtype)
        word = next(w for w, value in enumerate(row) if not bounds.min <= value <= bounds.max)
        raise WorldError(
            f"a state row of {name!r} has {row[word]} as word {word}, which is no {dtype}: words "
            f"range from {bounds.min} to {bounds.max}"
        )
    return np.ascontiguousarray(array, dtype)


def integer_rows(name: str, words: int, rows: object) -> Int[np.ndarray, "state word"]:
    """Rows of so many integers, of any dtype.

    Raises:
        WorldError: if the rows are not integers, or have another number of words.
    """
    array = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if array.ndim != 2 or array.shape[1] != words or array.dtype.kind not in "iu":
        raise WorldError(
            f"state rows of {name!r} are integers of shape [state, {words}], i.e. rows of {words} "
            f"words, not {array.dtype} of shape {list(array.shape)}"
        )
    return array


def state_row(spec: WorldSpec, row: object) -> Int[np.ndarray, "1 word"]:
    """One row, alone in a batch [1 word]; see ``state_rows``."""
    array = row.detach().cpu().numpy() if isinstance(row, Tensor) else np.asarray(row)
    if array.ndim == 1 and len(array) != spec.state_words:
        raise WorldError(
            f"state rows of {spec.name!r} have {spec.state_words} words, not {len(array)}"
        )
    return state_rows(spec, array[None])
