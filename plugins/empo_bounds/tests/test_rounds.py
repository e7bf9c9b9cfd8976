"""Limits of a certificate: whatever ends it, what was expanded until then counts."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from random_games import Shape, random_table
from random_policies import PreciseValues, question_of, random_game

from empo_bounds.assumptions import Assumptions
from empo_bounds.question import Question
from empo_bounds.rounds import Effort, Found, certify
from empo_core.errors import SolveError
from empo_core.protocols import Tracker


@pytest.fixture
def question() -> Question:
    """A game of four steps."""
    seed = next(seed for seed in range(99) if random_game(seed).horizon == 4)
    return question_of(random_game(seed), seed)


def right_inside(found: Found) -> None:
    question = found.unrolled.question
    right = PreciseValues(question).at(0, 0)
    start = found.rounds[-1].start
    assert start.loss.low[0] <= -right.v_r <= start.loss.high[0]
    for column, goal in enumerate(question.order.tolist()):
        assert start.v_e.low[0, column] <= right.v_e[goal] <= start.v_e.high[0, column]


class Interrupter(Tracker):
    """Presses Ctrl-C once when some step is about to be expanded."""

    def __init__(self, step: int) -> None:
        self._step, self._pressed = step, False

    def narrate(self, task: str, text: str) -> None:
        if f"step {self._step} " in text and not self._pressed:
            self._pressed = True
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(os.name != "posix", reason="signals are sent")
def test_an_interrupted_certificate_has_what_was_expanded(question: Question) -> None:
    found = certify(question, Assumptions(), Effort(0.0), Interrupter(2))
    assert found.ended == "interrupted"
    assert found.rounds[-1].pairs > 0
    right_inside(found)


@pytest.mark.skipif(os.name != "posix", reason="signals are sent")
def test_without_anything_expanded_an_interrupt_is_one(question: Question) -> None:
    with pytest.raises(KeyboardInterrupt, match="before anything"):
        certify(question, Assumptions(), Effort(0.0), Interrupter(0))


def test_time_that_is_over_ends_it(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = certify(question, Assumptions(), Effort(0.0), Tracker())
    clock = iter(range(10**6))
    monkeypatch.setattr("empo_bounds.rounds.clock.monotonic", lambda: float(next(clock)))
    found = certify(question, Assumptions(), Effort(0.0, minutes=0.2), Tracker())
    assert "minutes are over" in found.ended
    assert found.rounds[-1].pairs < everything.rounds[-1].pairs
    right_inside(found)


def test_intervals_never_grow_and_only_narrow_with_effort(question: Question) -> None:
    found = certify(question, Assumptions(), Effort(0.0), Tracker())
    for earlier, later in zip(found.rounds, found.rounds[1:], strict=False):
        assert later.pairs >= earlier.pairs
        assert (later.start.v_e.low >= earlier.start.v_e.low).all()
        assert (later.start.v_e.high <= earlier.start.v_e.high).all()
        assert later.start.loss.high[0] <= earlier.start.loss.high[0]


class Fickle:
    """Policies that claim to be the same at all times, and are not."""

    is_stationary = True

    def __init__(self, question: Question) -> None:
        self._acting = question.robots

    def probabilities(self, states: object, steps_left: object) -> object:
        return self._acting.probabilities(states, steps_left)  # type: ignore[arg-type]


def test_a_policy_that_is_wrongly_said_to_be_stationary_is_refused() -> None:
    table = random_table(Shape(4, ("human", "robot"), (2, 3), 4, False, False), 5)
    question = question_of(table, 5)
    wrong = replace(question, robots=Fickle(question))
    with pytest.raises(SolveError, match="is_stationary"):
        certify(wrong, Assumptions(), Effort(0.0), Tracker())
