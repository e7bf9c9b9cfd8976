"""Random streams: none agrees with another of its run, or of one with another seed."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import torch

from empo_core.experiment import seed_everything
from empo_core.random_streams import Stream, seed_globals, seed_of, stream


def test_no_two_streams_agree() -> None:
    numbers = [(), (0,), (1,), (0, 1), (1, 0)]
    seeds = {seed_of(stream(*each)) for each in product(range(3), Stream, [0, 1])}
    assert len(seeds) == 3 * len(Stream) * 2
    assert len({seed_of(stream(0, Stream.EPISODES, *some)) for some in numbers}) == len(numbers)
    # What seed + rank would have made the same.
    one = seed_of(stream(0, Stream.EPISODES, 1))
    assert one != seed_of(stream(1, Stream.EPISODES, 0))
    assert all(0 <= each < 2**63 for each in seeds)


def test_the_global_generators_are_seeded_by_different_seeds() -> None:
    def drawn() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]

    seed_globals(stream(0, Stream.WORKERS, 0))
    first = drawn()
    seed_globals(stream(0, Stream.WORKERS, 0))
    assert drawn() == first
    seed_globals(stream(0, Stream.WORKERS, 1))
    assert not set(drawn()) & set(first)
    plain = torch.rand((), generator=torch.Generator().manual_seed(0))
    seed_everything(0)
    assert float(torch.rand(())) != float(plain)
    seed_everything(0)
    python = random.random()
    assert python != random.Random(0).random()
