"""Tasks of DeepMind Control; needs the extra ``dmc``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvironmentContext
from empo_environments.components import DmcEnvironment
from empo_environments.dmc import DmcEnv
from empo_environments.params import DmcParams
from empo_latent.environments.task_vector import TaskVector

pytest.importorskip("dm_control", reason="needs the extra dmc")


def task(domain: str, name: str, **options: object) -> DmcEnvironment:
    params = DmcParams.model_validate({"task": f"{domain}-{name}", **options})
    return DmcEnvironment(params, EnvironmentContext())


def played(vector: TaskVector, steps: int, seed: int = 0) -> list[np.ndarray]:
    shape = (steps, len(vector.task_of), vector.spec.actions)
    drawn = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return [vector.step(each).last_observation for each in drawn]


@pytest.mark.parametrize(
    ("domain", "name", "words", "actions"),
    [
        ("cartpole", "swingup", 5, 1),
        ("ball_in_cup", "catch", 8, 2),
        ("reacher", "easy", 6, 2),
        ("finger", "spin", 9, 2),
        ("pendulum", "swingup", 3, 1),
        ("walker", "walk", 24, 6),
    ],
)
def test_a_task_loads_steps_and_can_be_put_back(
    domain: str, name: str, words: int, actions: int
) -> None:
    vector = TaskVector([task(domain, name)], envs=1)
    spec = vector.spec
    assert (spec.words, spec.actions) == (words, actions)
    assert spec.tasks == (f"{domain}-{name}",)
    assert spec.episode_lengths == (500,)
    assert spec.action_repeats == (2,)
    first = vector.start(2).observation
    assert first.dtype == np.float32
    seen = played(vector, 12)
    assert not np.array_equal(seen[-1], first)
    other = TaskVector([task(domain, name)], envs=1)
    assert other.load_state_dict(vector.state_dict())
    assert np.array_equal(other.current, vector.current)
    assert np.array_equal(played(vector, 5, 1), played(other, 5, 1))
    assert np.array_equal(other.start(2).observation, first)
    assert not np.array_equal(other.start(3).observation, first)
    vector.close()
    other.close()


def test_time_cuts_episodes_off_and_rewards_of_repetitions_add_up() -> None:
    vector = TaskVector([task("cartpole", "balance", action_repeat=100)], envs=1)
    assert vector.spec.episode_lengths == (10,)
    assert vector.rates == (pytest.approx(1.0),)
    vector.start(0)
    nothing = np.zeros((1, 1), np.float32)
    steps = [vector.step(nothing) for _ in range(10)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * 9 + [True]
    assert not any(step.terminated[0] for step in steps)
    assert 50 < steps[0].reward[0] <= 100
    assert steps[0].success[0] == -1
    vector.close()


def test_two_tasks_share_a_vector() -> None:
    tasks = [task("cartpole", "swingup"), task("finger", "spin")]
    vector = TaskVector(tasks, envs=2)
    assert vector.spec.active == ((True, False), (True, True))
    assert (vector.start(0).observation[0, 5:] == 0).all()
    assert (played(vector, 3)[-1][0, 5:] == 0).all()
    vector.close()


@pytest.mark.parametrize(
    ("domain", "name", "reason"),
    [
        ("cartpol", "swingup", "'cartpol' .*'cartpole'"),
        ("nothing", "swingup", "'nothing' .* acrobot, "),
        ("cartpole", "swing_up", "'swing_up'.*'swingup'"),
        ("cartpole", "x", "'x'; .* balance, "),
        ("lqr", "lqr_2_1", "bounds"),
    ],
)
def test_tasks_that_do_not_exist_or_cannot_be_learned_are_refused(
    domain: str, name: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^algorithm\.params\.tasks\.0: .*{reason}"):
        TaskVector([task(domain, name)], envs=1)


@pytest.mark.skipif("MUJOCO_GL" in os.environ, reason="the suite was told that it may draw")
def test_a_task_that_draws_by_itself_says_what_it_needs() -> None:
    with pytest.raises(ConfigError, match="OpenGL"):
        TaskVector([task("quadruped", "escape")], envs=1)


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ({"picture_size": 48}, "picture_size belongs"),
        ({"shadows": False}, "shadows belong"),
    ],
)
def test_how_pictures_look_is_refused_where_none_are_observed(
    option: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        task("cartpole", "swingup", **option)


def test_without_the_extra_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dm_control.suite", raising=False)
    monkeypatch.setitem(sys.modules, "dm_control", None)
    with pytest.raises(ConfigError, match=r'pip install "empo-environments\[dmc\]"'):
        TaskVector([task("cartpole", "swingup")], envs=1)


def test_versions_that_do_not_work_together_are_named_with_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "dm_control"
    package.mkdir()
    package.joinpath("__init__.py").touch()
    # What the suite says with mujoco 4.
    package.joinpath("suite.py").write_text(
        "ALL_TASKS = [('cartpole', 'swingup')]\n"
        "def load(domain, task, task_kwargs):\n"
        "    raise AttributeError(\"'MjModel' object has no attribute 'flex_vertedge'\")\n"
    )
    for name, version in (("mujoco", "4.0.0"), ("dm_control", "1.0.50")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        info.joinpath("METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    for name in [each for each in sys.modules if each.split(".")[0] == "dm_control"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as caught:
        TaskVector([task("cartpole", "swingup")], envs=1)
    assert "flex_vertedge" in str(caught.value)
    assert "dm_control 1.0.50 with mujoco 4.0.0" in str(caught.value)
    assert "pip install dm_control==1.0.50 mujoco==3.17.0" in str(caught.value)


def test_the_variable_of_other_libraries_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    TaskVector([task("cartpole", "swingup")], envs=1).close()
    assert "MUJOCO_GL" not in os.environ


@pytest.mark.parametrize(
    ("backend", "reason"),
    [("disabled", "MuJoCo .*unset"), ("osmesa", "'osmesa'")],
)
def test_where_nothing_can_be_drawn_only_pictures_fail(
    monkeypatch: pytest.MonkeyPatch, backend: str, reason: str
) -> None:
    if backend == "osmesa":
        # What the import of MuJoCo's module fails with where the library is missing.
        monkeypatch.setitem(sys.modules, "mujoco.osmesa", None)
    monkeypatch.setenv("MUJOCO_GL", backend)
    vector = TaskVector([task("cartpole", "swingup")], envs=1, rendering=True)
    vector.start(0)
    with pytest.raises(ConfigError, match=reason):
        vector.render(0)
    played(vector, 2)
    vector.close()


@pytest.fixture(scope="module")
def draws() -> bool:
    """True if MuJoCo can render on this machine."""
    vector = TaskVector([task("cartpole", "swingup")], envs=1, rendering=True)
    try:
        vector.render(0)
    except ConfigError:
        return False
    finally:
        vector.close()
    return True


@pytest.mark.slow
def test_pictures_for_people_are_drawn_after_the_suite_was_told_to_draw_nothing(
    draws: bool,
) -> None:
    if not draws:
        pytest.skip("MuJoCo cannot draw here")
    vector = TaskVector(
        [task("cartpole", "swingup"), task("walker", "walk")], envs=2, rendering=True
    )
    vector.start(0)
    cartpole, walker = vector.render(0), vector.render(1)
    assert cartpole.shape == walker.shape == (240, 320, 3)
    assert cartpole[:40].mean() > cartpole[-40:].mean() + 10  # The sky is above.
    before = cartpole.copy()
    played(vector, 3)
    assert not np.array_equal(vector.render(0), before)
    vector.close()


@pytest.mark.slow
def test_observed_pictures_have_shadows_unless_told_otherwise_and_films_always(
    draws: bool,
) -> None:
    if not draws:
        pytest.skip("MuJoCo cannot draw here")
    observed, films = {}, {}
    for shadows in (True, False):
        env = DmcEnv("cartpole-swingup", pixels=True, shadows=shadows)
        observed[shadows] = env.reset(seed=0)[0]
        films[shadows] = env.render()
        env.close()
    assert not np.array_equal(observed[True], observed[False])
    assert np.array_equal(films[True], films[False])


@pytest.mark.slow
def test_pictures_can_be_learned_from(draws: bool) -> None:
    if not draws:
        pytest.skip("MuJoCo cannot draw here")
    seen = task("cartpole", "swingup", pixels=True, frame_stack=2, picture_size=48)
    vector = TaskVector([seen], envs=2)
    assert vector.spec.pictures
    assert vector.spec.shape == (6, 48, 48)
    first = vector.start(0).observation
    assert first.dtype == np.uint8
    last = played(vector, 3)[-1]
    stacked = last.reshape(2, 2, 3, 48, 48)
    assert not np.array_equal(stacked[:, 0], stacked[:, 1])
    assert not np.array_equal(stacked[0], stacked[1])
    assert vector.load_state_dict(vector.state_dict())
    assert np.array_equal(vector.current, last)
    vector.close()
