"""What a world declares is checked in every explored state, unless samples are asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from symmetric_games import Renaming, SymmetricWorld
from test_false_declarations import Notes, Outcome, game, outcome
from torch import Tensor

from empo_core.errors import SolveError
from empo_core.types import Successors
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

WIDTH, DEPTH = 6, 4
"""A tree of two mirrored wings: in each of ``DEPTH`` steps the human chooses one of ``WIDTH``."""


def params(reduce: list[str], **more: Any) -> ExactParams:
    return ExactParams.model_validate(
        {"keep": "none", "reduce": reduce, "compute": {"workers": 1}, **more}
    )


def tree(secret: int) -> SymmetricWorld:
    """Two wings; in one state of the last layer of the right one the secret opens, in none left."""
    size = sum(WIDTH**depth for depth in range(DEPTH + 1))
    first, last = size - WIDTH**DEPTH, size
    left, right = 1, 1 + size
    end = 1 + 2 * size  # The secret of the left wing; that of the right one follows.
    outcomes: list[Outcome] = [outcome(*[((0.5, left, 1.0), (0.5, right, 1.0))] * WIDTH)]
    for wing in (left, right):
        for state in range(size):
            if state < first:
                ends = [wing + WIDTH * state + 1 + action for action in range(WIDTH)]
            else:
                ends = [wing + state] * WIDTH
                if state == last - 1 - secret and wing == right:
                    ends[3] = end + 1
            outcomes.append(outcome(*(((1.0, to, 1.0),) for to in ends)))
    outcomes += [outcome(*[((1.0, state, 1.0),) * 1] * WIDTH) for state in (end, end + 1)]
    states = (0, *range(right, end), *range(left, right), end + 1, end)
    table = game(outcomes, tuple(range(len(outcomes))), end + 1, horizon=DEPTH + 2)
    goals = (table.goals[0], (0, 1.0, frozenset([end, end + 1])))
    renaming = Renaming(states, (0, 1), (tuple(range(WIDTH)), (0, 1)), (0, 1))
    return SymmetricWorld(replace(table, goals=goals), [renaming])


@pytest.mark.parametrize("secret", [0, 265])
def test_a_symmetry_that_is_wrong_in_one_of_many_states_is_refused(secret: int) -> None:
    world = tree(secret)
    right = solve(world, params([])).at(0).V_r
    with pytest.raises(SolveError, match=r"(?s)reduce: symmetry .*state \d+"):
        solve(world, params(["symmetry"]))
    # Only samples miss it, which have to be asked for.
    assert solve(world, params(["symmetry"], check_reductions="sampled")).at(0).V_r != right


class Rare(Notes):
    """Notes that are read where the human is at 2 and the robot's first note is 4."""

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = super().transitions(states, actions)
        before = states.repeat_interleave(4, 0) if actions is None else states
        rare = (before[:, 0] == 2) & (before[:, 2] == 1)
        rows = found.states.clone()
        rows[rare, 0] = 0
        return Successors(found.offsets, rows, found.prob, found.duration)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_word_that_is_read_in_one_place_only_is_refused(keep: str) -> None:
    with pytest.raises(SolveError, match=r"reads\(\) of 'notes'"):
        solve(Rare(), params(["cone"], keep=keep))


class OncePrior:
    """Even humans, but in one state; it may say that it is the same at all times."""

    def __init__(self, row: tuple[int, ...], left: int | None, *, is_stationary: bool) -> None:
        self.row, self.left, self.is_stationary = torch.tensor(row), left, is_stationary

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        found = torch.full((len(states), 2, WIDTH), 1 / WIDTH, dtype=torch.float64)
        here = (states == self.row).all(1)
        if self.left is not None:
            here &= steps_left == self.left
        found[here] = torch.eye(WIDTH, dtype=torch.float64)[0]
        return found


def symmetric_tree() -> SymmetricWorld:
    world = tree(0)
    table = world.table
    outcomes = list(table.outcomes)
    size = (len(outcomes) - 3) // 2
    end = 1 + 2 * size
    outcomes[size] = {pair: ((1.0, end if pair[0] == 3 else size, 1.0),) for pair in outcomes[size]}
    return SymmetricWorld(replace(table, outcomes=tuple(outcomes)), world.renamings)


def test_a_prior_that_lacks_a_symmetry_in_one_state_is_refused() -> None:
    world = symmetric_tree()
    state = len(world.table.outcomes) - 40
    assert solve(world, params(["symmetry"])).at(0).V_r < 0
    prior = OncePrior(world.row(state), None, is_stationary=True)
    with pytest.raises(SolveError, match=r"human_prior.* symmetry"):
        solve(world, params(["symmetry"]), Assumptions(human_prior=prior))


def test_a_prior_that_is_not_the_same_at_all_times_is_refused() -> None:
    world = symmetric_tree()
    prior = OncePrior(world.row(2), DEPTH, is_stationary=True)
    with pytest.raises(SolveError, match="is_stationary"):
        solve(world, params(["symmetry"]), Assumptions(human_prior=prior))


def test_worlds_that_say_the_truth_are_solved_with_the_same_numbers() -> None:
    for world, reduce in ((symmetric_tree(), ["symmetry"]), (Notes(), ["cone"])):
        for check in ("all", "sampled"):
            found = solve(world, params(reduce, check_reductions=check))
            assert found.at(0).V_r == pytest.approx(solve(world, params([])).at(0).V_r, rel=1e-12)
