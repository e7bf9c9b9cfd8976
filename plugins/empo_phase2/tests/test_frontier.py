"""Timed states that were seen, and marks of those that were entered."""

from __future__ import annotations

import torch

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
