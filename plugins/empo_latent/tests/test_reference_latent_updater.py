"""Updates and plans are those of plain loops over heads and candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
import torch
from reference_latent_updater import LoopUpdater, loop_model
from torch import Tensor
from torch.distributions import Distribution

from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput
from empo_latent.planner import Planner
from empo_latent.update import Updater

if TYPE_CHECKING:
    from .conftest import Lab, Small

HEADS = {
    "latents": {"heads": 2},
    "reward": {"heads": 2},
    "value": {"heads": 3, "dropout": 0.0},
    "imagination": {"candidates": 3},
}


class Likeliest(PolicyLoss):
    """Makes the better half of candidates likelier, or actions that a critic likes."""

    takes = CandidateBatch

    def __init__(self, *, critic: bool, targets: bool = True) -> None:
        super().__init__()
        self.needs = LossNeeds(critic=critic, targets=targets, candidates=3)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        if critic is not None:
            u = distribution.rsample()
            slope = torch.func.grad(lambda u: critic(batch.start, u).sum())(u.detach()).detach()
            return LossOutput(-(batch.weight * (u * slope).sum(-1)).mean())
        quality = batch.target.mean(-1)
        better = (quality >= quality.median(0).values).to(quality)
        score = distribution.log_prob(batch.action)
        return LossOutput(-(batch.weight * (better * score).sum(0)).mean())


def updated(
    small: Small, lab: Lab, options: Mapping[str, Any], *, loops: bool, critic: bool = False
) -> tuple[dict[str, Tensor], Tensor]:
    """Metrics of the second update, and the plan that follows it."""
    params = small(**{**HEADS, **options})
    model, make = lab.model(params), LoopUpdater if loops else Updater
    if loops:
        model = loop_model(model, 3)
    losses = {"policy": Likeliest(critic=critic)}
    updater = make(model, losses, params, torch.tensor([0.9], dtype=torch.float64))
    torch.manual_seed(3)
    for seed in range(2):
        metrics = updater.update(lab.sequences(number=4, seed=seed), 0.5)
    planner = Planner(
        model,
        params.planner,
        horizon=3,
        discount=0.9,
        value_heads=3,
    )
    with torch.no_grad():
        z = model.encode(torch.ones(2, 3, dtype=torch.float64))
        plan = planner.plan(z, torch.zeros(3, 2, 2, dtype=torch.float64), explore=True)
    return metrics, plan.mean


@pytest.mark.parametrize(
    ("options", "critic"),
    [
        pytest.param({}, True, id="usual, by a critic"),
        pytest.param({"planner": {"value_heads": 2}}, False, id="some heads judge plans"),
        pytest.param(
            {"reward": {"heads": 2, "episodic": True}},
            True,
            id="episodic, by a critic",
        ),
        pytest.param(
            {"value": {**HEADS["value"], "average": "cross_entropy", "bootstrap": "pair"}},
            False,
            id="losses averaged",
        ),
    ],
)
def test_updates_and_plans_are_those_of_plain_loops(
    small: Small, lab: Lab, options: dict[str, Any], critic: bool
) -> None:
    ours, plan = updated(small, lab, options, loops=False, critic=critic)
    theirs, expected = updated(small, lab, options, loops=True, critic=critic)
    assert ours.keys() == theirs.keys()
    assert "optim/grad_norm_policy" in ours
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(plan, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("targets", [True, False])
def test_candidates_are_judged_only_where_something_reads_that(
    small: Small, lab: Lab, targets: bool
) -> None:
    params = small(value={"critic": "q", "heads": 2})
    losses = {"policy": Likeliest(critic=True, targets=targets)}
    updater = Updater(lab.model(params), losses, params, torch.tensor([0.9], dtype=torch.float64))
    metrics = updater.update(lab.sequences(number=4, seed=0), 0.5)
    assert ("value/td_mean" in metrics) == targets
    assert {"loss/value", "loss/policy", "optim/grad_norm_policy"} <= metrics.keys()
    # Unknown targets are NaN, and whatever read one would be.
    assert all(bool(number.isfinite()) for number in metrics.values())
