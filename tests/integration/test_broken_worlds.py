"""Worlds that break their contract are refused wherever transitions are walked, with the place."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from empo_bounds.assumptions import Assumptions as Certified
from empo_bounds.effort import Effort
from empo_bounds.question import Question
from empo_bounds.rounds import certify
from empo_core.errors import BrokenWorldError, SolveError, WorldError
from empo_core.protocols import Tracker
from empo_core.types import AgentSpec, Goal, InitialStates, Successors, WorldSpec
from empo_exact.plugin import ExactParams, UniformParams
from empo_exact.prior import UniformPrior
from empo_exact.solve import solve
from empo_learning.evaluation.episodes import EpisodeSampler
from empo_phase2.successors import JointActionOrder, SuccessorQuery
from empo_worlds.base import BaseWorld
from empo_worlds.contract import initial_states_of

STATES = 3


class Ring(BaseWorld):
    """A human and a robot walk round three cells; answers can be changed before they are given.

    Attributes:
        change: Changes an answer, given the method that gives it.
    """

    def __init__(self, change: Callable[[str, Any], Any] = lambda method, answer: answer) -> None:
        self.change = change
        self.spec = WorldSpec(
            name="ring",
            agents=(
                AgentSpec(name="walker", role="human", actions=("stay", "go")),
                AgentSpec(name="guide", role="robot", actions=("wait", "push", "pull")),
            ),
            goals=tuple(Goal(human=0, name=f"cell {i}", weight=1.0) for i in range(STATES)),
            state_words=1,
            state_dtype=torch.int16,
            horizon=3,
            releases_gil=True,
        )

    def initial_state(self) -> Tensor:
        return torch.zeros(1, dtype=torch.int16)

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        if actions is None:
            states = states.repeat_interleave(self.spec.num_joint_actions, 0)
            joint = torch.arange(len(states)) % self.spec.num_joint_actions
        else:
            joint = (actions * torch.tensor(self.spec.strides)).sum(1)
        shift = torch.stack([joint % 2, joint // 2], 1)
        after = ((states + shift) % STATES).to(torch.int16).flatten()
        prob = torch.tensor([0.75, 0.25], dtype=torch.float64).repeat(len(states))
        offsets = torch.arange(len(states) + 1) * 2
        found = Successors(offsets, after[:, None], prob, torch.ones_like(prob))
        answer: Successors = self.change("transitions", found)
        return answer

    def available(self, states: Tensor) -> Tensor:
        shown = torch.tensor([[True, True, False], [True, True, True]])
        answer: Tensor = self.change("available", shown.repeat(len(states), 1, 1))
        return answer

    def achieved(self, states: Tensor) -> Tensor:
        answer: Tensor = self.change("achieved", states == torch.arange(STATES))
        return answer

    def describe(self, state: Tensor) -> str:
        return f"in cell {int(state)}"


def answering(method: str, change: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """A change of the answers of one method."""
    return lambda name, answer: change(answer) if name == method else answer


def with_prob(pair: tuple[float, float]) -> Callable[[str, Any], Any]:
    """Other probabilities of the successors of all pairs."""

    def change(successors: Successors) -> Successors:
        prob = torch.tensor(pair, dtype=torch.float64).repeat(successors.num_pairs)
        return Successors(successors.offsets, successors.states, prob, successors.duration)

    return answering("transitions", change)


def with_duration(number: float) -> Callable[[str, Any], Any]:
    """Another duration of the last transition of all."""

    def change(successors: Successors) -> Successors:
        duration = torch.ones(len(successors.prob), dtype=torch.float64)
        duration[-1:] = number
        return Successors(successors.offsets, successors.states, successors.prob, duration)

    return answering("transitions", change)


def without_last(successors: Successors) -> Successors:
    """No successors of the last pair."""
    offsets = torch.cat([successors.offsets[:-1], successors.offsets[-2:-1]])
    return Successors(offsets, successors.states[:-2], successors.prob[:-2])


def on_one_row(successors: Successors) -> Successors:
    """Successors of int64 whose words are beyond int16."""
    return Successors(successors.offsets, successors.states.long() + 2**16, successors.prob)


def no_pull(available: Tensor) -> Tensor:
    available[:, 1, 2] = False
    return available


def nothing_for_the_guide(available: Tensor) -> Tensor:
    available[:, 1] = False
    return available


def a_third_action(available: Tensor) -> Tensor:
    available[:, 0, 2] = True
    return available


CASES = {
    "negative": (with_prob((1.1, -0.1)), "probability of 1.1"),
    "only negative": (with_prob((-0.5, 1.5)), "probability of -0.5"),
    "zero": (with_prob((1.0, 0.0)), "probability of 0.0"),
    "nan": (with_prob((math.nan, 1.0)), "probability of nan"),
    "half": (with_prob((0.25, 0.25)), "sum to 0.5, not 1"),
    "nearly": (with_prob((0.75, 0.25 + 1e-6)), "sum to 1.00000"),
    "no duration": (with_duration(0.0), "duration of 0.0"),
    "backwards": (with_duration(-1.0), "duration of -1.0"),
    "forever": (with_duration(math.inf), "duration of inf"),
    "duration nan": (with_duration(math.nan), "duration of nan"),
    "nothing follows": (answering("transitions", without_last), "have no successors"),
    "what may not be": (answering("available", no_pull), "have some successors"),
    "rows": (answering("transitions", on_one_row), "no state"),
    "no robot": (answering("available", nothing_for_the_guide), "guide no action"),
    "too many": (answering("available", a_third_action), "walker has action 2"),
    "available long": (answering("available", Tensor.long), "torch.int64 of shape"),
    "available flat": (answering("available", lambda x: x[:, 0]), "[state, agent, action]"),
    "achieved float": (answering("achieved", Tensor.double), "torch.float64 of shape"),
    "achieved short": (answering("achieved", lambda x: x[:, :2]), "[state, goal]"),
    "achieved list": (answering("achieved", Tensor.tolist), "returned list"),
    "prob int": (
        answering("transitions", lambda x: Successors(x.offsets, x.states, x.prob.ceil().long())),
        "prob of torch.int64",
    ),
    "offsets": (
        answering("transitions", lambda x: Successors(x.offsets[:-1], x.states, x.prob)),
        "offsets of shape",
    ),
    "words": (
        answering("transitions", lambda x: Successors(x.offsets, x.states.repeat(1, 2), x.prob)),
        "states of shape",
    ),
}
LOCATED = ("probability", "duration", "sum to", "successors", "no action", "has action")


def params(**compute: Any) -> ExactParams:
    return ExactParams.model_validate(
        {"compute": {"workers": 1, **compute}, "rollouts": 0, "inspector": False}
    )


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize("name", CASES)
def test_a_broken_world_is_not_solved(name: str) -> None:
    change, message = CASES[name]
    with pytest.raises(BrokenWorldError) as caught:
        solve(Ring(change), params())
    text = str(caught.value)
    assert message in text
    assert "'ring'" in text
    assert "Ring" in text
    if any(word in message for word in LOCATED):
        assert "The state is [" in text
        assert "in cell" in text
    if any(word in message for word in LOCATED[:4]):
        assert "walker: " in text
        assert "guide: " in text


def test_the_sound_world_is_solved() -> None:
    assert math.isfinite(solve(Ring(), params()).at(0).V_r)


@pytest.mark.parametrize("graph", ["memory", "spill"])
@pytest.mark.parametrize("name", ["negative", "backwards", "nothing follows", "achieved float"])
def test_nor_is_it_in_parts(name: str, graph: str, tmp_path: Path) -> None:
    change, message = CASES[name]
    with pytest.raises(BrokenWorldError) as caught:
        solve(Ring(change), params(parts=2, graph=graph), directory=tmp_path)
    assert message in str(caught.value)


class Locked(Ring):
    """The same, expanded by worker processes."""

    def __init__(self) -> None:
        super().__init__(with_prob((1.1, -0.1)))
        object.__setattr__(self.spec, "releases_gil", False)


def test_worker_processes_raise_the_same_error_as_this_one() -> None:
    with pytest.raises(BrokenWorldError, match=r"probability of 1\.1"):
        solve(Locked(), params(workers=2))


class Even:
    """Robots that act evenly."""

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return torch.full((len(states), 3), 1 / 3, dtype=torch.float64)


@pytest.mark.parametrize(
    "name",
    [
        *("negative", "only negative", "half", "nan", "no duration", "backwards"),
        *("nothing follows", "available long", "achieved float"),
    ],
)
def test_nor_is_it_certified(name: str) -> None:
    change, message = CASES[name]
    world = Ring()
    question = Question(world, Even(), UniformPrior(UniformParams(), world))
    certify(question, Certified(), Effort(0.0), Tracker())
    world.change = change
    with pytest.raises(BrokenWorldError) as caught:
        certify(question, Certified(), Effort(0.0), Tracker())
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["negative", "nan", "half"])
def test_nor_are_episodes_of_it_played(name: str) -> None:
    change, message = CASES[name]
    world = Ring(change)
    sampler = EpisodeSampler(world, Even(), UniformPrior(UniformParams(), world))
    with pytest.raises(BrokenWorldError, match=message):
        list(sampler.play(torch.tensor([0]), torch.tensor([0]), torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("all_profiles", [True, False])
@pytest.mark.parametrize("name", ["negative", "half", "no duration", "nothing follows"])
def test_nor_is_experience_in_it_recorded(name: str, all_profiles: bool) -> None:
    change, message = CASES[name]
    world = Ring(change)
    order = JointActionOrder(world.spec)
    asked = SuccessorQuery(world, order, all_profiles=all_profiles, model_based=True)
    rows = world.initial_state()[None]
    with pytest.raises(BrokenWorldError, match=message):
        asked.to_record(rows, torch.ones(1, 1, dtype=torch.int64))


class Starting(Ring):
    """The same, which starts as a function says."""

    def __init__(self, start: Callable[[], Any]) -> None:
        super().__init__()
        self._start = start

    def initial_states(self) -> InitialStates:
        answer: InitialStates = self._start()
        return answer


def test_initial_states_are_refused_as_what_they_are() -> None:
    row = torch.zeros(1, 1, dtype=torch.int16)
    initial = InitialStates(row, torch.ones(1))
    object.__setattr__(initial, "prob", [1.0])  # Tests check types where it is made.
    with pytest.raises(BrokenWorldError, match=r"initial_states.*prob"):
        initial_states_of(Starting(lambda: initial))
    no_list: Any = 1.0
    with pytest.raises(TypeError, match="len"):
        initial_states_of(Starting(lambda: len(no_list)))
    world = Ring()
    world.initial_state = lambda: [0]  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(BrokenWorldError, match=r"initial_state\b.*tensor"):
        initial_states_of(world)


class SomePolicy:
    """Robots with given probabilities."""

    def __init__(self, *chances: float) -> None:
        self._chances = torch.tensor(chances, dtype=torch.float64)

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._chances.repeat(len(states), 1)


class Unlocked(Ring):
    """The same, where the guide cannot pull and the walker cannot go."""

    def __init__(self) -> None:
        super().__init__(lambda method, answer: getattr(self, f"_{method}", lambda x: x)(answer))

    def _available(self, available: Tensor) -> Tensor:
        available[:, 1, 2] = available[:, 0, 1] = False
        return available

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        found = super().transitions(states, actions)
        if actions is None:
            joint = torch.arange(found.num_pairs) % self.spec.num_joint_actions
            may = (joint % 2 == 0) & (joint // 2 < 2)
        else:
            may = (actions[:, 0] == 0) & (actions[:, 1] < 2)
        items = may.repeat_interleave(2)
        offsets = torch.cat([torch.zeros(1, dtype=torch.int64), (may * 2).cumsum(0)])
        return Successors(offsets, found.states[items], found.prob[items])


class SomePrior:
    """Humans with given probabilities."""

    def __init__(self, *chances: float) -> None:
        self._chances = torch.tensor(chances, dtype=torch.float64)

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        return self._chances.repeat(len(states), STATES, 1)


@pytest.mark.parametrize("chances", [(0.5, 0.5), (0.75, 0.25), (1 - 1e-7, 1e-7)])
def test_humans_who_do_what_they_cannot_are_played_and_certified_nowhere(
    chances: tuple[float, float],
) -> None:
    world = Unlocked()
    robots, humans = SomePolicy(0.5, 0.5, 0.0), SomePrior(*chances)
    sampler = EpisodeSampler(world, robots, humans)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(SolveError, match=r"'go' of walker \(agent 0\)(.|\n)*The state is \[0\]"):
        list(sampler.play(torch.tensor([0]), torch.tensor([0]), generator))
    with pytest.raises(SolveError, match=r"'go' of walker \(agent 0\)(.|\n)*The state is \[0\]"):
        certify(Question(world, robots, humans), Certified(), Effort(0.0), Tracker())


@pytest.mark.parametrize(
    ("chances", "message"),
    [
        ((0.5, 0.25, 0.25), "not available.*0.25 to 'pull'"),
        ((0.5, math.nan, 0.0), "distribution"),
        ((1.5, -0.5, 0.0), "distribution"),
        ((0.5, 0.49, 0.0), "distribution"),
    ],
)
def test_nor_are_such_robots(chances: tuple[float, ...], message: str) -> None:
    world = Unlocked()
    robots, humans = SomePolicy(*chances), UniformPrior(UniformParams(), world)
    generator = torch.Generator().manual_seed(0)
    sampler = EpisodeSampler(world, robots, humans)
    with pytest.raises(SolveError, match=message):
        list(sampler.play(torch.tensor([0]), torch.tensor([0]), generator))
    with pytest.raises(SolveError, match=message):
        certify(Question(world, robots, humans), Certified(), Effort(0.0), Tracker())


def test_rounding_of_probabilities_is_none_of_that() -> None:
    world = Unlocked()
    robots, humans = SomePolicy(0.5, 0.5, 0.0), SomePrior(1 - 1e-12, 1e-12)
    certify(Question(world, robots, humans), Certified(), Effort(0.0), Tracker())


@pytest.mark.usefixtures("no_shape_checks")
@pytest.mark.parametrize(
    "row", [[2**16 + 1], [-(2**15) - 1], [0.5], [1, 0], ["a"], [[1]], [2**70], 1.5]
)
def test_what_is_no_row_of_the_world_is_no_state_of_the_result(row: Any) -> None:
    result = solve(Ring(), params())
    with pytest.raises(WorldError):
        result.at(row)


def test_states_are_given_by_number_of_any_kind_or_by_row() -> None:
    result = solve(Ring(), params())
    for state in (0, np.int64(0), np.array(0), torch.tensor(0), [0], (0,), np.array([0])):
        assert result.at(state).V_r == result.at(0).V_r
    row = torch.tensor([0], dtype=torch.int64)
    assert result.at(row).V_r == result.at(0).V_r


def test_rows_beyond_the_words_of_the_world_are_none_of_its_states() -> None:
    result = solve(Ring(), params())
    rows = np.array([[2**16], [2**16 + 1], [7], [1]])
    assert result.find_rows(rows).tolist()[:3] == [-1, -1, -1]
    for ask in (result.robot_values, result.robot_policies, result.goal_values):
        with pytest.raises(SolveError, match="never"):
            ask(torch.tensor([[2**16 + 1]]), 2)


def test_public_arrays_have_an_entry_for_each_goal_of_the_world_and_no_other() -> None:
    result = solve(Ring(), params())
    policies, values = result.policies(0), result.values(0)
    assert policies.pi_h.shape == (1, STATES, 2)
    assert values.v_e.shape == values.v_m.shape == (1, STATES)
    here = result.at(0)
    for mine, expected in (
        (policies.pi_h[0], here.pi_h),
        (policies.pi_r[0], here.pi_r),
        (policies.q_r[0], here.Q_r),
        (policies.x_h[0], np.array([here.X_h[0]])),
        (values.v_e[0], here.V_e),
        (values.v_m[0], here.V_m),
    ):
        np.testing.assert_allclose(mine, expected, rtol=1e-12)
    assert values.v_r[0] == pytest.approx(here.V_r)
