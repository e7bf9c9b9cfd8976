"""``empo export``: a runtime without torch acts as the run does, to 1e-6."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from empo_core.cli.app import app
from empo_core.config import RunConfig, merged
from empo_core.errors import ConfigError
from empo_core.experiment import Experiment, run
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec
from empo_latent.networks.model import LatentModel
from empo_latent.onnx_policy import export_policy as export_latent
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_learning.agent import load_agent
from empo_learning.export import export_run
from empo_learning.onnx_file import signature
from empo_rollout.distributions import MultiCategorical
from empo_rollout.onnx_policy import export_policy
from empo_rollout.params import PolicyParams
from empo_rollout.policy import build_policy

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

ROWS = 37
"""More than the example that is traced has."""
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
LATENT: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 40,
    "collection": {"acting": "policy", "seed_steps": 30, "seed_updates": 2},
    "learning": {"horizon": 2, "updates_per_step": 0.1},
    "imagination": {"candidates": 4},
    "replay": {"batch_size": 8},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 0, "videos": 0},
}


def ran(folder: Path, name: str, params: dict[str, Any], **keys: Any) -> Path:
    algorithm = {"name": name, "params": merged(params, keys)}
    config = {"algorithm": algorithm, "trackers": [], "runs": str(folder)}
    return Experiment.start(RunConfig.model_validate(config)).directory


def answers(path: Path, **inputs: Any) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-6, atol=1e-6)


def observed(observations: ObservationSpec) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    if observations.dtype == "uint8":
        shape = (ROWS, observations.words)
        return torch.randint(0, 255, shape, dtype=torch.uint8, generator=generator)
    return torch.randn(ROWS, observations.words, generator=generator)


def network(name: str, **params: Any) -> dict[str, Any]:
    return {"name": name, "params": params}


VECTOR, PICTURE = ObservationSpec(5), ObservationSpec(3 * 8 * 8, "uint8", (3, 8, 8), 10.0)
CHOICES = ActionSpec(choices=(3, 2))
NUMBERS = ActionSpec(low=(-2.0, -np.inf), high=(2.0, 0.5))


@pytest.mark.parametrize(
    ("observations", "actions", "params"),
    [
        (VECTOR, CHOICES, {"network": network("mlp", hidden=[8])}),
        (VECTOR, NUMBERS, {"network": network("mlp", hidden=[8], activation="silu")}),
        (PICTURE, CHOICES, {"network": network("conv", channels=[4])}),
        (VECTOR, CHOICES, {"network": network("lstm", units=4), "critic": "shared"}),
        (VECTOR, NUMBERS, {"network": network("lstm", units=4, cell="gru"), "critic": "shared"}),
        (VECTOR, NUMBERS, {"agents": "separate"}),
    ],
    ids=["choices", "numbers", "pictures", "lstm", "gru", "separate"],
)
def test_a_policy_of_ppo_acts_alike(
    tmp_path: Path, observations: ObservationSpec, actions: ActionSpec, params: dict[str, Any]
) -> None:
    env_spec = EnvSpec(observations, actions, ("a", "b"), 1, masks=actions.is_discrete)
    generator = torch.Generator().manual_seed(1)
    policy = build_policy(PolicyParams.model_validate(params), env_spec, generator=generator)
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    export_policy(policy, env_spec, 1, tmp_path / "policy.onnx")
    rows, index = observed(observations), torch.ones(ROWS, dtype=torch.int64)
    memory = torch.randn(ROWS, policy.memory_size, generator=generator)
    inputs: dict[str, Any] = {"observation": rows.numpy()}
    mask = None
    if actions.is_discrete:
        mask = torch.rand(ROWS, 5, generator=generator) < 0.5
        mask[:, [0, 4]] = True
        inputs["mask"] = mask.numpy()
    if policy.memory_size:
        inputs["memory"] = memory.numpy()
    outputs = answers(tmp_path / "policy.onnx", **inputs)
    with torch.no_grad():
        step = policy.step(rows, memory, torch.zeros(ROWS, dtype=torch.bool), index, mask)
    close(outputs["value"], step.value)
    if isinstance(step.distribution, MultiCategorical):
        assert np.array_equal(outputs["action"], step.distribution.mode)
        chances = np.split(outputs["log_probs"], [3], 1)
        expected = [step.distribution.log_probs[:, i, :n].exp() for i, n in enumerate((3, 2))]
        for chance, right in zip(chances, expected, strict=True):
            close(np.exp(chance), right)
        assert len(np.unique(outputs["action"], axis=0)) > 2
    else:
        mode = step.distribution.mode
        close(outputs["mean"], mode)
        close(outputs["action"], mode.clamp(torch.tensor(actions.low), torch.tensor(actions.high)))
    if policy.memory_size:
        close(outputs["next_memory"], step.memory)


@pytest.mark.parametrize("pictures", [False, True], ids=["vectors", "pictures"])
def test_a_latent_policy_acts_alike(tmp_path: Path, pictures: bool) -> None:
    shape = (3, 64, 64) if pictures else (6,)
    tasks = 1 if pictures else 2
    spec = MultiTaskSpec(
        words=int(np.prod(shape)),
        pictures=pictures,
        shape=shape,
        actions=2,
        active=((True, True), (True, False))[:tasks],
        tasks=("wide", "narrow")[:tasks],
        action_repeats=(1, 1)[:tasks],
        episode_lengths=(50, 50)[:tasks],
        sizes=() if pictures else (6, 4),
        bounds=(((-2.0, 2.0), (0.0, 1.0)), ((5.0, 9.0),))[:tasks],
    )
    params = LatentParams.model_validate({**LATENT, "num_envs": tasks, "encoder": {"width": 8}})
    generator = torch.Generator().manual_seed(1)
    model = LatentModel(params, spec, generator=generator)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=generator)
    for task in range(tasks):
        export_latent(model, spec, task, tmp_path / "policy.onnx")
        size = spec.sizes[task]
        words = torch.zeros(ROWS, spec.words, dtype=torch.uint8 if pictures else torch.float32)
        words[:, :size] = observed(ObservationSpec(size, "uint8" if pictures else "float32"))
        outputs = answers(tmp_path / "policy.onnx", observation=words[:, :size].numpy())
        index = None if tasks == 1 else torch.tensor(task)
        with torch.no_grad():
            policy = model.policy(model.encode(words, task=index), task=index)
        numbers = sum(spec.active[task])
        close(outputs["mean"], policy.loc[:, :numbers])
        close(outputs["log_std"], policy.log_std[:, :numbers])
        low, high = np.array(spec.bounds[task]).T
        middle, half = (low + high) / 2, (high - low) / 2
        close(outputs["action"], middle + half * policy.loc[:, :numbers].tanh().numpy())
        assert outputs["action"].shape == (ROWS, numbers)
        assert outputs["action"].std() > 0


def test_the_command_says_what_the_file_takes_and_gives(tmp_path: Path) -> None:
    directory = ran(tmp_path, "rollout", SMALL, environment="gymnasium/Pendulum-v1", normalise={})
    done = empo("export", str(directory), "-o", str(tmp_path / "pendulum.onnx"), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {
        "file": str(tmp_path / "pendulum.onnx"),
        "inputs": {"observation": "float [agent, 3]"},
        "outputs": {
            "action": "float [agent, 1]", "mean": "float [agent, 1]",
            "log_std": "float [agent, 1]", "value": "float [agent]",
        },
    }  # fmt: skip
    agent = load_agent(directory)
    rows = 4 * np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    acted = answers(tmp_path / "pendulum.onnx", observation=rows)["action"]
    for row, action in zip(rows, acted, strict=True):
        close(action, agent.act(row))


def test_a_run_of_latent_is_exported_task_by_task(tmp_path: Path) -> None:
    short = {"max_episode_steps": 10}
    tasks = [
        {"name": "gymnasium/Pendulum-v1", "params": short},
        {"name": "gymnasium/MountainCarContinuous-v0", "params": short},
    ]
    directory = ran(tmp_path, "latent", LATENT, tasks=tasks, num_envs=2)
    name = "MountainCarContinuous-v0"
    path = export_run(directory, member=name)
    assert path == directory / "policy.onnx"
    assert set(signature(path)["outputs"].values()) == {"float [row, 1]"}
    rows = np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32)
    agent: Any = load_agent(directory, member=name)
    for row, action in zip(rows, answers(path, observation=rows)["action"], strict=True):
        agent.reset()
        close(action, agent.act(row, actor="policy"))
    with pytest.raises(ConfigError, match="'nobody'"):
        export_run(directory, member="nobody")


def test_robots_of_phase2_are_exported_where_they_have_a_network(tmp_path: Path) -> None:
    world = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
    for kind, has_form in (("mlp", True), ("lookup", False)):
        params = {
            "values": {"q_r": kind, "v_h_e": kind},
            "total_steps": 4,
            "warm_up": {"v_h_e": 1, "q_r": 1, "ramp": 1},
            "collector": {"name": "sync", "params": {"min_env_steps": 20}},
            "replay": {"batch_size": 8},
            "num_envs": 8,
        }
        algorithm = {"name": "phase2", "params": params}
        config = {"world_model": world, "algorithm": algorithm, "trackers": []}
        run = Experiment.start(RunConfig.model_validate({**config, "runs": str(tmp_path)}))
        if not has_form:
            with pytest.raises(ConfigError, match="q_r"):
                export_run(run.directory)
            continue
        session = onnxruntime.InferenceSession(export_run(run.directory))
        assert [output.name for output in session.get_outputs()] == ["value"]


def test_a_solution_has_no_onnx_form(tmp_path: Path) -> None:
    world = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
    config = {"world_model": world, "algorithm": "exact", "trackers": [], "runs": str(tmp_path)}
    run = Experiment.start(RunConfig.model_validate(config))
    done = empo("export", str(run.directory))
    assert (done.exit_code, "'exact'" in done.stderr) == (2, True)
    assert not (run.directory / "policy.onnx").exists()


def empo(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_run_in_an_environment_from_python_is_exported_with_it(tmp_path: Path) -> None:
    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    config = {"algorithm": {"name": "rollout", "params": SMALL}, "trackers": []}
    result = run(config | {"runs": str(tmp_path)}, env=make)
    with pytest.raises(ConfigError, match="env="):
        export_run(result.directory)
    path = export_run(result.directory, env=make)
    row = np.array([0.0, 1.0, -1.0, 0.5], np.float32)
    agent = load_agent(result.directory, env=make)
    assert answers(path, observation=row[None])["action"][0] == agent.act(row)
