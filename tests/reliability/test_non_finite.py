"""NaN in a learner is noticed, never saved, and the run goes on from before it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.config import RunConfig
from empo_core.errors import EmpoError
from empo_core.experiment import resume, run
from empo_core.storage.state_tree import flatten
from empo_learning.checkpoint import Checkpoints
from empo_learning.loop import CHECKPOINTS, Loop

LATENT: dict[str, Any] = {
    "preset": "tiny",
    "total_steps": 60,
    "tasks": [{"name": "gymnasium/Pendulum-v1", "params": {"max_episode_steps": 20}}],
    "policy_loss": "awr",
    "collection": {"seed_steps": 30, "seed_updates": 3, "capacity": 70},
    "encoder": {"width": 8},
    "latents": {"size": 8, "group": 4, "width": 8},
    "bins": {"number": 11},
    "learning": {"batch_size": 8, "horizon": 2, "updates_per_step": 0.5},
    "imagination": {"candidates": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
    "compute": {"threads": 1},
    "reporting": {"log_interval": 4, "evaluation_episodes": 0, "checkpoint_interval": 10},
}
ROLLOUT: dict[str, Any] = {
    "total_steps": 320,
    "num_envs": 4,
    "environment": "gymnasium/Pendulum-v1",
    "vectorisation": {"backend": "serial"},
    "experience": {"bptt_horizon": 8},
    "policy": {"hidden": [8]},
    "update": {"minibatch_size": 32},
    "compute": {"threads": 1},
    "reporting": {"evaluation_episodes": 0, "checkpoint_interval": 2},
}
PHASE2: dict[str, Any] = {
    "human_prior": "exact",
    "values": {"q_r": "mlp", "v_h_e": "mlp"},
    "total_steps": 30,
    "num_envs": 4,
    "warm_up": {"v_h_e": 2, "q_r": 2, "ramp": 2},
    "optimiser": {"batch_size": 8, "target_interval": 100},
    "collector": {"name": "sync", "params": {"min_env_steps": 8}},
    "reporting": {"log_interval": 1, "checkpoint_interval": 4},
}
WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 3}}
CONFIGS: dict[str, dict[str, Any]] = {
    "phase2": {"world_model": WORLD, "algorithm": {"name": "phase2", "params": PHASE2}},
    "rollout": {"algorithm": {"name": "rollout", "params": ROLLOUT}},
    "latent": {"algorithm": {"name": "latent", "params": LATENT}},
}
PLACES = {
    ("phase2", "weights"): r"^learner/networks/q_r/",
    ("phase2", "moments"): r"^learner/regressions/q_r/.*exp_avg",
    ("phase2", "targets"): r"^learner/targets/v_h_e/",
    ("phase2", "rewards"): r"^learner/(targets|networks)/v_h_e/.*weight",
    ("rollout", "weights"): r"^policy/",
    ("rollout", "moments"): r"^ranks/0/updater/optimiser/",
    ("rollout", "rewards"): r"^ranks/0/episodes/return$",
    ("latent", "weights"): r"^model/",
    ("latent", "moments"): r"^updater/.*exp_avg",
    ("latent", "targets"): r"^model/averages\.",
    ("latent", "rewards"): r"^replay/rows/0/steps$",
}
"""Tensors of a learner's state by algorithm and by what they are."""


def inject(loop: Loop, pattern: str) -> None:
    """Put NaN into tensors of a learner."""
    learner = loop._learner
    state = learner.state_dict(midway=False)
    hit = 0
    for name, tensor in flatten(state)[1].items():
        if re.search(pattern, name) and tensor.is_floating_point():
            with torch.no_grad():
                tensor.fill_(torch.nan)
            hit += 1
    assert hit
    learner.load_state_dict(state)


@pytest.mark.parametrize(("name", "what"), PLACES)
def test_what_is_not_finite_is_found_and_the_run_goes_on_from_before(
    name: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Loop._advance
    place = {"phase2": 10, "rollout": 5, "latent": 42}[name]

    def advance(loop: Loop) -> None:
        if loop._learner.updates == place:
            inject(loop, PLACES[name, what])
        whole(loop)

    config = RunConfig.model_validate(
        {**CONFIGS[name], "trackers": [], "runs": str(tmp_path), "seed": 1}
    )
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_advance", advance)
        with pytest.raises(EmpoError, match=r"finite|nan|NaN"):
            run(config)
    (directory,) = tmp_path.iterdir()
    found = Checkpoints(directory / CHECKPOINTS).newest()
    assert found is not None
    known = {key: each for key, each in found[1]["learner"].items() if key != "replay"}
    for key, tensor in flatten(known)[1].items():
        assert bool(tensor.isfinite().all()), key
    resumed = resume(directory).result
    assert resumed.summary()["steps"] >= {"phase2": 30, "rollout": 320, "latent": 60}[name]
