"""Evaluations play as many whole episodes everywhere, count them rightly, touching nothing else."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import gymnasium
import numpy as np
import pytest
import torch

from empo_core.errors import ConfigError
from empo_latent.environments.task_vector import TaskVector
from empo_latent.evaluation import Evaluation, evaluate, score_of
from empo_latent.networks.model import LatentModel
from empo_latent.planner import Planner
from empo_learning.evaluation.videos import warn_no_videos
from empo_learning.state_tree import flatten, unflatten

SEED, GAMMAS = 11, (0.9, 0.8)
NAME = "EvaluatedDrawn-v0"


class Happened(NamedTuple):
    """A step, as the environment knows it."""

    seen: np.ndarray
    after: np.ndarray
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    success: float


class Drawn(gymnasium.Env[np.ndarray, np.ndarray]):
    """The episode's seed says how long it takes, how it ends and what it pays besides actions."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}
    made: ClassVar[list[Drawn]] = []

    def __init__(self, render_mode: str | None = None, **how: Any) -> None:
        self.render_mode, self.how = render_mode, how
        self.action_space = gymnasium.spaces.Box(-1, 1, (how.get("width", 1),), np.float32)
        self.lives: dict[int, list[Happened]] = {}
        Drawn.made.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.how.get("longest", 9)))
        self.cut = bool(self.np_random.random() < 0.5)
        self.seen = self._look()
        # Played again from its seed, it is the same episode.
        self.life: list[Happened] = []
        self.lives[seed or 0] = self.life
        return self.seen, {}

    def step(self, action: np.ndarray) -> Any:
        self.left -= 1
        over, seen = self.left <= 0, self.seen
        self.seen = self._look()
        info = {"success": bool(seen[1] > 0)} if self.how.get("tells") and self.left % 2 else {}
        success = float(info.get("success", math.nan))
        reward = float(action.sum() + seen[0])
        ends = over and not self.cut, over and self.cut
        self.life.append(Happened(seen, self.seen, action.copy(), reward, *ends, success))
        return self.seen, reward, *ends, info

    def render(self) -> Any:
        if self.how.get("broken"):
            raise RuntimeError("no driver")
        return np.full((3, 4, 3), 10 * len(self.life), np.uint8)

    def _look(self) -> np.ndarray:
        return self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)


gymnasium.register(NAME, Drawn, max_episode_steps=300, order_enforce=False)


class Place:
    """A model, and environments to evaluate it in."""

    def __init__(
        self, small: Any, envs: int, tasks: int, rendering: bool, how: dict[str, Any], groups: Any
    ) -> None:
        task = {"name": f"gymnasium/{NAME}", "params": {"kwargs": how}}
        others = [{**task, "params": {"kwargs": {**how, "width": 2}}}] * (tasks - 1)
        self.params = small(
            tasks=[task, *others], num_envs=tasks, **{"reward": {"episodic": True}, **groups}
        )
        first = len(Drawn.made)
        self.vector = TaskVector(self.params.tasks, envs=envs, rendering=rendering)
        self.envs = [env for env in Drawn.made[first:] if env.render_mode or not rendering]
        for env in self.envs:
            env.lives.clear()  # The vector has looked at their first observation.
        generator = torch.Generator().manual_seed(2)
        self.model = LatentModel(self.params, self.vector.spec, generator=generator)
        with torch.no_grad():  # Heads start near 0, where everything is worth 0.
            for weight in self.model.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
        self.planner = Planner(
            self.model,
            self.params.planner,
            horizon=2,
            discount=torch.tensor(GAMMAS[:tasks]),
            critic=self.params.value.critic,
        )

    def play(
        self,
        episodes: int = 2,
        actor: Any = "policy",
        seed: int = SEED,
        **how: Any,
    ) -> Any:
        return evaluate(
            self.model,
            self.planner,
            self.vector,
            episodes=episodes,
            actor=actor,
            seed=seed,
            device="cpu",
            discounts=GAMMAS[: len(self.params.tasks)],
            **how,
        )

    def lived(self, episodes: int) -> list[tuple[int, list[Happened]]]:
        """The first episodes of each environment, by the number of its task."""
        tasks = sorted(self.vector.task_of.tolist())  # Environments are made task by task.
        return [
            (task, life)
            for task, env in zip(tasks, self.envs, strict=True)
            for life in list(env.lives.values())[:episodes]
        ]


Open = Callable[..., Place]


@pytest.fixture
def place(small: Any) -> Iterator[Open]:
    """A function that makes a place, closed after the test."""
    found: list[Place] = []

    def make(
        envs: int = 3, tasks: int = 1, rendering: bool = False, how: Any = None, **groups: Any
    ) -> Place:
        found.append(Place(small, envs, tasks, rendering, how or {}, groups))
        return found[-1]

    yield make
    for each in found:
        each.vector.close()
    Drawn.made.clear()


@pytest.mark.parametrize("actor", ["policy", "planner"])
def test_each_environment_plays_as_many_episodes_whether_short_or_long(
    place: Open, actor: str
) -> None:
    here = place(envs=4)
    found = here.play(episodes=12, actor=actor)
    lives = [life for _, life in here.lived(3)]
    assert len({len(life) for life in lives}) > 3
    totals = [sum(step.reward for step in life) for life in lives]
    statistics = found.statistics()
    assert statistics.episodes == 12
    assert sorted(each.total for each in found.episodes) == pytest.approx(sorted(totals), abs=1e-4)
    assert found.mean_return == pytest.approx(np.mean(totals), abs=1e-5)
    assert statistics.standard_error == pytest.approx(np.std(totals, ddof=1) / 12**0.5, rel=1e-4)
    assert (statistics.min_return, statistics.max_return) == pytest.approx(
        (min(totals), max(totals))
    )
    assert statistics.mean_length == np.mean([len(life) for life in lives])
    assert statistics.terminated == np.mean([life[-1].terminated for life in lives])
    assert 0 < statistics.terminated < 1


@torch.no_grad()
def test_nobody_explores(place: Open) -> None:
    here = place()
    here.play()
    for _, life in here.lived(1):
        z = here.model.encode(torch.from_numpy(np.stack([step.seen for step in life])))
        policy = here.model.policy(z)
        done = np.stack([step.action for step in life])
        np.testing.assert_allclose(done, policy.bounded(policy.mode), atol=1e-5)


def test_the_planner_and_the_policy_are_told_apart(place: Open) -> None:
    here = place()
    assert here.play().mean_return != here.play(actor="planner").mean_return


def test_an_odd_number_of_episodes_is_shared_out(place: Open) -> None:
    here = place(envs=4)
    assert len(here.play(episodes=6).episodes) == 6
    assert len(here.play(episodes=2).episodes) == 2


def test_a_task_without_an_environment_or_no_episodes_are_refused(place: Open) -> None:
    here = place()
    with pytest.raises(ValueError, match="play"):
        here.play(episodes=0)
    here.vector.task_of[:] = 1
    with pytest.raises(ValueError, match=f"task {NAME}"):
        here.play()


@torch.no_grad()
@pytest.mark.parametrize("critic", ["v", "q"])
def test_values_are_compared_with_what_came_discounted(place: Open, critic: str) -> None:
    here = place(envs=4, tasks=2, value={"critic": critic})
    found = here.play(episodes=6)
    ends = set()
    for episode, (task, life) in zip(found.episodes, here.lived(3), strict=True):
        value = worth(here, task, life[0].seen)
        assert episode.task == task
        assert episode.value == pytest.approx(value, abs=1e-4)
        earned = sum(GAMMAS[task] ** t * step.reward for t, step in enumerate(life))
        ends.add(life[-1].truncated)
        if life[-1].truncated:  # What comes after is what the model thinks of the last state.
            earned += GAMMAS[task] ** len(life) * worth(here, task, life[-1].after)
        assert episode.discounted == pytest.approx(earned, abs=1e-4)
    assert ends == {False, True}
    statistics = found.statistics()
    off = [each.value - each.discounted for each in found.episodes]
    assert statistics.value_bias == pytest.approx(np.mean(off))
    assert statistics.value_error == pytest.approx(np.mean(np.abs(off)))
    assert statistics.mean_value == pytest.approx(np.mean([each.value for each in found.episodes]))


def worth(here: Place, number: int, observation: np.ndarray) -> float:
    """The model's estimate of a state's value."""
    task = torch.tensor([number]) if len(here.params.tasks) > 1 else None
    z = here.model.encode(torch.from_numpy(observation)[None], task=task)
    policy = here.model.policy(z, task=task)
    return float(here.model.value(z, policy.bounded(policy.mode), task=task).mean())


def test_success_counts_where_the_environment_says_so(place: Open) -> None:
    assert place().play(episodes=6).statistics().success is None
    here = place(how={"tells": True, "longest": 4})
    found = here.play(episodes=9)
    told = [[s.success for s in life if not math.isnan(s.success)] for _, life in here.lived(3)]
    known = [max(each) for each in told if each]
    assert len(known) < len(told)
    assert 0 < np.mean(known) < 1
    assert found.statistics().success == np.mean(known)
    assert found.metrics()["eval/policy/success"] == np.mean(known)


def test_tasks_are_told_apart_and_count_alike(place: Open) -> None:
    here = place(envs=3, tasks=2)
    found = here.play(episodes=4)
    one, two = (found.statistics(task) for task in found.tasks)
    assert found.tasks == (f"{NAME}#1", f"{NAME}#2")
    assert (one.episodes, two.episodes) == (4, 4)
    metrics = found.metrics()
    assert metrics[f"eval/policy/{NAME}#2/return_mean"] == two.mean_return
    mean = (one.mean_return + two.mean_return) / 2
    assert metrics["eval/policy/return_mean"] == pytest.approx(mean)
    # Tasks are no sample: how far they are apart says nothing about how sure the mean is.
    error = math.hypot(one.standard_error, two.standard_error) / 2
    assert found.statistics().standard_error == pytest.approx(error)
    alone = place().play().metrics()
    assert not any(NAME in name for name in alone)
    assert all(math.isfinite(number) for number in alone.values())


def test_an_evaluation_is_decided_by_its_seed(place: Open) -> None:
    for actor in ("policy", "planner"):
        torch.manual_seed(76)
        first = place().play(actor=actor)
        torch.manual_seed(77)
        here = place()
        assert here.play(actor=actor) == first
        assert here.play(actor=actor) == first
        assert here.play(actor=actor, seed=SEED + 1) != first


@pytest.mark.parametrize("actor", ["policy", "planner"])
def test_nothing_else_notices_an_evaluation(place: Open, actor: str) -> None:
    here, training = place(rendering=True), place()
    training.vector.start(3)
    before = copy.deepcopy(here.model.state_dict())
    state = training.vector.state_dict()
    draws = []
    for evaluated in (False, True):
        # Not Python's own generator, from which checks of types draw too.
        np.random.seed(5)
        torch.manual_seed(5)
        if evaluated:
            here.play(actor=actor, videos=1)
        draws.append((np.random.random(), torch.rand(3).tolist()))
    assert draws[0] == draws[1]
    torch.testing.assert_close(here.model.state_dict(), before, rtol=0, atol=0)
    assert all(weight.grad is None for weight in here.model.parameters())
    assert flatten(training.vector.state_dict())[0] == flatten(state)[0]


def test_randomness_is_put_back_though_an_evaluation_fails(place: Open) -> None:
    here = place()
    here.vector.task_of[:] = 1
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(ValueError, match="no environment"):
        here.play()
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def test_an_evaluation_survives_a_checkpoint(place: Open) -> None:
    found = place(tasks=2).play(episodes=2)
    data, tensors = flatten({"found": found.to_dict()})
    again = Evaluation.from_dict(unflatten(data, tensors)["found"])
    assert repr(again) == repr(found)  # Of numbers that are NaN, equality says nothing.
    assert again.metrics() == found.metrics()


def test_the_score_is_that_of_the_best_actor(place: Open) -> None:
    here = place()
    found = {actor: here.play(actor=actor) for actor in ("planner", "policy")}
    assert score_of(found) == max(each.mean_return for each in found.values())


def test_the_first_episodes_are_filmed(place: Open) -> None:
    here = place(envs=4, tasks=2, rendering=True)
    found = here.play(episodes=4, videos=3)
    videos = found.videos
    assert sorted(video.task for video in videos) == sorted(found.tasks * 3)
    totals = {each.total for each in found.episodes}
    for video in videos:
        assert video.actor == "policy"
        assert video.total in totals
        assert video.fps == 20
        (length,) = [each.length for each in found.episodes if each.total == video.total]
        assert [int(frame[0, 0, 0]) for frame in video.frames] == list(range(0, 10 * length, 10))
    assert not here.play(episodes=2).videos


@pytest.mark.parametrize(
    ("how", "rendering", "reason"),
    [({"broken": True}, True, "no driver"), ({}, False, "render_mode")],
)
def test_an_evaluation_goes_on_where_nothing_can_be_drawn(
    how: dict[str, Any],
    rendering: bool,
    reason: str,
    place: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_no_videos.cache_clear()
    here = place(how=how, rendering=rendering)
    with caplog.at_level(logging.WARNING):
        found = [here.play(videos=2) for _ in range(2)]
    assert found[0] == place(how=how).play()
    assert not found[0].videos
    (record,) = caplog.records
    assert reason in record.getMessage()
    warn_no_videos.cache_clear()


def test_a_film_that_is_asked_for_is_an_error_where_nothing_can_be_drawn(place: Open) -> None:
    here = place(how={"broken": True}, rendering=True)
    with pytest.raises(ConfigError, match="no driver"):
        here.play(videos=1, must_film=True)
