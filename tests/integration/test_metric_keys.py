"""Every key that a run logs is on the page about metrics, and every key there is logged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

from empo_core.config import RunConfig
from empo_core.experiment import Experiment

PAGE = Path(__file__).parents[2] / "docs/reference/metrics.md"
FAMILIES = {"loss", "optim", "policy", "value", "episode", "eval", "time", "exact", "collect"}
TINY: dict[str, Any] = {
    "size": "tiny",
    "total_steps": 60,
    "tasks": ["gymnasium/SwingingPendulum-v0"],
    "policy_loss": {"name": "awr", "params": {"normaliser": "running_scale"}},
    "collection": {"seed_steps": 30, "seed_updates": 2},
    "encoder": {"width": 8, "average_rate": 0.05},
    "latents": {"size": 8, "group": 4, "width": 8},
    "reward": {"episodic": True},
    "auxiliary": {"discounts": [0.5]},
    "replay": {"capacity": 70, "batch_size": 8},
    "learning": {"horizon": 2, "updates_per_step": 0.25},
    "imagination": {"candidates": 4},
    "planner": {"samples": 8, "iterations": 2, "elites": 4, "policy_plans": 2},
    "optimistic_loss": "svg",
    "compute": {"threads": 1},
    "reporting": {"log_interval": 20, "evaluation_episodes": 1},
}
RUNS: dict[str, dict[str, Any]] = {
    "exact": {
        "world_model": {"name": "multigrid/trivial", "params": {"max_steps": 3}},
        "algorithm": {"name": "exact", "params": {}},
    },
    "phase2": {
        "world_model": {"name": "multigrid/trivial", "params": {"max_steps": 3}},
        "algorithm": {
            "name": "phase2",
            "params": {
                "human_prior": "exact",
                "values": {
                    "q_r": "lookup", "v_h_e": "mlp", "x_h": "mlp", "u_r": "mlp", "v_r": "mlp",
                },
                "total_steps": 20,
                "num_envs": 16,
                "warm_up": dict.fromkeys(("v_h_e", "x_h", "u_r", "q_r", "v_r", "ramp"), 2),
                "replay": {"batch_size": 8},
                "exploration": {"robot": ["rnd"]},
                "collector": {"name": "sync", "params": {"min_env_steps": 8}},
                "reporting": {
                    "compare": "exact", "log_interval": 10, "profile_batching_interval": 10,
                },
            },
        },
    },
    "rollout": {
        "algorithm": {
            "name": "rollout",
            "params": {
                "total_steps": 256,
                "num_envs": 4,
                "environment": "gymnasium/BalancedPole-v0",
                "vectorisation": {"backend": "serial"},
                "experience": {"bptt_horizon": 32},
                "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
                "update": {"minibatch_size": 64},
                "compute": {"threads": 1},
                "reporting": {"evaluation_episodes": 4},
            },
        }
    },
    "latent": {"algorithm": {"name": "latent", "params": TINY}},
}  # fmt: skip


class BalancedPole(CartPoleEnv):
    """A cart pole that says whether the pole stands."""

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        return (*outcome, {**info, "success": not outcome[2]})


class SwingingPendulum(PendulumEnv):
    """A pendulum that says whether it is up."""

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        return (*outcome, {**info, "success": bool(outcome[0][0] > 0.9)})


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """The environments above, by name: what is logged of success needs some that say it."""
    gymnasium.register("BalancedPole-v0", BalancedPole, max_episode_steps=500)
    gymnasium.register("SwingingPendulum-v0", SwingingPendulum, max_episode_steps=15)
    yield
    for name in ("BalancedPole-v0", "SwingingPendulum-v0"):
        gymnasium.registry.pop(name)


def documented() -> dict[str, set[str]]:
    """The keys of the page by algorithm; a place in angle brackets stands for any word."""
    found: dict[str, set[str]] = {name: set() for name in RUNS}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and cells[1].startswith("`"):
            key = cells[1].strip("`")
            for name in RUNS:
                if name in cells[2].split(", "):
                    found[name].add(key)
    return found


def matches(pattern: str, key: str) -> bool:
    parts = re.split(r"<[a-z ]+>", pattern)
    return re.fullmatch("[A-Za-z0-9_./-]+".join(map(re.escape, parts)), key) is not None


@pytest.mark.parametrize("name", RUNS)
def test_every_logged_key_is_documented_and_every_documented_one_is_logged(
    name: str, tmp_path: Path
) -> None:
    config = RunConfig.model_validate(
        {**RUNS[name], "trackers": ["jsonl"], "runs": str(tmp_path), "seed": 0}
    )
    directory = Experiment.start(config).directory
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    logged = {key for line in lines for key in json.loads(line)} - {"step"}
    page = documented()[name]
    unknown = {key for key in logged if not any(matches(each, key) for each in page)}
    assert unknown == set()
    assert {each for each in page if not any(matches(each, key) for key in logged)} == set()
    assert {key.split("/")[0] for key in logged} <= FAMILIES
    assert all(key == key.lower() for key in logged if "/planner/" not in key)
