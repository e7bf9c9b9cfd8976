"""Compiled plans say what the others say; in processes of their own, without shape checks."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import sys

import torch

from empo_core import Component, Config
from empo_core.plugins.registry import Offer, Provider, Registry
from empo_latent.types import MultiTaskSpec
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.planner import Planner

way, critic = sys.argv[1:]
horizon = 1 if way == "inductor" else 2  # Compilers take their time.
torch.set_num_threads(1)
loss = Component(kind="policy_loss", name="any", params=Config, target="a:B", api=1, summary="A.")
registry = Registry([Offer(Provider("tests", "0", "tests"), loss)])
params = LatentParams.model_validate(
    {
        "size": "tiny",
        "total_steps": 1,
        "policy_loss": "any",
        "latents": {"size": 8, "group": 4, "width": 8, "heads": 2},
        "reward": {"episodic": True},
        "value": {"critic": critic},
        "planner": {"samples": 12, "elites": 4, "policy_plans": 4, "iterations": 2,
                    "disagreement": 1.0, "value_heads": 1},
    },
    context={"registry": registry},
)
spec = MultiTaskSpec(
    words=3, pictures=False, shape=(3,), actions=2, active=((True, True), (True, False)),
    tasks=("one", "two"), action_repeats=(1, 1), episode_lengths=(10, 10),
)
generator = torch.Generator().manual_seed(0)
model = LatentModel(params, spec, generator=generator)
with torch.no_grad():
    for weight in model.parameters():
        weight += 0.3 * torch.randn(weight.shape, generator=generator)


def planner(compiled):
    return Planner(
        model, params.planner, horizon=horizon, discount=torch.tensor([0.9, 0.8]),
        critic=critic, value_heads=2, compiled=compiled,
    )


task, plain = torch.tensor([0, 1, 1]), planner(False)
mean = torch.zeros(horizon, 3, 2)
compiled = planner(way == "inductor").plan
if way != "inductor":
    compiled = torch.compile(plain.plan, fullgraph=True, dynamic=False, backend=way)
with torch.no_grad():
    z = model.encode(torch.randn(3, 3, generator=generator), task=task)
    for explore in (True, False) if way == "eager" else (True,):
        noise = plain.noise(mean, generator)
        found = compiled(z, mean, task=task, explore=explore, noise=noise)
        expected = plain.plan(z, mean, task=task, explore=explore, noise=noise)
        assert found.metrics.keys() == expected.metrics.keys()
        best = [plan.metrics["policy/planner_elite_max"] for plan in (found, expected)]
        torch.testing.assert_close(*best, rtol=0, atol=1e-4)
        torch.testing.assert_close(found[:3], expected[:3], rtol=0, atol=1e-4)
print("agreed")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "critic"),
    [
        ("eager", "v"),
        ("aot_eager", "q"),
        pytest.param(
            "inductor",
            "v",
            marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
        ),
    ],
)
def test_plans_compile_to_whole_graphs_that_agree(way: str, critic: str) -> None:
    command = [sys.executable, "-c", SCRIPT, way, critic]

    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

    assert done.stdout == "agreed\n", done.stderr
