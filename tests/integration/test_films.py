"""Films of runs in environments: what is drawn, how files are named, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import RunConfig, merged
from empo_core.errors import ConfigError
from empo_core.experiment import Experiment
from empo_learning.evaluation import evaluate_run

SMALL: dict[str, Any] = {
    "total_steps": 64,
    "num_envs": 2,
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "update": {"minibatch_size": 16},
    "policy": {"network": {"name": "mlp", "params": {"hidden": [4]}}},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 0},
}
NAME = "EmpoFilmTests/Lights-v0"


class Lights(gymnasium.Env[np.ndarray, np.int64]):
    """Shows how many steps were taken, as a row of lights; five end an episode, which pays 5."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array", "ansi"], "render_fps": 10}
    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.steps = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        return np.full(1, self.steps, np.float32), 1.0, self.steps == 5, False, {}

    def render(self) -> Any:
        picture = np.zeros((8, 8, 3), np.uint8)
        picture[: self.steps] = 255
        return picture


class Unlit(Lights):
    """Draws nothing."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"]}


gymnasium.register(NAME, entry_point=Lights)  # type: ignore[arg-type]
gymnasium.register("EmpoFilmTests/Unlit-v0", entry_point=Unlit)  # type: ignore[arg-type]


def trained(folder: Path, environment: Any, world: Any = None, **params: Any) -> Path:
    config = RunConfig.model_validate(
        {
            "algorithm": {
                "name": "rollout",
                "params": merged({**SMALL, "environment": environment}, params),
            },
            **({} if world is None else {"world_model": world}),
            "trackers": [],
            "runs": str(folder),
        }
    )
    return Experiment.start(config).directory


def empo(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


@pytest.fixture(scope="module")
def lights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("lights"), f"gymnasium/{NAME}")


def test_every_step_of_an_episode_is_a_picture(lights: Path) -> None:
    done = empo("evaluate", str(lights), "--episodes", "4", "--film")
    assert done.exit_code == 0, done.stderr
    path = lights / "evaluation" / "EmpoFilmTests_Lights-v0_policy_return_5.0.gif"
    assert done.stdout.splitlines()[-1] == str(path)
    with Image.open(path) as film:
        assert (film.n_frames, film.info["duration"]) == (5, 100)  # type: ignore[attr-defined]
        lit = []
        for frame in range(5):
            film.seek(frame)
            lit.append(int((np.asarray(film.convert("L")) > 128).all(1).sum()))
    assert lit == [0, 1, 2, 3, 4]


def test_nobody_who_does_not_ask_waits_for_films(lights: Path) -> None:
    assert [path.suffix for path in evaluate_run(lights, episodes=2).files] == [".json"]
    assert len(evaluate_run(lights, episodes=2, gifs=3).files) == 4


def test_an_episode_that_goes_on_is_filmed_as_far_as_it_went(tmp_path: Path) -> None:
    directory = trained(tmp_path, f"gymnasium/{NAME}", reporting={"evaluation_steps": 3})
    (_, film) = evaluate_run(directory, episodes=1, is_filmed=True).files
    assert film.name == "EmpoFilmTests_Lights-v0_policy_return_3.0.gif"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ("gymnasium/EmpoFilmTests/Unlit-v0", r"'rgb_array'.*render_modes'\]: ansi"),
        ("gymnasium-vector/CartPole-v1", r"algorithm\.params\.environment: .*CartPole-v1"),
    ],
)
def test_what_cannot_be_drawn_is_told(tmp_path: Path, environment: str, reason: str) -> None:
    directory = trained(tmp_path, environment)
    with pytest.raises(ConfigError, match=reason):
        evaluate_run(directory, episodes=1, is_filmed=True)
    assert empo("evaluate", str(directory), "--film", "--episodes", "2").exit_code == 2
    assert empo("evaluate", str(directory), "--episodes", "2").exit_code == 0


def test_films_and_no_films_cannot_both_be_asked_for(lights: Path) -> None:
    with pytest.raises(ConfigError, match="--gifs 0"):
        evaluate_run(lights, gifs=0, is_filmed=True)


def test_environments_made_in_python_are_filmed(tmp_path: Path) -> None:
    config = RunConfig.model_validate(
        {"algorithm": {"name": "rollout", "params": SMALL}, "trackers": [], "runs": str(tmp_path)}
    )

    def make() -> Lights:
        return Lights("rgb_array")

    directory = Experiment.start(config, env=make).directory
    (_, film) = evaluate_run(directory, episodes=1, is_filmed=True, env=make).files
    assert film.name == "make_policy_return_5.0.gif"
    (_, film) = evaluate_run(directory, episodes=1, is_filmed=True, max_steps=2, env=make).files
    assert film.name == "make_policy_return_2.0.gif"
    with pytest.raises(ConfigError, match="has None"):
        evaluate_run(directory, episodes=1, is_filmed=True, env=Lights)


def test_several_agents_are_in_one_film_named_by_their_mean_return(tmp_path: Path) -> None:
    name = {"name": "pettingzoo/mpe/simple_spread_v3", "params": {"kwargs": {"max_cycles": 6}}}
    directory = trained(tmp_path, name)
    (_, film) = evaluate_run(directory, episodes=1, is_filmed=True, seed=3).files
    assert film.name.startswith("mpe_simple_spread_v3_policy_return_-")
    with Image.open(film) as shots:
        assert shots.n_frames > 2  # type: ignore[attr-defined]


def test_humans_of_a_world_are_filmed(tmp_path: Path) -> None:
    learners = {"name": "world", "params": {"learners": "humans", "reward": {"kind": "goal"}}}
    world = {"name": "multigrid/trivial", "params": {"max_steps": 5}}
    directory = trained(tmp_path, learners, world)
    assert len(evaluate_run(directory, episodes=2, gifs=2).files) == 3
