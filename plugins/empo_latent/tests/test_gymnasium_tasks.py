"""Gymnasium environments as tasks: what is seen and done, when episodes end, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols.environments import EnvironmentContext
from empo_environments.components import GymnasiumBacked, GymnasiumEnvironment
from empo_environments.params import GymnasiumParams, WrapperParams
from empo_environments.single_env import episode_seed
from empo_latent.environments.task_vector import TaskVector

BOX = spaces.Box(-1, 1, (1,), np.float32)
SEEN = spaces.Box(-np.inf, np.inf, (2,), np.float64)
SKEWED = spaces.Box(np.array([0, -3], np.float32), np.array([2, 5], np.float32))


class Scripted(gymnasium.Env[Any, Any]):
    """Does as it is told: shows the episode's number and step, pays the step, remembers actions."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(
        self,
        observations: spaces.Space[Any] = SEEN,
        actions: spaces.Space[Any] = BOX,
        *,
        show: Callable[[int, int], Any] = lambda episode, step: [episode, step],
        pay: Callable[[int, int], Any] = lambda episode, step: step,
        ends_at: int | None = None,
        success: dict[int, dict[str, Any]] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space, self.action_space = observations, actions
        self.render_mode = render_mode
        self._show, self._pay, self._ends_at = show, pay, ends_at
        self._success = success or {}
        self._episode, self._now = -1, 0
        self.done: list[np.ndarray] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._now = self._episode + 1, 0
        self.seeds.append(seed)
        return self._show(self._episode, 0), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self._now += 1
        self.done.append(action)
        paid = self._pay(self._episode, self._now)
        over = self._now == self._ends_at
        info = self._success.get(self._now, {})
        return self._show(self._episode, self._now), paid, over, False, info

    def render(self) -> Any:
        return np.full((4, 6, 3), self._now, np.uint8)


@pytest.fixture
def scripted() -> Iterator[Callable[..., tuple[TaskVector, Scripted]]]:
    """A function that makes a vector of one scripted environment."""
    vectors: list[TaskVector] = []
    last: list[Scripted] = []

    def make(
        *args: Any, task: dict[str, Any] | None = None, rendering: bool = False, **kwargs: Any
    ) -> tuple[TaskVector, Scripted]:
        def environment(rendering: bool) -> Scripted:
            render_mode = "rgb_array" if rendering else None
            last.append(Scripted(*args, render_mode=render_mode, **kwargs))
            return last[-1]

        given = WrapperParams(**{"max_episode_steps": 100, **(task or {})})
        scripted = GymnasiumBacked("scripted", environment, given)
        vectors.append(TaskVector([scripted], envs=1, rendering=rendering))
        return vectors[-1], last[-1]

    yield make
    for vector in vectors:
        vector.close()


def act(vector: TaskVector, *numbers: float) -> Any:
    return vector.step(np.array([numbers or (0.0,) * vector.spec.actions], np.float32))


gymnasium.register(
    "EmpoLatentTests/Endless-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv"
)


def task(**options: Any) -> GymnasiumEnvironment:
    return GymnasiumEnvironment(GymnasiumParams(**options), EnvironmentContext())


def test_pendulum_is_what_it_is_known_to_be() -> None:
    vector = TaskVector([task(id="Pendulum-v1")], envs=1)
    assert vector.spec.words == 3
    assert vector.spec.shape == (3,)
    assert vector.spec.actions == 1
    assert vector.spec.tasks == ("Pendulum-v1",)
    assert vector.spec.episode_lengths == (200,)
    assert vector.rates == (30.0,)
    seen = vector.start(0).observation
    assert seen.shape == (1, 3)
    assert seen.dtype == np.float32
    for _ in range(199):
        step = act(vector, 0.5)
        assert not step.truncated[0]
    step = act(vector, 0.5)
    assert step.truncated[0]
    assert not step.terminated[0]
    vector.close()


def test_steps_are_those_of_the_environment_itself() -> None:
    vector = TaskVector([task(id="Pendulum-v1")], envs=1)
    seen = vector.start(3).observation
    own = gymnasium.make("Pendulum-v1")
    assert np.array_equal(seen[0], own.reset(seed=episode_seed(3, 0, 0))[0])
    for number in (0.3, -1.0, 0.9):
        step = act(vector, number)
        now, reward, *_ = own.step(np.array([2 * number], np.float32))
        assert np.array_equal(step.last_observation[0], now)
        assert step.reward[0] == np.float32(reward)
    own.close()
    vector.close()


def test_a_goal_that_is_reached_terminates_the_episode() -> None:
    vector = TaskVector([task(id="MountainCarContinuous-v0")], envs=1)
    assert vector.spec.words == 2
    seen = vector.start(0).observation
    for _ in range(200):
        step = act(vector, 1.0 if seen[0, 1] >= 0 else -1.0)  # With the swing.
        seen = step.observation
        if step.terminated[0]:
            break
    assert step.terminated[0]
    assert not step.truncated[0]
    assert step.last_observation[0, 0] >= 0.45
    assert step.observation[0, 0] < 0
    vector.close()


def test_actions_are_stretched_to_the_bounds_and_never_go_beyond(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    vector, environment = scripted(actions=SKEWED)
    vector.start(0)
    for numbers in ((-1, -1), (0, 0), (1, 1), (0.5, -0.5), (-7, 7)):
        act(vector, *numbers)
    expected = [(0, -3), (1, 1), (2, 5), (1.5, -1), (0, 5)]
    assert [tuple(each.tolist()) for each in environment.done] == expected
    assert environment.done[0].dtype == np.float32


def test_actions_have_the_shape_and_kind_of_their_space(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    vector, environment = scripted(actions=spaces.Box(-2, 2, (2, 2), np.float64))
    vector.start(0)
    act(vector, 1, 0.5, 0, -1)
    assert environment.done[0].tolist() == [[2, 1], [0, -2]]
    assert environment.done[0].dtype == np.float64


def test_numbers_of_all_parts_follow_each_other(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    space = spaces.Dict(
        a=spaces.Box(0, 9, (2, 2), np.float64),
        b=spaces.Tuple((spaces.Box(0, 9, (), np.int64), spaces.Discrete(3))),
        c=spaces.MultiBinary(2),
        d=spaces.Box(0, 3, (2,), np.uint8),
    )

    def show(episode: int, step: int) -> Any:
        return {
            "c": np.array([1, 0], np.int8),
            "a": np.array([[1.5, 2], [3, 4]]),
            "b": (5, np.int64(2)),
            "d": np.array([2, 3], np.uint8),
        }

    vector, _ = scripted(space, show=show)
    assert vector.start(0).observation.tolist() == [[1.5, 2, 3, 4, 5, 0, 0, 1, 1, 0, 2, 3]]
    assert not vector.spec.pictures


def half_bright(*shape: int) -> np.ndarray:
    """A picture whose left half is bright, with other colours per channel."""
    picture = np.zeros(shape, np.uint8)
    picture[:, : shape[1] // 2] = 200
    if len(shape) == 3:
        picture[:, : shape[1] // 2] = np.arange(shape[2]) + 200
    return picture


@pytest.mark.parametrize(
    ("picture", "channels"),
    [
        (half_bright(96, 80, 3), 3),
        (half_bright(20, 30, 1), 1),
        (half_bright(96, 96), 1),
        (half_bright(64, 64, 3), 3),
        (half_bright(50, 60, 4), 4),
        (np.ascontiguousarray(half_bright(96, 80, 3).transpose(2, 0, 1)), 3),
    ],
)
@pytest.mark.parametrize("size", [64, 40])
def test_pictures_become_squares_with_channels_first(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
    picture: np.ndarray,
    channels: int,
    size: int,
) -> None:
    space = spaces.Box(0, 255, picture.shape, np.uint8)
    vector, _ = scripted(space, show=lambda episode, step: picture, task={"picture_size": size})
    assert vector.spec.pictures
    assert vector.spec.shape == (channels, size, size)
    assert vector.spec.words == channels * size * size
    seen = vector.start(0).observation
    assert seen.dtype == np.uint8
    square = seen.reshape(channels, size, size)
    for channel in range(channels):
        assert (square[channel, :, : size // 2 - 3] == 200 + channel).all()
        assert (square[channel, :, size // 2 + 3 :] == 0).all()


def test_a_row_of_bytes_is_no_picture(scripted: Callable[..., tuple[TaskVector, Scripted]]) -> None:
    space = spaces.Box(0, 1, (9,), np.uint8)
    vector, _ = scripted(space, show=lambda episode, step: np.eye(3, dtype=np.uint8).ravel())
    assert vector.start(0).observation.tolist() == [[1, 0, 0, 0, 1, 0, 0, 0, 1]]


def test_a_picture_keeps_its_declared_bound(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    space = spaces.Box(0, 10, (64, 64), np.uint8)
    vector, _ = scripted(space, show=lambda episode, step: np.full((64, 64), 10, np.uint8))
    assert vector.spec.pictures
    assert vector.spec.scale == 10


def test_repeated_actions_add_up_what_they_pay_and_stop_at_the_end(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    vector, environment = scripted(ends_at=5, task={"action_repeat": 3})
    assert vector.spec.action_repeats == (3,)
    assert vector.rates == (pytest.approx(20 / 3),)
    vector.start(0)
    first, second = act(vector), act(vector)
    assert first.reward[0] == 1 + 2 + 3
    assert not first.terminated[0]
    assert second.reward[0] == 4 + 5
    assert second.terminated[0]
    assert len(environment.done) == 5
    assert second.last_observation[0].tolist()[1] == 5
    assert second.observation[0].tolist()[1] == 0


def test_newest_observations_are_seen_at_once_and_the_first_fills_all_places(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    vector, _ = scripted(task={"frame_stack": 3, "max_episode_steps": 4})
    assert vector.spec.shape == (6,)
    assert vector.start(0).observation[0, 1::2].tolist() == [0, 0, 0]
    seen = [act(vector) for _ in range(4)]
    assert [each.last_observation[0, 1::2].tolist() for each in seen] == [
        [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]
    ]  # fmt: skip
    assert seen[-1].observation[0, 1::2].tolist() == [0, 0, 0]
    assert len(set(seen[-1].observation[0, ::2].tolist())) == 1  # All of the new episode.


def test_pictures_are_stacked_along_their_channels(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    def show(episode: int, step: int) -> np.ndarray:
        return np.full((64, 64, 3), 10 * step, np.uint8) + np.arange(3, dtype=np.uint8)

    space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    vector, _ = scripted(space, show=show, task={"frame_stack": 2})
    assert vector.spec.shape == (6, 64, 64)
    vector.start(0)
    seen = act(vector).last_observation.reshape(6, 64, 64)
    assert seen[:, 0, 0].tolist() == [0, 1, 2, 10, 11, 12]


@pytest.mark.parametrize(("limit", "length"), [(None, 67), (30, 30), (500, 67)])
def test_episodes_are_cut_off_at_whichever_limit_comes_first(
    limit: int | None, length: int
) -> None:
    vector = TaskVector([task(id="Pendulum-v1", action_repeat=3, max_episode_steps=limit)], envs=1)
    assert vector.spec.episode_lengths == (length,)
    vector.start(0)
    ends = [bool(act(vector).truncated[0]) for _ in range(length)]
    assert ends == [False] * (length - 1) + [True]
    vector.close()


def test_an_end_at_the_limit_is_both(scripted: Callable[..., tuple[TaskVector, Scripted]]) -> None:
    vector, _ = scripted(ends_at=3, task={"max_episode_steps": 3})
    vector.start(0)
    step = [act(vector) for _ in range(3)][-1]
    assert step.terminated[0]
    assert step.truncated[0]


@pytest.mark.parametrize("key", ["success", "is_success"])
def test_success_is_what_the_environment_says_at_any_of_the_repetitions(
    scripted: Callable[..., tuple[TaskVector, Scripted]], key: str
) -> None:
    says = {3: {key: True}, 4: {key: np.bool_(False)}, 5: {key: 0.0}, 6: {key: False}}
    vector, _ = scripted(success=says, task={"action_repeat": 2})
    vector.start(0)
    assert [act(vector).success[0] for _ in range(4)] == [-1, 1, 0, -1]


def test_pictures_for_people_are_drawn_where_they_are_asked_for(
    scripted: Callable[..., tuple[TaskVector, Scripted]],
) -> None:
    vector, _ = scripted(rendering=True)
    vector.start(0)
    act(vector)
    assert vector.render(0).shape == (4, 6, 3)
    assert (vector.render(0) == 1).all()
    vector, _ = scripted(rendering=False)
    with pytest.raises(ConfigError, match="has None"):
        vector.render(0)


def test_pendulum_is_drawn_without_a_display() -> None:
    vector = TaskVector([task(id="Pendulum-v1")], envs=1, rendering=True)
    vector.start(0)
    picture = vector.render(0)
    assert picture.dtype == np.uint8
    assert picture.shape == (500, 500, 3)
    assert picture.std() > 10
    vector.close()


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Discrete(3), "'rollout'"),
        (spaces.MultiDiscrete([2, 2]), "'rollout'"),
        (spaces.MultiBinary(2), "'rollout'"),
        (spaces.Box(0, 3, (2,), np.int64), "'rollout'"),
        (spaces.Text(3), r"Text\("),
        (spaces.Tuple((BOX, spaces.Discrete(2))), "mixed"),
        (spaces.Box(-np.inf, np.inf, (2,)), "bounds"),
        (spaces.Box(-1e10, 1e10, (2,), np.float64), "bounds"),
        (spaces.Box(-1, 1, (0,)), "to do"),
    ],
)
def test_actions_that_are_no_bounded_numbers_are_refused(
    scripted: Callable[..., tuple[TaskVector, Scripted]], space: spaces.Space[Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        scripted(actions=space)
    assert str(caught.value).startswith("algorithm.params.tasks.0: ")
    assert "action" in str(caught.value)


PICTURE = spaces.Box(0, 255, (8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (spaces.Text(3), r"Text\("),
        (spaces.Dict(a=SEEN, b=spaces.Sequence(SEEN)), r"\['b'\]"),
        (spaces.Dict(a=SEEN, b=PICTURE), r"beside"),
        (spaces.Tuple((PICTURE, PICTURE)), r"beside"),
        (spaces.Box(-1, 1, (2**17,)), "131,072 numbers"),
        (spaces.Box(-1, 1, (0,)), "to see in"),
    ],
)
def test_observations_that_cannot_be_read_are_refused(
    scripted: Callable[..., tuple[TaskVector, Scripted]], space: spaces.Space[Any], reason: str
) -> None:
    with pytest.raises(ConfigError, match=rf"tasks\.0: .*observation.*{reason}"):
        scripted(space)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"id": "Pendulm-v1"}, "Did you mean: `Pendulum`"),
        ({"id": "Pendulum-v9"}, "v1"),
        ({"id": "Pendulum-v1", "kwargs": {"gravity": 1}}, r"\{'gravity': 1\}"),
        (
            {"id": "EmpoLatentTests/Endless-v0"},
            "max_episode_steps:",
        ),
        (
            {"id": "Pendulum-v1", "picture_size": 48},
            "picture_size:",
        ),
        ({"id": "CartPole-v1"}, "choices among 2 options"),
    ],
)
def test_tasks_that_cannot_be_made_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm\.params\.tasks\.0(?s:.*){reason}"):
        TaskVector([task(**options)], envs=1)


@pytest.mark.parametrize(
    ("show", "pay", "reason"),
    [
        (lambda e, s: [np.nan, 0], lambda e, s: 0, r"observation \[nan +0\.\].*episode 0, step 0"),
        (
            lambda e, s: [0, np.inf if s == 2 else 0],
            lambda e, s: 0,
            r"observation \[ ?0\. +inf\].*episode 0, step 2",
        ),
        (
            lambda e, s: [0, 0],
            lambda e, s: -np.inf if s == 1 else 0,
            "reward -inf.*episode 0, step 1",
        ),
        (lambda e, s: [0, 0, 0], lambda e, s: 0, r"float64 .*\(2,\)"),
        (lambda e, s: ["a", "b"], lambda e, s: 0, r"float64 .*\(2,\)"),
        (lambda e, s: [0, 0], lambda e, s: "much", "'much'"),
        (lambda e, s: [0, 1 // (s - 1)], lambda e, s: 0, "ZeroDivisionError"),
    ],
)
def test_what_fails_at_once_says_what_it_was(
    scripted: Callable[..., tuple[TaskVector, Scripted]], show: Any, pay: Any, reason: str
) -> None:
    vector, _ = scripted(show=show, pay=pay)

    def begin() -> None:
        vector.start(0)
        for _ in range(3):
            act(vector)

    with pytest.raises(CollectError, match=rf"(?s)task scripted: .*{reason}"):
        begin()


@pytest.mark.parametrize(
    ("show", "pay", "reason"),
    [
        (lambda e, s: [np.nan, 0] if s == 20 else [0, 0], lambda e, s: 0, "observation [nan"),
        (lambda e, s: [0, 0], lambda e, s: np.nan if s == 20 else 0, "reward nan"),
        (lambda e, s: [0, 0], lambda e, s: 1 / (20 - s), "ZeroDivisionError: "),
    ],
)
def test_what_fails_later_says_where_and_how_to_see_it_again(
    scripted: Callable[..., tuple[TaskVector, Scripted]], show: Any, pay: Any, reason: str
) -> None:
    vector, environment = scripted(show=show, pay=pay, task={"max_episode_steps": 30})
    vector.start(5)
    for _ in range(19):
        act(vector, 0.25)
    with pytest.raises(CollectError) as caught:
        act(vector, 0.25)
    message = str(caught.value)
    assert message.startswith("task scripted: environment 0 ")
    assert reason in message
    assert "episode 0, step 20;" in message
    assert f"seed {environment.seeds[-1]} " in message
    assert f"actions: {[[0.25]] * 20})" in message


def test_tasks_are_called_by_their_ids() -> None:
    assert task(id="Pendulum-v1").name == "Pendulum-v1"
