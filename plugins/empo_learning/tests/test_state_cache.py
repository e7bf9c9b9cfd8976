"""Values of states that are cached are those of the function itself."""

import pytest
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


class Failing(Counting):
    """Raises where a row says so, until it is repaired."""

    is_broken = True

    def __call__(self, rows: Tensor, steps_left: Tensor) -> Tensor:
        if self.is_broken and (rows < 0).any():
            raise RuntimeError("no value")
        return super().__call__(rows, steps_left)


@pytest.mark.parametrize("before", [0, 3])
def test_a_function_that_raised_is_asked_again(before: int) -> None:
    failing = Failing()
    cache = StateCache(failing, 1)
    one = torch.ones(before, dtype=torch.int64)
    if before:
        cache(torch.arange(before)[:, None], one)
    rows, left = torch.tensor([[7], [-1], [7], [0]]), torch.tensor([1, 1, 1, 1])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no value"):
            cache(rows, left)
    failing.is_broken = False
    assert cache(rows, left).tolist() == [[7, 1], [-1, 1], [7, 1], [0, 1]]
    failing.calls.clear()
    assert cache(rows, left).tolist() == [[7, 1], [-1, 1], [7, 1], [0, 1]]
    assert failing.calls == []
