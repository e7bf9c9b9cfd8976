"""Random games reduced by symmetries and by lumping, against all of their states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from comparison import exact_params, theories
from hypothesis import given, settings
from hypothesis import strategies as st
from random_games import Shape, Table, TableWorld, tables
from symmetric_games import Renaming, SymmetricWorld, symmetric_world, symmetric_worlds

from empo_core.errors import SolveError, UnsuitableWorldError
from empo_core.protocols import WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_worlds.symmetry_checks import false_symmetry

SHAPE = Shape(6, ("human", "human", "robot"), (3, 3, 2), horizon=3, timed=False, masked=True)


SYMMETRY = exact_params(keep="all", reduce=["symmetry"])


def compare(world: WorldModel, params: CompleteTheory, reduce: list[str]) -> ExactResult:
    """The reduced result, after a comparison with the unreduced one at all states and times."""
    plain = exact_params(params, keep="all")
    expected = solve(world, plain)
    found = solve(world, exact_params(params, keep="all", reduce=reduce))
    # As in comparisons with the reference: a power of Q_r multiplies rounding errors by beta_r.
    allowed = 1e-12 * max(1.0, params.beta_r / 10.0)
    assert np.array_equal(found.graph.states, expected.graph.states)
    for time in expected.times:
        for mine, theirs in zip(found.store.at(time), expected.store.at(time), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=allowed, atol=allowed)
    return found


def check_symmetric(world: SymmetricWorld, params: CompleteTheory, reduce: list[str]) -> None:
    # At large beta_r rounding decides which action the robot takes.
    params = params.model_copy(update={"beta_r": min(params.beta_r, 100.0)})
    (step, *_) = compare(world, params, reduce).reductions
    assert step.after <= step.before


REDUCE = st.sampled_from([["symmetry"], ["symmetry", "lump"]])


@pytest.mark.slow
@settings(max_examples=60)
@given(world=symmetric_worlds(), params=theories(), reduce=REDUCE)
def test_symmetric_games_have_the_values_of_all_their_states(
    world: SymmetricWorld, params: CompleteTheory, reduce: list[str]
) -> None:
    check_symmetric(world, params, reduce)


@pytest.mark.slow
@settings(max_examples=300)
@given(world=symmetric_worlds(), params=theories(), reduce=REDUCE)
def test_three_hundred_symmetric_games_have_them(
    world: SymmetricWorld, params: CompleteTheory, reduce: list[str]
) -> None:
    check_symmetric(world, params, reduce)


@settings(max_examples=40)
@given(table=tables(), params=theories())
def test_lumped_games_have_the_values_of_all_their_states(
    table: Table, params: CompleteTheory
) -> None:
    compare(TableWorld(table), params, ["lump"])


def test_most_symmetric_games_get_smaller() -> None:
    smaller = 0
    for seed in range(20):
        found = compare(symmetric_world(SHAPE, seed), CompleteTheory(), ["symmetry"])
        (step,) = found.reductions
        smaller += step.after < step.before
    assert smaller >= 15


def states_of(world: TableWorld) -> torch.Tensor:
    return torch.tensor([world.row(s) for s in range(len(world.table.labels))], dtype=torch.int16)


def planted(seed: int, change: str) -> SymmetricWorld:
    """A symmetric game, and the same with one thing changed that breaks its symmetry."""
    world = symmetric_world(SHAPE, seed)
    table, renaming = world.table, world.renamings[0]
    moved = [s for s, t in enumerate(renaming.states) if s != t and table.outcomes[s]]
    if not moved:
        return planted(seed + 100, change)
    state = moved[0]
    if change == "chance":
        profile, items = next(iter(table.outcomes[state].items()))
        other = next(t for t in range(6) if t != items[0][1])
        changed = dict(table.outcomes[state]) | {profile: ((1.0, other, 1.0),)}
        if changed[profile] == items:
            return planted(seed + 100, change)
        outcomes = list(table.outcomes)
        outcomes[state] = changed
        table = replace(table, outcomes=tuple(outcomes))
    elif change == "goal":
        human, weight, members = table.goals[0]
        table = replace(table, goals=((human, weight, members ^ {state}), *table.goals[1:]))
    elif change == "weight":
        human, weight, members = table.goals[0]
        if renaming.goals[0] == 0:
            return planted(seed + 100, change)
        table = replace(table, goals=((human, 7.0, members), *table.goals[1:]))
    return SymmetricWorld(table, [renaming])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("chance", r"(?s)does not lead to the images.*state \d|available actions.*state \d"),
        ("goal", r"(?s)differs in goal 'goal \d'.*state \d"),
        ("weight", r"have the weights 7.0 and"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_false_symmetry_is_refused_with_a_counterexample(
    change: str, message: str, seed: int
) -> None:
    world = planted(seed, change)
    reason = false_symmetry(world, world.symmetries()[0], states_of(world))
    assert reason is not None
    with pytest.raises(SolveError, match=r"reduce: symmetry .*for 'renaming 0'") as e:
        solve(world, SYMMETRY)
    assert e.match(message)


def test_exchanged_first_actions_are_refused_where_goals_are_achieved() -> None:
    # Renaming the first action moves what humans do in achieved goals.
    world = symmetric_world(replace(SHAPE, masked=False), 5)
    stays = [dict.fromkeys(p, ((1.0, s, 1.0),)) for s, p in enumerate(world.table.outcomes)]
    table = replace(world.table, outcomes=tuple(stays))
    names = tuple(range(6)), tuple(range(3)), tuple(range(len(table.goals)))
    swapped = Renaming(names[0], names[1], ((1, 0, 2), (0, 1, 2), (0, 1)), names[2])
    with pytest.raises(SolveError, match=r"first available"):
        solve(SymmetricWorld(table, [swapped]), SYMMETRY)


def test_a_world_without_symmetries_is_refused_in_one_sentence() -> None:
    world = TableWorld(symmetric_world(SHAPE, 0).table)
    for reduce, method in (("symmetry", "symmetries"), ("cone", "reads")):
        with pytest.raises(UnsuitableWorldError, match=rf"leave {reduce} out.*method {method}"):
            solve(world, exact_params(keep="all", reduce=[reduce]))


def test_assumptions_of_the_caller_are_refused() -> None:
    world = symmetric_world(SHAPE, 0)
    beta = Assumptions(beta_h=lambda states: torch.zeros(len(states), len(world.spec.goals)))
    with pytest.raises(SolveError, match="reduce or beta_h"):
        solve(world, exact_params(keep="all", reduce=["lump"]), beta)


def test_all_elements_of_infinite_rationality_are_fine() -> None:
    compare(symmetric_world(SHAPE, 3), CompleteTheory(beta_h="inf"), ["symmetry", "lump"])
