"""Limits of a certificate: whatever ends it, what was expanded until then counts."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from random_games import Shape, Table, TableWorld, random_table
from random_policies import PreciseValues, question_of, random_game
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.effort import Effort
from empo_bounds.induction import Induced, induce
from empo_bounds.question import Question
from empo_bounds.rounds import Certification, certify
from empo_core.errors import ConfigError, SolveError
from empo_core.protocols import Tracker
from empo_core.types import Successors
from empo_theory.parameters import TheoryParams


@pytest.fixture
def question() -> Question:
    """A game of four steps."""
    seed = next(seed for seed in range(99) if random_game(seed).horizon == 4)
    return question_of(random_game(seed), seed)


def right_inside(outcome: Certification) -> None:
    question = outcome.unrolled.question
    right = PreciseValues(question).at(0, 0)
    start = outcome.rounds[-1].start
    assert start.loss.low[0] <= -right.v_r <= start.loss.high[0]
    for column, goal in enumerate(question.order.tolist()):
        assert start.v_e.low[0, column] <= right.v_e[goal] <= start.v_e.high[0, column]


class Interrupter(Tracker):
    """Presses Ctrl-C once when some step is about to be expanded."""

    def __init__(self, step: int) -> None:
        self._step, self._pressed = step, False

    def status(self, task: str, text: str) -> None:
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

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._acting.policy(states, steps_left)


def test_a_policy_that_is_wrongly_said_to_be_stationary_is_refused() -> None:
    table = random_table(Shape(4, ("human", "robot"), (2, 3), 4, False, False), 5)
    question = question_of(table, 5)
    wrong = replace(question, robots=Fickle(question))
    with pytest.raises(SolveError, match="is_stationary"):
        certify(wrong, Assumptions(), Effort(0.0), Tracker())


class LateInOneState:
    """Robots that claim to be the same at all times, and are but in state 20, late."""

    is_stationary = True

    def __init__(self, world: TableWorld, state: int = 20, late: int = 15) -> None:
        self._world, self._state, self._late = world, state, late

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        numbers = torch.tensor([self._world.number(row) for row in states.tolist()])
        acts = ((numbers == self._state) & (steps_left <= self._late)).double()
        return torch.stack([1 - acts, acts], 1)


@pytest.mark.parametrize("states", [20, 500])
def test_one_state_in_which_a_policy_changes_is_found_by_chance(states: int) -> None:
    starts = {(0, act): tuple((1 / states, s, 1.0) for s in range(1, states + 1)) for act in (0, 1)}
    stays = [dict.fromkeys(((0, 0), (0, 1)), ((1.0, s, 1.0),)) for s in range(1, states + 1)]
    goal = (0, 1.0, frozenset(range(states + 1)))
    labels = tuple(range(states + 1))
    table = Table(("human", "robot"), (1, 2), (starts, *stays), (goal,), labels, 30)
    question = question_of(table, 1)
    wrong = replace(question, robots=LateInOneState(question.world))  # type: ignore[arg-type]
    with pytest.raises(SolveError, match="is_stationary"):
        certify(wrong, Assumptions(), Effort(0.0), Tracker())


@pytest.mark.parametrize("late", [1, 28])
def test_every_state_in_which_a_policy_changes_is_found(late: int) -> None:
    states = 300
    starts = {(0, act): tuple((1 / states, s, 1.0) for s in range(1, states + 1)) for act in (0, 1)}
    stays = [dict.fromkeys(((0, 0), (0, 1)), ((1.0, s, 1.0),)) for s in range(1, states + 1)]
    goal = (0, 1.0, frozenset(range(states + 1)))
    table = Table(("human", "robot"), (1, 2), (starts, *stays), (goal,), (*range(states + 1),), 30)
    question = question_of(table, 1)
    late_robots = LateInOneState(question.world, 295, late)  # type: ignore[arg-type]
    with pytest.raises(SolveError, match="is_stationary"):
        certify(replace(question, robots=late_robots), Assumptions(), Effort(0.0), Tracker())


class Halved:
    """A prior that is none: its numbers sum to one half."""

    def __init__(self, question: Question) -> None:
        self._acting = question.humans

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._acting.policy(states, steps_left) / 2


class Small:
    """A prior of another world: it knows one goal."""

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.ones(len(states), 1, 1)


def test_a_prior_that_is_none_is_refused(question: Question) -> None:
    wrong = replace(question, humans=Halved(question))
    with pytest.raises(SolveError, match=r"human prior .*distribution"):
        certify(wrong, Assumptions(), Effort(0.0), Tracker())


class Surplus:
    """A prior of a world with more actions."""

    def __init__(self, question: Question) -> None:
        self._goals = len(question.spec.goals)

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.full((len(states), self._goals, 7), 1 / 7)


def game(masked: bool) -> Question:
    """A game of one human with several goals and one robot."""
    shape = Shape(4, ("human", "robot"), (2, 3), 4, False, masked)
    tables = (random_table(shape, seed) for seed in range(99))
    return question_of(next(table for table in tables if len(table.goals) > 2), 1)


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("prior", ["small", "surplus"])
def test_a_prior_of_another_world_is_refused(prior: str) -> None:
    question = game(masked=False)
    humans = Small() if prior == "small" else Surplus(question)
    with pytest.raises(SolveError, match="another world"):
        certify(replace(question, humans=humans), Assumptions(), Effort(0.0), Tracker())


def test_robots_that_do_what_is_not_available_are_refused() -> None:
    question = game(masked=True)
    wrong = replace(question, robots=Even(question))
    with pytest.raises(SolveError, match="available"):
        certify(wrong, Assumptions(), Effort(0.0), Tracker())


class Even:
    """Robots that do not care for what is available."""

    def __init__(self, question: Question) -> None:
        self._number = question.spec.num_robot_actions

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.full((len(states), self._number), 1 / self._number, dtype=torch.float64)


def test_time_spent_on_compiling_does_not_end_it(
    question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, compiling = [0.0], iter([1e4])

    def slow_at_first(*args: Any, **options: Any) -> Induced:
        now[0] += next(compiling, 0.0)
        return induce(*args, **options)

    monkeypatch.setattr("empo_bounds.rounds.clock.monotonic", lambda: now[0])
    monkeypatch.setattr("empo_bounds.rounds.induce", slow_at_first)
    found = certify(question, Assumptions(), Effort(0.0, minutes=200), Tracker())
    assert "no pair" in found.ended


class SaysIfNot1(TableWorld):
    """A world that gives durations in answers only in which one is not 1."""

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = super().transitions(states, actions)
        assert found.duration is not None
        return found if bool((found.duration != 1).any()) else replace(found, duration=None)


def test_bounds_from_before_a_duration_was_met_are_forgotten() -> None:
    outcomes = ({(0,): ((0.9, 0, 1.0), (0.1, 1, 1.0))}, {(0,): ((1.0, 1, 100.0),)})
    goal = (0, 1.0, frozenset([0, 1]))
    table = Table(("human",), (1,), outcomes, (goal,), (0, 1), 6, timed=True)
    acting = question_of(table, 1)
    theory = TheoryParams(gamma_r=1.0)
    question = Question(SaysIfNot1(table), acting.robots, acting.humans, theory, "continuous")
    before = certify(question, Assumptions(0.999), Effort(0.5), Tracker())
    assert not before.unrolled.is_timed
    found = certify(question, Assumptions(0.999), Effort(0.05), Tracker())
    assert found.unrolled.is_timed
    assert all(np.isinf(each.start.loss.high[0]) for each in found.rounds[:-1])
    assert np.isinf(found.vacuous.loss.high[0])
    everything = certify(question, Assumptions(0.999), Effort(0.0), Tracker())
    assert everything.rounds[-1].start.loss.high[0] == pytest.approx(136.13, abs=0.01)


def test_claims_without_sense_are_refused(question: Question) -> None:
    endless = question_of(next(t for t in map(random_game, range(99)) if t.horizon is None), 1)
    with pytest.raises(ConfigError, match="horizon"):
        certify(endless, Assumptions(never_ends_early=True), Effort(), Tracker())
    for power in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="at least 0"):
            Assumptions(power)


@pytest.mark.parametrize("limit", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    ("name", "option"), [("epsilon", "--eps"), ("minutes", "--minutes"), ("memory_gb", "--memory")]
)
def test_limits_that_are_no_numbers_are_refused(name: str, option: str, limit: float) -> None:
    with pytest.raises(ConfigError, match=rf"{option}.*{limit}"):
        Effort(**{name: limit})
