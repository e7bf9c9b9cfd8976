"""Words that nothing depends on are left out, and those that are said to be none are found out."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from comparison import exact_params, theories
from hypothesis import given, settings
from random_games import Shape, Table, TableWorld, random_table, tables
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.types import Successors
from empo_core.world_structure import Reads
from empo_exact.assumptions import Assumptions
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_worlds.cone_checks import cone
from empo_worlds.queries import sample_successors

Leak = Literal["transitions", "achieved", "available", "prior"]
CONE = exact_params(keep="all", reduce=["cone"])
SHAPE = Shape(5, ("human", "robot"), (2, 2), horizon=3, timed=False, masked=False)


class Noted(TableWorld):
    """A table with three more words: a coin, the last coin, and whether the state is odd.

    Nothing reads them, except where ``leak`` says that something does; ``reads`` does not tell.
    """

    def __init__(self, table: Table, leak: Leak | None = None) -> None:
        super().__init__(table)
        self.inner = TableWorld(table)
        self.leak = leak
        self.spec = self.spec.__class__(
            name="noted game",
            agents=self.spec.agents,
            goals=self.spec.goals,
            state_words=5,
            state_dtype=torch.int16,
            horizon=table.horizon,
        )

    def reads(self) -> Reads:
        words = torch.zeros(5, 5, dtype=torch.bool)
        words[:2, :2] = True
        words[3, 2] = words[4, 1] = True
        inside = torch.tensor([True, True, False, False, False])
        return Reads(words=words, available=inside, achieved=inside.expand(len(self.spec.goals), 5))

    def initial_state(self) -> Tensor:
        return torch.cat([self.inner.initial_state(), torch.zeros(3, dtype=torch.int16)])

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = self.inner.transitions(states[:, :2], actions)
        state = torch.arange(len(states)).repeat_interleave(found.num_pairs // len(states))
        before = states[state[found.segments.index]]
        rows = found.states
        if self.leak == "transitions":
            stays = (before[:, 2] == 1) & (before[:, 3] == 1)
            rows = torch.where(stays[:, None], before[:, :2], rows)
        noted = torch.stack([before[:, 2], rows[:, 1].remainder(2)], 1)
        coins = torch.tensor([0, 1], dtype=torch.int16).repeat(len(rows))[:, None]
        items = torch.cat([rows.repeat_interleave(2, 0), coins, noted.repeat_interleave(2, 0)], 1)
        duration = None if found.duration is None else found.duration.repeat_interleave(2)
        return Successors(found.offsets * 2, items, found.prob.repeat_interleave(2) / 2, duration)

    def available(self, states: Tensor) -> Tensor:
        found = self.inner.available(states[:, :2])
        if self.leak == "available":
            found[states[:, 3] == 1, 0, 1:] = False
        return found

    def achieved(self, states: Tensor) -> Tensor:
        found = self.inner.achieved(states[:, :2])
        return found ^ (states[:, 3:4] == 1) if self.leak == "achieved" else found

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return sample_successors(self.transitions(states, actions), states, generator)

    def describe(self, state: Tensor) -> str:
        return f"{self.inner.describe(state[:2])} with {state[2:].tolist()}"


@settings(max_examples=25)
@given(table=tables(), params=theories())
def test_words_without_influence_change_no_value(table: Table, params: CompleteTheory) -> None:
    world = Noted(table)
    plain = exact_params(params, keep="all")
    expected = solve(world, plain)
    found = solve(world, exact_params(params, keep="all", reduce=["cone"]))
    assert np.array_equal(found.graph.states, expected.graph.states)
    # Averages over the coin are worked out in another order.
    allowed = 1e-12 * max(1.0, params.beta_r / 10.0)
    for time in expected.times:
        for mine, theirs in zip(found.store.at(time), expected.store.at(time), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=allowed, atol=allowed)
    (step,) = found.reductions
    assert step.after == solve(TableWorld(table), plain).graph.num_states


def test_a_cone_has_all_words_that_goals_depend_on_at_last() -> None:
    words = torch.zeros(4, 4, dtype=torch.bool)
    words[0, 1] = words[1, 2] = words[3, 0] = True
    reads = Reads(
        words=words,
        available=torch.zeros(4, dtype=torch.bool),
        achieved=torch.tensor([[True, False, False, False]]),
    )
    assert cone(reads).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("leak", "message"),
    [
        ("transitions", r"the other words after \(human 0: a\d, robot 1: a\d\) depend on words"),
        ("achieved", r"achieved goals depend on words"),
        ("available", r"what is available depend on words"),
    ],
)
def test_a_word_outside_reads_is_refused_with_a_counterexample(leak: Leak, message: str) -> None:
    world = Noted(random_table(SHAPE, 3), leak)
    with pytest.raises(SolveError, match=r"reduce: cone .*reads\(\)") as error:
        solve(world, CONE)
    assert error.match(message)
    assert error.match(r"in this state:\nstate \d with \[")


class Superstitious:
    """A human that looks at the last coin."""

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        first = torch.where(states[:, 3] == 1, 0.9, 0.4).double()
        return torch.stack([first, 1 - first], -1)[:, None].expand(-1, self.goals, -1)

    def __init__(self, goals: int) -> None:
        self.goals = goals


def test_a_prior_that_reads_other_words_is_refused() -> None:
    world = Noted(random_table(SHAPE, 3))
    prior = Superstitious(len(world.spec.goals))
    with pytest.raises(SolveError, match=r"human_prior.* words") as e:
        solve(world, CONE, Assumptions(human_prior=prior))
    assert e.match("its policies depend on words")


def test_a_declaration_of_the_wrong_shape_is_refused() -> None:
    class Short(Noted):
        def reads(self) -> Reads:
            found = super().reads()
            return Reads(
                words=found.words[:4, :4],
                available=found.available[:4],
                achieved=found.achieved[:, :4],
            )

    with pytest.raises(SolveError, match=r"\[4, 4\], not \[5, 5\]"):
        solve(Short(random_table(SHAPE, 3)), CONE)
