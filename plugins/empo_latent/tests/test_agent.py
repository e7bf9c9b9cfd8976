"""Saved agents act in a plain loop as they do in their tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from empo_core.errors import CollectError, ConfigError
from empo_core.protocols import Agent
from empo_environments.single_env import episode_seed
from empo_latent.controller import Controller
from empo_latent.environments.task_vector import TaskVector
from empo_latent.modelfile import load_model, save_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import planner_of
from empo_latent.player import player_of
from empo_learning.evaluation.player import PolicyPlayer

TASKS = [
    {"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 200}},
    {"name": "gymnasium/MountainCarContinuous-v0", "params": {"max_episode_steps": 20}},
]
PARAMS: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 10,
    "tasks": TASKS,
    "policy_loss": "svg",
    "num_envs": 2,
    "reward": {"episodic": True},
    "planner": {"samples": 8, "elites": 4, "policy_plans": 2},
    "compute": {"compile": True, "device": "cuda"},
}


def player_at(path: Path) -> PolicyPlayer:
    """The player of a saved model, wherever it was learned."""
    model, params, spec = load_model(path)
    return player_of(params, params.tasks, model, spec)


@pytest.fixture
def vector() -> Any:
    made = TaskVector(LatentParams.model_validate(PARAMS).tasks, envs=2)
    yield made
    made.close()


@pytest.fixture
def saved(tmp_path: Path, vector: TaskVector) -> Path:
    params = LatentParams.model_validate(PARAMS)
    model = LatentModel(params, vector.spec, generator=torch.Generator().manual_seed(1))
    save_model(tmp_path / "model", model, params, vector.spec)
    return tmp_path / "model"


LENGTH = 24
"""Steps of an episode of the pendulum here."""


def played(agent: Agent, environment: Any, *, repeats: int, seed: int) -> list[float]:
    """Rewards of an episode in a plain loop, ``repeats`` of them added up."""
    torch.manual_seed(2)
    agent.reset()
    observation, _ = environment.reset(seed=seed)
    rewards, ended = [], False
    while not ended:
        observation, reward, terminated, truncated, _ = environment.step(agent.act(observation))
        rewards.append(float(reward))
        ended = terminated or truncated
    return [sum(rewards[i : i + repeats]) for i in range(0, len(rewards), repeats)]


def pendulum(repeats: int) -> tuple[LatentParams, TaskVector]:
    """Params of a task with repeated actions, and the task."""
    kwargs = {"action_repeat": repeats, "max_episode_steps": LENGTH // repeats}
    task = {"name": "gymnasium/Pendulum-v1", "params": kwargs}
    params = LatentParams.model_validate({**PARAMS, "tasks": [task], "num_envs": 1})
    return params, TaskVector(params.tasks, envs=1)


@pytest.mark.parametrize("repeats", [1, 2])
def test_an_agent_acts_in_a_plain_loop_as_in_its_task(tmp_path: Path, repeats: int) -> None:
    params, vector = pendulum(repeats)
    model = LatentModel(params, vector.spec, generator=torch.Generator().manual_seed(1))
    save_model(tmp_path / "model", model, params, vector.spec)
    agent = player_at(tmp_path / "model").agent()
    planner = planner_of(model, params, vector.spec, compiled=False)
    controller = Controller(model, planner, envs=1, device="cpu")
    seen, first, expected = vector.start(3).observation, np.ones(1, bool), []
    torch.manual_seed(2)
    for _ in range(LENGTH // repeats):
        acted = controller.act(seen, first, task=None, actor="planner", explore=False)
        step = vector.step(acted.action.numpy())
        seen, first = step.observation, step.terminated | step.truncated
        expected.append(float(step.reward[0]))
    assert first.all()
    vector.close()

    environment = gymnasium.make("Pendulum-v1", max_episode_steps=LENGTH)
    found = played(agent, environment, repeats=repeats, seed=episode_seed(3, 0, 0))

    assert found == pytest.approx(expected, rel=1e-5)
    assert environment.action_space.contains(agent.act(np.zeros(3)))
    again = played(agent, environment, repeats=repeats, seed=episode_seed(3, 0, 0))
    assert again == found
    environment.close()


def test_an_agent_of_several_tasks_acts_in_the_one_that_is_named(
    saved: Path, vector: TaskVector
) -> None:
    player, seen = player_at(saved), vector.start(3).observation
    model, task = load_model(saved).model, torch.tensor([0, 1])
    policy = model.policy(model.encode(torch.from_numpy(seen), task=task), task=task)
    pole, car = policy.bounded(policy.mode).detach().numpy()
    of_car: Any = player.agent("MountainCarContinuous-v0")
    assert of_car.act(seen[1, :2], actor="policy") == pytest.approx(car, abs=1e-6)
    of_pole: Any = player.agent()
    assert of_pole.act(seen[0], actor="policy") == pytest.approx(2 * pole, abs=1e-6)


def test_what_an_agent_cannot_act_on_is_refused(saved: Path) -> None:
    player = player_at(saved)
    with pytest.raises(ConfigError, match="'Pong'"):
        player.agent("Pong")
    with pytest.raises(CollectError, match=r"shape \(2,\), .* learned from 3 numbers"):
        player.agent().act(np.zeros(2))
    with pytest.raises(CollectError, match="dictionary"):
        player.agent().act(np.array({"angle": np.zeros(3)}, object))


def test_discounts_follow_the_length_of_episodes_unless_given() -> None:
    lengths = (20, 200, 500, 5000)

    found = LatentParams.model_validate(PARAMS).discounts(lengths)

    assert found == pytest.approx([0.95, 0.975, 0.99, 0.995])
    given = LatentParams.model_validate({**PARAMS, "gamma": 0.5})
    assert given.discounts(lengths) == [0.5] * 4
    rule = {"denominator": 10.0, "minimum": 0.6, "maximum": 0.97}
    ours = LatentParams.model_validate({**PARAMS, "discount": rule})
    assert ours.discounts(lengths) == pytest.approx([0.6, 0.95, 0.97, 0.97])
    with pytest.raises(ValueError, match=r"discount: .*gamma"):
        LatentParams.model_validate({**PARAMS, "discount": rule, "gamma": 0.5})
    with pytest.raises(ValueError, match=r"minimum \(0.99\) .*maximum \(0.9\)"):
        LatentParams.model_validate({**PARAMS, "discount": {"minimum": 0.99, "maximum": 0.9}})
