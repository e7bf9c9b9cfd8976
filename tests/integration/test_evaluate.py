"""``empo evaluate`` plays the runs of every algorithm, as training evaluated them."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import yaml
from pettingzoo import ParallelEnv
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import HumanPriorRef, RunConfig, WorldModelRef
from empo_core.errors import CollectError, ConfigError, StorageError
from empo_core.experiment import Experiment
from empo_core.protocols import Agent
from empo_core.random_streams import Stream, seed_of, stream
from empo_learning.agent import load_agent
from empo_learning.evaluation import Evaluation, ReturnEvaluation, evaluate_run
from empo_learning.saved_model import write_model
from empo_rollout.policyfile import load_policy

LATENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 40,
    "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}}],
    "policy_loss": "awr",
    "collection": {"seed_steps": 30, "seed_updates": 3},
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "replay": {"capacity": 70, "batch_size": 8},
    "learning": {"horizon": 2},
    "imagination": {"candidates": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 2, "videos": 0},
}
ROLLOUT: dict[str, Any] = {
    "total_steps": 256,
    "num_envs": 4,
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
    "update": {"minibatch_size": 32},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 6, "evaluation_interval": 2, "checkpoint_interval": 2},
}
WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
TABLES = {"q_r": "lookup", "v_h_e": "lookup"}
GYMNASIUM = {"environment": "gymnasium/CartPole-v1"}
MEMORY = {
    "policy": {
        "network": {"name": "lstm", "params": {"cell": "gru", "units": 4}},
        "critic": "shared",
    }
}


class Pair(ParallelEnv):
    """Two agents for five steps; the second is paid twice as much for action 1."""

    metadata: ClassVar[dict[str, Any]] = {"name": "pair"}
    possible_agents: ClassVar[list[str]] = ["one", "two"]

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 5, (1,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.steps = list(self.possible_agents), 0
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions: Any) -> Any:
        self.steps += 1
        paid = {"one": float(actions["one"]), "two": 2.0 * float(actions["two"])}
        seen, over = self._all(np.full(1, self.steps, np.float32)), self._all(self.steps == 5)
        if self.steps == 5:
            self.agents = []
        return seen, paid, over, self._all(False), self._all({})

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


def rollout(**changes: Any) -> dict[str, Any]:
    return {"algorithm": {"name": "rollout", "params": {**ROLLOUT, **changes}}}


def in_world(**params: Any) -> dict[str, Any]:
    environment = {"name": "world", "params": params}
    return {"world_model": WORLD, **rollout(environment=environment)}


def executed(config: dict[str, Any], folder: Path, env: Any = None) -> Path:
    whole = {**config, "trackers": [], "runs": str(folder), "seed": 1}
    return Experiment.start(RunConfig.model_validate(whole), env=env).directory


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return executed(rollout(**GYMNASIUM), tmp_path_factory.mktemp("cartpole"))


@pytest.fixture(scope="module")
def latent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"algorithm": {"name": "latent", "params": LATENT}}
    return executed(config, tmp_path_factory.mktemp("latent"))


def assert_is_as_training_evaluated(run: Path) -> None:
    """The last evaluation of a run, played again by its seed, has the same outcome."""
    final = json.loads((run / "results" / "summary.json").read_text())["evaluation"]
    seed = seed_of(stream(1, Stream.EVALUATION, 256 // (4 * 8)))
    evaluation = evaluate_run(run, episodes=6, seed=seed).evaluation
    assert isinstance(evaluation, ReturnEvaluation)
    (found,) = evaluation.groups
    assert found.mean_return == pytest.approx(final["mean_return"], rel=1e-12)
    assert found.standard_error == pytest.approx(final["standard_error"])
    assert found.mean_length == pytest.approx(final["mean_length"])
    assert found.episodes == final["episodes"] == 6
    assert found.interval is not None
    assert found.interval[0] < found.mean_return < found.interval[1]


def test_episodes_are_those_that_training_evaluated(cartpole: Path) -> None:
    assert_is_as_training_evaluated(cartpole)


def test_statistics_of_observations_come_from_the_policy_or_the_checkpoint(tmp_path: Path) -> None:
    run = executed(rollout(**GYMNASIUM, normalise={"observations": True}), tmp_path)
    assert_is_as_training_evaluated(run)
    (run / "results" / "model.safetensors").unlink()
    assert_is_as_training_evaluated(run)


def test_the_command_prints_them(cartpole: Path) -> None:
    done = CliRunner().invoke(app, ["evaluate", str(cartpole), "--episodes", "3", "--json"])
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["environment"], found["episodes"]) == ("CartPole-v1", 3)
    assert [group["episodes"] for group in found["groups"]] == [3]


def test_an_interrupted_run_and_the_best_checkpoint_can_be_played(
    cartpole: Path, tmp_path: Path
) -> None:
    def returns(**options: Any) -> float:
        found = evaluate_run(cartpole, episodes=4, **options).evaluation
        assert isinstance(found, ReturnEvaluation)
        return found.groups[0].mean_return

    whole = returns()
    policy = cartpole / "results" / "model.safetensors"
    policy.rename(tmp_path / "policy")
    try:
        assert returns() == whole  # The newest checkpoint has the same weights.
    finally:
        (tmp_path / "policy").rename(policy)
    assert returns(checkpoint="best") > 0
    (cartpole / "checkpoints").rename(tmp_path / "checkpoints")
    try:
        with pytest.raises(StorageError, match="an evaluation"):
            returns(checkpoint="best")
    finally:
        (tmp_path / "checkpoints").rename(cartpole / "checkpoints")


CASES = {
    "memory": (rollout(**{**GYMNASIUM, **MEMORY}), 1),
    "humans of a world": (in_world(learners="humans", reward={"kind": "goal"}), 1),
}


def assert_has_returns(run: Path, groups: int) -> None:
    first, second = (evaluate_run(run, episodes=2, seed=5).evaluation for _ in range(2))
    assert first == second
    assert isinstance(first, ReturnEvaluation)
    assert len(first.groups) == groups
    assert all(group.episodes == 2 and group.mean_length >= 1 for group in first.groups)


@pytest.mark.parametrize("name", CASES)
def test_runs_in_environments_have_returns(name: str, tmp_path: Path) -> None:
    config, groups = CASES[name]
    assert_has_returns(executed(config, tmp_path), groups)


@pytest.mark.slow
def test_latent_agents_have_returns_by_actor(latent: Path) -> None:
    assert_has_returns(latent, groups=2)


def test_each_agent_has_returns_of_its_own(tmp_path: Path) -> None:
    run = executed(rollout(), tmp_path, env=Pair)
    found = evaluate_run(run, episodes=5, env=Pair).evaluation
    assert isinstance(found, ReturnEvaluation)
    assert [group.group["agent"] for group in found.groups] == ["one", "two"]
    assert [group.episodes for group in found.groups] == [5, 5]
    assert all(group.mean_length == 5 for group in found.groups)
    one, two = (group.max_return for group in found.groups)
    assert one in range(6)
    assert two in range(0, 11, 2)


def test_an_environment_that_would_not_be_used_is_refused(tmp_path: Path) -> None:
    config = {"world_model": WORLD, "algorithm": "exact"}
    with pytest.raises(ConfigError, match=r"'exact' .* act "):
        executed(config, tmp_path, env=Pair)
    assert not list(tmp_path.iterdir())


def pendulum() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("Pendulum-v1", max_episode_steps=20)


@pytest.mark.slow
def test_latent_agents_learn_and_play_in_an_environment_of_the_callers(
    latent: Path, tmp_path: Path
) -> None:
    params = {key: value for key, value in LATENT.items() if key != "tasks"}
    config = {"algorithm": {"name": "latent", "params": params}}
    own = executed(config, tmp_path, env=pendulum)
    own_found = evaluate_run(own, episodes=2, seed=5, env=pendulum).evaluation
    named_found = evaluate_run(latent, episodes=2, seed=5).evaluation
    assert isinstance(own_found, ReturnEvaluation)
    assert isinstance(named_found, ReturnEvaluation)
    assert [group.group["task"] for group in own_found.groups] == ["pendulum"] * 2
    assert [group.mean_return for group in own_found.groups] == [
        group.mean_return for group in named_found.groups
    ]
    with pytest.raises(ConfigError, match=r"tasks: .*none"):
        evaluate_run(own, episodes=2)


def test_latent_agents_have_tasks_of_one_source(tmp_path: Path) -> None:
    config: dict[str, Any] = {"algorithm": {"name": "latent", "params": LATENT}}
    with pytest.raises(ConfigError, match=r"tasks: .*caller"):
        executed(config, tmp_path, env=pendulum)
    config["algorithm"]["params"] = {**LATENT, "tasks": []}
    with pytest.raises(ConfigError, match=r"tasks: .*none"):
        executed(config, tmp_path)
    with pytest.raises(ConfigError, match=r"^env="):
        executed(config, tmp_path, env=lambda: gymnasium.make("CartPole-v1"))


def made_elsewhere(run: Path) -> None:
    """Let a run's config be that of a machine with a GPU, where updates were compiled."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text())
    config["algorithm"]["params"]["compute"] = {"device": "cuda", "compile": True}
    file.write_text(yaml.safe_dump(config))


@pytest.mark.slow
def test_latent_agents_are_played_from_a_checkpoint_too(latent: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(latent, tmp_path / latent.name))
    saved = evaluate_run(run, episodes=2).evaluation
    (run / "results" / "model.safetensors").unlink()
    assert evaluate_run(run, episodes=2).evaluation == saved
    made_elsewhere(run)
    assert evaluate_run(run, episodes=2).evaluation == saved
    with pytest.raises(ConfigError, match="leave out --max-steps"):
        evaluate_run(run, episodes=2, max_steps=3)


def test_robots_in_a_world_and_exact_are_asked_about_goals(tmp_path: Path) -> None:
    power = {"kind": "power", "algorithm": {"name": "exact", "params": {"rollouts": 0}}}
    learned = executed(in_world(reward=power), tmp_path / "learned")
    exact = {"world_model": WORLD, "algorithm": {"name": "exact", "params": {"rollouts": 0}}}
    solved = executed(exact, tmp_path / "solved")
    for run in (learned, solved):
        assert isinstance(evaluate_run(run, episodes=2, gifs=0).evaluation, Evaluation)
    with pytest.raises(ConfigError, match="no checkpoints"):
        evaluate_run(solved, checkpoint="best")


@pytest.mark.slow
def test_learned_robots_know_what_to_do_in_every_start(tmp_path: Path) -> None:
    power = {"kind": "power", "algorithm": {"name": "exact", "params": {"rollouts": 0}}}
    learner = {"total_steps": 40, "human_prior": "uniform", "values": TABLES}
    phase2 = {"world_model": WORLD, "algorithm": {"name": "phase2", "params": learner}}
    exact = {"world_model": WORLD, "algorithm": {"name": "exact", "params": {"rollouts": 0}}}
    learned = [
        executed(in_world(human_prior="uniform", reward=power), tmp_path / "rollout"),
        executed(phase2, tmp_path / "phase2"),
    ]
    solved = executed(exact, tmp_path / "exact")
    world = build(WorldModelRef.model_validate(WORLD))
    later = world.transitions(world.initial_state()[None]).states
    moved = later[(later != world.initial_state()).any(1)][0].tolist()
    file = tmp_path / "starts.jsonl"
    file.write_text(json.dumps({"state": moved}))
    for run in learned:
        found = evaluate_run(run, episodes=2, gifs=0, starts=file).evaluation
        assert isinstance(found, Evaluation)
    with pytest.raises(ConfigError, match=r"starts\.jsonl:1:"):
        evaluate_run(solved, episodes=2, gifs=0, starts=file)
    file.write_text(json.dumps({"state": moved, "time": 1}))
    found = evaluate_run(solved, episodes=2, gifs=0, starts=file).evaluation
    assert isinstance(found, Evaluation)
    assert found.mean_length == 2


def test_humans_may_act_differently_than_the_run_assumed(tmp_path: Path) -> None:
    exact = {"world_model": WORLD, "algorithm": {"name": "exact", "params": {"rollouts": 0}}}
    run = executed(exact, tmp_path)
    command = ["evaluate", str(run), "--episodes", "300", "--gifs", "0", "--json"]
    said = {}
    for prior in ("", "uniform", "{name: path-heuristic, params: {beta: 20}}"):
        asked = ["--human-prior", prior] if prior else []
        done = CliRunner().invoke(app, [*command, *asked])
        assert done.exit_code == 0, done.stderr
        said[prior] = json.loads(done.stdout)
    assert "human_prior" not in said[""]
    assert [each.get("human_prior", {}).get("name") for each in said.values()] == [
        None,
        "uniform",
        "path-heuristic",
    ]
    own, even, walking = ([goal["reached"] for goal in each["goals"]] for each in said.values())
    assert own[0] > even[0] > walking[0]  # The last ones need more than three steps.
    done = CliRunner().invoke(app, [*command, "--human-prior", "{name: uniform, params: {b: 1}}"])
    assert done.exit_code == 2
    assert "--human-prior:1:26: params.b: unknown key" in done.stderr


def test_environments_have_no_human_prior(cartpole: Path) -> None:
    with pytest.raises(ConfigError, match="leave out --human-prior"):
        evaluate_run(cartpole, human_prior=HumanPriorRef.model_validate("uniform"))


def return_of(agent: Agent, environment: gymnasium.Env[Any, Any]) -> float:
    """The return of an episode in a plain loop."""
    agent.reset()
    observation, _ = environment.reset(seed=3)
    total, is_over = 0.0, False
    while not is_over:
        observation, reward, terminated, truncated, _ = environment.step(agent.act(observation))
        total, is_over = total + float(reward), terminated or truncated
    return total


def test_a_policy_acts_in_a_plain_loop(cartpole: Path) -> None:
    returns = [return_of(load_agent(cartpole), gymnasium.make("CartPole-v1")) for _ in range(2)]
    assert returns[0] == returns[1] >= 8
    with pytest.raises(CollectError, match="learned from 4 numbers"):
        load_agent(cartpole).act(np.zeros(3))
    with pytest.raises(ConfigError, match="no 'two'"):
        load_agent(cartpole, member="two")


@pytest.mark.parametrize(
    ("observation", "place"),
    [
        (np.array([0, 0, np.nan, 0]), "place 2"),
        (np.array([0, np.inf, 0, 0]), "place 1"),
        (np.array(["0"] * 4), "dtype <U1"),
        (np.zeros(4, complex), "dtype complex"),
    ],
)
def test_an_agent_refuses_what_are_no_finite_numbers(
    cartpole: Path, observation: Any, place: str
) -> None:
    with pytest.raises(CollectError, match=place):
        load_agent(cartpole).act(observation)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_an_observation_outside_its_bounds_is_a_warning_once(
    cartpole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = load_agent(cartpole)
    agent.act(np.array([4.8, 1e9, -0.4, -1e9]))  # Speeds have no bounds.
    assert warnings_of(caplog) == []
    for _ in range(2):
        agent.act(np.array([9.5, 0, -0.5, 0]))
    (warning,) = warnings_of(caplog)
    assert "entry 0 is 9.5 (from -4.8 to 4.8), entry 2 is -0.5 (from -0.418" in warning


def test_an_older_model_without_bounds_warns_of_none(
    cartpole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Path(shutil.copytree(cartpole, tmp_path / "run"))
    path = run / "results/model.safetensors"
    model = load_policy(path)
    without = asdict(model.env_spec)
    del without["observations"]["bounds"]
    described = model.params.model_dump(mode="json")
    write_model(path, "rollout", described, without, model.policy.state_dict())
    load_agent(run).act(np.full(4, 99.0))
    assert warnings_of(caplog) == []


def test_a_plugin_that_a_run_had_and_that_is_missing_is_named(
    cartpole: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(cartpole, tmp_path / "run"))
    config, record = run / "config.yaml", run / "env.json"
    config.write_text(config.read_text().replace("name: mlp", "name: of-a-plugin"))
    (run / "config.json").unlink()
    data = json.loads(record.read_text())
    data["plugins"]["empo-gone"] = "1.2"
    record.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=r"(?s)'of-a-plugin'.*empo-gone 1\.2"):
        evaluate_run(run, episodes=1)


def test_a_latent_agent_acts_in_a_plain_loop(latent: Path) -> None:
    environment = gymnasium.make("Pendulum-v1", max_episode_steps=5)
    assert return_of(load_agent(latent), environment) < 0
    with pytest.raises(ConfigError, match="'Pong'"):
        load_agent(latent, member="Pong")


@pytest.mark.parametrize("name", ["phase2", "exact"])
def test_robots_act_in_states_of_their_world(name: str, tmp_path: Path) -> None:
    params = {
        "phase2": {"total_steps": 20, "human_prior": "uniform", "values": TABLES},
        "exact": {"rollouts": 0},
    }
    config = {"world_model": WORLD, "algorithm": {"name": name, "params": params[name]}}
    agent = load_agent(executed(config, tmp_path))
    world = build(WorldModelRef.model_validate(WORLD))
    state = world.initial_state().numpy()
    for _ in range(3):
        (action,) = agent.act(state)
        assert 0 <= action < world.spec.num_robot_actions
    with pytest.raises(CollectError, match="over after 3 steps: call reset"):
        agent.act(state)
    agent.reset()
    with pytest.raises(CollectError, match="shape"):
        agent.act(state[1:])
