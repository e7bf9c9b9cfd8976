"""Stored policies are compared with the run's in every state at every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_policies import question_of, random_game
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.certificate import arrays_of
from empo_bounds.effort import Effort
from empo_bounds.policy_comparison import compare_policies
from empo_bounds.question import Question
from empo_bounds.recorded import Contradiction, Recorded
from empo_bounds.rounds import certify
from empo_core.protocols import Tracker


def compare(question: Question, other: Question | None = None, zero: float | None = None) -> None:
    """Certify the policies of one question, and compare them with those of another.

    ``zero`` is what the robots' chances of 0 are replaced by.
    """
    found = certify(question, Assumptions(), Effort(0.0), Tracker())
    arrays = arrays_of(found)
    if zero is not None:
        chances = arrays["robot_policy"]
        arrays["robot_policy"] = np.where(chances == 0, zero, chances)
    compare_policies(Recorded(other or question, arrays, Assumptions(), found.unrolled.is_timed))


class Altered:
    """Policies that are changed after they were asked for."""

    def __init__(self, question: Question, change: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._acting, self._change, self.is_stationary = question.robots, change, True

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._change(self._acting.policy(states, steps_left), steps_left[:, None])


@pytest.fixture
def question() -> Question:
    """A game of several steps whose robots have a choice at the start, and act alike always."""
    for seed in range(500):
        table = random_game(seed)
        found = question_of(table, seed, is_stationary=True)
        chances = found.robots.policy(found.world.initial_state()[None], torch.tensor([4]))
        if table.horizon == 4 and 0.01 < float(chances.max()) < 0.99:
            return found
    raise AssertionError


def test_policies_that_sum_to_1_up_to_single_precision_are_confirmed(question: Question) -> None:
    compare(replace(question, robots=Altered(question, lambda p, left: p * (1 + 5e-5))))


def test_policies_in_single_precision_are_confirmed(question: Question) -> None:
    compare(question, replace(question, robots=Altered(question, lambda p, left: p.float())))


def test_single_precision_may_depend_on_what_else_is_asked(question: Question) -> None:
    def noisy(chances: Tensor, left: Tensor) -> Tensor:
        other = chances.roll(1, -1)  # A change of each chance by a small share of the smaller one.
        return (chances + 1e-6 * torch.minimum(chances, other)).float()

    compare(question, replace(question, robots=Altered(question, noisy)))


def best(rare: float, kind: torch.dtype = torch.float32) -> Callable[[Tensor, Tensor], Tensor]:
    """One of the likely actions, and a small chance of all others that are possible."""

    def chances(policy: Tensor, left: Tensor) -> Tensor:
        is_rare = (policy > 0).scatter(1, policy.argmax(1, keepdim=True), False)
        return torch.where(is_rare, rare, 1.0 * (policy > 0) * ~is_rare).to(kind)

    return chances


SINGLE, DOUBLE = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("rare", "stored", "kind"),
    [
        (9e-6, 0.0, SINGLE),
        (1e-20, 0.0, SINGLE),
        (9e-6, 8.9e-6, SINGLE),
        (9e-15, 8e-15, DOUBLE),
        (1e-40, 0.0, DOUBLE),
    ],
)
def test_chances_of_rare_actions_are_compared(
    question: Question, rare: float, stored: float, kind: torch.dtype
) -> None:
    certified, right = (
        replace(question, robots=Altered(question, best(chance, kind))) for chance in (stored, rare)
    )
    compare(right)
    with pytest.raises(Contradiction, match="policy"):
        compare(certified, right)


def test_negative_chances_are_refused(question: Question) -> None:
    certain = replace(question, robots=Altered(question, best(0.0)))
    compare(certain, certain, 0.0)
    with pytest.raises(Contradiction, match="policy"):
        compare(certain, certain, -9e-6)


@pytest.mark.parametrize("at", [4, 3, 2, 1])
def test_a_difference_at_a_single_time_is_refused(question: Question, at: int) -> None:
    def tilted(chances: Tensor, left: Tensor) -> Tensor:
        return torch.where(left == at, chances**1.000001, chances)

    with pytest.raises(Contradiction, match=rf"policy .*time {4 - at} "):
        compare(question, replace(question, robots=Altered(question, tilted)))
