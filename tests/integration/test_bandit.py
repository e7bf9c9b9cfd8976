"""AWR and SVG find the best action; AWR with a pathwise log-probability runs away from it."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks/bandit_policy_losses.py"
SEEDS = 3

bandit = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def end_of(name: str) -> Any:
    """Final policies after training: mean, log standard deviation and value of each seed."""
    way = bandit.learned(bandit.losses()[name], seeds=SEEDS, steps=450, starts=48)
    return SimpleNamespace(mean=way.mean[-1], log_std=way.log_std[-1], value=way.value[-1])


def assert_solved(end: Any) -> None:
    assert end.mean.shape == (SEEDS,)
    off = (end.mean.tanh() - 0.6).abs()
    assert bool((off < 0.05).all()), f"the best action is missed by {off.tolist()}"
    assert bool((end.value > -0.15).all())


@pytest.mark.parametrize("name", ["AWR", "SVG"])
def test_the_best_action_is_found(name: str) -> None:
    assert_solved(end_of(name))


def test_a_pathwise_log_probability_runs_away_from_the_best_action() -> None:
    end = end_of("pathwise")

    with pytest.raises(AssertionError, match="the best action is missed"):
        assert_solved(end)
    # The mean goes on and on, the standard deviation shrinks; every step of Adam is about 0.01.
    assert bool((end.mean > 4).all())
    assert bool((end.log_std < -4.5).all())
    assert end.value.tolist() == pytest.approx([-1.6] * SEEDS, abs=1e-2)


def test_the_mistake_is_in_the_gradient_and_not_in_the_loss() -> None:
    torch.manual_seed(0)
    policies = bandit.Policies(1)
    batch = bandit.imagined(policies, 5)
    losses = [bandit.losses()[name](policies, batch).loss for name in ("AWR", "pathwise")]
    torch.testing.assert_close(*losses)

    gradients = [torch.autograd.grad(loss, list(policies.parameters())) for loss in losses]

    u, sigma = batch.action.squeeze(-1), policies.log_std.detach().exp()
    noise, weights = (u - policies.mean.detach()) / sigma, batch.target.squeeze(-1).softmax(0)
    score = -noise / sigma, 1 - noise.square()
    pathwise = -2 * u.tanh(), 1 - 2 * u.tanh() * sigma * noise
    for found, derivatives in zip(gradients, (score, pathwise), strict=True):
        expected = [(weights * one).sum(0).mean() for one in derivatives]
        torch.testing.assert_close([one.squeeze() for one in found], expected)


def test_expected_values_are_exact() -> None:
    torch.manual_seed(0)
    mean, log_std = torch.tensor([[0.3]]).double(), torch.tensor([[-0.5]]).double()
    u = mean + log_std.exp() * torch.randn(200_000, dtype=torch.float64)

    value = bandit.Way(mean, log_std).value

    assert value.item() == pytest.approx(bandit.worth(u).mean().item(), abs=0.02)
