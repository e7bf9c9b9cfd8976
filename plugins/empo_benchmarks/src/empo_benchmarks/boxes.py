"""Boxes that are interchangeable, as ascending words of a state; compiled."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int16

from empo_worlds.compilation import inlined

Rows = Int16[np.ndarray, "item word"]
States = Int16[np.ndarray, "state word"]


@inlined
def holds_box(states: States, state: int, first: int, end: int, cell: int) -> bool:
    """True if a state has a box on a cell, in its words from ``first`` to before ``end``."""
    is_held = False
    for word in range(first, end):
        if states[state, word] == cell:
            is_held = True
            break
    return is_held


@inlined
def write_boxes(
    states: States,
    state: int,
    first: int,
    end: int,
    box: int,
    target: int,
    rows: Rows,
    row: int,
) -> None:
    """Write the words of all boxes, ascending, with one of them (or none: 0) moved."""
    at = first
    waits = box > 0
    for word in range(first, end):
        if word != box:
            cell = states[state, word]
            if waits and target < cell:
                rows[row, at] = target
                at += 1
                waits = False
            rows[row, at] = cell
            at += 1
    if waits:
        rows[row, at] = target
