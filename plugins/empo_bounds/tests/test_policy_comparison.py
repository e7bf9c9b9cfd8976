"""Stored policies are compared with the run's in every state at every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from random_policies import question_of, random_game
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.policy_comparison import compare_policies
from empo_bounds.question import Question
from empo_bounds.recorded import Contradiction, Recorded
from empo_bounds.rounds import Effort, certify
from empo_core.protocols import Tracker


def compare(question: Question, other: Question | None = None) -> None:
    """Certify the policies of one question, and compare them with those of another."""
    found = certify(question, Assumptions(), Effort(0.0), Tracker())
    arrays = arrays_of(found)
    compare_policies(Recorded(other or question, arrays, None, False, found.unrolled.is_timed))


class Altered:
    """Policies that are changed after they were asked for."""

    def __init__(self, question: Question, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._acting, self._change, self.is_stationary = question.robots, change, True

    def probabilities(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._change(self._acting.probabilities(states, steps_left), steps_left[:, None])


@pytest.fixture
def question() -> Question:
    """A game of several steps whose robots have a choice at the start, and act alike always."""
    for seed in range(500):
        table = random_game(seed)
        found = question_of(table, seed, is_stationary=True)
        chances = found.robots.probabilities(found.world.initial_state()[None], torch.tensor([4]))
        if table.horizon == 4 and 0.01 < float(chances.max()) < 0.99:
            return found
    raise AssertionError


def test_policies_that_sum_to_1_up_to_single_precision_are_confirmed(question: Question) -> None:
    compare(replace(question, robots=Altered(question, lambda p, left: p * (1 + 5e-5))))


def test_policies_in_single_precision_are_confirmed(question: Question) -> None:
    compare(question, replace(question, robots=Altered(question, lambda p, left: p.float())))


@pytest.mark.parametrize("at", [4, 3, 2, 1])
def test_a_difference_at_a_single_time_is_refused(question: Question, at: int) -> None:
    def tilted(chances: Tensor, left: Tensor) -> Tensor:
        return torch.where(left == at, chances**1.000001, chances)

    with pytest.raises(Contradiction, match=f"at time {4 - at} is not that of this run"):
        compare(question, replace(question, robots=Altered(question, tilted)))
