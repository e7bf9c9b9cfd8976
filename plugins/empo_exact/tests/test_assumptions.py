"""Assumptions that make no sense are refused, and results remember the ones that do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.errors import SolveError, StorageError, WorldError
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import ExactParams, UniformParams
from empo_exact.prior import UniformPrior
from empo_exact.result import ExactResult, load
from empo_exact.solve import solve

SHAPE = Shape(6, ("human", "robot", "human"), (3, 2, 3), 3, timed=False, masked=False)
ACTIONS = 3


def world_with(horizon: int = 3) -> TableWorld:
    return TableWorld(replace(random_table(SHAPE, 0), horizon=horizon))


GOALS = len(world_with().spec.goals)


def params(**changes: Any) -> ExactParams:
    return ExactParams.model_validate({"compute": {"workers": 1}, "rollouts": 0, **changes})


def saying(answer: Any) -> Callable[[Tensor], Any]:
    """A callable that says the same about every state."""
    return lambda states: torch.tensor(answer).expand(len(states), GOALS, ACTIONS)


@pytest.mark.parametrize("answer", [[0.5, 0.25, 0.0], [1.5, -0.5, 0.0], [float("nan"), 1.0, 0.0]])
def test_a_habit_must_be_a_distribution(answer: list[float]) -> None:
    with pytest.raises(SolveError, match=r"habit.* probabilities"):
        solve(world_with(), params(theory={"nu": 0.5}), Assumptions(habit=saying(answer)))


def test_a_human_prior_must_give_distributions() -> None:
    class Doubtful:
        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            return torch.full((len(states), GOALS, ACTIONS), 0.5)

    with pytest.raises(SolveError, match=r"human prior.* probabilities"):
        solve(world_with(), params(), Assumptions(human_prior=Doubtful()))


def test_a_policy_in_single_precision_is_good_enough() -> None:
    answer = torch.softmax(torch.tensor([0.1, 0.7, -0.4], dtype=torch.float32), 0).tolist()
    assert (
        solve(world_with(), params(theory={"nu": 0.5}), Assumptions(habit=saying(answer))).at(0).V_r
        < 0
    )


def test_a_habit_without_weight_is_not_silently_ignored() -> None:
    with pytest.raises(SolveError, match=r"habit.* nu is 0"):
        solve(world_with(), params(), Assumptions(habit=saying([1.0, 0.0, 0.0])))


def test_an_assumption_that_is_no_tensor_is_named() -> None:
    with pytest.raises(SolveError, match=r"beta_h.* tensor"):
        solve(world_with(), params(), Assumptions(beta_h=lambda states: [1.0]))  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize(
    ("believed", "message"),
    [
        (lambda state, human, action: [(1.0, [0])], "3 agents"),
        (
            lambda state, human, action: [(1.5, [0, -1, 0]), (-0.5, [1, -1, 1])],
            "negative",
        ),
        (lambda state, human, action: [(0.5, [0, -1, 0])], "sum to 0.5"),
        (lambda state, human, action: [(float("nan"), [0, -1, 0])], "sum.* nan"),
        (lambda state, human, action: [(1.0, [0, -1, 9])], "gives action 9"),
    ],
)
def test_a_belief_must_be_a_distribution_over_profiles(believed: Any, message: str) -> None:
    with pytest.raises(SolveError, match=message):
        solve(world_with(), params(), Assumptions(believed_others=believed))


def test_priors_named_in_the_params_count_without_a_run_too() -> None:
    world = world_with()
    uniform = Assumptions(human_prior=UniformPrior(UniformParams(), world))
    given = solve(world, params(), uniform).at(0)
    named = solve(world, params(human_prior="uniform")).at(0)
    assert named.V_r == given.V_r != solve(world, params()).at(0).V_r
    # A habit that follows its goals, of weight 1, is how the humans act.
    eager = solve(
        world,
        params(theory={"nu": 1.0}, habit={"name": "exact", "params": {"theory": {"beta_h": 10.0}}}),
    )
    assert eager.at(0).pi_h == pytest.approx(solve(world, params()).at(0).pi_h, abs=1e-12)


def same(first: ExactResult, other: ExactResult) -> bool:
    return all(
        np.array_equal(first.at(0, t).pi_h, other.at(0, t).pi_h)
        and first.at(0, t).V_r == other.at(0, t).V_r
        for t in (0, 1, 2)
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"human_prior": "uniform"},
        {"theory": {"nu": 0.5}, "habit": {"name": "exact", "params": {"theory": {"beta_h": 1.0}}}},
    ],
)
def test_a_saved_result_brings_back_the_priors_its_params_name(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    result = solve(world_with(), params(**changes))
    result.save(tmp_path)
    assert same(load(tmp_path, world_with()), result)


@pytest.mark.parametrize("key", ["human_prior", "habit_prior"])
def test_a_saved_result_asks_for_the_priors_that_solve_was_given(key: str, tmp_path: Path) -> None:
    world = world_with()
    prior: dict[str, Any] = {key: UniformPrior(UniformParams(), world)}
    result = solve(world, params(theory={"nu": 0.5}), Assumptions(**prior))
    result.save(tmp_path)
    with pytest.raises(StorageError, match=f"as {key} again"):
        load(tmp_path, world)
    assert same(load(tmp_path, world, **prior), result)


def test_a_saved_result_belongs_to_one_horizon(tmp_path: Path) -> None:
    solve(world_with(3), params()).save(tmp_path)
    with pytest.raises(StorageError, match=r"horizon.* 3, not 4"):
        load(tmp_path, world_with(4))


@pytest.mark.parametrize(
    ("state", "time", "message"),
    [
        (-1, 0, "state number -1"),
        (10**9, 0, "state number 1000000000"),
        ((0, 0, 0), 0, "words, not 3"),
        (0, -1, "time -1; .* 0 to 3"),
        (0, 4, "no time 4"),
    ],
)
def test_there_are_no_values_at_what_does_not_exist(state: Any, time: int, message: str) -> None:
    with pytest.raises(WorldError, match=message):
        solve(world_with(), params()).at(state, time)


@pytest.mark.parametrize(
    "ignored",
    [
        {"theory": {"beta_h": 3.0}},
        {"theory": {"beta_h": 3.0}, "preset": "paper"},
        {"theory": {"nu": 0.5}},
        {"theory": {"robot_model": "optimistic"}},
        {"believed_others": []},
    ],
)
def test_keys_of_phase_1_are_refused_beside_a_prior_that_replaces_it(
    ignored: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match="beside human_prior"):
        params(human_prior="uniform", **ignored)


@pytest.mark.parametrize("preset", [None, "paper", "reference", "neutral"])
def test_resolved_params_with_a_prior_are_params_again(preset: str | None) -> None:
    once = params(human_prior="uniform", preset=preset)
    assert ExactParams.model_validate(once.model_dump(mode="json")) == once


MASKED = TableWorld(
    random_table(Shape(6, ("human", "robot", "human"), (3, 2, 3), 3, timed=False, masked=True), 1)
)


def masked_policy(spoiled: float) -> Any:
    """Even policies over available actions; with a part of them given to one that is not."""

    class Spoiled:
        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            humans = [goal.human for goal in MASKED.spec.goals]
            may = MASKED.available(states)[:, humans].double()
            policy = may / may.sum(-1, keepdim=True)
            wrong = (may == 0) & (may == 0).cumsum(-1).eq(1)
            return torch.where(wrong.any(-1, keepdim=True), policy * (1 - spoiled), policy) + (
                wrong * spoiled
            )

    return Spoiled()


WHERE = (
    r"available .*0\.25 to '.*' of human \d \(agent \d\)"
    r"(.|\n)*The state is \["
)


@pytest.mark.parametrize("prior", ["human_prior", "habit_prior", "habit"])
def test_probability_on_what_is_not_available_is_refused(prior: str) -> None:
    policy = masked_policy(0.25)
    given = (
        (lambda states: policy.policy(states, torch.full((len(states),), 1)))
        if prior == "habit"
        else policy
    )
    assumed = Assumptions(**{prior: given})
    changes = {} if prior == "human_prior" else {"theory": {"nu": 0.5}}
    with pytest.raises(SolveError, match=WHERE):
        solve(MASKED, params(**changes), assumed)


def test_what_rounding_leaves_of_it_is_not() -> None:
    exact, rounded = (
        solve(MASKED, params(), Assumptions(human_prior=masked_policy(mass))).at(0).V_r
        for mass in (0.0, 1e-12)
    )
    assert rounded == pytest.approx(exact, rel=1e-9)


def believing(*states: tuple[int, ...]) -> Any:
    """Belief in the first action of every other human, in some states in one that is not there."""

    def believed(state: tuple[int, ...], human: int, action: int) -> list[tuple[float, list[int]]]:
        may = MASKED.available(torch.tensor([state], dtype=MASKED.spec.state_dtype))[0]
        profile = [-1] * len(MASKED.spec.agents)
        for other in MASKED.spec.humans:
            if other != human:
                own = may[other, : MASKED.spec.num_actions[other]]
                profile[other] = int((own if state not in states else ~own).int().argmax())
        return [(1.0, profile)]

    return believed


def test_beliefs_in_what_others_cannot_do_are_refused() -> None:
    result = solve(MASKED, params(), Assumptions(believed_others=believing()))
    rows = result.graph.states[result.graph.alive]
    may = MASKED.available(torch.from_numpy(rows))[:, list(MASKED.spec.humans)]
    row = tuple(rows[int((~may).any(2).any(1).int().argmax())].tolist())
    with pytest.raises(SolveError, match="believed_others:") as caught:
        solve(MASKED, params(), Assumptions(believed_others=believing(row)))
    assert f"The state is {list(row)}" in str(caught.value)


def test_a_table_of_beliefs_is_refused_where_one_state_makes_it_impossible() -> None:
    table = [
        {"human": human, "others": [action], "prob": 1 / 3}
        for human in (0, 2)
        for action in range(3)
    ]
    solve(world_with(), params(believed_others=table))
    with pytest.raises(SolveError, match="believed_others:"):
        solve(MASKED, params(believed_others=table))
