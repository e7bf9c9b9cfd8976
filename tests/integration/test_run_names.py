"""Names of run directories say what was learned."""

from __future__ import annotations

from typing import Any

import pytest

from empo_core.config import RunConfig
from empo_core.runs.directory import labels

GYMNASIUM = "gymnasium/CartPole-v1"
PENDULUM = "gymnasium/Pendulum-v1"
SWING_UP = "dmc/cartpole-swingup"


def latent(*tasks: Any) -> dict[str, Any]:
    params = {
        "tasks": list(tasks), "total_steps": 10, "policy_loss": "awr", "num_envs": len(tasks),
    }  # fmt: skip
    return {"algorithm": {"name": "latent", "params": params}}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {
                "algorithm": {
                    "name": "rollout", "params": {"total_steps": 10, "environment": GYMNASIUM},
                }
            },
            "rollout-CartPole-v1",
        ),
        (latent(PENDULUM), "latent-Pendulum-v1"),
        (latent(SWING_UP, PENDULUM), "latent-cartpole-swingup_and_1_more"),
        ({"world_model": "multigrid/trivial", "algorithm": "exact"}, "trivial-exact"),
    ],
)  # fmt: skip
def test_a_run_is_named_by_its_world_algorithm_and_task(
    config: dict[str, Any], expected: str
) -> None:
    assert "-".join(labels(RunConfig.model_validate(config))) == expected
