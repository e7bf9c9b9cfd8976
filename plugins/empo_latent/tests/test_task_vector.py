"""Many environments together: episodes, tasks side by side, and going on exactly."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from empo_core.errors import CollectError, ConfigError, StorageError
from empo_core.protocols import RunContext, Tracker
from empo_core.protocols.environments import EnvironmentContext, TimeStep
from empo_environments import components
from empo_environments.components import GymnasiumBacked, GymnasiumEnvironment
from empo_environments.params import GymnasiumParams, WrapperParams
from empo_latent.algorithm import LatentAlgorithm
from empo_latent.environments.task_vector import TaskVector, multi_task_spec
from empo_latent.params import LatentParams
from empo_learning.state_tree import flatten, unflatten


def task(**options: Any) -> GymnasiumEnvironment:
    return GymnasiumEnvironment(GymnasiumParams(**options), EnvironmentContext())


PENDULUM = task(id="Pendulum-v1", max_episode_steps=15)
CAR = task(id="MountainCarContinuous-v0", max_episode_steps=9)
STACKED = task(id="Pendulum-v1", max_episode_steps=15, frame_stack=2, action_repeat=3)


class Odd(gymnasium.Env[Any, Any]):
    """Seen as it was made; may fail at a step, or show what no seed determines."""

    def __init__(
        self,
        words: int = 2,
        actions: int = 1,
        shape: tuple[int, ...] = (),
        fails_at: int = -1,
        drifts: bool = False,
        sticks: bool = False,
    ) -> None:
        box = spaces.Box(0, 255, shape, np.uint8) if shape else spaces.Box(-9, 9, (words,))
        self.observation_space, self.action_space = box, spaces.Box(-1, 1, (actions,))
        self._fails_at, self._drifts, self._sticks = fails_at, drifts, sticks
        self._step = self._ever = 0
        self.closed = 0

    def _seen(self) -> np.ndarray:
        self._ever += 1
        shown = self._ever if self._drifts else self._step
        return np.full(self.observation_space.shape, shown, self.observation_space.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        if self._step == self._fails_at:
            raise RuntimeError("out of order")
        return self._seen(), float(action.sum()), False, False, {}

    def close(self) -> None:
        self.closed += 1
        if self._sticks:
            raise RuntimeError("it sticks")


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Callable[..., GymnasiumBacked]:
    """A function that makes a task of an odd environment; those that were made are in ``made``."""
    module = ModuleType("odds")
    module.made = made = []  # type: ignore[attr-defined]

    def make(**kwargs: Any) -> Odd:
        made.append(Odd(**kwargs))
        return made[-1]

    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odds", module)

    def task(*, task: dict[str, Any] | None = None, **kwargs: Any) -> GymnasiumBacked:
        given = WrapperParams(**{"max_episode_steps": 30, **(task or {})})
        return GymnasiumBacked("odd", lambda rendering: make(**kwargs), given)

    return task


def episodes(vector: TaskVector) -> list[dict[str, Any]]:
    """State of the episode of each environment, task by task."""
    found = []
    for copies in vector.state_dict()["tasks"]:
        for state in copies["environments"]:
            while "environment" in state:  # Of wrappers.
                state = state["environment"]
            found.append(state)
    return found


def actions(vector: TaskVector, number: int, seed: int = 0) -> np.ndarray:
    shape = (number, len(vector.task_of), vector.spec.actions)
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def played(vector: TaskVector, number: int, seed: int = 0) -> list[TimeStep]:
    return [vector.step(each) for each in actions(vector, number, seed)]


def assert_same(left: list[TimeStep], other: list[TimeStep]) -> None:
    for first, second in zip(left, other, strict=True):
        for name in (
            "observation", "reward", "terminated", "truncated", "starts", "success",
            "last_observation",
        ):  # fmt: skip
            a, b = getattr(first, name), getattr(second, name)
            assert a.dtype == b.dtype
            assert np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def test_an_episode_that_ends_is_followed_by_another_one_in_the_same_step() -> None:
    vector = TaskVector([PENDULUM], envs=2)
    seen = [vector.start(0).observation]
    for t, step in enumerate(played(vector, 31)):
        ended = t % 15 == 14
        assert step.truncated.tolist() == [ended, ended]
        assert (step.last_observation == step.observation).all() != ended
        if ended:
            seen.append(step.observation)
    assert np.array_equal(step.observation, vector.current)
    firsts = np.concatenate(seen)
    assert len(np.unique(firsts, axis=0)) == 6  # Three episodes of each, no two alike.
    vector.close()


def test_a_seed_decides_everything_and_another_seed_something_else() -> None:
    runs = []
    vector = TaskVector([PENDULUM], envs=2)
    for seed in (1, 1, 2):
        first = vector.start(seed).observation
        runs.append((first, played(vector, 20)))
    assert np.array_equal(runs[0][0], runs[1][0])
    assert_same(runs[0][1], runs[1][1])
    assert not np.array_equal(runs[0][0], runs[2][0])
    vector.close()


def test_tasks_lie_side_by_side_and_the_narrower_one_is_padded() -> None:
    vector = TaskVector([PENDULUM, CAR], envs=5)
    spec = vector.spec
    assert vector.task_of.tolist() == [0, 1, 0, 1, 0]
    assert spec.tasks == ("Pendulum-v1", "MountainCarContinuous-v0")
    assert (spec.words, spec.shape, spec.actions) == (3, (3,), 1)
    assert spec.episode_lengths == (15, 9)
    assert vector.rates == (30.0, 30.0)
    assert (vector.start(0).observation[[1, 3], 2] == 0).all()
    for step in played(vector, 20):
        assert (step.last_observation[[1, 3], 2] == 0).all()
        assert (step.observation[[1, 3], 2] == 0).all()
        assert (step.last_observation[[0, 2, 4], 2] != 0).all()
    vector.close()


def test_a_task_gets_its_own_numbers_of_an_action(odd: Callable[..., GymnasiumBacked]) -> None:
    vector = TaskVector([odd(actions=1), odd(actions=3, words=1)], envs=2)
    assert vector.spec.active == ((True, False, False), (True, True, True))
    vector.start(0)
    step = vector.step(np.array([[0.25, 1, 1], [0.25, 0.5, -1]], np.float32))
    assert step.reward.tolist() == [0.25, -0.25]
    vector.close()


def test_tasks_of_one_name_are_told_apart() -> None:
    other = task(id="Pendulum-v1", max_episode_steps=15, kwargs={"g": 5.0})
    vector = TaskVector([PENDULUM, CAR, other], envs=3)
    assert vector.spec.tasks == ("Pendulum-v1#1", "MountainCarContinuous-v0", "Pendulum-v1#2")
    vector.close()


def test_fewer_environments_than_tasks_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_envs:"):
        TaskVector([PENDULUM, CAR], envs=1)


def test_pictures_beside_numbers_are_refused(odd: Callable[..., GymnasiumBacked]) -> None:
    with pytest.raises(ConfigError, match=r"odd .*pictures"):
        TaskVector([PENDULUM, odd(shape=(8, 8, 3))], envs=2)
    assert {each.closed for each in sys.modules["odds"].made} == {1}


def test_pictures_of_other_shapes_are_refused(odd: Callable[..., GymnasiumBacked]) -> None:
    with pytest.raises(ConfigError, match=r"\(3, 64, 64\) .* \(1, 64, 64\)"):
        TaskVector([odd(shape=(8, 8, 3)), odd(shape=(8, 8))], envs=2)
    vector = TaskVector([odd(shape=(8, 8, 2)), odd(shape=(8, 8), task={"frame_stack": 2})], envs=2)
    assert vector.spec.shape == (2, 64, 64)
    vector.close()


def test_a_checkpoint_puts_environments_back_where_they_were() -> None:
    original = TaskVector([STACKED, CAR], envs=3)
    original.start(4)
    before = played(original, 22)[-1]  # In the second episode, and the third.
    data, tensors = flatten(original.state_dict())
    other = TaskVector([STACKED, CAR], envs=3)
    assert other.load_state_dict(unflatten(data, tensors))
    assert np.array_equal(other.current, before.observation)
    assert_same(played(original, 30, seed=1), played(other, 30, seed=1))
    original.close()
    other.close()


def test_a_checkpoint_where_an_episode_just_began_puts_it_back_too() -> None:
    original = TaskVector([PENDULUM], envs=1)
    original.start(4)
    before = played(original, 15)[-1]
    other = TaskVector([PENDULUM], envs=1)
    assert other.load_state_dict(original.state_dict())
    assert np.array_equal(other.current, before.observation)
    original.close()
    other.close()


def test_the_interface_is_known_without_a_step(
    odd: Callable[..., GymnasiumBacked], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [STACKED, odd(words=5, actions=2), odd(words=3)]
    vector = TaskVector(tasks, envs=4)
    vector.close()
    picture = odd(shape=(90, 80, 3))
    large = TaskVector([picture], envs=1)
    large.close()
    monkeypatch.setattr(Odd, "step", None)
    made = sys.modules["odds"].made
    made.clear()
    assert multi_task_spec(tasks, envs=4) == vector.spec
    assert len(made) == 2
    assert multi_task_spec([picture], envs=1) == large.spec
    assert all(each.closed for each in made)


def test_what_cannot_be_played_again_begins_anew(odd: Callable[..., GymnasiumBacked]) -> None:
    vector = TaskVector([PENDULUM, odd(drifts=True)], envs=2)
    vector.start(0)
    before = played(vector, 3)[-1]
    state = vector.state_dict()
    assert not vector.load_state_dict(state)
    assert np.array_equal(vector.current[0], before.observation[0])
    states = episodes(vector)
    assert [each["episode"] for each in states] == [0, 1]
    assert [len(each["actions"]) for each in states] == [3, 0]
    vector.close()


def test_an_episode_that_fails_again_is_left_behind(odd: Callable[..., GymnasiumBacked]) -> None:
    vector = TaskVector([odd()], envs=1)
    vector.start(0)
    played(vector, 8)
    other = TaskVector([odd(fails_at=7)], envs=1)
    assert not other.load_state_dict(vector.state_dict())
    assert episodes(other)[0]["episode"] == 1
    played(other, 6)
    vector.close()
    other.close()


def test_an_episode_that_now_ends_earlier_is_left_behind() -> None:
    vector = TaskVector([PENDULUM], envs=1)
    vector.start(0)
    played(vector, 12)
    other = TaskVector([task(id="Pendulum-v1", max_episode_steps=10)], envs=1)
    assert not other.load_state_dict(vector.state_dict())
    vector.close()
    other.close()


def test_a_checkpoint_of_more_environments_is_refused() -> None:
    vector, other = TaskVector([PENDULUM], envs=2), TaskVector([PENDULUM], envs=3)
    vector.start(0)
    with pytest.raises(StorageError, match=r"2 environments.* 3"):
        other.load_state_dict(vector.state_dict())
    vector.close()
    other.close()


def test_a_failure_says_which_task_and_environment_and_where(
    odd: Callable[..., GymnasiumBacked],
) -> None:
    vector = TaskVector([odd(), odd(fails_at=6), odd(fails_at=6)], envs=3)
    vector.start(0)
    played(vector, 5)
    with pytest.raises(
        CollectError, match=r"odd#2: environment 1 .*RuntimeError.*episode 0, step 6;"
    ):
        played(vector, 1)
    vector.close()


def test_closing_closes_everything_once(
    odd: Callable[..., GymnasiumBacked], caplog: pytest.LogCaptureFixture
) -> None:
    vector = TaskVector([odd(sticks=True), odd()], envs=4)
    vector.close()
    vector.close()
    assert [each.closed for each in sys.modules["odds"].made] == [1] * 4
    assert "closing environment 1 failed" in caplog.text


def test_the_random_numbers_of_others_are_left_alone() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    vector = TaskVector([PENDULUM], envs=2)
    vector.start(0)
    played(vector, 20)
    vector.close()
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == np.random.get_state()[1].tolist()


def test_environments_of_a_run_get_its_seed_and_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    contexts: list[EnvironmentContext] = []

    class Recording(GymnasiumEnvironment):
        def __init__(self, params: GymnasiumParams, context: EnvironmentContext) -> None:
            contexts.append(context)
            super().__init__(params, context)

    monkeypatch.setattr(components, "GymnasiumEnvironment", Recording)
    params = LatentParams.model_validate({"tasks": ["gymnasium/Pendulum-v1"], "total_steps": 100})
    context = RunContext(world=None, seed=7, directory=tmp_path, tracker=Tracker(), resume=False)
    with pytest.raises(StorageError):  # Nothing was learned; environments are built before.
        LatentAlgorithm(params).restore(context)
    assert [(given.seed, given.directory.parent) for given in contexts] == [(7, tmp_path)]
