"""Episodes without end: nothing grows with their steps, and a resumed run begins new ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from small_runs import CONFIGS

from empo_core.config import RunConfig, merged
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.protocols import Tracker
from empo_core.types import Histogram


class Endless(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        type(self).steps += 1
        return np.zeros(2, np.float32), 0.0, False, False, {}


class StopAt(Tracker):
    def __init__(self, step: int) -> None:
        self.step = step

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        if step >= self.step:
            raise KeyboardInterrupt


def stopped(folder: Path, step: int) -> Path:
    found = CONFIGS["rollout"]["algorithm"]
    params = {key: found["params"][key] for key in found["params"] if key != "environment"}
    options = {
        "total_steps": 8000,
        "num_envs": 2,
        "experience": {"bptt_horizon": 64},
        "update": {"minibatch_size": 128, "update_epochs": 1},
        "reporting": {"checkpoint_interval": 0},
    }
    config = {"name": "rollout", "params": merged(params, options)}
    chosen = {"algorithm": config, "trackers": [], "runs": str(folder)}
    with pytest.raises(RunInterrupted) as caught:
        Experiment.start(RunConfig.model_validate(chosen), env=Endless, watchers=[StopAt(step)])
    return caught.value.directory


def test_a_run_goes_on_with_new_episodes_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    few, many = stopped(tmp_path / "few", 1500), stopped(tmp_path / "many", 2200)
    # The first one knows all actions, of 768 steps of either environment, and the second one none.
    sizes = [sum(f.stat().st_size for f in each.rglob("*.safetensors")) for each in (few, many)]
    assert sizes[1] < sizes[0]
    before = Endless.steps
    with pytest.raises(RunInterrupted):
        Experiment.resume(many, env=Endless, watchers=[StopAt(0)])
    assert Endless.steps - before < 300
    told = [each for each in caplog.records if "played again" in each.message]
    assert len(told) == 1
    caplog.clear()
    before = Endless.steps
    with pytest.raises(RunInterrupted):
        Experiment.resume(few, env=Endless, watchers=[StopAt(0)])
    assert Endless.steps - before >= 1500
    assert not [each for each in caplog.records if "played again" in each.message]
