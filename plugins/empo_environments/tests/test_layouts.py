"""Numbers of copies, last observations, success, pictures for people, and beginning anew."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvironmentContext, TimeStep, VectorLayout
from empo_environments.components import (
    CallableEnvironment,
    GymnasiumBacked,
    GymnasiumVectorEnvironment,
)
from empo_environments.params import GymnasiumVectorParams, WrapperParams
from empo_environments.serial import SerialVectorEnv


class Walk(gymnasium.Env[Any, Any]):
    """Shows its seed and step; terminates at step 4, where it says that it succeeded."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 12}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, *, render_mode: str | None = None, fails_at: int = -1) -> None:
        self.render_mode, self.steps, self.seed, self._fails_at = render_mode, 0, 0, fails_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seed, self.steps = seed or 0, 0
        return np.array([self.seed, 0.0]), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self._fails_at:
            raise RuntimeError("stuck")
        info = {} if self.steps < 3 else {"is_success": self.steps == 4}
        return np.array([self.seed, self.steps], float), 1.0, self.steps == 4, False, info

    def render(self) -> Any:
        return np.full((2, 3, 3), self.steps, np.uint8)


def made(wrappers: dict[str, Any] | None = None, **layout: Any) -> SerialVectorEnv:
    environment = GymnasiumBacked(
        "walk",
        lambda rendering: Walk(render_mode="rgb_array" if rendering else None),
        WrapperParams(**(wrappers or {})),
    )
    vector = environment.vector(2, VectorLayout(**layout))
    assert isinstance(vector, SerialVectorEnv)
    return vector


def steps(vector: SerialVectorEnv, count: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        time_step: TimeStep = vector.recv()
        names = ("observation", "terminated", "truncated", "success", "final_row")
        found.append({name: np.array(getattr(time_step, name)) for name in names})
        found[-1]["final"] = time_step.final_observation.copy()
        vector.send(0, np.zeros((2, 1), np.int64))
    return found


def test_seeds_follow_from_the_number_of_the_first_copy() -> None:
    seen = []
    for first in (0, 1):
        vector = made(first=first)
        vector.start(7)
        seen.append(steps(vector, 1)[0]["observation"])
    assert seen[0][1].tolist() == seen[1][0].tolist()
    assert seen[0][0].tolist() != seen[1][1].tolist()


def test_last_observations_of_terminated_episodes_are_told_where_asked_for() -> None:
    for terminal in (False, True):
        vector = made(terminal_observations=terminal)
        vector.start(0)
        found = steps(vector, 6)
        assert [each["terminated"].all() for each in found] == [False] * 4 + [True, False]
        assert found[4]["final_row"].tolist() == ([0, 1] if terminal else [])
        assert found[4]["final"][:, 1].tolist() == ([4, 4] if terminal else [])


def test_workers_of_gymnasium_are_refused() -> None:
    params = GymnasiumVectorParams(id="CartPole-v1", kwargs={"vectorization_mode": "async"})
    with pytest.raises(ConfigError, match=r"^kwargs\.vectorization_mode: "):
        GymnasiumVectorEnvironment(params, EnvironmentContext())


def test_a_vector_environment_tells_them_too() -> None:
    params = GymnasiumVectorParams(id="CartPole-v1")
    for terminal in (False, True):
        environment = GymnasiumVectorEnvironment(params, EnvironmentContext())
        vector = environment.vector(2, VectorLayout(terminal_observations=terminal))
        vector.start(0)
        told = 0
        for _ in range(40):
            time_step = vector.recv()
            told += int(time_step.terminated[time_step.final_row].sum())
            vector.send(0, np.zeros((2, 1), np.int64))
        assert bool(told) == terminal
        vector.close()


@pytest.mark.parametrize(("repeat", "success"), [(1, [-1, -1, -1, 0, 1]), (2, [-1, -1, 1, -1, 1])])
def test_success_is_what_the_info_says(repeat: int, success: list[int]) -> None:
    vector = made({"action_repeat": repeat})
    vector.start(0)
    assert [int(each["success"][0]) for each in steps(vector, 5)] == success


def test_a_copy_says_how_long_and_how_fast_it_is() -> None:
    spec = made({"action_repeat": 3, "max_episode_steps": 5}).spec
    assert (spec.max_episode_steps, spec.action_repeat, spec.render_fps) == (5, 3, 4.0)
    assert CallableEnvironment(Walk).spec().max_episode_steps is None
    timed = CallableEnvironment(lambda: gymnasium.wrappers.TimeLimit(Walk(), 9))
    assert timed.spec().max_episode_steps == 9


def test_pictures_for_people_are_drawn_where_the_layout_says_so() -> None:
    vector = made(rendering=True)
    vector.start(0)
    steps(vector, 1)
    vector.recv()
    assert (vector.render(1) == np.full((2, 3, 3), 1, np.uint8)).all()
    with pytest.raises(ConfigError, match="has None"):
        made().render(0)


def test_a_vector_that_starts_again_counts_steps_anew() -> None:
    vector = made({"max_episode_steps": 3})
    for _ in range(2):
        vector.start(1)
        found = steps(vector, 4)
        assert [each["truncated"].all() for each in found] == [False, False, False, True]


def test_an_episode_that_fails_when_it_is_played_again_is_followed_by_the_next() -> None:
    vector = CallableEnvironment(Walk).vector(1, VectorLayout())
    other = CallableEnvironment(lambda: Walk(fails_at=2)).vector(1, VectorLayout())
    vector.start(3)
    for _ in range(3):
        first = vector.recv().observation.copy()
        vector.send(0, np.zeros((1, 1), np.int64))
    assert not other.load_state_dict(vector.state_dict())
    again = other.recv()
    assert again.starts[0]
    assert again.observation[0, 0] != first[0, 0]


def test_an_end_at_the_limit_is_both() -> None:
    vector = made({"max_episode_steps": 4})
    vector.start(0)
    last = steps(vector, 5)[-1]
    assert last["terminated"].all()
    assert last["truncated"].all()
    assert last["final_row"].tolist() == [0, 1]
