"""Values of states that are cached are those of the function itself."""

import torch
from torch import Tensor

from empo_learning.state_cache import StateCache


class Counting:
    """Gives the first word and the time, and counts calls."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, rows: Tensor, steps_left: Tensor) -> Tensor:
        self.calls.append(len(rows))
        return torch.stack([rows[:, 0] * 1.0, steps_left * 1.0], 1)


def test_cached_values_are_right_whatever_was_dropped() -> None:
    generator = torch.Generator().manual_seed(0)
    counting = Counting()
    cache = StateCache(counting, 1, max_bytes=1000)
    for _ in range(50):
        rows = torch.randint(0, 40, (30, 1), generator=generator)
        left = torch.randint(1, 3, (30,), generator=generator)
        assert cache(rows, left).tolist() == counting(rows, left).tolist()
    assert len(counting.calls) > 2 * 50 - 40


def test_each_state_is_computed_once() -> None:
    counting = Counting()
    cache = StateCache(counting, 2)
    rows = torch.tensor([[1, 2], [1, 2], [3, 4]])
    for _ in range(3):
        cache(rows, torch.tensor([1, 1, 2]))
    assert counting.calls == [2]
    cache(rows, torch.tensor([1, 2, 2]))
    assert counting.calls == [2, 1]


def test_timeless_values_are_keyed_by_the_state_alone() -> None:
    counting = Counting()
    cache = StateCache(counting, 1, timeless=True)
    cache(torch.tensor([[1], [1]]), torch.tensor([1, 2]))
    assert counting.calls == [1]


def test_it_stops_caching_where_states_hardly_ever_repeat() -> None:
    counting = Counting()
    cache = StateCache(counting, 1, timeless=True, max_bytes=2000)
    for first in range(0, 2000, 20):
        cache(torch.arange(first, first + 20)[:, None], torch.ones(20, dtype=torch.int64))
    before = len(counting.calls)
    again = torch.zeros(20, 1, dtype=torch.int64)
    cache(again, again[:, 0])
    cache(again, again[:, 0])
    assert counting.calls[before:] == [20, 20]
