"""The compiled loss agrees with the plain one; in a process of its own, without shape checks."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import torch
from torch import nn

from empo_learning.distributions import BoundedNormal
from empo_core.types import CandidateBatch
from empo_svg.loss import Svg
from empo_svg.params import SvgParams

torch.set_num_threads(1)
torch.manual_seed(0)
params = SvgParams(samples=2, reduction="min", disagreement=-0.5, entropy={"coef": 0.1})
body, judge = nn.Linear(4, 6), nn.Sequential(nn.Linear(7, 16), nn.SiLU(), nn.Linear(16, 3))
start, weight = torch.randn(5, 4), torch.rand(5)


def policy(features):
    return BoundedNormal(*body(features).chunk(2, -1))


def critic(features, action):
    return judge(torch.cat([features, action.tanh()], -1))


def results(compiled):
    loss = Svg(params)

    def step():
        nothing = torch.zeros(1, 5, 3), torch.zeros(1, 5, 1), torch.zeros(1, 5)
        output = loss(policy(start), CandidateBatch(start, *nothing, weight), critic)
        return output.loss, dict(output.metrics)

    if compiled:
        # Inductor draws noise of its own; asked to, it draws torch's.
        torch._inductor.config.fallback_random = True
        step = torch.compile(step, fullgraph=True)
    for index in range(3):
        torch.manual_seed(index)
        loss_value, metrics = step()
        yield loss_value, torch.autograd.grad(loss_value, list(body.parameters())), metrics
        assert index == 0 or metrics["scale"] != 1
        loss.scale.value.fill_(2.0 + index)


for found, expected in zip(results(True), results(False), strict=True):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
assert all(weight.grad is None for weight in judge.parameters())
print("agreed")
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_the_loss_compiles_to_one_graph_that_agrees() -> None:
    command = [sys.executable, "-c", SCRIPT]

    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)

    assert done.stdout == "agreed\n", done.stderr
