"""Timed states that were seen, and marks of those that were entered."""

from __future__ import annotations

import pytest
import torch

from empo_phase2 import frontier as frontier_module
from empo_phase2.frontier import Frontier
from empo_testing.worlds import TinyWorld


def test_marks_stay_when_entering_enlarges_the_frontier() -> None:
    spec = TinyWorld().spec
    rows = torch.arange(3000)[:, None].expand(-1, spec.state_words)
    frontier = Frontier(spec)
    frontier.see(rows[:1], torch.tensor([7]))
    frontier.enter(rows, torch.ones(len(rows), dtype=torch.int64))
    _, steps_left = frontier.draw(1, torch.Generator())
    assert steps_left.tolist() == [7]


def test_only_what_was_never_entered_is_new() -> None:
    spec = TinyWorld().spec
    rows = torch.arange(5)[:, None].expand(-1, spec.state_words)
    left = torch.full((5,), 3)
    frontier = Frontier(spec)
    frontier.see(rows, left)
    frontier.enter(rows[:3], left[:3])
    assert frontier.is_entered(rows, left).tolist() == [True, True, True, False, False]
    drawn, _ = frontier.draw_new(9, torch.Generator())
    assert sorted(drawn[:, 0].tolist()) == [3, 4]
    assert len(frontier.draw(9, torch.Generator())[0]) == 9


def test_draws_are_distinct_and_every_waiting_state_is_drawn_as_often() -> None:
    spec = TinyWorld().spec
    rows = torch.arange(6)[:, None].expand(-1, spec.state_words)
    frontier, generator = Frontier(spec), torch.Generator().manual_seed(0)
    frontier.see(rows, torch.full((6,), 2))
    counts = torch.zeros(6)
    for _ in range(3000):
        drawn, _ = frontier.draw_new(2, generator)
        counts[drawn[:, 0].long()] += 1
        assert drawn[0, 0] != drawn[1, 0]
    assert (counts / 1000 - 1).abs().max() < 0.1


def test_where_too_many_are_known_the_newer_half_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_module, "LIMIT", 10)
    spec = TinyWorld().spec
    rows = torch.arange(12)[:, None].expand(-1, spec.state_words)
    left = torch.full((12,), 3)
    frontier = Frontier(spec)
    frontier.see(rows, left)
    frontier.enter(rows[4:8], left[4:8])
    frontier.see(rows[11:], left[11:])
    drawn, _ = frontier.draw_new(12, torch.Generator())
    assert sorted(drawn[:, 0].tolist()) == [8, 9, 10, 11]
    restored = Frontier(spec)
    restored.load_state_dict(frontier.state_dict())
    assert restored.is_entered(rows[6:], left[6:]).tolist() == [True, True] + [False] * 4
    ours, theirs = (one.draw(3, torch.Generator().manual_seed(1)) for one in (frontier, restored))
    assert torch.equal(ours[0], theirs[0])
