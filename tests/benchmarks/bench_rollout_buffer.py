"""Cost of storing a step, by memory layout of segments, against a bare copy.

``python tests/benchmarks/bench_rollout_buffer.py`` lets two blocks arrive in turns until there is
a rollout, and puts their steps away: into the buffer of algorithm ``rollout``, and into plain
arrays, one per key, in the ways that suggest themselves. The baseline copies as many bytes as
the contender in one piece, to memory that is as cold. Times are per arrival, of the rollout that
took the least processor time; the contenders take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec, TimeStep
from empo_rollout.buffer import SegmentBuffer
from empo_rollout.plan import VecPlan

BLOCKS = 2
WORDS = 64
KEYS: dict[str, tuple[type[np.generic], tuple[int, ...]]] = {
    "observation": (np.float32, (WORDS,)), "action": (np.int64, (1,)),
    "log_prob": (np.float32, ()), "value": (np.float32, ()), "reward": (np.float32, ()),
    "terminated": (np.bool_, ()), "truncated": (np.bool_, ()),
}  # fmt: skip
"""Dtypes and shapes of a step in plain arrays, by key."""
BYTES = {
    "plain": sum(np.dtype(kind).itemsize * int(np.prod(w)) for kind, w in KEYS.values()),
    # Next value, unseen, starts, valid and version besides.
    "buffer": 4 * WORDS + 8 + 4 * 4 + 5 * 1 + 8,
}
"""Bytes of a step, as plain arrays and as the buffer keep it."""


@dataclass
class Sizes:
    """Sizes of blocks and rollouts."""

    block: int
    horizon: int

    @property
    def segments(self) -> int:
        """One for each slot."""
        return self.block * BLOCKS

    def turns(self) -> Iterator[tuple[int, int]]:
        """Time and block of every arrival of a rollout."""
        return ((t, block) for t in range(self.horizon) for block in range(BLOCKS))


def arrival(block: int, size: int) -> TimeStep:
    """Something that happened to a block: nothing special."""
    rng = np.random.default_rng(block)
    never, reward = np.zeros(size, bool), rng.normal(size=size).astype(np.float32)
    seen = rng.normal(size=(size, WORDS)).astype(np.float32)
    none = np.zeros((0, WORDS), np.float32)
    return TimeStep(
        block, seen, reward, never, never, never, ~never, np.zeros(0, np.int64), none
    )  # fmt: skip


def ours(sizes: Sizes) -> Callable[[], None]:
    """A rollout in the buffer, outcomes included."""
    slots = sizes.segments
    env_spec = EnvSpec(ObservationSpec(WORDS), ActionSpec((4,)), ("agent",), slots, BLOCKS)
    plan = VecPlan(1, 1, BLOCKS, slots, sizes.horizon, sizes.segments, minibatch_size=sizes.horizon)
    buffer = SegmentBuffer(env_spec, plan, memory_size=0, tail="drop")
    arrivals = [arrival(block, sizes.block) for block in range(BLOCKS)]
    action, number = torch.zeros(sizes.block, 1, dtype=torch.int64), torch.zeros(sizes.block)
    memory, final = torch.zeros(sizes.block, 0), torch.zeros(0)

    def rollout() -> None:
        buffer.begin_rollout()
        for _, block in sizes.turns():
            buffer.receive(arrivals[block], number, final)
            buffer.store(arrivals[block], action, number, number, memory, version=0)

    return rollout


def plain(sizes: Sizes, *, time_first: bool, indexed: bool) -> Callable[[], None]:
    """A rollout in one array per key."""
    size = sizes.block
    axes = (sizes.horizon, sizes.segments) if time_first else (sizes.segments, sizes.horizon)
    arrays = {key: np.zeros((*axes, *width), kind) for key, (kind, width) in KEYS.items()}
    sources = {key: np.ones((size, *width), kind) for key, (kind, width) in KEYS.items()}
    rows = [
        np.arange(block * size, (block + 1) * size)
        if indexed
        else slice(block * size, (block + 1) * size)
        for block in range(BLOCKS)
    ]

    def rollout() -> None:
        for t, block in sizes.turns():
            place = (t, rows[block]) if time_first else (rows[block], t)
            for key, source in sources.items():
                arrays[key][place] = source

    return rollout


def bare(sizes: Sizes, step_bytes: int) -> Callable[[], None]:
    """As many bytes, in one piece per arrival."""
    into = np.zeros((sizes.horizon, BLOCKS, sizes.block * step_bytes), np.uint8)
    source = np.ones(sizes.block * step_bytes, np.uint8)

    def rollout() -> None:
        for t, block in sizes.turns():
            into[t, block] = source

    return rollout


def best_us(
    contenders: dict[str, Callable[[], None]], rounds: int, arrivals: int
) -> dict[str, float]:
    """Least processor time per arrival of each, in turns, after one rollout to warm up."""
    best = dict.fromkeys(contenders, float("inf"))
    for turn in range(rounds + 1):
        for name, rollout in contenders.items():
            start = time.process_time()
            rollout()
            if turn:
                best[name] = min(best[name], 1e6 * (time.process_time() - start) / arrivals)
    return best


def measured(sizes: Sizes, rounds: int) -> list[list[str]]:
    """Rows of the table for one size of blocks."""
    copies = {f"copy of {name}": bare(sizes, count) for name, count in BYTES.items()}
    contenders = {
        "plain, time first, slices": plain(sizes, time_first=True, indexed=False),
        "plain, time first, indices": plain(sizes, time_first=True, indexed=True),
        "plain, segment first, slices": plain(sizes, time_first=False, indexed=False),
        "plain, segment first, indices": plain(sizes, time_first=False, indexed=True),
        "buffer": ours(sizes),
    }
    # What is short is soon interrupted, and soon repeated.
    rounds *= min(20, 4096 // sizes.block)
    best = best_us({**copies, **contenders}, rounds, sizes.horizon * BLOCKS)
    rows = []
    for name in contenders:
        kind = name.split(",")[0]
        copy = best[f"copy of {kind}"]
        rows.append([
            f"{sizes.block:,}", name, f"{BYTES[kind]}", f"{copy:,.1f}", f"{best[name]:,.1f}",
            f"{best[name] / copy:.2f}",
        ])  # fmt: skip
    return rows


def main() -> None:
    """Print what an arrival takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--horizon", type=int, default=64, help="steps of a segment")
    parser.add_argument(
        "--rounds", type=int, default=10, help="rollouts of each contender; more for small blocks"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"Microseconds per arrival, {BLOCKS} blocks, horizon {options.horizon}")
    for heading in ("rows", "how", "bytes/step", "bare copy", "time", "time / copy"):
        table.add_column(heading, justify="right")
    for block in (4096, 512, 32):
        for row in measured(Sizes(block, options.horizon), options.rounds):
            table.add_row(*row)
    console = Console(width=120)
    console.print(table)
    console.print(
        f"plain: {len(KEYS)} keys, all at once. buffer: receive and store, {len(KEYS) + 5} keys\n"
        "and memory, with outcomes at the step that led to them."
    )


if __name__ == "__main__":
    main()
