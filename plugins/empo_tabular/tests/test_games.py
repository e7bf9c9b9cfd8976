"""The paper's toy games have the values that the paper derives for them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from empo_tabular.plugin import TableParams
from empo_tabular.table import Table
from empo_tabular.world import read_table, world_of
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference
from empo_worlds.enumeration import EnumeratedWorld


def shipped(name: str) -> Table:
    """One of the tables of this package."""
    return read_table(TableParams.library / f"{name}.yaml")


def theory_of(beta_h: float = math.inf, **symbols: Any) -> CompleteTheory:
    """Neutral symbols, sums over humans, and humans that choose the best."""
    rational = "inf" if math.isinf(beta_h) else beta_h
    return CompleteTheory(**{"beta_h": rational, "beta_r": 1.0, "u_agg": "sum", **symbols})


class Solved:
    """A game with its values, looked up by the names of its states."""

    def __init__(self, table: Table, theory: CompleteTheory, max_steps: int | None = None) -> None:
        self.world: EnumeratedWorld = world_of(table, max_steps)
        self._reference = Reference(self.world, theory)
        horizon = self.world.spec.horizon
        assert horizon is not None
        self._horizon = horizon

    def numbers(self, field: str, state: str, steps_left: int | None = None) -> list[float]:
        row = (self.world.index_of(state),)
        value = getattr(self._reference.at(row, steps_left or self._horizon), field)
        return list(value.values()) if isinstance(value, dict) else [value]

    def number(self, field: str, state: str, steps_left: int | None = None) -> float:
        (number,) = self.numbers(field, state, steps_left)
        return number


@pytest.mark.parametrize(("beta", "zeta"), [(1.0, 2.0), (2.0, 2.0), (1.0, 1.5), (1.5, 3.0)])
def test_the_best_menu_is_as_large_as_the_paper_says(beta: float, zeta: float) -> None:
    options = 8
    game = Solved(shipped("menu_size"), theory_of(beta_h=beta, zeta=zeta))
    power = [game.number("x_h", f"menu_{k}", 1) for k in range(1, options + 1)]
    closed = [
        k * (math.exp(beta) / (math.exp(beta) + k - 1)) ** zeta for k in range(1, options + 1)
    ]
    assert power == pytest.approx(closed, rel=1e-12)
    best = 1 + power.index(max(power))
    assert abs(best - (math.exp(beta) - 1) / (zeta - 1)) < 1
    # The robot, looking one step ahead, likes that menu best.
    q_r = game.numbers("q_r", "start")
    assert 1 + q_r.index(max(q_r)) == best


@pytest.mark.parametrize(("gamma", "zeta"), [(0.99, 2.0), (0.9, 1.0)])
def test_confirmations_have_the_power_the_paper_says(gamma: float, zeta: float) -> None:
    error = 0.1
    game = Solved(shipped("confirmation"), theory_of(gamma_h=gamma, zeta=zeta))
    bits = []
    for k in range(1, 6):
        retry = 1 - (1 - error) ** k - error**k
        assert game.numbers("v_e", f"asking_{k}") == pytest.approx(
            [(1 - error) ** k / (1 - gamma**k * retry)] * 2, rel=1e-12
        )
        bits.append(math.log2(game.number("x_h", f"asking_{k}")))
        closed = 1 + zeta * k * math.log2(1 - error) - zeta * math.log2(1 - gamma**k * retry)
        assert bits[-1] == pytest.approx(closed, rel=1e-11)
    if gamma == 0.99:
        assert 1 + bits.index(max(bits)) == 3


@pytest.mark.parametrize(
    ("beta", "zeta"), list(itertools.product([0.5, 3.0, math.inf], [1.0, 2.0]))
)
def test_a_commitment_empowers(beta: float, zeta: float) -> None:
    game = Solved(shipped("commitment"), theory_of(beta_h=beta, zeta=zeta, beta_r=7.0))
    right = 1 / (1 + math.exp(-beta))
    free, bound, doing = (game.number("x_h", s, 2) for s in ("free", "bound", "doing_a"))
    assert free == pytest.approx(2 ** (1 - zeta), rel=1e-12)
    assert bound == pytest.approx(2 * right**zeta, rel=1e-12)
    assert bound > 2 * 2**-zeta
    assert doing == 1
    passing, commits, does_a = game.numbers("pi_r", "start")  # To do B is not available.
    assert commits > passing
    assert (commits > does_a) == (bound > 1 + 1e-12)


@pytest.mark.parametrize(("zeta", "xi", "eta"), [(1.0, 1.0, 1.0), (2.0, 1.5, 1.1), (0.5, 0.5, 2)])
def test_deceiving_a_prisoner_is_worse_than_informing_both(
    zeta: float, xi: float, eta: float
) -> None:
    game = Solved(shipped("belief"), theory_of(zeta=zeta, xi=xi, eta=eta))
    cd, dd = game.number("u_r", "deceived", 1), game.number("u_r", "informed", 1)
    assert cd == pytest.approx(-((1 + (1 / 3) ** (-zeta * xi)) ** eta), rel=1e-12)
    assert dd == pytest.approx(-((2 * (3 / 4) ** (-zeta * xi)) ** eta), rel=1e-12)
    informing, deceiving = game.numbers("q_r", "start")
    assert (informing > deceiving) == (dd > cd)
    assert informing > deceiving


@pytest.mark.parametrize(
    "xi", [1.5, *(pytest.param(xi, marks=pytest.mark.slow) for xi in (3.0, 5.0))]
)
def test_the_coma_pill_is_given_exactly_when_the_paper_says(xi: float) -> None:
    x, v, p, gamma, eta = 2, 2, 0.01, 0.8, 1.1
    theory = theory_of(gamma_h=0.7, gamma_r=gamma, zeta=2.0, xi=xi, eta=eta)
    game = Solved(shipped("coma_pill"), theory, max_steps=160)
    a = -xi * eta
    assert game.numbers("x_h", "dosed_1") == [x + v]
    assert game.numbers("x_h", "coma_1") == [1]
    well, dosed = game.number("v_r", "well_1"), game.number("v_r", "dosed_1")
    assert well == pytest.approx(-(x**a) / (1 - gamma), rel=1e-12)
    coma = -1 / (1 - gamma)
    stays = 1 - (1 - p) * gamma
    assert dosed == pytest.approx((-((x + v) ** a) + p * gamma * coma) / stays, rel=1e-12)
    waiting, giving = game.numbers("q_r", "start")
    gain = (x**a - (x + v) ** a) / (1 - (x + v) ** a)
    assert (giving > waiting) == (gain > p * gamma / stays) == (xi < 5)


def chain_value(
    power: Mapping[str, float],
    drift: Mapping[str, Mapping[str, float]],
    gamma: float,
    alpha: float,
) -> dict[str, float]:
    """Long-term value of each mode of a chain of power levels."""
    modes = list(power)
    step = torch.zeros(len(modes), len(modes), dtype=torch.float64)
    for mode, row in drift.items():
        for after, p in row.items():
            step[modes.index(mode), modes.index(after)] += p
    reward = -(torch.tensor([power[mode] for mode in modes], dtype=torch.float64) ** alpha)
    value = torch.linalg.solve(torch.eye(len(modes), dtype=torch.float64) - gamma * step, reward)
    return dict(zip(modes, value.tolist(), strict=True))


def one_button(
    x: float, y: float, p: float, q: float, gamma: float, a: float
) -> tuple[float, float]:
    """Values of having no button and of having the destroy button, in closed form."""
    end_low, end_high = -(x**a) / (1 - gamma), -(y**a) / (1 - gamma)
    none = (-(x**a) + gamma * p * end_high) / (1 - gamma * (1 - p))
    high = (-((y + 1) ** a) + gamma * q * end_high) / (1 - gamma * (1 - q))
    after_up = (1 - q) * high + q * end_high
    low = -((x + 1) ** a) + gamma * (p * after_up + (1 - p) * q * end_low)
    return none, low / (1 - gamma * (1 - p) * (1 - q))


def test_pause_and_destroy_buttons_have_the_value_of_their_chain() -> None:
    x, y, p, q = 1, 4, 0.1, 0.1
    gamma, alpha = 0.5, -1.0
    # Only a human who cares for nothing but the next step has exactly x options.
    theory = theory_of(gamma_h=1e-14, gamma_r=gamma, zeta=1.7)
    game = Solved(shipped("pause_destroy"), theory, max_steps=50)  # The rest is below 1e-15.
    none, destroy = one_button(x, y, p, q, gamma, alpha)
    assert game.number("v_r", "low_none_1") == pytest.approx(none, rel=1e-12)
    assert game.number("v_r", "low_destroy_1") == pytest.approx(destroy, rel=1e-12)
    pause = (1 - q) * q
    ends = {"d": q, "p": pause, "b": 1 - q - pause}
    both = chain_value(
        {"lb": x + 2, "lp": x + 2, "ld": x, "hb": y + 2, "hp": y + 2, "hd": y},
        {
            "lb": {f"{s}{e}": c * w for s, c in (("l", 1 - p), ("h", p)) for e, w in ends.items()},
            "hb": {f"h{e}": w for e, w in ends.items()},
            **{"lp": {"lb": 1.0}, "hp": {"hb": 1.0}, "ld": {"ld": 1.0}, "hd": {"hd": 1.0}},
        },
        gamma,
        alpha,
    )["lb"]
    assert game.number("v_r", "low_both_1") == pytest.approx(both, rel=1e-12)
    q_r = game.numbers("q_r", "start")
    assert q_r == pytest.approx([gamma * value for value in (none, destroy, both)], rel=1e-12)
    assert [game.number("x_h", s) for s in ("low_none_1", "low_destroy_1", "low_both_1")] == [
        pytest.approx(n) for n in (x, x + 1, x + 2)
    ]


def test_the_robot_stops_leaving_the_destroy_button_at_a_power_of_about_one() -> None:
    low, high = 0.5, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        none, destroy = one_button(middle, 100, 0.01, 0.01, 0.99, -1.0)
        low, high = (middle, high) if destroy > none else (low, middle)
    assert low == pytest.approx(1.07, abs=0.005)


def splitting(success: Sequence[float]) -> Table:
    """The shipped split of a resource with other chances of success."""
    table = shipped("resource_split")
    units = len(success) - 1
    rules = []
    for rule in table.transitions:
        if rule.state[0].startswith("split_"):
            k = int(rule.state[0].removeprefix("split_"))
            first, second = success[k], success[units - k]
            chances = {
                "both": first * second,
                "only_1": first * (1 - second),
                "only_2": (1 - first) * second,
                "neither": (1 - first) * (1 - second),
            }
            rule = rule.model_copy(update={"to": chances})
        rules.append(rule)
    return table.model_copy(update={"transitions": rules})


def split_is(success: Sequence[float], theory: CompleteTheory) -> tuple[list[int], list[int]]:
    """The best and the worst numbers of units for human 1."""
    q_r = Solved(splitting(success), theory).numbers("q_r", "start")
    near = 1e-12 * abs(min(q_r))
    best = [k for k, q in enumerate(q_r) if q > max(q_r) - near]
    return best, [k for k, q in enumerate(q_r) if q < min(q_r) + near]


@pytest.mark.parametrize(("zeta", "xi", "eta"), [(1.0, 1.0, 1.0), (2.0, 1.5, 1.1)])
def test_a_resource_is_split_equally_exactly_when_its_power_is_concave(
    zeta: float, xi: float, eta: float
) -> None:
    theory = theory_of(zeta=zeta, xi=xi, eta=eta)
    for bend, expected in [
        (0.5, ([2], [0, 4])),
        (2.0, ([0, 4], [2])),
        (1.0, ([0, 1, 2, 3, 4],) * 2),
    ]:
        # The contribution -success^(-zeta xi) = -5 + 4 (k / 4)^bend is concave for bend < 1.
        success = [(5 - 4 * (k / 4) ** bend) ** (-1 / (zeta * xi)) for k in range(5)]
        assert split_is(success, theory) == expected
    assert splitting([0.25, 0.5, 2 / 3, 0.75, 0.8]).transitions[5].to == pytest.approx(
        shipped("resource_split").transitions[5].to
    )
    assert split_is([0.25, 0.5, 2 / 3, 0.75, 0.8], theory)[0] == [2]
