"""The exact solver reproduces what the paper derives by hand for its toy games."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult, StateValues
from empo_exact.solve import solve
from empo_tabular.plugin import TableParams
from empo_tabular.table import Table
from empo_tabular.world import read_table, world_of
from empo_theory.parameters import CompleteTheory
from empo_worlds.enumeration import EnumeratedWorld

ALIKE = {"x_agg": "sum", "u_agg": "sum", "accrual": "discrete", "terminal_value": -1e-300}


def shipped(name: str) -> Table:
    """One of the paper's games."""
    return read_table(TableParams.library / f"{name}.yaml")


class Solved:
    """A solved game whose states go by their names."""

    def __init__(self, table: Table, max_steps: int | None = None, **theory: Any) -> None:
        self.world: EnumeratedWorld = world_of(table, max_steps)
        self.result: ExactResult = solve(
            self.world, ExactParams(theory=CompleteTheory(**ALIKE, **theory))
        )

    def at(self, name: str, time: int) -> StateValues:
        return self.result.at((self.world.index_of(name),), time)


@pytest.mark.parametrize(("beta", "zeta"), [(1.0, 2.0), (2.0, 2.0), (1.0, 1.5), (1.5, 3.0)])
def test_the_best_menu_has_about_as_many_options_as_the_paper_says(
    beta: float, zeta: float
) -> None:
    sizes = np.arange(1, 9)
    game = Solved(shipped("menu_size"), beta_h=beta, zeta=zeta, beta_r=300.0)
    power = np.array([game.at(f"menu_{k}", 1).X_h[0] for k in sizes])
    np.testing.assert_allclose(
        power, sizes * (math.exp(beta) / (math.exp(beta) + sizes - 1)) ** zeta, rtol=1e-12
    )
    best = int(power.argmax())
    assert abs(sizes[best] - (math.exp(beta) - 1) / (zeta - 1)) < 1
    assert int(np.argmax(game.at("start", 0).pi_r)) == best


def test_three_confirmations_are_best_at_an_error_rate_of_a_tenth() -> None:
    gamma, error, zeta = 0.99, 0.1, 2.0
    game = Solved(shipped("confirmation"), beta_h="inf", gamma_h=gamma, zeta=zeta, beta_r=300.0)
    bits = []
    for k in range(1, 6):
        p = (1 - error) ** k
        q = 1 - p - error**k
        found = math.log2(game.at(f"asking_{k}", 1).X_h[0])
        # What pays 1 at once is discounted only while the robot asks again.
        closed = 1 + zeta * math.log2(p) - zeta * math.log2(1 - gamma**k * q)
        assert found == pytest.approx(closed, rel=1e-9)
        bits.append(found)
    assert 1 + bits.index(max(bits)) == 3


@pytest.mark.parametrize(("beta", "zeta"), [(0.5, 1.5), (2.0, 2.0), (8.0, 3.0)])
def test_commitment_empowers_and_just_acting_leaves_one_option(beta: float, zeta: float) -> None:
    game = Solved(shipped("commitment"), beta_h=beta, zeta=zeta)
    free, bound, doing = (game.at(name, 1).X_h[0] for name in ("free", "bound", "doing_a"))
    assert free == pytest.approx(2 ** (1 - zeta), rel=1e-12)
    assert bound == pytest.approx(2 * (1 + math.exp(-beta)) ** -zeta, rel=1e-12)
    assert bound > free
    assert doing == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(("zeta", "xi", "eta"), [(1.0, 1.0, 1.0), (2.0, 1.0, 1.1), (1.5, 2.0, 1.3)])
def test_informed_prisoners_are_better_off_than_a_deceived_one(
    zeta: float, xi: float, eta: float
) -> None:
    game = Solved(shipped("belief"), beta_h="inf", zeta=zeta, xi=xi, eta=eta, beta_r=50.0)
    informed, deceived = game.at("informed", 1).U_r, game.at("deceived", 1).U_r
    assert informed == pytest.approx(-((2 * 0.75 ** (-zeta * xi)) ** eta), rel=1e-12)
    assert deceived == pytest.approx(-((1 + (1 / 3) ** (-zeta * xi)) ** eta), rel=1e-12)
    assert informed > deceived
    assert int(np.argmax(game.at("start", 0).pi_r)) == 0


@pytest.mark.parametrize("xi", [1.5, 3.0, 5.0])
def test_the_coma_pill_is_given_exactly_when_the_paper_says(xi: float) -> None:
    x, v, p, gamma, eta = 2, 2, 0.01, 0.8, 1.1
    theory = {"gamma_h": 0.7, "gamma_r": gamma, "zeta": 2.0, "xi": xi, "eta": eta}
    game = Solved(shipped("coma_pill"), 160, beta_h="inf", **theory)
    waiting, giving = game.at("start", 0).Q_r
    alpha = -xi * eta
    gain = (x**alpha - (x + v) ** alpha) / (1 - (x + v) ** alpha)
    assert (giving > waiting) == (gain > p * gamma / (1 - (1 - p) * gamma)) == (xi < 5)
    # Each waits one step at the start, whose reward is the same for both.
    assert waiting == pytest.approx(-gamma * x**alpha / (1 - gamma), rel=1e-12)


def test_a_destroy_button_has_the_value_of_its_chain() -> None:
    x, y, p, q = 1, 4, 0.1, 0.1
    gamma = 0.8
    # Only a human who cares for nothing but the next step has exactly x options.
    game = Solved(
        shipped("pause_destroy"), 160, gamma_h=1e-14, gamma_r=gamma, zeta=1.7, beta_h="inf"
    )
    end_low, end_high = -1 / x / (1 - gamma), -1 / y / (1 - gamma)
    none = (-1 / x + gamma * p * end_high) / (1 - gamma * (1 - p))
    high = (-1 / (y + 1) + gamma * q * end_high) / (1 - gamma * (1 - q))
    up = p * ((1 - q) * high + q * end_high)
    low = -1 / (x + 1) + gamma * (up + (1 - p) * q * end_low)
    destroy = low / (1 - gamma * (1 - p) * (1 - q))
    found = game.at("start", 0).Q_r
    assert found[:2].tolist() == pytest.approx([gamma * none, gamma * destroy], rel=1e-12)
    powers = [game.at(f"low_{button}_1", 1).X_h[0] for button in ("none", "destroy", "both")]
    assert powers == pytest.approx([x, x + 1, x + 2], rel=1e-12)


@pytest.mark.parametrize(("zeta", "xi"), [(1.0, 1.0), (2.0, 1.5)])
def test_a_resource_whose_power_is_concave_is_split_equally(zeta: float, xi: float) -> None:
    q_r = Solved(shipped("resource_split"), zeta=zeta, xi=xi, eta=1.1).at("start", 0).Q_r
    assert np.flatnonzero(q_r > q_r.max() * (1 + 1e-12)).tolist() == [2]
