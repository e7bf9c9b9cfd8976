"""Every learner follows the schedule that its config names, or a caller's function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_runs import CONFIGS

from empo_core import run
from empo_core.errors import ConfigError
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.protocols import Callback, Training

LEARNERS = sorted(CONFIGS)
QUICK = [
    pytest.param(learner, marks=[pytest.mark.slow] if learner == "phase2" else [])
    for learner in LEARNERS
]
"""A run of ``phase2`` takes several times as long as one of the others."""
KEYS = {"rollout": "optim/lr", "latent": "optim/lr", "phase2": "optim/lr_v_h_e"}


def config_of(learner: str, folder: Path, **optimiser: Any) -> dict[str, Any]:
    """A small run with a learning rate of 0.001, which changes from the first step on."""
    algorithm = CONFIGS[learner]["algorithm"]
    rates: dict[str, Any] = {"lr": 0.001, **optimiser}
    if learner == "phase2":
        rates["lr_constant_fraction"] = 0.0
    params = {**algorithm["params"], "optimiser": rates}
    if learner == "phase2":
        params["warm_up"] = dict.fromkeys(("v_h_e", "q_r", "ramp"), 0)
    return {**CONFIGS[learner], "algorithm": {**algorithm, "params": params}, "runs": str(folder)}


def rates_of(learner: str, directory: Path) -> list[float]:
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [row[KEYS[learner]] for row in rows if KEYS[learner] in row]


@pytest.mark.parametrize("learner", QUICK)
def test_a_component_and_a_function_that_agree_give_the_same_rates(
    tmp_path: Path, learner: str
) -> None:
    asked_at: list[float] = []

    def half(progress: float) -> float:
        asked_at.append(progress)
        return 1 - 0.5 * progress

    component = {"name": "linear", "params": {"end": 0.5}}
    named: Any = run(config_of(learner, tmp_path / "named", lr_schedule=component))
    called: Any = run(config_of(learner, tmp_path / "called"), lr_schedule=half)
    rates = rates_of(learner, called.directory)
    assert rates == rates_of(learner, named.directory)
    assert rates == sorted(rates, reverse=True)
    assert 0.0005 <= rates[-1] < rates[0] <= 0.001
    assert set(rates) <= {0.001 * (1 - 0.5 * progress) for progress in asked_at}


def test_a_run_that_loses_its_function_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Interrupts(Callback):
        def after_update(self, training: Training) -> None:
            raise KeyboardInterrupt

    def falling(progress: float) -> float:
        return 1 - progress

    config = config_of("rollout", tmp_path)
    with pytest.raises(RunInterrupted) as caught:
        run(config, lr_schedule=falling, callbacks=[Interrupts()])
    Experiment.resume(caught.value.directory, callbacks=[Callback()])
    assert any("falling" in record.getMessage() for record in caplog.records)


def test_an_algorithm_without_a_learning_rate_refuses_a_function(tmp_path: Path) -> None:
    config = {"world_model": "multigrid/trivial", "algorithm": "exact", "runs": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"^lr_schedule="):
        run(config, lr_schedule=lambda progress: 1.0)
