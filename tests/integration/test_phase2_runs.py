"""Whole runs of ``phase2``: the kit, exact resumption, and learning what ``exact`` computes."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.experiment import seed_everything
from empo_core.protocols import Algorithm, RunContext, WorldModel
from empo_core.types import Histogram
from empo_phase2.algorithm import Phase2
from empo_phase2.experience import Block
from empo_phase2.params import Phase2Params
from empo_phase2.problem import Problem
from empo_testing.algorithm import SEED, AlgorithmTests, RecordingTracker, fresh

TABLES = {"q_r": "lookup", "v_h_e": "lookup"}
SMALL = {"hidden": 16}
NETWORKS = {
    "q_r": {"name": "mlp", "params": SMALL},
    "v_h_e": {"name": "mlp", "params": SMALL},
    "x_h": {"name": "mlp", "params": SMALL},
}
MIXED = {"q_r": {"name": "mlp", "params": SMALL}, "v_h_e": "lookup", "u_r": "lookup"}


def params(**changes: Any) -> Phase2Params:
    """Parameters of a run of a second or so."""
    given: dict[str, Any] = {
        "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
        "values": TABLES,
        "total_steps": 60,
        "warm_up": {"v_h_e": 10, "x_h": 5, "u_r": 5, "q_r": 10, "v_r": 5, "ramp": 10},
        "optimiser": {"lr": 0.5, "target_interval": 5, "publish_interval": 7},
        "replay": {"batch_size": 16},
        "collector": {"name": "sync", "params": {"min_env_steps": 50}},
        "num_envs": 32,
        "exploration": {"frontier_prob": 0.3},
        "reporting": {"log_interval": 10, "checkpoint_interval": 25},
    }
    return Phase2Params.model_validate(given | changes)


def trivial(horizon: int = 3) -> WorldModel:
    name = {"name": "multigrid/trivial", "params": {"max_steps": horizon}}
    world: WorldModel = build(WorldModelRef.model_validate(name))
    return world


@pytest.mark.parametrize(
    "values",
    [TABLES, pytest.param(NETWORKS, marks=pytest.mark.slow)],
    ids=["tables", "networks"],
)
class TestPhase2(AlgorithmTests):
    @pytest.fixture
    def algorithm(self, values: dict[str, Any]) -> Algorithm:
        return Phase2(params(values=values))

    @pytest.fixture
    def world(self) -> WorldModel:
        return trivial()


def test_check_announces_what_a_full_replay_takes() -> None:
    setting, world = params(replay={"batch_size": 16, "capacity": 200}), trivial()
    problem = Problem.of(setting, world)
    replay, collector = problem.replay(), build(setting.collector)
    collector.start(problem.factory)
    collector.publish(problem.quantities().published(), 0)
    for step in range(20):
        for experience in collector.collect(step):
            replay.add(Block.from_arrays(experience.arrays), training_step=step)
    assert len(replay) == 200
    taken = 200 * replay.bytes_per_transition()
    announced = replay.bytes_when_full(*problem.recorded_sizes())
    assert 0.8 * taken < announced < 2 * taken
    assert Phase2(setting).check(world)["replay when full (MiB)"] == round(announced / 2**20, 1)


class Stopper(RecordingTracker):
    """Sends the signal that Ctrl-C sends, at a training step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        super().log(step, metrics)
        if step == self._step:
            os.kill(os.getpid(), signal.SIGINT)


def final_state(directory: Path, step: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Everything in a checkpoint but how long it took: plain data, and tensors by name."""
    checkpoint = directory / "checkpoints" / f"step-{step}"
    plain = json.loads((checkpoint / "state.json").read_text())
    tensors = load_file(checkpoint / "tensors.safetensors")
    # Checking types at run time, as the tests do, draws from Python's own generator.
    tensors = {name: tensor for name, tensor in tensors.items() if "/python/" not in name}
    assert len(tensors) > 20
    return without_seconds(plain), {name: tensor.tolist() for name, tensor in tensors.items()}


def without_seconds(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: without_seconds(value) for key, value in data.items() if key != "seconds"}
    return [without_seconds(value) for value in data] if isinstance(data, list) else data


EXPLORING = {
    "frontier_prob": 0.3,
    "robot": ["epsilon-greedy", "count-bonus", {"name": "action-sequences"}],
    "human": ["epsilon-greedy", {"name": "rnd"}],
}
SETTINGS: dict[str, dict[str, Any]] = {
    "tables": {},
    "networks": {"values": NETWORKS, "optimiser": {"lr": 1e-3}},
    "mixed": {"values": MIXED, "exploration": EXPLORING},
    "sampled": {
        "targets": {"max_pairs": 1},
        "replay": {"store": "compact", "capacity": 70, "batch_size": 16},
    },
    "model_free": {
        "targets": {"model_based": False},
        "num_envs": 4,
        "exploration": {},
        "replay": {"storage": "mapped", "capacity": 70, "batch_size": 16},
    },
    "v_r": {"values": {"q_r": None, "v_h_e": "lookup", "v_r": "lookup"}},
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "mixed" else pytest.mark.slow) for name in SETTINGS],
)
def test_a_resumed_run_ends_exactly_like_one_that_never_stopped(name: str, tmp_path: Path) -> None:
    chance = random.Random(name)
    setting = params(**SETTINGS[name], reporting={"log_interval": 1, "checkpoint_interval": 25})
    world = trivial()
    seed_everything(SEED)
    whole = Phase2(setting).run(fresh(world, tmp_path / "whole"))
    seed_everything(SEED)
    for attempt, step in enumerate(sorted(chance.sample(range(1, 60), 2))):
        stopped = stopping(world, tmp_path / "stopped", step, resume=attempt > 0)
        with pytest.raises(KeyboardInterrupt):
            Phase2(setting).run(stopped)
        seed_everything(step)  # What happens in between must not matter.
        assert (tmp_path / "stopped/checkpoints" / f"step-{step}").is_dir()
    last = fresh(world, tmp_path / "stopped")
    last.resume = True
    resumed = Phase2(setting).run(last)
    assert final_state(tmp_path / "stopped", 60) == final_state(tmp_path / "whole", 60)
    assert without_seconds(resumed.summary()) == without_seconds(whole.summary())


def stopping(world: WorldModel, directory: Path, step: int, *, resume: bool) -> RunContext:
    context = fresh(world, directory)
    context.tracker, context.resume = Stopper(step), resume
    return context


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["tables", "networks", "model_free", "v_r"])
def test_a_run_may_compute_on_a_gpu(name: str, tmp_path: Path) -> None:
    setting = params(**SETTINGS[name], compute={"device": "cuda"})
    assert Phase2(setting).run(fresh(trivial(), tmp_path)).summary()["steps"] == 60
