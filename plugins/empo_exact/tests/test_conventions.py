"""Effects of the conventions on values and policies, and invariance under renaming."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from comparison import exact_params, theories
from hypothesis import given, settings
from hypothesis import strategies as st
from random_games import (
    Shape,
    Table,
    TableWorld,
    permute_agents,
    permute_goals,
    permute_states,
    random_table,
    scale_weights,
    tables,
)

from empo_exact.plugin import Compute, ExactParams, PriorParams
from empo_exact.result import StateValues
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory, HumanTheory
from empo_worlds.queries import is_terminal

QUICK = settings(max_examples=30)
SEEDS = st.integers(0, 2**32 - 1)
MODERATE = {
    "beta_h": 5.0,
    "gamma_h": 0.95,
    "gamma_r": 0.99,
    "beta_r": 5.0,
    "zeta": 2.0,
    "eta": 1.1,
}


def root(table: Table, params: ExactParams) -> StateValues:
    world = TableWorld(table)
    # Worker processes would take most of the time.
    alone = params.model_copy(update={"compute": Compute(workers=1)})
    return solve(world, alone).at(world.initial_state())


def close(actual: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-11, atol=0)


def moderate(params: CompleteTheory) -> ExactParams:
    """Perfect rationality breaks ties by the last digit, which renaming may change."""
    beta_h = 20.0 if params.beta_h == "inf" else params.beta_h
    moderate = {"beta_h": beta_h, "beta_r": min(params.beta_r, 5.0)}
    return exact_params(params.model_copy(update=moderate))


@QUICK
@given(table=tables(), params=theories(), seed=SEEDS)
def test_renaming_states_changes_nothing(table: Table, params: CompleteTheory, seed: int) -> None:
    order = random.Random(seed).sample(range(len(table.outcomes)), len(table.outcomes))
    before = root(table, moderate(params))
    after = root(permute_states(table, order), moderate(params))
    assert bool(before.terminal) == bool(after.terminal)
    close(after.V_r, before.V_r)
    close(after.V_m, before.V_m)
    close(after.V_e, before.V_e)
    if not before.terminal:
        close(after.pi_r, before.pi_r)


@QUICK
@given(table=tables(), params=theories(), seed=SEEDS)
def test_reordering_goals_reorders_their_values(
    table: Table, params: CompleteTheory, seed: int
) -> None:
    order = random.Random(seed).sample(range(len(table.goals)), len(table.goals))
    before = root(table, moderate(params))
    after = root(permute_goals(table, order), moderate(params))
    close(after.V_r, before.V_r)
    close(after.V_m, np.asarray(before.V_m)[order])
    close(after.V_e, np.asarray(before.V_e)[order])


@QUICK
@given(table=tables(), params=theories(), seed=SEEDS)
def test_reordering_agents_reorders_their_actions(
    table: Table, params: CompleteTheory, seed: int
) -> None:
    order = random.Random(seed).sample(range(len(table.roles)), len(table.roles))
    before = root(table, moderate(params))
    after = root(permute_agents(table, order), moderate(params))
    close(after.V_r, before.V_r)
    close(after.V_m, before.V_m)
    close(after.V_e, before.V_e)
    if before.terminal:
        return
    for new, old in enumerate(order):
        if table.roles[old] == "human":
            close(after.X_h[new], before.X_h[old])
    robots = [agent for agent, role in enumerate(table.roles) if role == "robot"]
    # As an array with robot 0 as the last axis, which is the fastest in the joint index.
    before_axes = np.reshape(before.pi_r, [table.num_actions[r] for r in reversed(robots)])
    moved = [old for old in order if old in robots]
    axes = [len(robots) - 1 - robots.index(old) for old in reversed(moved)]
    close(np.reshape(after.pi_r, -1), np.transpose(before_axes, axes).reshape(-1))


@QUICK
@given(table=tables(), factor=st.sampled_from([1e-3, 0.5, 7.0]), params=theories())
def test_scaling_all_goal_weights_scales_values_and_leaves_the_policy(
    table: Table, factor: float, params: CompleteTheory
) -> None:
    params = params.model_copy(update={"x_agg": "weighted"})
    before = root(table, moderate(params))
    # U_r scales by this factor; the terminal value is the only other source of value.
    scale = factor ** (-params.xi * params.eta)
    scaled = params.model_copy(update={"terminal_value": params.terminal_value * scale})
    after = root(scale_weights(table, factor), moderate(scaled))
    close(after.V_r, before.V_r * scale)
    close(after.V_e, before.V_e)
    if not before.terminal:
        close(after.Q_r, np.asarray(before.Q_r) * scale)
        close(after.pi_r, before.pi_r)


def uniform_game(seed: int) -> Table:
    """Two humans with three equally weighted goals each, and a robot; three steps."""
    roles = ("human", "robot", "human")
    table = random_table(Shape(6, roles, (3, 3, 2), 3, timed=False, masked=False), seed)
    rng = random.Random(seed)
    everything = frozenset(range(6))
    goals = []
    for human in (0, 2):
        some = [frozenset(s for s in everything if rng.random() < 0.5) for _ in range(2)]
        goals += [(human, 1 / 3, members) for members in (everything, *some)]
    return replace(table, goals=tuple(goals))


@pytest.mark.parametrize("seed", range(10))
def test_sums_and_means_give_the_same_robot_policy(seed: int) -> None:
    table = uniform_game(seed)
    first, *others = (
        root(
            table,
            ExactParams(
                theory=CompleteTheory(**MODERATE, terminal_value=-1e-300, x_agg=x_agg, u_agg=u_agg)
            ),
        )
        for x_agg in ("weighted", "sum")
        for u_agg in ("mean", "sum")
    )
    for other in others:
        close(other.pi_r, first.pi_r)
        assert other.V_r != pytest.approx(first.V_r)


def test_a_sum_over_goals_is_the_weighted_sum_with_weights_one() -> None:
    table = uniform_game(3)
    summed = root(table, ExactParams(theory=CompleteTheory(**MODERATE, x_agg="sum")))
    weighted = root(
        scale_weights(table, 3.0), ExactParams(theory=CompleteTheory(**MODERATE, x_agg="weighted"))
    )
    close(summed.V_r, weighted.V_r)


def test_continuous_accrual_rescales_rewards_of_unit_transitions() -> None:
    table = uniform_game(4)
    discrete = ExactParams(
        theory=CompleteTheory(**MODERATE, terminal_value=-1e-300, accrual="discrete")
    )
    continuous = ExactParams(theory=discrete.theory.model_copy(update={"accrual": "continuous"}))
    before, after = root(table, discrete), root(table, continuous)
    close(after.V_r, before.V_r * (1 - 0.99) / -math.log(0.99))
    close(after.pi_r, before.pi_r)


def test_a_robot_with_beta_0_is_uniform_over_what_it_can_do() -> None:
    shape = Shape(6, ("robot", "human"), (3, 2), 3, timed=False, masked=True)
    world = TableWorld(random_table(shape, 5))
    params = ExactParams(theory=CompleteTheory(beta_r=0.0), compute=Compute(workers=1))
    result = solve(world, params)
    for time in range(3):
        for index in result.reachable(time):
            state = torch.from_numpy(result.graph.states[index])[None]
            if not is_terminal(world, state):
                allowed = world.available(state)[0, 0].numpy()
                close(result.at(int(index), time).pi_r, allowed / allowed.sum())


def test_a_robot_with_a_large_beta_takes_the_best_action() -> None:
    values = root(
        uniform_game(6), ExactParams(theory=CompleteTheory(**{**MODERATE, "beta_r": 1e4}))
    )
    assert int(np.argmax(values.pi_r)) == int(np.argmax(values.Q_r))
    assert np.isfinite(values.pi_r).all()
    assert float(np.sum(values.pi_r)) == pytest.approx(1.0, rel=1e-14)


def test_presets_are_short_for_their_symbols() -> None:
    table = uniform_game(7)
    neutral = ExactParams(
        preset="neutral", theory=CompleteTheory(beta_h=3.0, gamma_h=1.0, gamma_r=1.0, beta_r=2.0)
    )
    plain = ExactParams(
        theory=CompleteTheory(
            beta_h=3.0, gamma_h=1.0, gamma_r=1.0, beta_r=2.0, zeta=1.0, xi=1.0, eta=1.0
        )
    )
    assert (neutral.theory.zeta, neutral.theory.xi, neutral.theory.eta) == (1.0, 1.0, 1.0)
    close(root(table, neutral).U_r, root(table, plain).U_r)
    paper = ExactParams(preset="paper").theory
    assert (paper.zeta, paper.xi, paper.eta, paper.gamma_h, paper.beta_r) == (2, 1, 1.1, 0.99, 5)
    assert (paper.x_agg, paper.u_agg, paper.accrual) == ("sum", "sum", "discrete")
    reference = ExactParams(preset="reference").theory
    assert (reference.beta_h, reference.beta_r, reference.gamma_r) == (10, 10, 1)
    assert (reference.x_agg, reference.u_agg, reference.accrual) == (
        "weighted",
        "mean",
        "continuous",
    )
    assert ExactParams(preset="reference", theory=CompleteTheory(beta_r=3.0)).theory.beta_r == 3.0
    # A prior has the symbols of Phase 1 only.
    assert PriorParams(preset="paper", theory={"nu": 0.5}).theory == HumanTheory(
        beta_h=5.0, gamma_h=0.99, nu=0.5
    )
