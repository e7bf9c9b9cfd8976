"""Runs that are extended, and runs that begin with the weights of another one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file

from empo_core.components import build
from empo_core.config import RunConfig, merged
from empo_core.config.files import load_config
from empo_core.errors import ConfigError, SolveError, TrackerError
from empo_core.experiment import Experiment
from empo_core.protocols import Callback, Tracker, Training
from empo_core.types import Histogram
from empo_learning.evaluation import evaluate_run
from empo_learning.saved_model import model_bytes, read_model

PENDULUM = {"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}}
ROLLOUT: dict[str, Any] = {
    "name": "rollout",
    "params": {
        "total_steps": 96,
        "num_envs": 4,
        "environment": PENDULUM,
        "normalise": {},
        "vectorisation": {"backend": "serial"},
        "experience": {"bptt_horizon": 4},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
        "update": {"minibatch_size": 8, "update_epochs": 2},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 4, "checkpoint_interval": 0},
    },
}
LATENT: dict[str, Any] = {
    "name": "latent",
    "params": {
        "size": "tiny",
        "total_steps": 60,
        "tasks": [PENDULUM],
        "policy_loss": "awr",
        "collection": {"seed_updates": 5},
        "encoder": {"width": 8},
        "latents": {"size": 8, "group": 4, "width": 8},
        "bins": {"number": 11},
        "replay": {"batch_size": 8},
        "learning": {"horizon": 2, "updates_per_step": 0.25},
        "imagination": {"candidates": 4},
        "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
        "compute": {"threads": 1},
        "reporting": {"evaluation_episodes": 1, "checkpoint_interval": 0, "videos": 0},
    },
}
TABLES = {"q_r": "lookup", "v_h_e": "lookup"}
PHASE2: dict[str, Any] = {
    "name": "phase2",
    "params": {
        "values": TABLES,
        "total_steps": 60,
        "num_envs": 32,
        "warm_up": {"v_h_e": 10, "x_h": 5, "u_r": 5, "q_r": 10, "v_r": 5, "ramp": 10},
        "optimiser": {"lr": 0.5, "lr_schedule": "constant"},
        "exploration": {"robot": [], "human": []},
        "replay": {"batch_size": 16},
        "collector": {"name": "sync", "params": {"min_env_steps": 50}},
    },
}
MLP = {"name": "mlp", "params": {"hidden": 8}}
PHASE2_MLP = {
    **PHASE2,
    "params": {**PHASE2["params"], "values": {"q_r": MLP, "v_h_e": MLP}, "total_steps": 20},
}
WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 3}}


def config(folder: Path, algorithm: Mapping[str, Any], **params: Any) -> RunConfig:
    chosen = {**algorithm, "params": merged(algorithm["params"], params)}
    world = {"world_model": WORLD} if algorithm["name"] == "phase2" else {}
    data = {"algorithm": chosen, **world, "trackers": ["jsonl"], "runs": str(folder), "seed": 3}
    return RunConfig.model_validate(data)


def state(directory: Path, number: int) -> dict[str, bytes]:
    """All tensors of a checkpoint but Python's own generator, which type checks draw from."""
    tensors = load_file(directory / "checkpoints" / f"step-{number}" / "tensors.safetensors")
    return {
        name: tensor.numpy().tobytes()  # Where nothing is known there is NaN.
        for name, tensor in tensors.items()
        if "/python/" not in name
    }


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "log.txt"
    }


class StopAt(Tracker):
    """Ends a run by an error after so many steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        if step >= self.steps:
            raise SolveError(f"after {step}")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of PPO, which no test changes."""
    return Experiment.start(config(tmp_path_factory.mktemp("short"), ROLLOUT)).directory


@pytest.mark.parametrize(
    ("algorithm", "steps", "number"),
    [
        pytest.param(ROLLOUT, (96, 192), 12, id="rollout"),
        # The long one has as many random steps as the short one had, which is all of them.
        pytest.param(LATENT, (60, 90), 90 + 5 + 7, id="latent"),
        pytest.param(PHASE2, (60, 120), 120, id="phase2", marks=pytest.mark.slow),
    ],
)
def test_an_extended_run_is_the_run_that_was_long_from_the_start(
    tmp_path: Path, algorithm: dict[str, Any], steps: tuple[int, int], number: int
) -> None:
    few, many = steps
    random = {"collection": {"seed_steps": few}} if algorithm is LATENT else {}
    whole = Experiment.start(config(tmp_path / "a", algorithm, total_steps=many, **random))
    done = Experiment.start(config(tmp_path / "b", algorithm, total_steps=few))
    extended = Experiment.resume(done.directory, [f"total_steps={many}"])
    assert extended.summary()["steps"] == many
    assert state(extended.directory, number) == state(whole.directory, number)
    models = (each.directory / "results" / "model.safetensors" for each in (extended, whole))
    first, second = (load_file(file) for file in models)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_was_changed_is_in_the_run(tmp_path: Path) -> None:
    directory = Experiment.start(config(tmp_path, ROLLOUT)).directory
    Experiment.resume(directory, ["algorithm.params.total_steps=128", "reporting.log_interval=2"])
    params: Any = load_config(directory / "config.yaml").algorithm.params
    assert (params.total_steps, params.reporting.log_interval) == (128, 2)
    (attempt,) = json.loads((directory / "env.json").read_text())["resumed"]
    assert attempt["params"] == {"total_steps": [96, 128], "reporting.log_interval": [1, 2]}
    assert not list(directory.glob(".results*"))
    summary = json.loads((directory / "results" / "summary.json").read_text())
    assert summary["steps"] == 128


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("optimiser.lr=0.1", r"algorithm\.params\.optimiser\.lr: .*initial: RUN"),
        ("gamma=0.5", r"algorithm\.params\.gamma: "),
        ("seed=4", "seed: "),
        ("algorithm.name=exact", r"algorithm\.name: "),
        ("total_steps=32", r"algorithm\.params\.total_steps: 32 is less than the 96"),
        ("total_steps=96", "very params: total_steps=96"),
        ("reporting.log_interval=7", r"algorithm\.params\.total_steps: .*96 steps"),
        ("total_step=192", r"algorithm\.params\.total_step: .*'total_steps'"),
    ],
)
def test_what_a_run_cannot_go_on_with_is_refused_and_leaves_it_as_it_was(
    short: Path, change: str, place: str
) -> None:
    before = files(short)
    with pytest.raises(ConfigError, match=place):
        Experiment.resume(short, [change])
    assert files(short) == before


def test_algorithms_that_do_not_learn_are_not_extended(tmp_path: Path) -> None:
    data = {"world_model": WORLD, "algorithm": "exact", "trackers": [], "runs": str(tmp_path)}
    directory = Experiment.start(RunConfig.model_validate(data)).directory
    with pytest.raises(ConfigError, match=r"algorithm\.params\.keep: "):
        Experiment.resume(directory, ["keep=root"])


def test_a_solved_run_goes_on_without_its_goal(tmp_path: Path) -> None:
    solved = {"solved_at": -1e9, "solved_evaluations": 1, "evaluation_interval": 1}
    directory = Experiment.start(config(tmp_path, ROLLOUT, reporting=solved)).directory
    with pytest.raises(ConfigError, match=r"algorithm\.params\.reporting\.solved_at: "):
        Experiment.resume(directory, ["total_steps=128"])
    assert Experiment.resume(directory, ["reporting.solved_at=null"]).summary()["steps"] == 96


class Stops(Callback):
    """Ends a run that has taken at least 32 steps, and before 64."""

    def after_update(self, training: Training) -> None:
        if 32 <= training.steps < 64:
            training.stop("a test")


def test_a_run_that_a_callback_ended_goes_on_where_more_is_asked_for(tmp_path: Path) -> None:
    stopped = Experiment.start(config(tmp_path, ROLLOUT), callbacks=[Stops()])
    assert stopped.summary()["steps"] < 64
    assert stopped.summary()["stop_reason"] == "a test"
    longer = Experiment.resume(stopped.directory, ["total_steps=128"]).summary()
    assert longer["steps"] == 128
    assert "stop_reason" not in longer


def test_schedules_that_follow_the_number_of_steps_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    falls = {"lr_schedule": "linear"}
    directory = Experiment.start(config(tmp_path, ROLLOUT, optimiser=falls)).directory
    Experiment.resume(directory, ["total_steps=112"])
    assert "total_steps was 96 and is 112: optimiser.lr_schedule: " in caplog.text


def test_an_extended_run_that_stops_is_played_by_its_newest_weights(tmp_path: Path) -> None:
    directory = Experiment.start(config(tmp_path, ROLLOUT)).directory
    finished = evaluate_run(directory, episodes=4).evaluation

    with pytest.raises(TrackerError, match="after 144"):
        Experiment.resume(directory, ["total_steps=192"], watchers=[StopAt(144)])
    assert not (directory / "results").exists()
    assert evaluate_run(directory, episodes=4).evaluation != finished
    assert Experiment.resume(directory).summary()["steps"] == 192
    assert (directory / "results" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("algorithm", "zero"),
    [
        pytest.param(ROLLOUT, {"optimiser": {"lr": 1e-30}}, id="rollout"),
        pytest.param(LATENT, {"optimiser": {"lr": 1e-30}, "total_steps": 40}, id="latent"),
        pytest.param(PHASE2_MLP, {"optimiser": {"lr": 1e-30}}, id="phase2"),
    ],
)
def test_a_run_begins_with_the_weights_of_another(
    tmp_path: Path, algorithm: dict[str, Any], zero: dict[str, Any]
) -> None:
    first = Experiment.start(config(tmp_path / "a", algorithm))
    chosen = config(tmp_path / "b", algorithm, initial=str(first.directory), **zero)
    second = Experiment.start(chosen)
    models = [each.directory / "results" / "model.safetensors" for each in (first, second)]
    before, after = map(load_file, models)
    networks = [name for name in before if not name.startswith(("normalisation.", "averages."))]
    assert all(torch.equal(before[name], after[name]) for name in networks)
    if algorithm is ROLLOUT:  # Its statistics go on: those of as many observations as both saw.
        counts = (float(model["normalisation.count"]) for model in (before, after))
        assert next(counts) * 1.9 < next(counts)
    manifest = json.loads((second.directory / "inputs" / "manifest.json").read_text())
    originals = [copy["original"] for copy in manifest["body"]["files"].values()]
    assert str(models[0]) in originals
    assert "initial: inputs/model.safetensors" in (second.directory / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        (
            {"policy": {"network": {"name": "mlp", "params": {"hidden": [16]}}}},
            r"policy\.network\.params\.hidden: \[16\] .* learned with \[8\]",
        ),
        (
            {"policy": {"network": "lstm", "critic": "shared"}},
            r"policy\.network\.name: 'lstm' .* with 'mlp'",
        ),
        (
            {"environment": "gymnasium/CartPole-v1"},
            r"params\.initial: .*observations have words 3, .*words 4;",
        ),
        ({"normalise": None}, r"params\.initial: .*observations were normalised"),
        ({"initial": "nowhere"}, r".*nowhere' does not exist"),
    ],
)
def test_weights_that_do_not_fit_are_refused_with_what_differs(
    short: Path, tmp_path: Path, params: dict[str, Any], reason: str
) -> None:
    with pytest.raises((ConfigError, ValidationError), match=rf"(?s){reason}"):
        Experiment(config(tmp_path, ROLLOUT, **{"initial": str(short), **params})).algorithm.check(
            None
        )


def test_networks_of_other_sizes_are_refused_with_the_weight(tmp_path: Path) -> None:
    first = Experiment.start(config(tmp_path / "a", LATENT)).directory
    wider = config(tmp_path, LATENT, initial=str(first), encoder={"width": 16})
    with pytest.raises(ConfigError, match=r"initial: .*weights\.0 is 1x8x3 there and 1x16x3 here"):
        Experiment(wider).algorithm.check(None)
    foreign = config(tmp_path, ROLLOUT, initial=str(first))
    with pytest.raises(ConfigError, match=r"initial: .* learned by 'latent'"):
        Experiment(foreign).algorithm.check(None)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished runs of Phase 2, which no test changes."""
    runs = {"tables": PHASE2, "networks": PHASE2_MLP}
    return {
        name: Experiment.start(config(tmp_path_factory.mktemp("p2"), algorithm)).directory
        for name, algorithm in runs.items()
    }


def test_robots_of_a_run_that_began_with_weights_act_by_all_of_them(
    learned: dict[str, Path], tmp_path: Path
) -> None:
    none = {"warm_up": dict.fromkeys(("v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp"), 0)}
    still = {"optimiser": {"lr": 1e-30}, "total_steps": 1, **none}
    for name, algorithm in {"tables": PHASE2, "networks": PHASE2_MLP}.items():
        chosen = config(tmp_path / name, algorithm, initial=str(learned[name]), **still)
        roots = [
            json.loads((directory / "results" / "values.json").read_text())
            for directory in (learned[name], Experiment.start(chosen).directory)
        ]
        assert roots[0] == roots[1]


WIDER = {"name": "mlp", "params": {"hidden": 16}}


@pytest.mark.parametrize(
    ("run", "params", "max_steps", "reason"),
    [
        (
            "networks",
            {"values": {"q_r": WIDER, "v_h_e": MLP}},
            3,
            r"params\.values\.q_r\.params\.hidden: 16 .* learned with 8",
        ),
        (
            "networks",
            {"values": {"q_r": MLP, "v_h_e": MLP, "x_h": MLP}},
            3,
            r"params\.values\.x_h",
        ),
        ("networks", {"values": TABLES}, 3, r"params\.values\.q_r\.name: 'lookup' .*'mlp'"),
        ("networks", {}, 9, r"initial: .*v_h_e.*weight is \S+ there and \S+ here"),
        ("tables", {}, 9, r"initial: .* tables list states .* horizon was 3, not 9"),
    ],
)
def test_networks_and_tables_that_do_not_fit_are_refused_with_what_differs(
    learned: dict[str, Path],
    tmp_path: Path,
    run: str,
    params: dict[str, Any],
    max_steps: int,
    reason: str,
) -> None:
    algorithm = {"tables": PHASE2, "networks": PHASE2_MLP}[run]
    data = config(tmp_path, algorithm, initial=str(learned[run])).model_dump(mode="json")
    data["algorithm"]["params"] |= params
    data["world_model"]["params"]["max_steps"] = max_steps
    experiment = Experiment(RunConfig.model_validate(data))
    with pytest.raises(ConfigError, match=rf"(?s){reason}"):
        experiment.algorithm.check(build(experiment.config.world_model))


@pytest.mark.parametrize("run", ["tables", "networks"])
@pytest.mark.parametrize("change", ["one quantity", "another column", "not finite"])
def test_saved_models_that_lack_or_spoil_what_a_run_begins_with_are_refused(
    learned: dict[str, Path], tmp_path: Path, run: str, change: str
) -> None:
    source = Path(shutil.copytree(learned[run], tmp_path / "source"))
    path = source / "results" / "model.safetensors"
    saved = read_model(path, "phase2", NoneType)
    state = dict(saved.state)
    name = "v_h_e.values" if run == "tables" else "v_h_e.out.weight"
    if change == "one quantity":  # As robots need it to act.
        state = {key: value for key, value in state.items() if key.startswith("q_r.")}
    elif change == "another column":
        state[name] = state[name].repeat(1, 2)
    else:
        state[name] = torch.full_like(state[name], float("nan"))
    body = {"learner": "phase2", "params": saved.params, "spec": None, "world": saved.world}
    path.write_bytes(model_bytes(body, state))
    algorithm = {"tables": PHASE2, "networks": PHASE2_MLP}[run]
    experiment = Experiment(config(tmp_path, algorithm, initial=str(source)))
    with pytest.raises(ConfigError, match=r"(?s)params\.initial: .*model\.safetensors: .*v_h_e"):
        experiment.algorithm.check(build(experiment.config.world_model))
