"""Bounded actions against what torch says of transformed distributions, and against integrals."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from empo_learning.distributions import (
    BoundedNormal,
    compute_action_log_prob,
    log_one_minus_tanh_squared,
)

LOC = torch.tensor([[0.3, -1.1, 0.0], [2.0, 0.5, -0.4]], dtype=torch.float64)
LOG_STD = torch.tensor([[-0.5, 0.2, -2.0], [0.7, -1.0, 0.1]], dtype=torch.float64)
ACTIVE = torch.tensor([[True, True, False], [True, False, True]])


def squashed(loc: Tensor, log_std: Tensor) -> Any:
    return TransformedDistribution(
        Independent(Normal(loc, log_std.exp()), 1), [TanhTransform(cache_size=1)]
    )


def test_the_density_is_that_of_the_squashed_action() -> None:
    u = torch.linspace(-4, 4, 5).double()[:, None, None] + LOC
    found = BoundedNormal(LOC, LOG_STD).log_prob(u)
    torch.testing.assert_close(found, squashed(LOC, LOG_STD).log_prob(u.tanh()))


def test_the_density_of_an_action_from_elsewhere_is_torch_s_with_the_score_as_gradient() -> None:
    action = torch.tensor([[0.5, -0.9, 0.0], [0.99, 0.2, -0.7]]).double().requires_grad_()
    mu, log_std = LOC.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
    found = compute_action_log_prob(action, mu, log_std)
    expected = squashed(mu, log_std).log_prob(action.detach())
    assert found.shape == (2, 1)
    torch.testing.assert_close(found.squeeze(-1), expected)
    ours = torch.autograd.grad(found.sum(), (mu, log_std))
    theirs = torch.autograd.grad(expected.sum(), (mu, log_std))
    torch.testing.assert_close(ours, theirs)
    epsilon = (action.detach().atanh() - LOC) / LOG_STD.exp()
    torch.testing.assert_close(ours, (epsilon / LOG_STD.exp(), epsilon.square() - 1))
    several = compute_action_log_prob(action.detach().expand(4, 2, 3), LOC, LOG_STD)
    torch.testing.assert_close(several, found.detach().expand(4, 2, 1))


@pytest.mark.parametrize("bound", [0.9999, 0.9])
def test_actions_at_the_bounds_count_as_the_clamp_bound_that_is_given(bound: float) -> None:
    ends, clamped = torch.tensor([[1.0, -1.0, 0.3]]), torch.tensor([[bound, -bound, 0.3]])
    loc, log_std = LOC[:1].float(), LOG_STD[:1].float()
    found = compute_action_log_prob(ends, loc, log_std, bound)
    torch.testing.assert_close(found, compute_action_log_prob(clamped, loc, log_std))
    torch.testing.assert_close(found[:, 0], BoundedNormal(loc, log_std).log_prob(clamped.atanh()))
    assert torch.equal(compute_action_log_prob(ends, loc, log_std).isfinite(), found.isfinite())


def test_the_density_of_clipped_actions_is_the_normal_one() -> None:
    u = torch.linspace(-4, 4, 5).double()[:, None, None] + LOC
    found = BoundedNormal(LOC, LOG_STD, bound="clip").log_prob(u)
    torch.testing.assert_close(found, Independent(Normal(LOC, LOG_STD.exp()), 1).log_prob(u))


def test_the_density_of_an_action_adds_up_to_one() -> None:
    edges = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    middle = (edges[1:] + edges[:-1]) / 2
    one = BoundedNormal(torch.tensor([0.4]).double(), torch.tensor([-0.3]).double())
    density = one.log_prob(middle.atanh()[:, None]).exp()
    assert float(density.mean() * 2) == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=50)
@given(st.floats(-20, 20))
def test_the_jacobian_is_right_far_out(u: float) -> None:
    exact = -2 * math.log(math.cosh(u))
    single = log_one_minus_tanh_squared(torch.tensor(u, dtype=torch.float32))
    double = log_one_minus_tanh_squared(torch.tensor(u, dtype=torch.float64))
    assert float(single) == pytest.approx(exact, rel=1e-5, abs=1e-6)
    assert float(double) == pytest.approx(exact, rel=1e-8, abs=1e-8)


def test_the_jacobian_and_its_slope_stay_finite_where_tanh_is_one() -> None:
    u = torch.tensor([-1e4, -50.0, 50.0, 1e4], requires_grad=True)
    value = log_one_minus_tanh_squared(u)
    (slope,) = torch.autograd.grad(value.sum(), u)
    torch.testing.assert_close(value, 2 * (math.log(2) - u.detach().abs()))
    assert slope.tolist() == [2.0, 2.0, -2.0, -2.0]


def test_the_gradient_at_a_constant_is_the_score() -> None:
    # ``(eps / sigma, eps ** 2 - 1)``, whatever becomes of ``u`` afterwards.
    for bound in ("tanh", "clip"):
        loc, log_std = LOC.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
        noise = torch.tensor([[1.2, -0.4, 8.0], [0.0, -2.0, 0.7]]).double()
        u = LOC + LOG_STD.exp() * noise
        score = BoundedNormal(loc, log_std, bound=bound).log_prob(u).sum()  # type: ignore[arg-type]
        by_loc, by_log_std = torch.autograd.grad(score, (loc, log_std))
        torch.testing.assert_close(by_loc, noise / LOG_STD.exp())
        torch.testing.assert_close(by_log_std, noise.square() - 1)


def test_samples_have_the_moments_they_say() -> None:
    torch.manual_seed(0)
    one = BoundedNormal(LOC, LOG_STD, active=ACTIVE)
    u = one.sample((40_000,))
    assert not u.requires_grad
    torch.testing.assert_close(u.mean(0), one.mean, atol=0.03, rtol=0.02)
    torch.testing.assert_close(u.std(0), one.stddev, atol=0.01, rtol=0.02)
    assert bool((u[:, ~ACTIVE] == 0).all())
    assert torch.equal(one.mode, one.mean)


def test_samples_follow_the_parameters() -> None:
    loc, log_std = LOC.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
    torch.manual_seed(0)
    u = BoundedNormal(loc, log_std).rsample((4,))
    by_loc, by_log_std = torch.autograd.grad(u.sum(), (loc, log_std))
    torch.testing.assert_close(by_loc, torch.full_like(LOC, 4.0))
    torch.testing.assert_close(by_log_std, (u.detach() - LOC).sum(0))


@pytest.mark.parametrize("bound", ["tanh", "clip"])
def test_actions_are_bounded_and_unused_ones_are_zero(bound: Any) -> None:
    one = BoundedNormal(LOC, LOG_STD, bound=bound, active=ACTIVE)
    u = torch.tensor([[-30.0, 0.25, 3.0], [1.0, 2.0, 1e30]]).double()
    action = one.bounded(u)
    expected = u.tanh() if bound == "tanh" else u.clamp(-1, 1)
    assert torch.equal(action, expected * ACTIVE)


def test_numbers_that_are_not_active_count_for_nothing() -> None:
    one = BoundedNormal(LOC, LOG_STD, active=ACTIVE)
    other = BoundedNormal(LOC + 5 * ~ACTIVE, LOG_STD - 3.0 * ~ACTIVE, active=ACTIVE)
    u = torch.randn(2, 3, generator=torch.Generator().manual_seed(1)).double()
    elsewhere = u + 7 * ~ACTIVE
    assert torch.equal(one.log_prob(u), other.log_prob(elsewhere))
    assert torch.equal(one.entropy(), other.entropy())
    assert torch.equal(one.mean, other.mean)
    assert torch.equal(one.stddev, other.stddev)
    assert one.num_active.tolist() == [2.0, 2.0]  # type: ignore[union-attr]
    assert BoundedNormal(LOC, LOG_STD).num_active == 3
    # Of those that count it is what the same distribution without the others says.
    alone = BoundedNormal(LOC[0, :2], LOG_STD[0, :2])
    torch.testing.assert_close(one.log_prob(u)[0], alone.log_prob(u[0, :2]))
    torch.testing.assert_close(one.entropy()[0], alone.entropy())


def test_unused_numbers_get_no_gradient() -> None:
    loc, log_std = LOC.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
    one = BoundedNormal(loc, log_std, active=ACTIVE)
    total = one.log_prob(torch.full_like(LOC, 0.3)).sum() + one.entropy().sum()
    total = total + one.rsample().square().sum()
    for gradient in torch.autograd.grad(total, (loc, log_std)):
        assert bool((gradient[~ACTIVE] == 0).all())
        assert bool((gradient[ACTIVE] != 0).all())


def test_the_closed_form_entropy_is_that_before_bounding() -> None:
    loc, log_std = LOC.clone().requires_grad_(), LOG_STD.clone().requires_grad_()
    entropy = BoundedNormal(loc, log_std).entropy()
    torch.testing.assert_close(entropy, Independent(Normal(LOC, LOG_STD.exp()), 1).entropy())
    by_loc, by_log_std = torch.autograd.grad(entropy.sum(), (loc, log_std), allow_unused=True)
    assert by_loc is None
    assert torch.equal(by_log_std, torch.ones_like(LOG_STD))


def test_it_expands_to_more_starts() -> None:
    one = BoundedNormal(LOC, LOG_STD, bound="clip", active=ACTIVE)
    many = one.expand((5, 2))
    assert many.batch_shape == (5, 2)
    assert many.event_shape == (3,)
    u = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(many.log_prob(u), one.log_prob(u))
    assert torch.equal(many.bounded(u), one.bounded(u))
