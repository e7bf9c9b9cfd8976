"""Stages and schedules against the numbers that the specification states."""

from typing import Any

import pytest
from pydantic import BaseModel

from empo_phase2.params import (
    OptimiserParams,
    Phase2Params,
    Phase2Theory,
    ReplayParams,
    Targets,
    Values,
    WarmUp,
)
from empo_phase2.warmup import WarmUpSchedule

SPEC = WarmUp(v_h_e=10_000, x_h=10_000, u_r=5_000, q_r=10_000, v_r=5_000, ramp=20_000)


class AnyRef(BaseModel):
    """Stands for a component; the schedule only asks whether there is one."""


def schedule(learned: set[str] | None = None, **groups: Any) -> WarmUpSchedule:
    """The schedule of a run that learns some quantities, of 100,000 steps."""
    learned = {"v_h_e", "x_h", "q_r"} if learned is None else learned
    values = Values.model_construct(
        **{q: AnyRef() if q in learned else None for q in ("q_r", "v_h_e", "x_h", "u_r", "v_r")}
    )
    parts: dict[str, Any] = {
        "values": values,
        "theory": Phase2Theory(beta_r=10.0, gamma_h=0.99, gamma_r=0.95),
        "warm_up": SPEC,
        "optimiser": OptimiserParams(),
        "targets": Targets(),
        "replay": ReplayParams(),
        "total_steps": 100_000,
        "collector": None,
        "aggregator": None,
    } | groups
    return WarmUpSchedule(Phase2Params.model_construct(**parts))


def test_stages_start_when_the_specification_says() -> None:
    assert schedule().stage_start == {
        "v_h_e": 0,
        "x_h": 10_000,
        "u_r": 20_000,
        "q_r": 20_000,
        "v_r": 30_000,
        "ramp": 30_000,
        "full": 50_000,
    }


def test_quantities_in_closed_form_have_no_stage() -> None:
    assert schedule({"v_h_e", "q_r"}).stage_start["q_r"] == 10_000
    everything = schedule({"v_h_e", "x_h", "u_r", "q_r", "v_r"}).stage_start
    assert everything["q_r"] == 25_000
    assert everything["ramp"] == 40_000


def test_each_quantity_joins_those_before_it() -> None:
    plan = schedule()
    assert plan.at(0).active == ("v_h_e",)
    assert plan.at(10_000).active == ("v_h_e", "x_h")
    assert plan.at(20_000).active == ("v_h_e", "x_h", "q_r")
    assert plan.at(99_999).active == ("v_h_e", "x_h", "q_r")
    assert [plan.at(step).stage for step in (0, 10_000, 20_000, 30_000, 50_000)] == [
        "v_h_e",
        "x_h",
        "q_r",
        "ramp",
        "full",
    ]


def test_the_robot_acts_evenly_until_warm_up_is_over_and_then_ever_less_so() -> None:
    plan = schedule()
    assert plan.at(29_999).current.beta_r == plan.at(30_000).current.beta_r == 0.0
    assert plan.at(40_000).current.beta_r == pytest.approx(5.0)
    assert plan.at(50_000).current.beta_r == plan.at(99_999).current.beta_r == 10.0
    rising = [plan.at(step).current.beta_r for step in range(30_000, 50_001, 500)]
    assert rising == sorted(rising)


def progress_of(constant: float) -> WarmUpSchedule:
    return schedule(optimiser=OptimiserParams(lr_constant_fraction=constant))


def test_the_learning_rate_changes_after_its_constant_part() -> None:
    plan = progress_of(0.7)
    assert plan.at(0).lr_progress == plan.at(70_000).lr_progress == 0.0
    assert plan.at(85_000).lr_progress == pytest.approx(0.5)
    assert plan.at(100_000).lr_progress == plan.at(100_001).lr_progress == 1.0


def test_the_learning_rate_never_falls_before_full_training() -> None:
    plan = progress_of(0.1)
    assert plan.at(50_000).lr_progress == 0.0
    assert plan.at(75_000).lr_progress == pytest.approx(0.5)


def test_discounts_rise_in_a_straight_line_once_their_quantity_is_trained() -> None:
    warm_up = SPEC.model_copy(
        update={"gamma_h_start": 0.0, "gamma_h_steps": 5000, "gamma_r_start": 0.5}
        | {"gamma_r_steps": 1000}
    )
    plan = schedule(warm_up=warm_up)
    assert plan.at(0).current.gamma_h == 0.0
    assert plan.at(2500).current.gamma_h == pytest.approx(0.495)
    assert plan.at(5000).current.gamma_h == plan.at(50_000).current.gamma_h == 0.99
    assert plan.at(0).current.gamma_r == plan.at(20_000).current.gamma_r == 0.5
    assert plan.at(20_500).current.gamma_r == pytest.approx(0.725)
    assert plan.at(21_000).current.gamma_r == 0.95


def test_without_a_curriculum_discounts_are_constant() -> None:
    plan = schedule()
    assert {plan.at(step).current.gamma_h for step in (0, 100, 90_000)} == {0.99}
    assert {plan.at(step).current.gamma_r for step in (0, 20_001, 90_000)} == {0.95}


def test_warm_up_data_are_phased_out_oldest_first_and_stay_out() -> None:
    optimiser = OptimiserParams(lr_constant_fraction=0.7)
    plan = schedule(optimiser=optimiser, replay=ReplayParams(phase_out_warm_up=True))
    assert plan.at(30_000).oldest is None
    assert plan.at(50_000).oldest == int(30_000 * 20_000 / 40_000)
    assert plan.at(70_000).oldest == plan.at(99_999).oldest == 30_000


def test_warm_up_data_stay_where_targets_do_not_depend_on_who_acted() -> None:
    assert schedule().at(99_999).oldest is None
    assert schedule(targets=Targets(model_based=False)).at(99_999).oldest is not None


def test_data_can_be_limited_to_an_age() -> None:
    plan = schedule(replay=ReplayParams(phase_out_warm_up=False, max_age=500))
    assert plan.at(400).oldest is None
    assert plan.at(1500).oldest == 1000
