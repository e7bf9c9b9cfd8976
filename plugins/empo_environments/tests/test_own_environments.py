"""Environments of a caller: what is accepted, and where mistakes in their code are located."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from empo_core import run
from empo_core.errors import CollectError, ConfigError
from empo_learning.evaluation import evaluate_run

SMALL: dict[str, Any] = {
    "total_steps": 64,
    "num_envs": 2,
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "policy": {"network": {"name": "mlp", "params": {"hidden": [4]}}},
    "reporting": {"evaluation_episodes": 0},
}
LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


class Walk(gymnasium.Env[Any, Any]):
    """A walk along a line that may make a mistake."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    mistakes: ClassVar[dict[str, Any]] = {
        "step of four": lambda rows: (rows, 0.0, False, {}),
        "wrong shape": lambda rows: (np.zeros(3), 0.0, False, False, {}),
        "wrong reward": lambda rows: (rows, "much", False, False, {}),
        "wrong flag": lambda rows: (rows, 0.0, "no", False, {}),
        "no info": lambda rows: (rows, 0.0, False, False, None),
        "nan": lambda rows: (rows, float("nan"), False, False, {}),
    }

    def __init__(self, mistake: str = "") -> None:
        self.mistake, self.place = mistake, 0
        if mistake == "init raises":
            raise ValueError("mistake in init")  # init raises

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # reset
        super().reset(seed=seed)
        self.place = 0
        if self.mistake == "reset raises":
            raise ValueError("mistake in reset")  # reset raises
        if self.mistake == "reset of one":
            return self.observe()
        return (np.zeros(2) if self.mistake == "reset shape" else self.observe()), {}

    def observe(self) -> Any:
        return np.array([self.place], np.float32)

    def step(self, action: Any) -> Any:  # step
        if self.mistake == "step raises":
            self.missing()
        if self.mistake in self.mistakes:
            return self.mistakes[self.mistake](self.observe())
        self.place += 2 * int(action) - 1
        return self.observe(), float(self.place > 5), abs(self.place) > 5, False, {}

    def missing(self) -> None:
        {}["nothing"]  # step raises


class Pair(ParallelEnv):  # type: ignore[type-arg]
    """Two agents, of which one is forgotten in a step."""

    metadata: ClassVar[dict[str, Any]] = {}
    possible_agents: ClassVar[list[str]] = ["a", "b"]

    def __init__(self, mistake: str = "") -> None:
        self.mistake = mistake

    def observation_space(self, agent: str) -> Any:
        return Walk.observation_space

    def action_space(self, agent: str) -> Any:
        return Walk.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        rows = {name: np.zeros(1, np.float32) for name in self.agents}
        return rows, {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:  # pair steps
        if not self.mistake:
            raise RuntimeError("no pair")  # pair raises
        rows, infos = self.reset()
        flags = dict.fromkeys(rows, False)
        if self.mistake == "forgets one":
            del rows["b"]
        rewards: Any = dict.fromkeys(rows, np.ones(2))
        return rows, [1.0] if self.mistake == "list of rewards" else rewards, flags, flags, infos


def line_of(mark: str) -> int:
    """The number of the line that ends with a comment."""
    (number,) = [i for i, line in enumerate(LINES, 1) if line.endswith(f"  # {mark}")]
    return number


@pytest.mark.parametrize("env", [Walk, lambda: Walk(), partial(Walk, "")])
def test_a_class_or_function_is_all_that_it_takes(tmp_path: Path, env: Callable[[], Any]) -> None:
    result: Any = run("rollout", runs=str(tmp_path), env=env, **SMALL)
    assert result.record.steps == 64
    if env is Walk:
        assert "-rollout-Walk-" in result.directory.name


class Hall(Walk):
    """A walk of one step, which succeeds."""

    def step(self, action: Any) -> Any:
        rows, reward, _, _, info = super().step(action)
        return rows, reward, True, False, {**info, "success": True}


def test_successes_are_in_the_summary_and_the_table(tmp_path: Path) -> None:
    reporting = {"reporting": {"evaluation_episodes": 2}}
    result: Any = run("rollout", runs=str(tmp_path), env=Hall, **{**SMALL, **reporting})
    assert result.summary()["evaluation"]["success"] == 1
    evaluation: Any = evaluate_run(result.directory, episodes=2, env=Hall).evaluation
    assert [group.success for group in evaluation.groups] == [1]


def test_latent_takes_a_class_as_well(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^env=.*choices"):  # It needs numbers.
        run("latent", env=Walk, total_steps=10, runs=str(tmp_path))


@pytest.mark.parametrize(
    ("mistake", "mark"),
    [
        ("init raises", "init raises"),
        ("reset raises", "reset raises"),
        ("step raises", "step raises"),
        ("reset of one", "reset"),
        ("reset shape", "reset"),
        ("step of four", "step"),
        ("wrong shape", "step"),
        ("wrong reward", "step"),
        ("wrong flag", "step"),
        ("no info", "step"),
        ("nan", "step"),
    ],
)
def test_a_mistake_is_located_in_the_file_of_the_environment(
    tmp_path: Path, mistake: str, mark: str
) -> None:
    place = re.escape(f"{__file__}:{line_of(mark)}, in ")
    with pytest.raises(CollectError, match=place):
        run("rollout", env=partial(Walk, mistake), runs=str(tmp_path), **SMALL)


def test_a_mistake_in_a_worker_is_located_too(tmp_path: Path) -> None:
    workers = {**SMALL, "vectorisation": {"backend": "process", "workers": 1}}
    with pytest.raises(CollectError, match=re.escape(f"{__file__}:{line_of('step raises')}")):
        run("rollout", env=partial(Walk, "step raises"), runs=str(tmp_path), **workers)


def test_a_mistake_of_several_agents_is_located(tmp_path: Path) -> None:
    with pytest.raises(CollectError, match=re.escape(f"{__file__}:{line_of('pair raises')}")):
        run("rollout", env=Pair, runs=str(tmp_path), **SMALL)


@pytest.mark.parametrize("mistake", ["forgets one", "list of rewards", "vector of rewards"])
def test_what_an_agent_gets_wrongly_is_located(tmp_path: Path, mistake: str) -> None:
    place = re.escape(f"{__file__}:{line_of('pair steps')}, in step")
    with pytest.raises(CollectError, match=f"agent '[ab]': .*{place}"):
        run("rollout", env=partial(Pair, mistake), runs=str(tmp_path), **SMALL)


class NoSpaces(gymnasium.Env[Any, Any]):
    """Says nothing about what is observed and done."""


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (Walk(), "Walk"),
        (5, "5"),
        (NoSpaces, "observation_space"),
        (dict, "dict"),
    ],
)
def test_what_makes_no_environment_is_refused(tmp_path: Path, env: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=rf"env.*{problem}"):
        run("rollout", env=env, runs=str(tmp_path), **SMALL)
    assert not list(tmp_path.iterdir())


def test_one_argument_has_one_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match=r"^environment=\.\.\."):
        run("rollout", runs=str(tmp_path), env=Walk, environment="x", **SMALL)
    result: Any = run("rollout", runs=str(tmp_path), environment=Walk, **SMALL)
    assert result.record.steps == 64
    assert "env=..." in caplog.text
