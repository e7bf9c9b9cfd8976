"""Presence, risk, failing robots and humans that do not count: against the reference, and by hand.

The reference follows the same recursion one state at a time; what enumerates trajectories does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from comparison import exact_params, fair_theories, largest_errors
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_games import Shape, Table, TableWorld, random_table, tables

from empo_exact.chain import marginals
from empo_exact.result import ExactResult
from empo_exact.solution import Solution
from empo_exact.solve import solve, solve_alone
from empo_theory.bits import aggregate_power
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference

RATES = st.sampled_from([0.0, 0.0, 0.125, 0.9, 1.0])
QUICK, ALL = 25, 300
"""Random games of a property, in the quick suite and in the slow one."""


def holds_for(**strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """Turn a property into a test of it, for a few random games or for 300."""

    def as_test(rule: Callable[..., None]) -> Callable[[int], None]:
        @pytest.mark.parametrize("games", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)])
        def test(games: int) -> None:
            chosen = settings(max_examples=games, suppress_health_check=[HealthCheck.too_slow])
            chosen(given(**strategies)(rule))()

        test.__name__ = rule.__name__
        return test

    return as_test


def failing_table(table: Table) -> Table:
    """The same game where the first action of each robot is always available."""
    robots = [agent for agent, role in enumerate(table.roles) if role == "robot"]
    outcomes = []
    for found in table.outcomes:
        added = dict(found)
        for profile, items in found.items():
            null = tuple(0 if agent in robots else a for agent, a in enumerate(profile))
            added.setdefault(null, items)
        # What is available is a product over agents.
        actions = [
            sorted({profile[agent] for profile in added}) for agent in range(len(table.roles))
        ]
        some = next(iter(added.values()), ())
        outcomes.append(
            {p: added.get(p, some) for p in itertools.product(*actions)} if added else {}
        )
    return Table(**{**vars(table), "outcomes": tuple(outcomes)})


@holds_for(table=tables(), theory=fair_theories(), rate=RATES, data=st.data())
def test_fair_games_are_solved_to_twelve_digits(
    table: Table, theory: CompleteTheory, rate: float, data: st.DataObject
) -> None:
    rate = rate if "robot" in table.roles else 0.0
    world = TableWorld(failing_table(table))
    counts = data.draw(st.sampled_from([None, world.spec.humans[:1]]))
    names = None if counts is None else [world.spec.agents[human].name for human in counts]
    params = exact_params(theory, defunct={"rate": rate}, counts=names)
    reference = Reference(world, theory, rate=rate, counts=counts)
    errors = largest_errors(solve(world, params), reference)
    allowed = 1e-12 * max(1.0, theory.beta_r * theory.rho / 10.0)
    for name, error in errors.items():
        assert error <= (1e-12 if name in ("V_m", "pi_h") else allowed), name


class Walk:
    """All trajectories of a solved game, one by one, from the policies alone."""

    def __init__(self, result: ExactResult, table: Table) -> None:
        self.result, self.table, self.theory = result, table, result.params.theory
        self.world: Any = result.problem.world
        self.rate = result.params.defunct.rate

    def costs(self, state: int, time: int, *, works: bool = True) -> Iterator[tuple[float, float]]:
        """Probability and the robot's discounted cost of each trajectory from a state on."""
        solution, number = self._layer(works), self._number(state)
        here, theory = solution.at(number, time), self.theory
        left = None if self.table.horizon is None else self.table.horizon - time
        if here.terminal:
            steps = 1.0
            if theory.early_end == "absorb" and left is not None:
                steps = math.fsum(theory.gamma_r**step for step in range(left + 1))
            end = -here.U_r * steps * self._accrual(1.0)
            yield 1.0, end if theory.counting == "presence" else -theory.terminal_value
            return
        for likely, after, duration, still in self._steps(state, time, works, self._mean(works)):
            for later, cost in self.costs(after, self._next(time), works=still):
                accrued = self._accrual(duration) * -here.U_r
                yield likely * later, accrued + theory.gamma_r**duration * cost

    def capability(self, state: int, time: int, goal: int, *, works: bool = True) -> float:
        """E gamma_h^(time until the goal is entered) of the human who pursues it."""
        human, _, members = self.table.goals[goal]
        if state in members:
            return 1.0
        if self._layer(works).at(self._number(state), time).terminal:
            return 0.0
        chosen = self._mean(works) | {human: goal}
        return math.fsum(
            likely
            * self.theory.gamma_h**duration
            * self.capability(after, self._next(time), goal, works=still)
            for likely, after, duration, still in self._steps(state, time, works, chosen)
        )

    def _steps(
        self, state: int, time: int, works: bool, pursued: Mapping[int, int | None]
    ) -> Iterator[tuple[float, int, float, bool]]:
        solution, number = self._layer(works), self._number(state)
        found = solution.policies(time, np.array([number]))
        averages = marginals(solution, found.pi_h)
        for profile, items in self.table.outcomes[state].items():
            likely, robot, stride = 1.0, 0, 1
            for agent, role in enumerate(self.table.roles):
                if role == "human":
                    goal = pursued[agent]
                    h = self.world.spec.humans.index(agent)
                    policy = averages[h][0] if goal is None else found.pi_h[0, goal]
                    likely *= float(policy[profile[agent]])
                elif works:
                    robot += stride * profile[agent]
                    stride *= self.table.num_actions[agent]
                else:
                    likely *= profile[agent] == 0
            likely *= float(found.pi_r[0, robot])
            for prob, after, duration in items if likely else ():
                breaks = 1.0 - (1.0 - self.rate) ** duration if works else 1.0
                if breaks < 1:
                    yield likely * prob * (1.0 - breaks), after, duration, True
                if breaks > 0:
                    yield likely * prob * breaks, after, duration, False

    def _mean(self, works: bool) -> dict[int, int | None]:
        return dict.fromkeys(self.world.spec.humans)

    def _layer(self, works: bool) -> Solution:
        return self.result if works else solve_alone(self.result)

    def _number(self, state: int) -> int:
        return self.result.index(np.array(self.world.row(state)))

    def _next(self, time: int) -> int:
        return time if self.table.horizon is None else time + 1

    def _accrual(self, duration: float) -> float:
        rho = -math.log(self.theory.gamma_r)
        if self.theory.accrual == "discrete":
            return 1.0
        return duration if rho == 0 else -math.expm1(-rho * duration) / rho


@pytest.mark.parametrize("seed", range(50))
def test_moments_and_capabilities_are_means_over_all_trajectories(seed: int) -> None:
    shape = Shape(
        num_states=4,
        roles=("human", "robot") if seed % 3 else ("human", "robot", "human"),
        num_actions=(2, 2) if seed % 3 else (2, 2, 1),
        horizon=None if seed % 5 == 4 else 1 + seed % 3,
        timed=seed % 4 == 1,
        masked=False,
    )
    table = random_table(shape, seed)
    theory = CompleteTheory(
        beta_h=4.0, gamma_h=0.9, gamma_r=0.8, beta_r=2.0, zeta=1.5, eta=1.2,
        counting="presence" if seed % 4 else "arrival", rho=2 + seed % 2,
        early_end="absorb" if seed % 4 == 3 and shape.horizon else "stop",
        accrual="continuous" if seed % 8 in (1, 5) else "discrete",
    )  # fmt: skip
    params = exact_params(theory, defunct={"rate": 0.125 if seed % 2 else 0.0})
    walk = Walk(solve(TableWorld(table), params), table)
    start = walk.result.at(0, 0)
    trajectories = list(walk.costs(table.start, 0))
    assert math.fsum(p for p, _ in trajectories) == pytest.approx(1.0, abs=1e-12)
    for order, norm in enumerate(start.norms, 1):
        mean = math.fsum(p * cost**order for p, cost in trajectories)
        assert norm**order == pytest.approx(mean, rel=1e-12)
    if theory.counting == "presence":
        found = [walk.capability(table.start, 0, goal) for goal in range(len(table.goals))]
        assert start.V_e == pytest.approx(found, rel=1e-12, abs=1e-15)


def solved(table: Table, theory: CompleteTheory, **more: Any) -> ExactResult:
    return solve(TableWorld(table), exact_params(theory, **more))


@holds_for(table=tables(), theory=fair_theories())
def test_norms_rise_with_their_order_and_moments_are_log_convex(
    table: Table, theory: CompleteTheory
) -> None:
    norms = solved(table, theory).at(0).norms
    assert (norms[1:] >= norms[:-1] * (1 - 1e-12)).all()
    logs = np.append(0.0, np.log(norms) * np.arange(1, len(norms) + 1))
    assert (np.diff(logs, 2) >= -1e-9 * np.abs(logs).max(initial=1.0)).all()


@holds_for(table=tables(), theory=fair_theories())
def test_a_chance_of_failure_that_is_nearly_0_changes_nearly_nothing(
    table: Table, theory: CompleteTheory
) -> None:
    if "robot" not in table.roles:
        return
    table = failing_table(table)
    usual = solved(table, theory).at(0)
    nearly = solved(table, theory, defunct={"rate": 1e-13}).at(0)
    assert nearly.V_r == pytest.approx(usual.V_r, rel=1e-7)
    assert nearly.V_e == pytest.approx(usual.V_e, rel=1e-7, abs=1e-9)


def unit_durations(table: Table) -> Table:
    outcomes = tuple(
        {profile: tuple((p, s, 1.0) for p, s, _ in items) for profile, items in found.items()}
        for found in table.outcomes
    )
    return Table(**{**vars(table), "outcomes": outcomes, "timed": False})


@holds_for(
    table=tables(),
    gamma_h=st.sampled_from([1.0, 0.9, 0.5]),
    beta_h=st.sampled_from([1.0, 8.0]),
    zeta=st.sampled_from([1.0, 2.0]),
)
def test_in_goals_not_entered_presence_is_arrival_a_step_later(
    table: Table, gamma_h: float, beta_h: float, zeta: float
) -> None:
    table = unit_durations(table)
    # Robots that choose evenly are the same in both.
    usual = {"gamma_h": gamma_h, "gamma_r": 0.9, "beta_r": 0.0, "zeta": zeta}
    presence = solved(table, CompleteTheory(counting="presence", beta_h=beta_h, **usual))
    arrival = solved(table, CompleteTheory(beta_h=gamma_h * beta_h, **usual))
    for time in range(table.horizon or 1):
        for state in presence.reachable(time):
            one, other = presence.at(int(state), time), arrival.at(int(state), time)
            if one.terminal:
                continue
            outside = presence.problem.game.achieved[state, presence.problem.places] == 0
            assert one.V_m[outside] == pytest.approx(gamma_h * other.V_m[outside], rel=1e-12)
            assert one.pi_h == pytest.approx(other.pi_h, rel=1e-9, abs=1e-15)
            assert (one.V_m[~outside] == 1).all()
            assert (one.V_e[~outside] == 1).all()
            assert one.V_e[outside] == pytest.approx(gamma_h * other.V_e[outside], rel=1e-12)
            for human, x_h in one.X_h.items():
                goals = list(presence.spec.goals_of(human))
                weight = np.array([presence.spec.goals[goal].weight for goal in goals])
                later = weight * (gamma_h * other.V_e[goals]) ** zeta
                expected = np.where(outside[goals], later, weight).sum()
                assert x_h == pytest.approx(expected, rel=1e-12)


@holds_for(table=tables(), theory=fair_theories())
def test_no_human_is_below_0_bits_whose_goals_cover_all_states(
    table: Table, theory: CompleteTheory
) -> None:
    theory = theory.model_copy(update={"counting": "presence", "x_agg": "sum"})
    result = solved(table, theory)
    for time in range(table.horizon or 1):
        powers = result.policies(time).x_h[result.graph.alive[: len(result.policies(time).x_h)]]
        assert (powers >= 1.0).all()


@holds_for(table=tables(acyclic=False), theory=fair_theories())
def test_a_human_who_can_attain_everything_changes_no_power_of_all(
    table: Table, theory: CompleteTheory
) -> None:
    theory = theory.model_copy(update={"u_agg": "sum", "x_agg": "weighted", "xi": 1.0})
    agent, everything = len(table.roles), frozenset(range(len(table.labels)))
    outcomes = tuple({(*p, 0): o for p, o in found.items()} for found in table.outcomes)
    mighty = Table(
        **{
            **vars(table),
            "roles": (*table.roles, "human"),
            "num_actions": (*table.num_actions, 1),
            "outcomes": outcomes,
            "goals": (*table.goals, (agent, 1e12, everything)),
        }
    )
    powers = [
        aggregate_power(solved(game, theory).at(0).U_r, theory.eta) for game in (table, mighty)
    ]
    assert powers[1] == pytest.approx(powers[0], abs=1e-8)


@holds_for(seed=st.integers(0, 10**6), gamma_h=st.sampled_from([1.0, 0.9]))
def test_an_action_more_takes_no_power_from_a_rational_human_by_itself(
    seed: int, gamma_h: float
) -> None:
    shape = Shape(5, ("human", "robot"), (3, 1), 3, timed=False, masked=False)
    more = random_table(shape, seed)
    fewer = tuple({p: items for p, items in found.items() if p[0] < 2} for found in more.outcomes)
    less = Table(**{**vars(more), "outcomes": fewer})
    theory = CompleteTheory(counting="presence", beta_h="inf", gamma_h=gamma_h, gamma_r=0.9)
    few, many = (solved(table, theory).at(0) for table in (less, more))
    assert (many.V_e >= few.V_e - 1e-12).all()
    assert aggregate_power(many.U_r, 1.0) >= aggregate_power(few.U_r, 1.0) - 1e-12


@holds_for(
    seed=st.integers(0, 10**6),
    beta_r=st.sampled_from([0.5, 2.0, 3.0]),
    rho=st.sampled_from([2, 3, 7, 16]),
)
def test_risk_only_sharpens_where_what_follows_is_certain(
    seed: int, beta_r: float, rho: int
) -> None:
    shape = Shape(5, ("human", "robot"), (1, 3), 1, timed=False, masked=False)
    table = random_table(shape, seed)
    outcomes = tuple(
        {p: ((1.0, items[0][1], 1.0),) for p, items in found.items()} for found in table.outcomes
    )
    table = Table(**{**vars(table), "outcomes": outcomes})
    usual = {"counting": "presence", "x_agg": "sum"}
    averse = solved(table, CompleteTheory(beta_r=beta_r, rho=rho, **usual)).at(0)
    sharp = solved(table, CompleteTheory(beta_r=beta_r * rho, **usual)).at(0)
    assert averse.pi_r == pytest.approx(sharp.pi_r, rel=1e-12)


PRESS = Table(
    roles=("human", "robot"),
    num_actions=(2, 2),
    outcomes=(
        {(0, 0): ((1.0, 0, 1.0),), (1, 0): ((1.0, 1, 1.0),), (0, 1): ((1.0, 2, 1.0),),
         (1, 1): ((1.0, 2, 1.0),)},
        {(0, 0): ((1.0, 1, 1.0),), (1, 0): ((1.0, 0, 1.0),), (0, 1): ((1.0, 1, 1.0),),
         (1, 1): ((1.0, 0, 1.0),)},
        {(a, b): ((1.0, 2, 1.0),) for a in (0, 1) for b in (0, 1)},
    ),
    goals=((0, 1.0, frozenset({0, 1, 2})), (0, 1.0, frozenset({0})), (0, 1.0, frozenset({1}))),
    labels=(0, 1, 2),
    horizon=5,
)  # fmt: skip
"""A robot may crush a human, who then attains one of three goals, in state 2."""


@pytest.mark.parametrize("beta_r", [0.1, 0.5, 2.0])
def test_an_unlikely_action_counts_whose_cost_is_many_powers_of_ten_higher(beta_r: float) -> None:
    theory = CompleteTheory(
        counting="presence", rho=6, xi=40.0, eta=2.0, beta_r=beta_r, gamma_r=0.99, x_agg="sum"
    )
    world = TableWorld(PRESS)
    errors = largest_errors(solve(world, exact_params(theory)), Reference(world, theory))
    assert max(errors.values()) <= 1e-12


def test_norms_are_finite_where_moments_are_beyond_the_range_of_floats() -> None:
    theory = CompleteTheory(
        counting="presence", rho=6, xi=60.0, eta=3.0, beta_r=5.0, gamma_r=0.99, x_agg="sum"
    )
    start = solved(PRESS, theory).at(0)
    assert start.pi_r[1] < 1e-300
    assert 0 < start.norms[0] < 1e-30
    assert (np.diff(start.norms) >= 0).all()
    assert start.norms[-1] < 1
