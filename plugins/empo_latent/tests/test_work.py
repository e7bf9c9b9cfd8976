"""Estimates of the time left: what is left of each sort, at the rate that was measured."""

from __future__ import annotations

from typing import Any

import pytest

from empo_latent.params import LatentParams
from empo_latent.work import UNMEASURED, Work, WorkPlan

SPENT = {"environment": 2.0, "act": 30.0, "update": 50.0, "replay": 10.0,
         "evaluation": 40.0}  # fmt: skip


def plan(acting: str = "planner", *, envs: int = 1, **reporting: Any) -> WorkPlan:
    """1,200 steps, of them 100 random ones with 60 updates, and then two steps per update."""
    params = LatentParams.model_validate(
        {
            "total_steps": 1200,
            "num_envs": envs,
            "tasks": ["gymnasium/Pendulum-v1"],
            "policy_loss": "svg",
            "collection": {"acting": acting},
            "learning": {"updates_per_step": 0.5},
            "reporting": {"evaluation_interval": 500, "evaluation_episodes": 2, **reporting},
        }
    )
    return WorkPlan(params, 100, 60, [250])


def test_what_is_left_follows_the_updates_per_step_and_the_evaluations() -> None:
    assert plan().left(Work(0, 0, 0, 0), 0) == Work(1200, 1100, 60 + 550, 3)
    assert plan().left(Work(100, 0, 20, 0), 40) == Work(1100, 1100, 40 + 550, 3)
    assert plan().left(Work(1200, 1100, 600, 2), 10) == Work(0, 0, 10, 1)
    assert plan(evaluation_interval=0).left(Work(0, 0, 0, 0), 0).evaluations == 1
    assert plan(evaluation_episodes=0).left(Work(0, 0, 0, 0), 0).evaluations == 0


def test_everything_left_takes_as_long_as_it_took() -> None:
    expected = 1000 * 0.01 + 1000 * 0.3 + 501 * 1.0 + 1 * 20.0
    found = plan().seconds_left(SPENT, {}, Work(200, 100, 60, 2), 1)
    assert found == pytest.approx(expected)


def test_the_first_update_and_choice_which_are_compiled_do_not_count_for_the_rates() -> None:
    first = {"environment": 1.0, "act": 10.0, "update": 40.0, "replay": 1.0, "evaluation": 30.0}
    found = plan().seconds_left(SPENT, first, Work(200, 101, 20, 3), 1)
    assert found == pytest.approx(1000 * 0.01 + 1000 * 20 / 100 + 501 * 19 / 19)


def test_random_steps_are_whole_steps_of_all_environments() -> None:
    each = plan(envs=16)
    assert [each.decisions(steps) for steps in (96, 112, 128)] == [0, 0, 16]


def test_where_only_the_first_is_measured_updates_and_choices_take_many_steps() -> None:
    spent = {"environment": 2.0, "act": 10.0, "update": 40.0}
    found = plan(evaluation_episodes=0).seconds_left(spent, spent, Work(200, 1, 1, 0), 1)
    assert found == pytest.approx(0.01 * (1000 + UNMEASURED * (1000 + 501)))


@pytest.mark.parametrize(
    ("acting", "actors"), [("planner", ["planner", "policy"]), ("policy", ["policy"])]
)
def test_an_evaluation_counts_before_one_is_measured(acting: str, actors: list[str]) -> None:
    left = plan(acting, evaluate=actors).seconds_left(SPENT, {}, Work(1200, 1100, 60, 0), 0)
    assert left == pytest.approx(3 * 500 * (2.0 / 1200 + 30.0 / 1100))


def test_an_action_of_the_policy_takes_about_a_step_where_the_planner_acts() -> None:
    left = plan(evaluate=["policy"]).seconds_left(SPENT, {}, Work(1200, 1100, 60, 0), 0)
    assert left == pytest.approx(3 * 500 * 2 * 2.0 / 1200)


def test_a_plan_takes_longer_than_an_action_of_the_policy_before_one_is_measured() -> None:
    acts = {**SPENT, "act": 0.5}
    left = plan(acting="policy").seconds_left(acts, {}, Work(1200, 1100, 60, 0), 0)
    assert left == pytest.approx(3 * 500 * (1 + UNMEASURED) * 2.0 / 1200)


def test_updates_that_none_was_measured_of_take_many_steps() -> None:
    found = plan(evaluation_episodes=0).seconds_left(
        {"environment": 1.0}, {}, Work(100, 0, 0, 0), 60
    )
    assert found == pytest.approx(0.01 * (1100 + UNMEASURED * (1100 + 60 + 550)))


def test_nothing_left_takes_no_time_and_nothing_done_does_not_fail() -> None:
    assert plan().seconds_left(SPENT, {}, Work(1200, 1100, 610, 3), 0) == 0
    assert plan().seconds_left({}, {}, Work(0, 0, 0, 0), 0) > 0
