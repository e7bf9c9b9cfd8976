"""Helpers of the kits: finding states, taking apart successors, judging samples."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.trees import StateDict
from empo_core.types import Successors
from empo_learning.state_tree import flatten, unflatten
from empo_worlds.samples import joint_actions as joint_actions


def reachable_states(world: WorldModel, limit: int = 48) -> Int[Tensor, "state word"]:
    """The first states a breadth-first search finds, initial states first.

    Args:
        world: Any world model.
        limit: Stop once there are this many.
    """
    reached = dict.fromkeys(map(tuple, world.initial_states().states.tolist()))
    rows = list(reached)
    while rows and len(reached) < limit:
        batch = torch.tensor(rows[: limit // 4 + 1], dtype=world.spec.state_dtype)
        rows = rows[len(batch) :]
        for row in world.transitions(batch).states.tolist():
            if tuple(row) not in reached and len(reached) < limit:
                reached[tuple(row)] = None
                rows.append(tuple(row))
    return torch.tensor(list(reached), dtype=world.spec.state_dtype)


def as_mappings(successors: Successors) -> list[dict[tuple[int, ...], tuple[float, float]]]:
    """For each pair, probability and duration by successor row: free of any order."""
    offsets, rows = successors.offsets.tolist(), successors.states.tolist()
    prob = successors.prob.tolist()
    duration = [1.0] * len(prob)
    if successors.duration is not None:
        duration = successors.duration.tolist()
    return [
        {tuple(rows[i]): (prob[i], duration[i]) for i in range(start, end)}
        for start, end in pairwise(offsets)
    ]


def chance_of_worse_fit(counts: Sequence[int], prob: Sequence[float]) -> float:
    """The p-value of a chi-square test that ``counts`` were drawn with ``prob``."""
    total = sum(counts)
    # Outcomes too rare for the approximation are judged together.
    cells: list[tuple[float, float]] = []
    pooled, pooled_expected = 0.0, 0.0
    for count, p in zip(counts, prob, strict=True):
        if total * p < 5:
            pooled, pooled_expected = pooled + count, pooled_expected + total * p
        else:
            cells.append((count, total * p))
    if pooled_expected > 0:
        cells.append((pooled, pooled_expected))
    if len(cells) < 2:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    half = torch.tensor(statistic / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, half))


@contextmanager
def global_randomness_untouched() -> Iterator[None]:
    """Check that the body draws nothing from the global generators."""
    # Not Python's own generator: run-time checks of types may draw from it.
    before = torch.random.get_rng_state(), repr(np.random.get_state(legacy=False))
    yield
    assert torch.equal(torch.random.get_rng_state(), before[0]), "torch's global generator moved"
    assert repr(np.random.get_state(legacy=False)) == before[1], "numpy's global generator moved"


def stored(state: StateDict) -> StateDict:
    """A state as it comes back from a file: JSON, and tensors of their own."""
    data, tensors = flatten(state)
    return unflatten(json.loads(json.dumps(data)), {n: t.clone() for n, t in tensors.items()})


def is_json(data: object) -> bool:
    """True if data is made of what JSON has, with string keys and finite numbers."""
    if data is None or isinstance(data, bool | int | str):
        return True
    if isinstance(data, float):
        return bool(np.isfinite(data))
    if isinstance(data, Mapping):
        return all(isinstance(key, str) and is_json(value) for key, value in data.items())
    return isinstance(data, list | tuple) and all(is_json(value) for value in data)
