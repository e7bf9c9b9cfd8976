"""Comparing what was learned with what is right."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from doors import THEORY, DoorWorld, EagerHumans, SolvedDoors, aggregator, knowing
from pydantic import create_model
from torch import Tensor

from empo_core import Config
from empo_core.config import HumanPriorRef
from empo_core.errors import ConfigError, UnknownComponentError
from empo_core.plugins.hookspecs import Component
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_core.protocols import ValueNetwork
from empo_core.types import ValueQuery
from empo_phase2 import compare
from empo_phase2.compare import Comparison, solve, solver_for
from empo_phase2.estimates import ValueEstimates, ValueEstimator
from empo_phase2.experience import Block
from empo_phase2.quantities import Quantities
from empo_phase2.state_queries import StateEncoder
from empo_theory.solved_world import SolvedWorld


@pytest.fixture
def world() -> DoorWorld:
    return DoorWorld()


@pytest.fixture
def comparison(world: DoorWorld) -> Comparison:
    return Comparison(SolvedDoors(world), world, lambda rows: rows)


def off(comparison: Comparison, **changes: Tensor) -> dict[str, float]:
    """The numbers that come of an assessment that is right but for some changes."""
    right = comparison.right
    exact = ValueEstimates(right.v_r, right.pi_r, right.pi_r, right.v_r, right.v_h_e, right.v_h_e)
    return comparison.measure(replace(exact, **changes))


def test_all_situations_are_compared_the_start_first(
    world: DoorWorld, comparison: Comparison
) -> None:
    right = comparison.right
    assert isinstance(SolvedDoors(world), SolvedWorld)
    assert right.rows[0].tolist() == world.initial_state().tolist()
    found = torch.cat([right.steps_left[:, None], right.rows.long()], 1).tolist()
    shut = [[left, 0, 0] for left in (1, 2, 3, 4)]
    ajar = [[left, 1, 0] for left in (1, 2, 3)]
    assert sorted(found) == sorted(shut + ajar)


def test_what_is_right_has_no_gap(comparison: Comparison) -> None:
    metrics = off(comparison)
    assert metrics.pop("Compare/coverage") == 0
    assert set(metrics.values()) == {0.0}
    assert len(metrics) == 12


def test_gaps_are_at_the_start_on_average_and_at_worst(comparison: Comparison) -> None:
    right = comparison.right
    v_r = right.v_r.clone()
    v_r[0] *= 1.1
    v_r[3] *= 1.5
    metrics = off(comparison, v_r=v_r)
    assert metrics["Compare/V_r_root_rel"] == pytest.approx(0.1)
    assert metrics["Compare/V_r_mean_rel"] == pytest.approx(0.6 / 7)
    assert metrics["Compare/V_r_max_rel"] == pytest.approx(0.5)
    assert metrics["Compare/V_r_root_abs"] == pytest.approx(-0.1 * float(right.v_r[0]))
    assert metrics["Compare/V_r_max_abs"] == pytest.approx(float((v_r - right.v_r).abs().max()))
    assert metrics["Compare/pi_r_max_tv"] == 0


def test_policies_differ_by_total_variation(comparison: Comparison) -> None:
    pi_r = comparison.right.pi_r.clone()
    pi_r[0] = torch.tensor([1.0, 0.0])
    expected = 1 - float(comparison.right.pi_r[0, 0])
    metrics = off(comparison, pi_r=pi_r)
    assert metrics["Compare/pi_r_root_tv"] == pytest.approx(expected)
    assert metrics["Compare/pi_r_mean_tv"] == pytest.approx(expected / 7)
    assert metrics["Compare/pi_r_max_tv"] == pytest.approx(expected)


def test_the_worst_goal_counts_at_the_start(comparison: Comparison) -> None:
    v_h_e = comparison.right.v_h_e.clone()
    v_h_e[0, 1] += 0.25
    v_h_e[0, 2] -= 0.125
    metrics = off(comparison, v_h_e=v_h_e)
    assert metrics["Compare/V_h_e_root_abs"] == pytest.approx(0.25)
    assert metrics["Compare/V_h_e_max_abs"] == pytest.approx(0.25)
    assert metrics["Compare/V_h_e_mean_abs"] == pytest.approx(0.375 / 35)


# What was learned.


def test_closed_forms_of_right_values_are_right(world: DoorWorld, comparison: Comparison) -> None:
    metrics = comparison.record(7, knowing(world, "q_r", "v_h_e"))
    assert max(metrics.values()) < 1e-5
    assert [step for step, _ in comparison.history] == [7]


def test_looking_one_step_ahead_gives_q_r(world: DoorWorld, comparison: Comparison) -> None:
    found = comparison.assess(knowing(world, "v_r", "v_h_e", prior=True))
    metrics = comparison.measure(found)
    assert max(metrics.values()) < 1e-5
    solved = SolvedDoors(world)
    right = comparison.right
    for i, (row, left) in enumerate(zip(right.rows, right.steps_left.tolist(), strict=True)):
        exact = solved.q_r(row[None], left)[0]
        known = world.available(row[None])[0, 1, :2]
        torch.testing.assert_close(found.q_r[i][known], exact[known].float(), rtol=1e-5, atol=0)


def test_looking_ahead_needs_to_know_how_humans_act(world: DoorWorld) -> None:
    with pytest.raises(ValueError, match="human prior"):
        knowing(world, "v_r", "v_h_e")


def test_pieces_come_to_the_whole(
    world: DoorWorld, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = knowing(world, "q_r", "v_h_e")
    whole = comparison.assess(learned)
    monkeypatch.setattr(compare, "AT_ONCE", 3)
    torch.testing.assert_close(comparison.assess(learned).v_r, whole.v_r, rtol=0, atol=0)


def test_networks_are_asked_at_rest_and_then_go_on_training(
    world: DoorWorld, comparison: Comparison
) -> None:
    class Dropping(ValueNetwork):
        def __init__(self, quantity: str) -> None:
            super().__init__()
            self.quantity = quantity
            self.layer = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))

        def forward(self, query: ValueQuery) -> Tensor:
            asked = query.spread()
            values = -torch.nn.functional.softplus(self.layer(asked.states.float())) - 1
            return values if self.quantity == "q_r" else values[:, :1].exp()

    torch.manual_seed(0)
    networks = {"q_r": Dropping("q_r"), "v_h_e": Dropping("v_h_e")}
    encoder = StateEncoder(world, "rows", None)
    values = Quantities(networks, world.spec, encoder.goals, THEORY, aggregator())  # type: ignore[arg-type]
    learned = ValueEstimator(values, encoder)
    first, second = comparison.assess(learned), comparison.assess(learned)
    assert torch.equal(first.v_r, second.v_r)
    assert all(network.training for network in networks.values())


# What has been seen.


def block_of(world: DoorWorld, rows: list[list[int]], steps_left: list[int]) -> Block:
    encoder = StateEncoder(world, "rows", EagerHumans(world))
    states, transitions = encoder(torch.tensor(rows, dtype=torch.int16), torch.tensor(steps_left))
    nothing = torch.zeros(len(rows), dtype=torch.int64)
    humans = torch.zeros(len(rows), 2).long()
    return Block(states, transitions, nothing.bool(), humans, humans, nothing)


def test_coverage_counts_situations_once(world: DoorWorld, comparison: Comparison) -> None:
    assert comparison.coverage == 0
    comparison.observe(block_of(world, [[0, 0], [0, 0], [1, 0]], [4, 4, 2]))
    assert comparison.coverage == pytest.approx(2 / 7)
    comparison.observe(block_of(world, [[1, 0], [0, 0]], [2, 1]))
    assert comparison.coverage == pytest.approx(3 / 7)
    # The door is never open at the start.
    comparison.observe(block_of(world, [[1, 0]], [4]))
    assert comparison.coverage == pytest.approx(3 / 7)


def test_a_comparison_goes_on_where_it_was(world: DoorWorld, comparison: Comparison) -> None:
    comparison.observe(block_of(world, [[0, 0]], [4]))
    comparison.record(10, knowing(world, "q_r", "v_h_e"))
    other = Comparison(SolvedDoors(world), world, lambda rows: rows)
    other.load_state_dict(comparison.state_dict())
    assert list(other.history) == list(comparison.history)
    assert other.coverage == comparison.coverage == pytest.approx(1 / 7)


# Who solves the world.


def registry(*leave_out: str) -> Registry:
    """A registry with a prior, and with an algorithm whose params lack some keys."""
    types: dict[str, Any] = {
        "x_agg": str, "u_agg": str, "accrual": str, "keep": str, "rollouts": int,
        "human_prior": HumanPriorRef,
    }  # fmt: skip

    def fields(*keys: str) -> dict[str, Any]:
        return {key: (types.get(key, float), ...) for key in keys if key not in leave_out}

    theory = create_model("Symbols", __base__=Config, **fields(*compare.SHARED, "accrual"))
    rest = fields("human_prior", "rollouts", "keep")
    model = create_model(
        "SolverParams", __base__=Config, workers=(int, 1), theory=(theory, ...), **rest
    )
    provider = Provider("empo-test", "1.0", "empo-test")
    components = [
        Component(kind="algorithm", name="solver", params=model, target="doors:NoSolver", api=1),
        Component(kind="human_prior", name="eager", params=Config, target="doors:make", api=1),
    ]
    return Registry([Offer(provider, component) for component in components], [provider])


def prior_of(registry: Registry) -> HumanPriorRef:
    return HumanPriorRef.model_validate("eager", context={"registry": registry})


def test_a_solver_gets_the_theory_and_the_prior() -> None:
    found = registry()
    reference = solver_for("solver", THEORY, prior_of(found), found)
    params = reference.params.model_dump()
    assert {key: params["theory"][key] for key in compare.SHARED} == {
        key: getattr(THEORY, key) for key in compare.SHARED
    }
    assert params["theory"]["accrual"] == "discrete"
    assert params["human_prior"]["name"] == "eager"
    assert (params["rollouts"], params["keep"]) == (0, "all")
    assert params["workers"] == 1


def test_a_solver_without_options_is_left_alone() -> None:
    found = registry("accrual", "rollouts", "keep")
    assert solver_for("solver", THEORY, prior_of(found), found).name == "solver"


def test_a_solver_of_another_problem_is_refused() -> None:
    found = registry("beta_r", "zeta")
    with pytest.raises(ConfigError, match=r"'solver' .* theory.beta_r, theory.zeta"):
        solver_for("solver", THEORY, prior_of(found), found)
    with pytest.raises(UnknownComponentError, match="'solver'"):
        solver_for("solvr", THEORY, prior_of(found), found)


def test_a_solver_that_keeps_its_values_to_itself_is_refused(
    world: DoorWorld, tmp_path: Path
) -> None:
    found = registry()
    reference = solver_for("solver", THEORY, prior_of(found), found)
    with pytest.raises(ConfigError, match=r"'solver' .*every state"):
        solve(reference, world, tmp_path / "compare", registry=found)


def test_relative_gaps_are_finite_everywhere(comparison: Comparison) -> None:
    assert all(math.isfinite(float(value)) for value in comparison.right.v_r)
    assert bool((comparison.right.v_r < 0).all())
