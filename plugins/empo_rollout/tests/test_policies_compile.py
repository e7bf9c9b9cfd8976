"""Compiled policies say what the others say; in processes of their own, without shape checks."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import sys

import torch

from empo_rollout.params import PolicyParams
from empo_rollout.policy import COMPILE_OPTIONS, build_policy
from empo_core.protocols.environments import ActionSpec, EnvSpec, ObservationSpec

network, agents, actions = sys.argv[1:]
torch.set_num_threads(1)
kind = ActionSpec((3, 2)) if actions == "choices" else ActionSpec((), (-1.0, -1.0), (1.0, 1.0))
place = EnvSpec(ObservationSpec(29, "float32", (2, 3, 4)), kind, ("one", "two"), 3)
small = {"channels": [3]} if network == "conv" else {}
named = {"name": network, "params": {"hidden": [8], **small}}
params = PolicyParams.model_validate({"network": named, "agents": agents})
policy = build_policy(params, place, generator=torch.Generator().manual_seed(0))
torch.manual_seed(0)
observation, starts = torch.randn(7, 6, 29), torch.rand(7, 6) < 0.3
agent, memory = torch.arange(6) % 2, policy.initial_memory(6)
mask = torch.rand(7 * 6, 5) < 0.5 if actions == "choices" else None


def step(observation, mask):
    found = policy.step(observation, memory, starts[0], agent, mask)
    action = found.distribution.sample()
    return action, found.distribution.log_prob(action), found.value


def judged(action):
    hidden, value, _ = policy.unroll(observation, memory, starts, agent)
    chosen = policy.distribution(hidden.flatten(0, 1), agent.repeat(7), mask)
    return chosen.log_prob(action), chosen.entropy(), value.flatten()


compiled_step = torch.compile(step, fullgraph=True, options=COMPILE_OPTIONS)
compiled = torch.compile(judged, fullgraph=True, options=COMPILE_OPTIONS)
with torch.no_grad():
    first = None if mask is None else mask[:6]
    action, log_prob, value = compiled_step(observation[0], first)
action = action.repeat(7, 1)
one, other = compiled(action), judged(action)
for found, expected in zip(one, other, strict=True):
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
torch.testing.assert_close(log_prob, other[0][:6], rtol=1e-5, atol=1e-5)
torch.testing.assert_close(value, other[2][:6], rtol=1e-5, atol=1e-5)
weights = list(policy.parameters())
found, expected = (torch.autograd.grad(sum(map(torch.sum, x)), weights) for x in (one, other))
torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
print("agreed")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.parametrize(
    ("network", "agents", "actions"),
    [
        ("mlp", "shared", "numbers"),
        ("mlp", "separate", "choices"),
        ("conv", "shared", "choices"),
        ("conv", "separate", "numbers"),
    ],
)
def test_a_policy_without_memory_compiles_to_one_graph_that_agrees(
    network: str, agents: str, actions: str
) -> None:
    command = [sys.executable, "-c", SCRIPT, network, agents, actions]

    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

    assert done.stdout == "agreed\n", done.stderr
