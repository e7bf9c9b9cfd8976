"""The latent agent solves what its example is about, by either policy loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from empo_core.config import RunConfig
from empo_core.config.files import load_config
from empo_core.experiment import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "latent_pendulum.yaml"
SOLVED = -200.0
"""Mean return of an episode of Pendulum-v1; a random policy gets about -1200."""
DMC = {
    "cartpole-swingup": (12_500, 200.0),
    "ball_in_cup-catch": (12_500, 300.0),
    "finger-spin": (20_000, 100.0),
    "reacher-easy": (20_000, 150.0),
}
"""Decisions of a short run, and a mean return far above that of random actions (30, 0, 0, 50)."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("loss", ["awr", "svg"])
def test_a_pendulum_learns_to_stand(tmp_path: Path, loss: str, seed: int) -> None:
    config = load_config(
        EXAMPLE,
        overrides=[
            f"algorithm.params.policy_loss={loss}",
            f"seed={seed}",
            f"runs={tmp_path}",
            "algorithm.params.reporting.videos=0",
            "algorithm.params.reporting.solved_at=null",
            "algorithm.params.reporting.evaluation_interval=0",
            "algorithm.params.reporting.evaluate=[planner,policy]",
        ],
    )
    found = run(config).summary()["evaluation"]
    for actor in ("planner", "policy"):
        assert found[actor]["Pendulum-v1"]["mean_return"] >= SOLVED, actor


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("task", DMC)
def test_tasks_of_deepmind_control_are_begun_to_be_learned(
    tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dm_control", reason="needs the extra dmc")
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    steps, least = DMC[task]
    params = {
        "preset": "awr",
        "size": "tiny",
        "total_steps": steps,
        "tasks": [{"name": "dmc", "params": {"task": task, "action_repeat": 2}}],
        "collection": {"acting": "policy", "seed_updates": 1000},
        "replay": {"batch_size": 64},
        "imagination": {"candidates": 8},
        "learning": {"updates_per_step": 0.5},
        "compute": {"threads": 1},
        "reporting": {"evaluation_interval": 2500, "evaluate": ["policy"], "videos": 0},
    }
    algorithm = {"name": "latent", "params": params}
    config = RunConfig.model_validate(
        {"algorithm": algorithm, "trackers": [], "runs": str(tmp_path)}
    )
    result = run(config)
    last = [row.return_mean for row in result.curve()][-3:]  # type: ignore[attr-defined]
    assert sum(last) / len(last) >= least
