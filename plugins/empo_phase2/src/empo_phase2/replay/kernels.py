# mypy: disable-error-code="no-any-return"
"""Compiled loops of the replay: numbering of states, and copies of ragged successors.

The hash table is that of ``empo_worlds.row_table``. A ``RowTable`` only grows; here states are
removed, too, and their ids used again. A state in use has its number of references; an id that is
free has ``-2 - next``, where ``next`` is the free id after it or -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from empo_worlds.compilation import compiled, inlined
from empo_worlds.row_table import find_slot, row_hash

Ids = NDArray[np.int32]
Places = NDArray[np.int64]
Keys = NDArray[np.uint64]
Words = NDArray[Any]
Layouts = NDArray[np.int16]
Floats = NDArray[np.float32]
Bits = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Counts = NDArray[np.uint8] | NDArray[np.uint16]


@compiled
def rebuild(keys: Keys, references: Ids, used: int, slots: Ids) -> None:
    """Enter all states in use into empty slots, whose number is a power of 2."""
    for state in range(used):
        if references[state] >= 0:
            slots[find_slot(keys, state, keys, slots)] = state + 1


@compiled
def intern(
    new_keys: Keys,
    new_bits: Bits,
    keys: Keys,
    bits: Bits,
    references: Ids,
    slots: Ids,
    used: int,
    free: int,
    ids: Ids,
) -> tuple[int, int, int]:
    """Number states and hold each once; there must be room for all.

    Args:
        new_keys: What identifies each.
        new_bits: What else to keep of each.
        keys: Those of all ids.
        bits: Those of all ids.
        references: How often each id is in use, or which free id is next.
        slots: The hash table.
        used: Ids below this were in use at some time.
        free: The first free id below ``used``; -1 where there is none.
        ids: Gets the id of each.

    Returns:
        ``used`` and ``free`` afterwards, and how many states are new.
    """
    added = 0
    for item in range(len(new_keys)):
        slot = find_slot(new_keys, item, keys, slots)
        state = slots[slot] - 1
        if state < 0:
            if free >= 0:
                state = free
                free = -2 - references[state]
            else:
                state = used
                used += 1
            slots[slot] = state + 1
            references[state] = 0
            for word in range(keys.shape[1]):
                keys[state, word] = new_keys[item, word]
            for byte in range(bits.shape[1]):
                bits[state, byte] = new_bits[item, byte]
            added += 1
        references[state] += 1
        ids[item] = state
    return used, free, added


@compiled
def hold(ids: Ids, references: Ids) -> None:
    """Count one more use of each id."""
    for item in range(len(ids)):
        references[ids[item]] += 1


@inlined
def forget(keys: Keys, state: int, slots: Ids) -> None:
    """Take a state out of the hash table and close the gap, so that no tombstones pile up."""
    mask = np.uint64(len(slots) - 1)
    gap = find_slot(keys, state, keys, slots)
    probe = (gap + np.uint64(1)) & mask
    while slots[probe] > 0:
        # Whatever would not be found any more behind the gap moves into it.
        start = row_hash(keys, slots[probe] - 1, keys.shape[1]) & mask
        if ((probe - start) & mask) >= ((probe - gap) & mask):
            slots[gap] = slots[probe]
            gap = probe
        probe = (probe + np.uint64(1)) & mask
    slots[gap] = 0


@compiled
def release(ids: Ids, keys: Keys, references: Ids, slots: Ids, free: int) -> tuple[int, int]:
    """Count one use fewer of each id; returns the first free id and how many became free."""
    freed = 0
    for item in range(len(ids)):
        state = ids[item]
        references[state] -= 1
        if references[state] == 0:
            forget(keys, state, slots)
            references[state] = -2 - free
            free = state
            freed += 1
    return free, freed


@compiled
def unpack(
    ids: Places,
    words: Words,
    layouts: Layouts,
    bits: Bits,
    references: Ids,
    used: int,
    rows: Words,
    layout: Places,
    flags: Flags,
) -> int:
    """Copy rows, layouts and flags of states; returns the first id that is not in use, or -1.

    Args:
        ids: Which states.
        words: The keys of all ids, which begin with the words of rows.
        layouts: The layouts of all ids.
        bits: The flags of all ids.
        references: How often each id is in use, negative where it is free.
        used: Ids below this were in use at some time.
        rows: Gets the rows.
        layout: Gets the layouts.
        flags: Gets the flags.
    """
    for item in range(len(ids)):
        state = ids[item]
        if state < 0 or state >= used or references[state] < 0:
            return item
        for word in range(rows.shape[1]):
            rows[item, word] = words[state, word]
        layout[item] = layouts[state]
        for flag in range(flags.shape[1]):
            flags[item, flag] = (bits[state, flag >> 3] >> (flag & 7)) & 1
    return -1


@compiled
def add_differences(states: Places, pieces: Keys, rows: Words) -> None:
    """Write the words by which the rows of some states differ; see ``RowDifferences``.

    Args:
        states: Which states.
        pieces: Those of all states: the layout, then ``(word + 1) << 32 | value`` or zeros.
        rows: Gets the words.
    """
    for item in range(len(states)):
        for place in range(1, pieces.shape[1]):
            piece = pieces[states[item], place]
            if piece == 0:
                break
            rows[item, np.int64(piece >> np.uint64(32)) - 1] = np.int32(
                piece & np.uint64(0xFFFFFFFF)
            )


@compiled
def offsets_of(indices: Places, counts: Counts, oldest: int, length: int, offsets: Places) -> int:
    """Offsets of pairs from how many successors each has.

    Args:
        indices: Which transitions.
        counts: Successors of each pair of all transitions.
        oldest: Position of the oldest transition.
        length: How many there are from there on.
        offsets: Gets where each pair's successors start.

    Returns:
        The first of ``indices`` where there is no transition, or -1.
    """
    capacity, pairs = counts.shape
    total = 0
    offsets[0] = 0
    for item in range(len(indices)):
        index = indices[item]
        age = index - oldest + (capacity if index < oldest else 0)
        if index < 0 or index >= capacity or age >= length:
            return item
        for pair in range(pairs):
            total += counts[index, pair]
            offsets[item * pairs + pair + 1] = total
    return -1


@compiled
def copy_items(
    indices: Places,
    start: Places,
    states: Ids,
    probs: Floats,
    offsets: Places,
    pairs: int,
    successor: Places,
    prob: Floats,
) -> None:
    """Copy the successors of some transitions out of the pool, one after the other."""
    size = len(states)
    for item in range(len(indices)):
        place = start[indices[item]]
        for out in range(offsets[item * pairs], offsets[(item + 1) * pairs]):
            successor[out] = states[place]
            prob[out] = probs[place]
            place += 1
            if place == size:
                place = 0


@compiled
def copy_records(
    indices: Places, record: Ids, policies: Floats, columns: Places, chosen: Places, policy: Floats
) -> None:
    """Copy the columns and policies of some transitions.

    Args:
        indices: Which transitions.
        record: The columns of all, those per human last.
        policies: The humans' policies of all.
        columns: Gets the columns before those, each in one piece.
        chosen: Gets those per human [transition human].
        policy: Gets the policies.
    """
    for item in range(len(indices)):
        index = indices[item]
        for column in range(len(columns)):
            columns[column, item] = record[index, column]
        for human in range(chosen.shape[1]):
            chosen[item, human] = record[index, len(columns) + human]
        for slot in range(policies.shape[1]):
            for action in range(policies.shape[2]):
                policy[item, slot, action] = policies[index, slot, action]


@compiled
def to_evict(
    counts: Counts, oldest: int, length: int, min_count: int, excess: int
) -> tuple[int, int]:
    """Number of transitions to evict, and of their successors.

    Args:
        counts: Successors of each pair of all transitions.
        oldest: Position of the oldest transition.
        length: How many there are.
        min_count: At least so many transitions must go.
        excess: At least so many successors must go.
    """
    capacity, pairs = counts.shape
    evicted, items = 0, 0
    while evicted < length and (evicted < min_count or items < excess):
        index = (oldest + evicted) % capacity
        for pair in range(pairs):
            items += counts[index, pair]
        evicted += 1
    return evicted, items
