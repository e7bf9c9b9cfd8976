"""``empo check`` plays an episode, and finds what an environment does wrong, with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_environments import trial

ROLLOUT = """
algorithm:
  name: rollout
  params:
    total_steps: 64
    num_envs: 2
    environment: gymnasium/EmpoTrial/{name}-v0
    vectorisation: {{backend: serial}}
"""
LATENT = """
algorithm:
  name: latent
  params: {{total_steps: 64, size: tiny, tasks: [gymnasium/EmpoTrial/{name}-v0]}}
"""


class Fine(gymnasium.Env[np.ndarray, np.ndarray]):
    """Ends after ``n`` steps, and pays 0.5 for each; subclasses do something wrong in the third."""

    n = 7
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.steps += 1
        over = self.steps == self.n
        outcome = [np.zeros(2, np.float32), 0.5, over, False, {}]
        return tuple(self.spoilt(outcome) if self.steps == 3 else outcome)

    def spoilt(self, outcome: list[Any]) -> list[Any]:
        return outcome


class Vector(Fine):
    def spoilt(self, outcome: list[Any]) -> list[Any]:
        return [outcome[0], np.ones(3), *outcome[2:]]


class Listed(Fine):
    def spoilt(self, outcome: list[Any]) -> list[Any]:
        return [outcome[0], [0.5], *outcome[2:]]


class Flagged(Fine):
    def spoilt(self, outcome: list[Any]) -> list[Any]:
        return [*outcome[:2], "no", *outcome[3:]]


class Raising(Fine):
    def spoilt(self, outcome: list[Any]) -> list[Any]:
        raise KeyError("fuel")


class Outside(Fine):
    def spoilt(self, outcome: list[Any]) -> list[Any]:
        return [np.array([0.5, -1.5], np.float32), *outcome[1:]]


class Endless(Fine):
    n = -1


for kind in (Fine, Vector, Listed, Flagged, Raising, Outside, Endless):
    gymnasium.register(
        f"EmpoTrial/{kind.__name__}-v0",
        entry_point=kind,  # type: ignore[arg-type]
        max_episode_steps=None if kind is Endless else 100,
    )


def check(folder: Path, text: str, name: str) -> Result:
    (folder / "config.yaml").write_text(text.format(name=name))
    return CliRunner().invoke(app, ["check", str(folder / "config.yaml")])


@pytest.mark.parametrize("text", [ROLLOUT, LATENT], ids=["rollout", "latent"])
def test_check_says_what_an_episode_came_to(tmp_path: Path, text: str) -> None:
    done = check(tmp_path, text, "Fine")
    assert done.exit_code == 0, done.stderr
    assert "ended after 7 random steps, return 3.5" in done.stdout


@pytest.mark.parametrize("text", [ROLLOUT, LATENT], ids=["rollout", "latent"])
def test_check_says_where_observations_leave_their_space(tmp_path: Path, text: str) -> None:
    done = check(tmp_path, text, "Outside")
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "of their space in step 3: entry 1 is -1.5 (from -1 to 1)" in said
    assert "leave the bounds" not in check(tmp_path, text, "Fine").stdout


def test_an_endless_episode_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cut off here after 1,000 random steps" in check(tmp_path, ROLLOUT, "Endless").stdout
    monkeypatch.setattr(trial, "MOST_S", 0.0)
    assert "cut off here after 0 random steps" in check(tmp_path, ROLLOUT, "Endless").stdout


@pytest.mark.parametrize("text", [ROLLOUT, LATENT], ids=["rollout", "latent"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Vector", "the reward is array([1., 1., 1.]) (ndarray); it must be one number"),
        ("Listed", "the reward is [0.5] (list); it must be one number"),
        ("Flagged", "'terminated' is 'no' (str); it must be True or False"),
        ("Raising", f"KeyError: 'fuel' ({__file__}:"),
    ],
)
def test_check_finds_what_a_step_returns_wrongly(
    tmp_path: Path, text: str, name: str, reason: str
) -> None:
    done = check(tmp_path, text, name)
    assert done.exit_code == 3, done.stdout
    assert reason in done.stderr
    assert "step 3" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_tells_no_traceback_either_and_logs_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(ROLLOUT.format(name="Raising"))
    done = CliRunner().invoke(
        app, ["run", str(tmp_path / "config.yaml"), f"runs={tmp_path / 'runs'}", "-q"]
    )
    assert (done.exit_code, "Traceback" in done.stderr) == (3, False)
    assert f"KeyError: 'fuel' ({__file__}:" in done.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert "Traceback" in (directory / "log.txt").read_text()
