"""The trust region: its divergences, its multipliers, and when it binds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Beta, Distribution, Independent, Normal, kl_divergence

from empo_awr.loss import Awr
from empo_awr.params import AwrParams, TrustRegionParams
from empo_awr.trust import TrustRegion
from empo_core.types import CandidateBatch
from empo_learning.distributions import BoundedNormal

WEIGHT = torch.tensor([1.0, 3.0]).double()


def normal(loc: Any, log_std: Any, kind: str = "bounded") -> Distribution:
    at, by = (
        torch.as_tensor(number, dtype=torch.float64).expand(2, 3) for number in (loc, log_std)
    )
    return BoundedNormal(at, by) if kind == "bounded" else Independent(Normal(at, by.exp()), 1)


@pytest.mark.parametrize("kinds", [("bounded",) * 2, ("torch",) * 2, ("bounded", "torch")])
def test_divergences_are_those_of_torch_with_one_parameter_changed(kinds: Any) -> None:
    old = torch.tensor([[0.1, 0.2, -0.3], [1.0, 0.0, 0.5]]).double()
    new, by = old + torch.tensor([0.3, -0.1, 0.2]).double(), torch.tensor([-0.5, 0.1, 0.3]).double()
    wider = by + torch.tensor([0.2, -0.3, 0.05]).double()
    region = TrustRegion(TrustRegionParams())
    penalty = region(normal(new, wider, kinds[0]), normal(old, by, kinds[1]), WEIGHT)

    def divergence(at: Tensor, log_std: Tensor) -> Tensor:
        divergences = kl_divergence(Normal(old, by.exp()), Normal(at, log_std.exp()))
        return divergences.sum(1) / 3

    by_mean, by_std = divergence(new, by), divergence(old, wider)
    torch.testing.assert_close(penalty.cost, by_mean + by_std)
    assert float(penalty.metrics["kl_mean"]) == pytest.approx(float((WEIGHT * by_mean).sum() / 4))
    assert float(penalty.metrics["kl_std"]) == pytest.approx(float((WEIGHT * by_std).sum() / 4))


def test_mean_and_deviation_are_held_apart() -> None:
    loc = torch.tensor([[0.5] * 3] * 2).double().requires_grad_()
    log_std = torch.tensor([[-0.2] * 3] * 2).double().requires_grad_()
    region = TrustRegion(TrustRegionParams()).eval()
    for multipliers, still in ((torch.tensor([1.0, 0.0]), 1), (torch.tensor([0.0, 1.0]), 0)):
        region.multipliers.copy_(multipliers)
        cost = region(BoundedNormal(loc, log_std), normal(0.0, 0.0), WEIGHT).cost.sum()
        slopes = torch.autograd.grad(cost, (loc, log_std), materialize_grads=True)
        assert bool((slopes[still] == 0).all())
        assert bool((slopes[1 - still] != 0).all())


def test_numbers_that_are_not_active_may_be_anywhere() -> None:
    active = torch.tensor([[True, False, True], [True, True, True]])
    zeros, far = torch.zeros(2, 3).double(), torch.where(active, 0.0, 9.0).double()
    region = TrustRegion(TrustRegionParams())
    distance = region(
        BoundedNormal(far + 0.1, far, active=active), BoundedNormal(zeros, zeros), WEIGHT
    )
    # Per number that is used: 0.1 ** 2 / 2.
    torch.testing.assert_close(distance.cost, torch.full((2,), 0.005).double())


def test_multipliers_rise_beyond_the_bound_and_fall_within() -> None:
    region = TrustRegion(TrustRegionParams(mean=0.02, std=0.01, rate=0.1, multiplier=2.0))
    region.eval()(normal(0.2, 0.0), normal(0.0, 0.0), WEIGHT)
    assert region.multipliers.tolist() == [2.0, 2.0]
    region.train()(normal(0.2, 0.0), normal(0.0, 0.0), WEIGHT)
    # Divergences 0.02 and 0: the first is where it may be.
    torch.testing.assert_close(region.multipliers, torch.tensor([2.0, 2.0 * math.exp(-0.1)]))
    before = region.multipliers.clone()
    region(normal(0.6, 0.0), normal(0.0, 0.0), torch.zeros(2).double())
    torch.testing.assert_close(region.multipliers, before)
    region(normal(0.6, 0.0), normal(0.0, 0.0), WEIGHT)
    assert float(region.multipliers[0]) == pytest.approx(2 * math.exp(0.1 * (0.18 - 0.02) / 0.2))


def test_multipliers_stay_between_bounds() -> None:
    region = TrustRegion(TrustRegionParams(rate=1.0))
    for _ in range(40):
        region(normal(9.0, 0.0), normal(0.0, 0.0), WEIGHT)
    torch.testing.assert_close(region.multipliers, torch.tensor([1e6, 1e-6]))


def test_where_the_policy_proposed_it_costs_and_pulls_nothing() -> None:
    loc = torch.tensor([[0.5] * 3] * 2).double().requires_grad_()
    log_std = torch.tensor([[-0.2] * 3] * 2).double().requires_grad_()
    policy = BoundedNormal(loc, log_std)
    cost = TrustRegion(TrustRegionParams())(policy, policy, WEIGHT).cost
    assert cost.tolist() == [0.0, 0.0]
    for slope in torch.autograd.grad(cost.sum(), (loc, log_std)):
        assert bool((slope == 0).all())


class Policy(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.loc = torch.nn.Parameter(torch.zeros(1).double())
        self.log_std = torch.nn.Parameter(torch.zeros(1).double())

    def forward(self, features: Tensor) -> Distribution:
        loc, log_std = (
            parameter.expand(len(features), 1) for parameter in (self.loc, self.log_std)
        )
        if self.kind == "normal":
            return Independent(Normal(loc, log_std.exp()), 1)
        return BoundedNormal(loc, log_std)


@pytest.mark.parametrize("kind", ["normal", "bounded"])
def test_a_policy_whose_proposal_stays_behind_comes_to_rest_at_the_bound(kind: str) -> None:
    # Better actions are always further right: only the region ends this.
    generator = torch.Generator().manual_seed(0)
    u = torch.randn(16, 40, 1, generator=generator).double()
    policy = Policy(kind)
    batch = CandidateBatch(
        torch.zeros(40, 1).double(), u, u, u[..., 0], torch.ones(40).double(),
        BoundedNormal(torch.zeros(40, 1).double(), torch.zeros(40, 1).double()),
    )  # fmt: skip

    def end(region: dict[str, float] | None, steps: int) -> dict[str, float]:
        policy.load_state_dict({"loc": torch.zeros(1), "log_std": torch.zeros(1)})
        params = {"trust_region": region, "entropy": {"coef": 0.0}}
        loss = Awr(AwrParams.model_validate(params))
        optimiser = torch.optim.SGD(policy.parameters(), lr=0.05)
        for _ in range(steps):
            optimiser.zero_grad()
            output = loss(policy(batch.start), batch)
            output.loss.backward()
            optimiser.step()
        return {name: float(value) for name, value in output.metrics.items()}

    held = end({"mean": 0.02, "std": 0.005, "rate": 0.03}, steps=350)
    assert held["kl_mean"] == pytest.approx(0.02, rel=0.05)
    assert held["kl_std"] == pytest.approx(0.005, rel=0.05)
    assert float(policy.loc.detach()) == pytest.approx(math.sqrt(2 * 0.02), rel=0.05)
    end(None, steps=100)
    assert float(policy.loc.detach()) > 0.5


def test_other_distributions_are_refused_with_the_reason() -> None:
    batch = CandidateBatch(
        torch.zeros(2, 1), torch.rand(4, 2, 1), torch.rand(4, 2, 1), torch.zeros(4, 2),
        torch.ones(2), Independent(Beta(torch.ones(2, 1), torch.ones(2, 1)), 1),
    )  # fmt: skip
    loss = Awr(AwrParams.model_validate({"trust_region": {}, "entropy": {"jacobian": 0.0}}))

    beta = Independent(Beta(torch.ones(2, 1).requires_grad_(), torch.ones(2, 1)), 1)

    with pytest.raises(ValueError, match=r"BoundedNormal .*Independent\(Normal\)"):
        loss(beta, batch)
    plain = Awr(AwrParams.model_validate({"entropy": {"jacobian": 0.0}}))
    assert bool(plain(beta, batch).loss.isfinite())
