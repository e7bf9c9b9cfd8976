"""Playing policies: how often each human reaches each goal, and animations of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from empo_core.errors import ConfigError, SolveError
from empo_core.types import Goal, Overlay, WorldSpec
from empo_learning.evaluation import EpisodeSampler, evaluate, film
from empo_learning.evaluation.starts import Starts
from empo_testing.worlds import INSIDE, TinyWorld

EPISODES = 4000


class EvenRobots:
    """Chooses evenly among the robot's available actions."""

    def __init__(self, world: TinyWorld) -> None:
        self._world = world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        able = self._world.available(states)[:, 1, :2].double()
        return able / able.sum(1, keepdim=True)


class EagerHumans:
    """Each goal's human prefers one of its actions, a different one for each goal."""

    def __init__(self, world: TinyWorld) -> None:
        self._world = world

    def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
        able = self._world.available(states).double()
        favour = torch.tensor([[3.0, 1.0, 0.0], [1.0, 5.0, 0.0], [1.0, 2.0, 0.0]]).double()
        favour = favour.repeat(len(states), 1, 1)
        favour[:, 2, 2] = 1 / steps_left.double()
        owners = torch.tensor([goal.human for goal in self._world.spec.goals])
        chances = able[:, owners] * favour[:, : len(owners)]
        return chances / chances.sum(-1, keepdim=True)


class ShiftedWorld(TinyWorld):
    """As ``TinyWorld``, but with other goals or another start."""

    def __init__(self, horizon: int | None = 3, start: int = 0, **changes: Any) -> None:
        super().__init__(horizon)
        self._begin = start
        self.spec = dataclasses.replace(self.spec, **changes)

    def initial_state(self) -> Tensor:
        return self._rows[self._begin].clone()


class DrawnWorld(TinyWorld):
    """A ``TinyWorld`` that shows its state as a grey level and remembers what was drawn on it."""

    def __init__(self) -> None:
        super().__init__()
        self.overlays: list[Overlay] = []

    def render(self, state: Tensor, overlay: Overlay | None = None) -> np.ndarray:
        assert overlay is not None
        self.overlays.append(overlay)
        return np.full((8, 8, 3), 60 * int(state.sum()), np.uint8)


def sampler_of(world: TinyWorld, max_steps: int | None = None) -> EpisodeSampler:
    return EpisodeSampler(world, EvenRobots(world), EagerHumans(world), max_steps)


def attainment_by_enumeration(sampler: EpisodeSampler, goal: int) -> tuple[float, float]:
    """Probability of reaching a goal, and the mean time where it is reached."""
    spec = sampler.spec
    by_time = np.zeros(sampler.last_time() + 1)
    owner = spec.goals[goal].human
    choices = [[goal] if h == owner else list(spec.goals_of(h)) for h in spec.humans]
    for pursued in itertools.product(*choices):
        weight = math.prod(
            spec.goals[g].weight / sum(spec.goals[other].weight for other in spec.goals_of(h))
            for g, h in zip(pursued, spec.humans, strict=True)
            if h != owner
        )
        enumerate_from(sampler, sampler.world.initial_state(), 0, pursued, goal, weight, by_time)
    total = by_time.sum()
    return float(total), float(by_time @ np.arange(len(by_time)) / total) if total else math.nan


def enumerate_from(
    sampler: EpisodeSampler,
    state: Tensor,
    step: int,
    pursued: tuple[int, ...],
    goal: int,
    weight: float,
    by_time: np.ndarray,
) -> None:
    """Add the probability of each time of arrival, path by path."""
    world, spec = sampler.world, sampler.spec
    if step > 0 and bool(world.achieved(state[None])[0, goal]):
        by_time[step] += weight
        return
    if step == sampler.last_time() or not world.available(state[None]).any():
        return
    left = 1 if spec.horizon is None else spec.horizon - step
    robot = sampler.robots.policy(state[None], torch.tensor([left]))[0]
    humans = sampler.humans.policy(state[None], torch.tensor([left]))[0]
    for a, r, b in itertools.product(range(2), range(2), range(3)):
        chance = float(humans[pursued[0], a] * robot[r] * humans[pursued[1], b])
        if chance == 0:
            continue
        found = world.transitions(state[None], torch.tensor([[a, r, b]]))
        for row, prob in zip(found.states, found.prob.tolist(), strict=True):
            enumerate_from(sampler, row, step + 1, pursued, goal, weight * chance * prob, by_time)


@pytest.mark.parametrize(
    "world", [TinyWorld(3), ShiftedWorld(3, start=1), TinyWorld(1)], ids=["three", "open", "one"]
)
def test_goals_are_attained_as_often_and_as_soon_as_the_probabilities_say(
    world: TinyWorld,
) -> None:
    sampler = sampler_of(world)
    found = evaluate(sampler, episodes=EPISODES, seed=1)
    for goal, attained in enumerate(found.goals):
        share, mean_time = attainment_by_enumeration(sampler, goal)
        error = math.sqrt(share * (1 - share) / EPISODES)
        assert attained.standard_error == pytest.approx(error, abs=0.3 * error + 1e-9)
        assert abs(attained.reached - share) <= 4 * error + 1e-9
        if attained.mean_time is not None:
            assert attained.mean_time_standard_error is not None
            slack = 4 * attained.mean_time_standard_error + 1e-9
            assert abs(attained.mean_time - mean_time) <= slack


def test_other_humans_pursue_goals_by_weight() -> None:
    heavy = (
        Goal(human=0, name="open", weight=0.0),
        Goal(human=0, name="inside", weight=2.0),
        Goal(human=2, name="inside", weight=0.5),
    )
    sampler = sampler_of(ShiftedWorld(3, start=1, goals=heavy))
    share, _ = attainment_by_enumeration(sampler, 2)
    even, _ = attainment_by_enumeration(sampler_of(ShiftedWorld(3, start=1)), 2)
    found = evaluate(sampler, episodes=EPISODES, seed=0).goals[2]
    assert abs(found.reached - share) < 4 * found.standard_error
    assert abs(even - share) > 4 * found.standard_error


def test_a_goal_that_holds_at_the_start_counts_once_it_is_arrived_at() -> None:
    world = ShiftedWorld(3, start=INSIDE)
    found = evaluate(sampler_of(world), episodes=5, seed=0)
    assert found.mean_length == 0
    assert [goal.reached for goal in found.goals] == [0.0, 0.0, 0.0]
    assert [goal.mean_time for goal in found.goals] == [None, None, None]


def test_episodes_begin_in_listed_states_and_at_listed_times() -> None:
    row = torch.tensor([[1, 0]], dtype=torch.int16)
    starts = Starts(row, torch.tensor([-1]), torch.tensor([1]))
    world = TinyWorld(3)
    sampler = EpisodeSampler(world, EvenRobots(world), EagerHumans(world), starts=starts)
    # One step is over: the same as beginning there with a horizon that is one step nearer.
    shorter = sampler_of(ShiftedWorld(2, start=1))
    found = evaluate(sampler, episodes=EPISODES, seed=1)
    for goal, attained in enumerate(found.goals):
        share, mean_time = attainment_by_enumeration(shorter, goal)
        assert abs(attained.reached - share) <= 4 * attained.standard_error
        assert attained.mean_time is not None
        assert attained.mean_time_standard_error is not None
        assert abs(attained.mean_time - mean_time) <= 4 * attained.mean_time_standard_error
    cut = EpisodeSampler(world, EvenRobots(world), EagerHumans(world), 1, starts)
    assert evaluate(cut, episodes=30, seed=1).mean_length == 1


def test_episodes_of_a_goal_take_its_starts_in_turn(tmp_path: Path) -> None:
    rows = torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.int16)
    starts = Starts(rows, torch.tensor([2, 1, 1]), torch.tensor([0, 2, 0]))
    world = DrawnWorld()
    sampler = EpisodeSampler(world, EvenRobots(world), EagerHumans(world), starts=starts)
    found = evaluate(sampler, episodes=100, seed=0)
    assert [goal.goal for goal in found.goals] == [1, 2]
    # Of the 200 episodes 50 begin where they end, and 50 before the last step.
    assert found.mean_length <= (50 * 0 + 50 * 1 + 100 * 3) / 200
    film(sampler, tmp_path, episodes=4, seed=0)
    begins = [overlay.caption for overlay in world.overlays if "wants" in overlay.caption]
    assert begins[0] == "t = 0: shouter wants inside"
    assert "t = 2: walker wants inside" in begins


def test_the_seed_decides_everything() -> None:
    sampler = sampler_of(TinyWorld())
    torch.manual_seed(1)
    first = evaluate(sampler, episodes=50, seed=3)
    torch.manual_seed(2)
    assert evaluate(sampler, episodes=50, seed=3) == first
    assert evaluate(sampler, episodes=50, seed=4) != first


def test_many_episodes_are_played_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empo_learning.evaluation.episodes.AT_ONCE", 700)
    sampler = sampler_of(TinyWorld())
    found = evaluate(sampler, episodes=EPISODES, seed=1)
    for goal, attained in enumerate(found.goals):
        share, _ = attainment_by_enumeration(sampler, goal)
        assert abs(attained.reached - share) <= 4 * attained.standard_error
    assert 0 < found.mean_length <= 3


def test_a_policy_is_asked_about_each_state_once() -> None:
    class Counting(EvenRobots):
        asked: list[int] = []  # noqa: RUF012

        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            self.asked.append(len(states))
            return super().policy(states, steps_left)

    world = TinyWorld()
    evaluate(EpisodeSampler(world, Counting(world), EagerHumans(world)), episodes=500, seed=0)
    assert len(Counting.asked) == 3
    assert max(Counting.asked) <= 2


def test_without_a_horizon_episodes_are_cut_and_said_to_be() -> None:
    world = TinyWorld(None)
    whole = evaluate(sampler_of(world), episodes=300, seed=0)
    assert whole.cut == 0
    short = evaluate(sampler_of(world, max_steps=2), episodes=300, seed=0)
    assert 0 < short.cut <= 1
    assert short.mean_length <= 2
    assert evaluate(sampler_of(TinyWorld(3)), episodes=300, seed=0).cut == 0
    assert evaluate(sampler_of(TinyWorld(3), max_steps=2), episodes=300, seed=0).cut > 0


@pytest.mark.parametrize("bad", [math.nan, -0.5, 0.9])
def test_what_is_no_probability_distribution_is_refused(bad: float) -> None:
    class Broken(EvenRobots):
        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            return torch.full((len(states), 2), bad)

    world = TinyWorld()
    with pytest.raises(SolveError, match=r"robots' .*distribution"):
        evaluate(EpisodeSampler(world, Broken(world), EagerHumans(world)), episodes=3, seed=0)


def test_worlds_in_which_somebody_cannot_act_are_refused() -> None:
    spec = TinyWorld().spec

    def refused(message: str, **changes: Any) -> None:
        world = ShiftedWorld(**changes)
        with pytest.raises(SolveError, match=message):
            evaluate(sampler_of(world), episodes=3, seed=0)

    def roles(*names: Any) -> Any:
        return tuple(
            dataclasses.replace(agent, role=role)
            for agent, role in zip(spec.agents, names, strict=True)
        )

    refused(r"shouter \(agent 2\) .* neither", agents=roles("human", "robot", "other"))
    refused("no human", agents=roles("robot", "robot", "robot"), goals=())
    refused(r"shouter \(agent 2\) .* no goals", goals=spec.goals[:2])
    weightless = (*spec.goals[:2], dataclasses.replace(spec.goals[2], weight=0.0))
    refused(r"shouter \(agent 2\).* weight 0", goals=weightless)


def test_an_animation_shows_goal_policies_and_arrival(tmp_path: Path) -> None:
    world = DrawnWorld()
    files = film(sampler_of(world), tmp_path, episodes=4, seed=0)
    assert [path.name for path in files] == [f"episode_{i}.gif" for i in range(4)]
    total = 0
    for path in files:
        with Image.open(path) as animation:
            total += getattr(animation, "n_frames", 1)
    assert 4 < total <= len(world.overlays)
    first = world.overlays[0]
    assert first.caption == "t = 0: walker wants open"
    assert first.titles == {0: "wants open", 2: "wants inside"}
    assert first.pursued == {0: 0, 2: 2}
    # What is pursued is not a matter of how attainable it is.
    assert all(overlay.goal_values is None for overlay in world.overlays)
    assert first.policies[1] == [0.5, 0.5]
    assert sum(first.policies[0]) == pytest.approx(1)
    for overlay in world.overlays:
        over = not overlay.policies[0]
        assert all((not probs) == over for probs in overlay.policies.values())
        for agent, action in overlay.actions.items():
            assert action is None if over else overlay.policies[agent][action] > 0
    assert sum(not overlay.policies[0] for overlay in world.overlays) == 4
    captions = [overlay.caption for overlay in world.overlays]
    assert any("has reached" in caption for caption in captions)
    assert not any("has reached" in caption for caption in captions if "t = 0" in caption)


def test_a_world_that_cannot_draw_itself_is_not_filmed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'door'"):
        film(sampler_of(TinyWorld()), tmp_path, episodes=1, seed=0)


def test_several_robots_act_by_their_joint_policy() -> None:
    spec: WorldSpec = TinyWorld().spec
    agents = (
        spec.agents[0],
        spec.agents[1],
        dataclasses.replace(spec.agents[2], role="robot"),
    )
    world = ShiftedWorld(agents=agents, goals=spec.goals[:2])

    class Opening:
        """The door's robot opens and the shouter shouts, where they can."""

        def policy(self, states: Tensor, steps_left: Tensor) -> Tensor:
            chances = torch.zeros(len(states), 6)
            closed = states[:, 0] == 0
            chances[closed, 1 + 2 * 2] = 1
            chances[~closed, 0] = 1
            return chances

    found = evaluate(EpisodeSampler(world, Opening(), EagerHumans(world)), episodes=20, seed=0)
    assert found.goals[0].reached == 1.0
    assert found.goals[0].mean_time == 1.0
