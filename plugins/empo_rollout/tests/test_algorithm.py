"""The ``rollout`` algorithm, as the core sees it."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from policy_shapes import policy_params
from pydantic import ValidationError
from rich.console import Console

from empo_core.components import build
from empo_core.config import RunConfig
from empo_core.errors import CollectError, ConfigError, NonFiniteError
from empo_core.experiment import Experiment, RunInterrupted, run
from empo_core.protocols import Algorithm, Tracker
from empo_core.protocols.environments import TimeStep, VectorEnv
from empo_core.types import Histogram
from empo_environments.normalisation import Moments, normalise_observations
from empo_learning.checkpoint import Checkpoints
from empo_rollout.algorithm import RolloutAlgorithm
from empo_rollout.factory import EnvironmentFactory
from empo_rollout.params import RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import build_policy
from empo_rollout.policyfile import load_policy
from empo_rollout.result import RolloutResult
from empo_testing.algorithm import AlgorithmTests

SMALL: dict[str, Any] = {
    "total_steps": 96,
    "num_envs": 4,
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 4},
    "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
    "update": {"minibatch_size": 8, "update_epochs": 2},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 4, "checkpoint_interval": 0},
}
CARTPOLE = "gymnasium/CartPole-v1"


def params(environment: str | Mapping[str, Any] = CARTPOLE, **groups: Any) -> dict[str, Any]:
    """Small parameters, with some keys of some groups changed."""
    changed = {"environment": environment, **SMALL}
    for name, group in groups.items():
        before = changed.get(name)
        changed[name] = {**before, **group} if isinstance(before, dict) else group
    return changed


def config(tmp_path: Path, **keys: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "algorithm": {"name": "rollout", "params": params(**keys)},
            "trackers": [],
            "seed": 3,
            "runs": str(tmp_path / "runs"),
        }
    )


class TestRollout(AlgorithmTests):
    @pytest.fixture
    def algorithm(self) -> Algorithm:
        environment = {
            "name": "world",
            "params": {"learners": "humans", "reward": {"kind": "goal"}},
        }
        return RolloutAlgorithm(RolloutParams.model_validate(params(environment)))

    @pytest.fixture
    def volatile(self) -> set[str]:
        return {"seconds", "steps_per_second"}


class InterruptAt(Tracker):
    """Stops a run after so many logs, as Ctrl-C does."""

    def __init__(self, logs: int) -> None:
        self.left = logs

    def start(self, directory: Path, config: Mapping[str, Any]) -> None: ...
    def progress(self, task: str, done: float, total: float) -> None: ...
    def finish(self, status: str) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


def outcome(result: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    assert isinstance(result, RolloutResult)
    summary = result.summary()
    for key in ("seconds", "steps_per_second"):
        summary.pop(key)
    return summary, {name: tensor.clone() for name, tensor in result.policy.state_dict().items()}


@pytest.mark.parametrize(
    ("keys", "stop"),
    [
        ({"reporting": {"evaluation_interval": 1}}, 5),
        ({"policy": policy_params(hidden=[8], memory="lstm", critic="shared")}, 3),
        pytest.param(
            {
                "update": {"sampling": "prioritized", "prio_alpha": 0.8},
                "optimiser": {"name": "adamw"},
            },
            2,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"experience": {"tail": "drop", "batch_size": 32}},
            2,
            marks=pytest.mark.slow,
        ),
        pytest.param({"environment": "gymnasium/Pendulum-v1"}, 4, marks=pytest.mark.slow),
        ({"vectorisation": {"backend": "process", "workers": 2, "async_factor": 2}}, 3),
        ({"environment": "gymnasium/Pendulum-v1", "normalise": {"clip": 5.0}}, 3),
    ],
    ids=["mlp", "lstm", "prioritised", "dropped tails", "numbers", "processes", "normalised"],
)
def test_a_resumed_run_goes_on_exactly(
    tmp_path: Path, request: pytest.FixtureRequest, keys: dict[str, Any], stop: int
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Some shells ignore it.
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    whole = outcome(run(config(tmp_path, **keys)))
    with pytest.raises(RunInterrupted) as caught:
        run(config(tmp_path, **keys), watchers=[InterruptAt(stop)])
    resumed = outcome(Experiment.resume(caught.value.directory).result)
    assert resumed[0] == whole[0]
    for name, tensor in whole[1].items():
        assert torch.equal(resumed[1][name], tensor), name


def test_a_saved_policy_normalises_as_the_run_did(tmp_path: Path) -> None:
    result: Any = run(config(tmp_path, environment="gymnasium/Pendulum-v1", normalise={}))
    (directory,) = (tmp_path / "runs").iterdir()
    state = Checkpoints(directory / "checkpoints").newest()[1]["learner"]  # type: ignore[index]
    policy = load_policy(directory / "results" / "model.safetensors").policy
    moments = Moments.from_state_dict(state["ranks"][0]["normaliser"]["observations"])
    raw = 8 * torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    normalised = torch.from_numpy(normalise_observations(raw.numpy(), moments, 10.0))
    plain = build_policy(result.params, result.env_spec, generator=torch.Generator())
    plain.load_state_dict(state["policy"])
    given = (torch.zeros(6, 0), torch.zeros(6, dtype=torch.bool), torch.zeros(6, dtype=torch.int64))
    expected = plain.step(normalised, *given)
    for found in (policy.step(raw, *given), result.policy.step(raw, *given)):
        assert torch.equal(found.value, expected.value)
        assert torch.equal(found.distribution.mode, expected.distribution.mode)
    # Returns are what the environment paid, far below what is left of it when it is normalised.
    assert result.evaluations[-1].returns.mean_return < -500


class Pixels(gymnasium.Env[np.ndarray, np.int64]):
    """Shows a picture."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 2), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((2, 2), np.uint8), {}


gymnasium.register("EmpoRolloutTests/Pixels-v0", entry_point=Pixels)  # type: ignore[arg-type]


def test_pictures_are_not_normalised(tmp_path: Path) -> None:
    keys = {"environment": "gymnasium/EmpoRolloutTests/Pixels-v0", "normalise": {}}
    algorithm = build(config(tmp_path, **keys).algorithm)
    with pytest.raises(ConfigError, match=r"algorithm\.params\.normalise\.observations:"):
        algorithm.check(None)


def test_check_refuses_what_cannot_be_learned_with(tmp_path: Path) -> None:
    for policy, update, message in (
        (
            policy_params(memory="lstm", critic="shared"),
            {"sampling": "steps"},
            r"update\.sampling: 'steps' tears",
        ),
        (
            policy_params(activation="relu"),
            {"gradient": "closed-form", "sampling": "shuffled"},
            r"update\.gradient: .*activation: tanh",
        ),
    ):
        keys = {"policy": policy, "update": update}
        with pytest.raises(ConfigError, match=message):
            build(config(tmp_path, **keys).algorithm).check(None)


class Faulty(gymnasium.Env[np.ndarray, np.int64]):
    """Does something wrong in its 20th step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str = "nan") -> None:
        self.fault, self.steps = fault, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: np.int64) -> Any:
        self.steps += 1
        seen, reward = np.zeros(2, np.float32), 0.0
        if self.steps == 20:
            if self.fault == "raises":
                raise RuntimeError("the pole fell off")
            seen = seen * np.nan if self.fault == "nan" else seen[:1]
        return seen, reward, False, False, {}


gymnasium.register("EmpoRolloutTests/Faulty-v0", entry_point=Faulty)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("nan", "observation"), ("shape", "shape"), ("raises", "pole")],
)
def test_a_broken_environment_is_named_and_nothing_learned_is_lost(
    tmp_path: Path, fault: str, words: str
) -> None:
    environment = {
        "name": "gymnasium/EmpoRolloutTests/Faulty-v0",
        "params": {"kwargs": {"fault": fault}},
    }
    with pytest.raises(CollectError, match=words) as caught:
        run(config(tmp_path, environment=environment))
    assert "environment" in str(caught.value)
    (directory,) = (tmp_path / "runs").iterdir()
    found = Checkpoints(directory / "checkpoints").newest()
    assert found is not None
    assert found[0] == 4  # Iterations of 16 steps, 4 in each environment, before its 20th.


def test_what_is_not_finite_is_neither_learned_nor_saved(tmp_path: Path) -> None:
    keys = {"optimiser": {"name": "sgd", "lr": 100.0, "max_grad_norm": None}}
    with pytest.raises(NonFiniteError):
        run(config(tmp_path, environment="gymnasium/Pendulum-v1", **keys))
    (directory,) = (tmp_path / "runs").iterdir()
    found = Checkpoints(directory / "checkpoints").newest()
    if found is not None:
        assert all(tensor.isfinite().all() for tensor in found[1]["learner"]["policy"].values())


GOALS = {"name": "world", "params": {"learners": "humans", "reward": {"kind": "goal"}}}
WORKERS = {"workers": 2, "backend": "process"}
RECURRENT = {"network": {"name": "lstm", "params": {"cell": "gru"}}, "critic": "shared"}


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("CartPole", {"environment": "gymnasium/CartPole-v9"}),
        ("poles", {"environment": {"name": CARTPOLE, "params": {"kwargs": {"poles": 2}}}}),
        ("nowhere", {"environment": "gymnasium/nowhere/to-v0"}),
        ("butterfly", {"environment": "pettingzoo/butterfly/no_such_v1"}),
        ("families", {"environment": "pettingzoo/os/system_v1"}),
        ("world_model", {"environment": GOALS}),
        ("conv", {"policy": {"network": "conv"}}),
        ("steps", {"update": {"sampling": "steps"}, "policy": RECURRENT}),
        ("workers", {"num_envs": 3, "vectorisation": WORKERS}),
        ("GPU", {"compute": {"device": "cuda:0"}}),
        (
            "desync",
            {
                "environment": "gymnasium-vector/CartPole-v1",
                "vectorisation": {"desync": True},
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_before_training(
    tmp_path: Path, words: str, keys: dict[str, Any]
) -> None:
    if words == "GPU" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=words):
        run(config(tmp_path, **keys))


@pytest.mark.parametrize("device", ["gpu", "meta"])
def test_what_is_no_device_is_refused_in_the_config(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValidationError, match=f"'{device}'"):
        config(tmp_path, compute={"device": device})


class Watching(InterruptAt):
    """Notes how many threads torch has whenever something is logged."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.threads: set[int] = set()

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        self.threads.add(torch.get_num_threads())


def test_torch_gets_the_threads_it_is_given(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    for threads in (1, 3):
        watching = Watching()
        run(config(tmp_path, compute={"threads": threads}), watchers=[watching])
        assert watching.threads == {threads}
    assert torch.get_num_threads() == before


def test_a_run_in_which_nobody_acts_does_not_go_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = EnvironmentFactory.training

    def idle(environments: EnvironmentFactory, plan: VecPlan) -> VectorEnv:
        vector: Any = training(environments, plan)
        recv = vector.recv

        def asleep() -> TimeStep:
            arrival = recv()
            arrival.acts[:] = False
            return arrival

        vector.recv = asleep
        return vector

    monkeypatch.setattr(EnvironmentFactory, "training", idle)
    with pytest.raises(CollectError, match="acted"):
        run(config(tmp_path))


def test_check_says_what_a_run_would_need() -> None:
    algorithm = RolloutAlgorithm(RolloutParams.model_validate(params()))
    found = algorithm.check(None)
    assert found["environments"] == 4
    assert found["steps per rollout"] == 16
    assert found["iterations"] == 6


def test_sizes_that_do_not_fit_are_refused_with_the_nearest_that_does() -> None:
    update = {"minibatch_size": 15, "sampling": "shuffled"}
    algorithm = RolloutAlgorithm(RolloutParams.model_validate(params(update=update)))
    with pytest.raises(ConfigError, match=r"update\.minibatch_size:.* 16 "):
        algorithm.check(None)


def test_check_refuses_what_does_not_fit_without_running() -> None:
    algorithm = RolloutAlgorithm(RolloutParams.model_validate(params(policy={"network": "conv"})))
    with pytest.raises(ConfigError, match="conv"):
        algorithm.check(None)


def test_a_run_stops_once_it_is_good_enough_and_reports_it(tmp_path: Path) -> None:
    reporting = {"evaluation_interval": 1, "solved_at": 1.0, "solved_evaluations": 2}
    result: Any = run(config(tmp_path, reporting=reporting))
    assert result.iterations == 2
    assert result.summary()["solved"] is True
    profile = result.profile()
    assert profile["rollout"] >= profile["rollout/env"] > 0 < profile["train"]
    console = Console(width=120, file=io.StringIO())
    console.print(result.report())
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Evaluation after 32 environment steps" in said
    assert "2 iterations" in said
    assert "solved (at least 1)" in said
    rows = {
        name: (result.record.directory / "results" / f"{name}.csv").read_text().splitlines()
        for name in ("curve", "training")
    }
    assert rows["curve"][0].startswith("steps,environment_steps,mean_return,")
    assert len(rows["curve"]) == len(rows["training"]) == 3


@pytest.mark.parametrize("tail", ["bootstrap", "drop"])
@pytest.mark.parametrize("kind", ["gymnasium-vector", "gymnasium"])
def test_steps_are_counted_as_they_were_taken(tmp_path: Path, kind: str, tail: str) -> None:
    environment = {"name": kind, "params": {"id": "CartPole-v1"}}
    result: Any = run(config(tmp_path, environment=environment, experience={"tail": tail}))
    summary = result.summary()
    assert summary["steps"] >= 96 - 16
    # A vector environment takes a step for each reset, in which nobody acts.
    assert (summary["steps"] % 16 == 0) == (kind == "gymnasium")


def test_presets_fill_in_what_is_not_given() -> None:
    given = params(update={"minibatch_size": 1024})
    metta = RolloutParams.model_validate({**given, "preset": "metta"})
    assert (metta.gamma, metta.advantages.gae_lambda) == (0.977, 0.916)
    assert metta.advantages.vtrace == "minibatch"
    assert metta.experience.bptt_horizon == 4  # As given.
    assert metta.update.value_coef == 0.44
    assert metta.losses[0].loss.params.model_dump()["clip"] == 0.1
    cleanrl = RolloutParams.model_validate({**given, "preset": "cleanrl"})
    assert cleanrl.optimiser.lr_schedule.name == "linear"
    assert cleanrl.update.update_epochs == 2
    clips = [made.update.value_clip for made in (metta, cleanrl, RolloutParams(**given))]
    assert clips == [0.1, 0.2, None]


def test_short_runs_have_few_environments_unless_a_size_says_otherwise() -> None:
    def num_envs(**keys: object) -> tuple[int | None, int]:
        made = RolloutParams.model_validate({"total_steps": 20_000, **keys})
        return made.num_envs, made.update.update_epochs

    large = RolloutParams.model_validate({"total_steps": 10_000_000})
    few = num_envs(num_envs=8)
    assert num_envs() == few
    assert large.num_envs is None
    for sizes in (
        {"num_envs": None},
        {"preset": "large"},
        {"vectorisation": {"workers": 2}},
        {"experience": {"batch_size": 1024}},
    ):
        assert num_envs(**sizes) == (None, large.update.update_epochs), sizes


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        ("prioritized", {"update": {"prio_beta0": 0.2}}),
        ("prioritized", {"update": {"prio_alpha": 0.2}}),
        ("evaluation_episodes", {"reporting": {"evaluation_episodes": 0, "solved_at": 475.0}}),
        ("set evaluation_interval", {"reporting": {"solved_at": 475.0}}),
        ("lstm", {"experience": {"carry_memory": False}}),
        ("shared", {"policy": {"network": "lstm"}}),
        ("vtrace", {"advantages": {"rho_clip": 2.0}}),
    ],
    ids=str,
)
def test_no_option_is_accepted_and_ignored(words: str, keys: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=words):
        RolloutParams.model_validate(params(**keys))


@pytest.mark.parametrize(
    ("names", "words"),
    [(["a", "a"], "another one"), (["a", ""], "empty"), (["other"], "without")],
)
def test_reasons_can_be_told_apart(names: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RolloutParams.model_validate(params({"name": CARTPOLE, "params": {"reasons": names}}))


@pytest.mark.parametrize("betas", [[1.0, 0.9], [0.9, -0.1], [0.9]])
def test_decays_are_decays(betas: list[float]) -> None:
    with pytest.raises(ValueError, match="betas"):
        RolloutParams.model_validate(params(optimiser={"betas": betas}))
