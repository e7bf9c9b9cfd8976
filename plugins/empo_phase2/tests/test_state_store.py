"""States come back as they were, whether rows are kept whole or as differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from empo_phase2.experience import States
from empo_phase2.replay.row_differences import EXPECTED
from empo_phase2.replay.shape import ReplayShape
from empo_phase2.replay.state_store import StateStore
from empo_phase2.replay.storage import ArrayStorage

WORDS = 80
CPU = torch.device("cpu")
DTYPES = {"short": (3, torch.int32), "long": (WORDS, torch.int32), "int16": (WORDS, torch.int16)}


def store_of(words: int, dtype: torch.dtype) -> StateStore:
    shape = ReplayShape(
        words=words, dtype=dtype, slots=3, robot_actions=2,
        human_slots=0, human_actions=1, humans=1, profiles=1,
    )  # fmt: skip
    return StateStore(ArrayStorage("ram", None), shape)


def states_of(rows: torch.Tensor, layout: torch.Tensor) -> States:
    count = len(rows)
    return States(
        rows=rows,
        layout=layout,
        terminal=rows[:, 0] % 2 == 0,
        achieved=torch.stack([rows[:, 1] > 0, rows[:, 2] > 0, layout > 0], 1),
        available=torch.ones(count, 2, dtype=torch.bool),
    )


@st.composite
def blocks(draw: Any, words: int, dtype: torch.dtype) -> list[States]:
    """Rows that differ in few words or many, of some layouts."""
    seed = draw(st.integers(0, 2**32 - 1))
    numbers, kinds = np.random.default_rng(seed), torch.iinfo(dtype)
    found = []
    for changes in draw(st.lists(st.integers(0, words), min_size=1, max_size=3)):
        count = draw(st.integers(0, 20))
        rows = np.zeros((count, words), np.int64)
        for row in rows:
            where = numbers.integers(0, words, changes)
            row[where] = numbers.choice([kinds.min, -1, 1, 2, kinds.max], changes)
        layout = torch.from_numpy(numbers.integers(0, 3, count))
        found.append(states_of(torch.from_numpy(rows).to(dtype), layout))
    return found


@pytest.mark.parametrize("kind", DTYPES)
@given(data=st.data())
def test_states_come_back_and_equal_ones_are_one(kind: str, data: st.DataObject) -> None:
    words, dtype = DTYPES[kind]
    store, held = store_of(words, dtype), []
    for block in data.draw(blocks(words, dtype)):
        held.append((store.intern(block), block))
    other = store_of(words, dtype)
    other.load_state_dict(store.state_dict())
    numbers: dict[tuple[int, ...], int] = {}
    for ids, block in held:
        for each in (store, other):
            found = each.take(torch.from_numpy(ids), CPU)
            for name in ("rows", "layout", "terminal", "achieved", "available"):
                assert torch.equal(getattr(found, name), getattr(block, name)), name
        for row, layout, number in zip(block.rows, block.layout, ids, strict=True):
            key = (int(layout), *row.tolist())
            assert numbers.setdefault(key, int(number)) == number
    assert len(store) == len(numbers) == len(set(numbers.values()))
    for ids, _ in held:
        store.release(ids)
    assert len(store) == 0
    for ids, block in held:
        assert len(store.intern(block)) == len(ids)


def test_long_rows_take_what_differs() -> None:
    long, short = store_of(WORDS, torch.int32), store_of(3, torch.int32)
    rows = torch.zeros(100, WORDS, dtype=torch.int32)
    rows[:, 5] = torch.arange(100)
    long.intern(states_of(rows, torch.zeros(100, dtype=torch.int64)))
    assert long.bytes_per_state < short.bytes_per_state + 8 * EXPECTED
    assert long.bytes_per_state < 4 * WORDS


def test_whole_rows_of_older_checkpoints_are_taken_over() -> None:
    store, rows = store_of(WORDS, torch.int32), torch.arange(WORDS, dtype=torch.int32)[None]
    states = states_of(rows, torch.ones(1, dtype=torch.int64))
    older = store_of(WORDS, torch.int32)
    older._differences = None
    older._widen(-(-(2 * older._layout_at + 2) // 8))
    ids = older.intern(states)
    store.load_state_dict({k: v for k, v in older.state_dict().items() if k != "whole"})
    assert torch.equal(store.take(torch.from_numpy(ids), CPU).rows, rows)
    assert store.intern(states) == ids
