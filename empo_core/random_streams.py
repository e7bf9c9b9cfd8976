"""The random streams of a run: all come from one ``SeedSequence``, and none overlaps another.

A stream is named by what is drawn from it and by numbers, such as the rank of a process:
``stream(seed, Stream.EPISODES, rank)`` is the child with this ``spawn_key`` of
``SeedSequence(seed)``. So no two streams of a run agree, and none of another run with another seed
does: ``seed + rank`` would give rank 1 of seed 0 what rank 0 of seed 1 has.
"""

from __future__ import annotations

import random
from enum import IntEnum

import numpy as np  # Before torch, which would lose a Ctrl-C within its own import of it.

_GLOBALS = 2**32 - 1
"""Ahead of the numbers of the process-wide generators' streams; no other number is so great."""


class Stream(IntEnum):
    """Purposes of random numbers; the numbers behind are part of every seed, so they stay."""

    GLOBALS = 0
    """Process-wide generators; by rank."""
    WEIGHTS = 1
    """Initial weights of networks."""
    BATCHES = 2
    """Choice of what is learned from together; by rank."""
    EPISODES = 3
    """Episodes of environments; by rank and by step of the run."""
    WORKERS = 4
    """Process-wide generators of worker processes; by rank, worker and restart."""
    EVALUATION = 5
    """Evaluations; by step of the run."""


def stream(seed: int, purpose: Stream, *numbers: int) -> np.random.SeedSequence:
    """A stream of the run with this seed; ``numbers``, at least 0, tell one purpose's apart."""
    return np.random.SeedSequence(seed, spawn_key=(int(purpose), *numbers))


def seed_of(sequence: np.random.SeedSequence) -> int:
    """A seed from 0 to ``2**63 - 1``, for generators that take no sequence."""
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def seed_globals(sequence: np.random.SeedSequence) -> None:
    """Seed the process-wide generators of Python, numpy and torch, each by another seed.

    Our own code uses generators of its own; these are for code that does not.
    """
    import torch

    # Children by number, which are the same as often as asked, unlike those of ``spawn``.
    python, numpy, pytorch = (
        np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, _GLOBALS, number))
        for number in range(3)
    )
    random.seed(seed_of(python))
    np.random.seed(numpy.generate_state(4))
    torch.manual_seed(seed_of(pytorch))
