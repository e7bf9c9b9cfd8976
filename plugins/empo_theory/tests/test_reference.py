"""The plain equations and those on tensors say the same; and closed forms of a small world."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

from empo_core.types import Goal
from empo_testing.worlds import TinyWorld
from empo_theory.equations import human_power, robot_policy, robot_reward
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference, Values

THEORIES: list[dict[str, Any]] = [
    {
        **{"beta_h": 3.0, "gamma_h": 0.9, "gamma_r": 0.8, "beta_r": 3.0},
        **{"zeta": 2.0, "xi": 1.5, "eta": 1.1},
    },
    {"beta_h": "inf", "robot_model": "optimistic", "x_agg": "sum", "u_agg": "sum", "nu": 0.25},
]


class Door(TinyWorld):
    """``TinyWorld`` with goals that leave nobody helpless."""

    def __init__(self) -> None:
        super().__init__(horizon=4)
        names = [(0, "shut", 1.0), (0, "inside", 0.25), (0, "not shut", 1.0)]
        names += [(2, "shut", 0.5), (2, "not shut", 2.0)]
        goals = tuple(Goal(human=h, name=name, weight=weight) for h, name, weight in names)
        self.spec = dataclasses.replace(self.spec, goals=goals)
        shut, ajar, inside = (1, 0, 0, 1, 0), (0, 0, 1, 0, 1), (0, 1, 1, 0, 1)
        self._achieved = torch.tensor([shut, ajar, inside]).bool()


def solved(theory: dict[str, Any], steps_left: int) -> Values:
    world = Door()
    start = tuple(world.initial_state().tolist())
    return Reference(world, CompleteTheory(**theory)).at(start, steps_left)


@pytest.mark.parametrize("theory", THEORIES)
def test_policies_sum_to_one_and_values_are_chances(theory: dict[str, Any]) -> None:
    values = solved(theory, 4)
    for policy in (*values.pi_h.values(), values.pi_r):
        assert math.fsum(policy.values()) == pytest.approx(1.0, abs=1e-15)
    assert all(0 <= value <= 1 for value in (*values.v_m.values(), *values.v_e.values()))
    assert values.v_r < values.u_r < 0


@pytest.mark.parametrize("theory", THEORIES)
def test_what_humans_hope_for_does_not_depend_on_how_robots_act(theory: dict[str, Any]) -> None:
    world, params = Door(), CompleteTheory(**theory)
    start = tuple(world.initial_state().tolist())

    class Second:
        """Robots that always take the last of their joint actions."""

        def policy(self, states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
            policy = torch.zeros(len(states), world.spec.num_robot_actions, dtype=torch.float64)
            policy[:, -1] = 1.0
            return policy

    given = Reference(world, params, robots=Second()).at(start, 4)
    values = solved(theory, 4)
    assert (given.v_m, given.pi_h) == (values.v_m, values.pi_h)


@pytest.mark.parametrize("theory", THEORIES)
def test_equations_on_tensors_agree(theory: dict[str, Any]) -> None:
    values, spec, params = solved(theory, 4), Door().spec, CompleteTheory(**theory)
    q_r = torch.tensor(list(values.q_r.values()), dtype=torch.float64)
    pi_r = robot_policy(q_r, params.beta_r, torch.ones(len(q_r), dtype=torch.bool))
    assert pi_r.tolist() == pytest.approx(list(values.pi_r.values()), rel=1e-12)
    for h in spec.humans:
        v_e = torch.tensor([values.v_e[g] for g in spec.goals_of(h)], dtype=torch.float64)
        weight = torch.tensor([spec.goals[g].weight for g in spec.goals_of(h)]).double()
        power = human_power(v_e, weight, params.zeta, params.x_agg)
        assert float(power) == pytest.approx(values.x_h[h], rel=1e-12)
    x_h = torch.tensor(list(values.x_h.values()), dtype=torch.float64)
    u_r = robot_reward(x_h, params.xi, params.eta, params.u_agg)
    assert float(u_r) == pytest.approx(values.u_r, rel=1e-12)


def test_nobody_attains_anything_when_time_is_over() -> None:
    values = solved({}, 0)
    assert set(values.v_m.values()) == set(values.v_e.values()) == {0.0}
    assert values.v_r == CompleteTheory().terminal_value


def test_more_time_is_never_worse_for_humans_that_are_not_discounted() -> None:
    fewer, more = (solved({"beta_h": "inf"}, steps) for steps in (2, 4))
    assert all(more.v_m[g] >= fewer.v_m[g] - 1e-12 for g in fewer.v_m)


class Acting:
    """Policies that a reference has computed, of the robots or of the humans."""

    def __init__(self, reference: Reference, name: str) -> None:
        self._reference, self._name, self._spec = reference, name, Door().spec

    def policy(self, states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
        moments = zip(states.tolist(), steps_left.tolist(), strict=True)
        found = [self._reference.at(tuple(state), left) for state, left in moments]
        spec, (robot,) = self._spec, self._spec.robots
        if self._name == "pi_r":
            shares = [spec.strides[robot] * a for a in range(spec.num_robot_actions)]
            return torch.tensor([[one.pi_r.get(a, 0.0) for a in shares] for one in found])
        actions, goals = range(max(spec.num_actions)), range(len(spec.goals))
        return torch.tensor(
            [[[one.pi_h[g].get(a, 0.0) for a in actions] for g in goals] for one in found]
        )


def test_given_policies_have_the_values_of_computed_ones() -> None:
    theory, start = CompleteTheory(**THEORIES[0]), tuple(Door().initial_state().tolist())
    computed = Reference(Door(), theory)
    prior, robots = Acting(computed, "pi_h"), Acting(computed, "pi_r")
    values = Reference(Door(), theory, prior, robots=robots).at(start, 4)
    right = computed.at(start, 4)
    assert values.v_r == pytest.approx(right.v_r, rel=1e-6)  # Policies are in single precision.
    for name in ("v_e", "x_h", "q_r", "pi_r"):
        assert getattr(values, name) == pytest.approx(getattr(right, name), rel=1e-6)


def test_better_values_later_and_more_power_make_everything_better() -> None:
    theory, start = CompleteTheory(**THEORIES[0]), tuple(Door().initial_state().tolist())
    computed = Reference(Door(), theory)
    prior, robots = Acting(computed, "pi_h"), Acting(computed, "pi_r")

    def bound(v_e: float, v_r: float, min_power: float = 0.0) -> Values:
        """Values with a step left, where those without one are known for certain states."""
        goals = dict.fromkeys(range(len(Door().spec.goals)), v_e)
        later = Values({}, {}, goals, {}, 0.0, {}, {}, v_r)
        boundary = {(state, 3): later for state in ((0, 0), (1, 0))}
        return Reference(
            Door(), theory, prior, robots=robots, boundary=boundary, min_power=min_power
        ).at(start, 4)

    worst, floor, best = bound(0.0, -9.0), bound(0.0, -9.0, 0.9), bound(1.0, -1.0)
    assert worst.v_r < floor.v_r < best.v_r
    assert all(worst.v_e[g] <= computed.at(start, 4).v_e[g] <= best.v_e[g] for g in best.v_e)
    assert worst.x_h == floor.x_h
