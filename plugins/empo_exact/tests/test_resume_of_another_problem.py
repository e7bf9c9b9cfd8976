"""A solve that goes on from files never takes up values of another problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.protocols import Tracker
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

TABLE = random_table(Shape(40, ("human", "robot"), (3, 2), 5, timed=True, masked=False), 3)
ENDLESS = random_table(Shape(40, ("human", "robot"), (3, 2), None, timed=True, masked=False), 3)
GOALS = len(TABLE.goals)
PARTS = [
    {"keep": "none", "compute": {"parts": 3, "graph": "spill"}},
    pytest.param({"keep": "none", "compute": {"parts": 3}}, marks=pytest.mark.slow),
    pytest.param(
        {"keep": "all", "compute": {"parts": 3, "graph": "spill"}}, marks=pytest.mark.slow
    ),
]
WAYS = [{"keep": "disk"}, *PARTS]


def params(way: dict[str, Any], **theory: Any) -> ExactParams:
    compute = {"workers": 1, **way.get("compute", {})}
    if "compute" in way:
        compute["checkpoint_s"] = 0
    return ExactParams.model_validate({**way, "rollouts": 0, "compute": compute, "theory": theory})


class Lazy:
    """Humans choose evenly, but with a favourite action in one state, with some steps left."""

    def __init__(self, state: tuple[int, ...] | None, steps_left: int | None = None) -> None:
        self.state, self.steps_left = state, steps_left

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        found = torch.full((len(states), GOALS, 3), 1 / 3, dtype=torch.float64)
        if self.state is not None:
            here = (states == torch.tensor(self.state)).all(1)
            if self.steps_left is not None:
                here &= steps_left == self.steps_left
            found[here] = torch.tensor([0.8, 0.1, 0.1], dtype=torch.float64)
        return found


class Interrupted(Tracker):
    """Interrupts a solve before its last sweep."""

    def __init__(self, at: int) -> None:
        self.at = at

    def log(self, step: int, metrics: Any) -> None:
        if step == self.at:
            raise KeyboardInterrupt


def far_state() -> int:
    """A state that no single step from the start leads to, and that can act."""
    first = {item[1] for items in TABLE.outcomes[TABLE.start].values() for item in items}
    second = {item[1] for s in first for items in TABLE.outcomes[s].values() for item in items}
    return max(second - first - {TABLE.start})


FAR = TableWorld(TABLE).row(far_state())
NEAR = tuple(build_graph(TableWorld(TABLE), 1).states[1].tolist())


def answer(states: Tensor, usual: float, there: float, *shape: int) -> Tensor:
    found = torch.full((len(states), *shape), usual, dtype=torch.float64)
    found[(states == torch.tensor(FAR)).all(1)] = there
    return found


def habit(first: float) -> Callable[[Tensor], Tensor]:
    def of(states: Tensor) -> Tensor:
        found = torch.full((len(states), GOALS, 3), 1 / 3, dtype=torch.float64)
        rest = (1 - first) / 2
        here = (states == torch.tensor(FAR)).all(1)
        found[here] = torch.tensor([first, rest, rest], dtype=torch.float64)
        return found

    return of


PAIRS: dict[str, tuple[Assumptions, Assumptions]] = {
    "prior": (Assumptions(human_prior=Lazy(None)), Assumptions(human_prior=Lazy(FAR))),
    "prior at one time": (
        Assumptions(human_prior=Lazy(None)),
        Assumptions(human_prior=Lazy(FAR, 2)),
    ),
    "habit prior": (
        Assumptions(habit_prior=Lazy(None)),
        Assumptions(habit_prior=Lazy(NEAR, 4)),
    ),
    "habit": (Assumptions(habit=habit(1 / 3)), Assumptions(habit=habit(0.9))),
    "beta_h": (
        Assumptions(beta_h=lambda states: answer(states, 5.0, 5.0, GOALS)),
        Assumptions(beta_h=lambda states: answer(states, 5.0, 0.1, GOALS)),
    ),
    "nu": (
        Assumptions(nu=lambda states: answer(states, 0.1, 0.1, GOALS)),
        Assumptions(nu=lambda states: answer(states, 0.1, 0.9, GOALS)),
    ),
}


def theory_of(name: str) -> dict[str, float]:
    return {"nu": 0.3} if name in ("habit prior", "habit", "nu") else {}


@cache
def afresh(name: str) -> tuple[float, float]:
    """V_r at the start by both assumptions of a pair."""
    chosen = params({"keep": "none"}, **theory_of(name))
    first, second = (solve(TableWorld(TABLE), chosen, each).at(0).V_r for each in PAIRS[name])
    return first, second


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_values_of_other_assumptions_are_not_taken_up(
    way: dict[str, Any], name: str, tmp_path: Path
) -> None:
    one, other = PAIRS[name]
    world, chosen = TableWorld(TABLE), params(way, **theory_of(name))
    with pytest.raises(KeyboardInterrupt):
        solve(world, chosen, one, directory=tmp_path, tracker=Interrupted(4))
    found = solve(world, chosen, other, directory=tmp_path, resume=True)
    before, right = afresh(name)
    assert found.at(0).V_r == right != before


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_same_prior_goes_on(way: dict[str, Any], tmp_path: Path) -> None:
    class Steps(Tracker):
        seen: list[int]

        def log(self, step: int, metrics: Any) -> None:
            self.seen.append(step)

    world, steps = TableWorld(TABLE), Steps()
    steps.seen = []
    assumed = Assumptions(human_prior=Lazy(FAR, 2))
    with pytest.raises(KeyboardInterrupt):
        solve(world, params(way), assumed, directory=tmp_path, tracker=Interrupted(3))
    found = solve(world, params(way), assumed, directory=tmp_path, tracker=steps, resume=True)
    assert steps.seen == [3, 4, 5]
    assert found.at(0).V_r == solve(world, params({"keep": "none"}), assumed).at(0).V_r


@pytest.mark.parametrize("change", ["transition", "goal", "weight", "horizon"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_values_of_another_world_are_not_taken_up(
    way: dict[str, Any], change: str, tmp_path: Path
) -> None:
    state, changed = far_state(), TABLE
    if change == "transition":
        outcomes = list(TABLE.outcomes)
        outcomes[state] = dict.fromkeys(outcomes[state], ((1.0, state, 1.0),))
        changed = replace(TABLE, outcomes=tuple(outcomes))
    elif change == "goal":
        goals = [(human, weight, members ^ {state}) for human, weight, members in TABLE.goals]
        changed = replace(TABLE, goals=(TABLE.goals[0], *goals[1:]))
    elif change == "weight":
        goals = [(human, 3 * weight, members) for human, weight, members in TABLE.goals]
        changed = replace(TABLE, goals=(TABLE.goals[0], *goals[1:]))
    else:
        changed = replace(TABLE, horizon=4)
    with pytest.raises(KeyboardInterrupt):
        solve(TableWorld(TABLE), params(way), directory=tmp_path, tracker=Interrupted(4))
    try:
        found = solve(TableWorld(changed), params(way), directory=tmp_path, resume=True)
    except StorageError as error:
        assert "another problem" in str(error)  # noqa: PT017
    else:
        right = solve(TableWorld(changed), params({"keep": "none"}))
        assert found.at(0).V_r == right.at(0).V_r


@pytest.mark.parametrize("way", PARTS, ids=str)
def test_without_a_horizon_values_of_another_prior_are_not_taken_up(
    way: dict[str, Any], tmp_path: Path
) -> None:
    world = TableWorld(ENDLESS)
    one, other = Assumptions(human_prior=Lazy(None)), Assumptions(human_prior=Lazy(world.row(20)))
    with pytest.raises(KeyboardInterrupt):
        solve(world, params(way), one, directory=tmp_path, tracker=Interrupted(5))
    found = solve(world, params(way), other, directory=tmp_path, resume=True)
    assert found.at(0).V_r == solve(world, params({"keep": "none"}), other).at(0).V_r
