"""Saved agents act as they did, in as many environments as are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from empo_core.errors import CollectError, ConfigError
from empo_environments.single_env import episode_seed
from empo_latent.agent import LatentAgent, load_latent_agent
from empo_latent.environments.task_vector import TaskVector
from empo_latent.modelfile import save_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import discounts, planner_of
from empo_latent.types import MultiTaskSpec

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


@pytest.fixture
def vector() -> Any:
    made = TaskVector(LatentParams.model_validate(PARAMS).tasks, envs=3)
    yield made
    made.close()


@pytest.fixture
def saved(tmp_path: Path, vector: TaskVector) -> tuple[Path, LatentModel]:
    params = LatentParams.model_validate(PARAMS)
    model = LatentModel(params, vector.spec, generator=torch.Generator().manual_seed(1))
    save_model(tmp_path / "model", model, params, vector.spec)
    return tmp_path / "model", model


def test_a_saved_agent_acts_in_its_tasks_wherever_it_was_learned(
    saved: tuple[Path, LatentModel], vector: TaskVector
) -> None:
    path, model = saved
    agent = load_latent_agent(path, envs=3)
    seen, first = vector.start(3), np.ones(3, bool)

    action = agent.act_all(seen, first, actor="policy")

    z = model.encode(torch.from_numpy(seen), task=torch.tensor([0, 1, 0]))
    policy = model.policy(z, task=torch.tensor([0, 1, 0]))
    assert np.allclose(action, policy.bounded(policy.mode).detach().numpy(), atol=1e-6)
    for _ in range(3):
        step = vector.step(agent.act_all(seen, first))
        seen, first = step.current, step.terminated | step.truncated
    assert np.isfinite(seen).all()


def test_a_saved_agent_plans_as_the_run_did(
    saved: tuple[Path, LatentModel], vector: TaskVector
) -> None:
    path, model = saved
    agent: LatentAgent = load_latent_agent(path, envs=3)
    seen, first = vector.start(3), np.ones(3, bool)
    rates = torch.tensor(agent.discounts)
    ours = planner_of(model, agent.params, rates, compiled=False)
    task = torch.tensor([0, 1, 0])

    torch.manual_seed(5)
    action = agent.act_all(seen, first)

    torch.manual_seed(5)
    z = model.encode(torch.from_numpy(seen), task=task)
    plan = ours.plan(z, torch.zeros(3, 3, 1), task=task, explore=False)
    assert np.allclose(action, plan.action.detach().numpy(), atol=1e-6)


LENGTH = 24
"""Steps of an episode of the pendulum here."""


def played(agent: LatentAgent, environment: Any, *, repeats: int, seed: int) -> list[float]:
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
    agent = load_latent_agent(tmp_path / "model")
    seen, first, expected = vector.start(3), np.ones(1, bool), []
    torch.manual_seed(2)
    for _ in range(LENGTH // repeats):
        step = vector.step(agent.act_all(seen, first))
        seen, first = step.current, step.terminated | step.truncated
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
    saved: tuple[Path, LatentModel], vector: TaskVector
) -> None:
    path, _ = saved
    car = load_latent_agent(path, task="MountainCarContinuous-v0")
    everything = load_latent_agent(path, envs=3)
    seen = vector.start(3)
    everywhere = everything.act_all(seen, np.ones(3, bool), actor="policy")
    assert car.act(seen[1, :2], actor="policy") == pytest.approx(everywhere[1], abs=1e-6)
    pole = load_latent_agent(path).act(seen[0], actor="policy")
    assert pole == pytest.approx(2 * everywhere[0], abs=1e-6)


def test_what_an_agent_cannot_act_on_is_refused(saved: tuple[Path, LatentModel]) -> None:
    path, _ = saved
    with pytest.raises(ConfigError, match="'Pong'"):
        load_latent_agent(path, task="Pong")
    with pytest.raises(ConfigError, match="acts in 2 environments: call act_all"):
        load_latent_agent(path, envs=2).act(np.zeros(3))
    with pytest.raises(CollectError, match=r"shape \(2,\), and Pendulum-v1 shows 3 numbers"):
        load_latent_agent(path).act(np.zeros(2))
    with pytest.raises(CollectError, match="dictionary"):
        load_latent_agent(path).act(np.array({"angle": np.zeros(3)}, object))


def test_discounts_follow_the_length_of_episodes_unless_given() -> None:
    spec = MultiTaskSpec(
        words=1,
        pictures=False,
        shape=(1,),
        actions=1,
        active=((True,),) * 4,
        tasks=("a", "b", "c", "d"),
        action_repeats=(1,) * 4,
        episode_lengths=(20, 200, 500, 5000),
    )

    found = discounts(LatentParams.model_validate(PARAMS), spec)

    assert found == pytest.approx([0.95, 0.975, 0.99, 0.995])
    given = LatentParams.model_validate({**PARAMS, "gamma": 0.5})
    assert discounts(given, spec) == [0.5] * 4
    rule = {"denominator": 10.0, "minimum": 0.6, "maximum": 0.97}
    ours = LatentParams.model_validate({**PARAMS, "discount": rule})
    assert discounts(ours, spec) == pytest.approx([0.6, 0.95, 0.97, 0.97])
    with pytest.raises(ValueError, match=r"discount: .*gamma"):
        LatentParams.model_validate({**PARAMS, "discount": rule, "gamma": 0.5})
    with pytest.raises(ValueError, match=r"minimum \(0.99\) .*maximum \(0.9\)"):
        LatentParams.model_validate({**PARAMS, "discount": {"minimum": 0.99, "maximum": 0.9}})
