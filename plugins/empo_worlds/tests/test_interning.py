"""The compiled table of rows numbers as a dictionary would, and keeps doing so when it grows."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from empo_worlds.compilation import compiled_closure
from empo_worlds.row_table import RowTable, row_hash

Rows = NDArray[Any]
DTYPES = [np.int8, np.uint8, np.int16, np.int32, np.int64]


@compiled_closure
def hash_of(rows: Rows, index: int, words: int) -> np.uint64:
    """What only kernels can call."""
    return row_hash(rows, index, words)


class Plain:
    """Reference implementation of a row table by a dictionary."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, ...], int] = {}

    def number(self, rows: Rows) -> list[int]:
        return [self.numbers.setdefault(tuple(row), len(self.numbers)) for row in rows.tolist()]

    def find(self, rows: Rows) -> list[int]:
        return [self.numbers.get(tuple(row), -1) for row in rows.tolist()]


def drawn(seed: int, count: int, words: int, dtype: Any, span: int) -> Rows:
    low = max(-span, np.iinfo(dtype).min)
    return np.random.default_rng(seed).integers(low, span, (count, words)).astype(dtype)


@settings(max_examples=60)
@given(
    seeds=st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=6),
    words=st.integers(1, 9),
    dtype=st.sampled_from(DTYPES),
    span=st.sampled_from([1, 3, 100]),
)
def test_it_numbers_and_finds_as_a_dictionary_does(
    seeds: list[tuple[int, bool]], words: int, dtype: Any, span: int
) -> None:
    table, plain = RowTable(words, np.dtype(dtype)), Plain()
    for seed, grow in seeds:
        rows = drawn(seed, 40, words, dtype, span)
        method = "number" if grow else "find"
        assert getattr(table, method)(rows).tolist() == getattr(plain, method)(rows)
        assert table.count == len(plain.numbers)
    assert [tuple(row) for row in table.rows.tolist()] == list(plain.numbers)


def test_it_grows_far_beyond_its_first_room_without_losing_a_row() -> None:
    rows = drawn(0, 50_000, 3, np.int16, 30_000)
    table, plain = RowTable(3, rows.dtype), Plain()
    before = table.memory_bytes
    assert table.number(rows).tolist() == plain.number(rows)
    assert table.find(rows).tolist() == plain.find(rows)
    assert table.memory_bytes > before
    assert table.find(drawn(1, 1000, 3, np.int16, 30_000)).max() < table.count


def test_rows_with_equal_hashes_are_told_apart() -> None:
    """All keys in one slot: only comparing them in full can tell them apart."""
    rows = np.arange(300_000, dtype=np.uint64)[:, None]
    slot = np.array([int(hash_of(rows, i, 1)) & 4095 for i in range(len(rows))])
    crowded = rows[slot == slot[0]]
    assert len(crowded) > 50
    table = RowTable(1, rows.dtype)
    assert table.number(crowded).tolist() == list(range(len(crowded)))
    assert table.find(crowded[::-1]).tolist() == list(range(len(crowded)))[::-1]


def test_looking_up_an_unknown_row_adds_nothing() -> None:
    table = RowTable.of(np.array([[1, 2]]))
    assert table.find(np.array([[2, 1], [1, 2]])).tolist() == [-1, 0]
    assert table.count == 1


def test_rows_of_another_layout_in_memory_are_the_same_rows() -> None:
    rows = drawn(0, 20, 4, np.int32, 5)
    table = RowTable.of(np.unique(rows, axis=0))
    numbers = table.find(rows)
    assert numbers.min() >= 0
    assert np.array_equal(table.find(np.asfortranarray(rows)), numbers)
    assert np.array_equal(table.find(np.repeat(rows, 2, 1)[:, ::2]), numbers)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_goes_on_by_itself(copied: Any) -> None:
    table = RowTable.of(np.array([[1], [2]]))
    other = copied(table)
    assert other.number(np.array([[2], [3]])).tolist() == [1, 2]
    assert (table.count, other.count) == (2, 3)
    assert table.find(np.array([[3]])).tolist() == [-1]


def plain_hash(row: list[int]) -> int:
    """The hash in plain arithmetic, which no interpreter, process or machine changes."""
    value, limit = 0x9E3779B97F4A7C15, 2**64
    for word in row:
        value = (value ^ word) * 0xBF58476D1CE4E5B9 % limit
        value ^= value >> 29
    value = value * 0x94D049BB133111EB % limit
    return value ^ (value >> 32)


def test_a_hash_depends_on_nothing_but_the_row() -> None:
    rows = np.random.default_rng(0).integers(0, 2**64, (50, 3), np.uint64)
    rows[:5] = 0
    assert [int(hash_of(rows, i, 3)) for i in range(50)] == [plain_hash(r) for r in rows.tolist()]
    assert plain_hash([1, 2]) == 0x7E9CDEB0091247CF
