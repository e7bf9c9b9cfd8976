"""Shared parts of policy losses, against torch, closed forms and hand-computed numbers."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from torch.distributions import Beta, Independent, Normal

from empo_learning.distributions import BoundedNormal
from empo_learning.entropy_params import EntropyParams
from empo_learning.policy_losses import (
    EntropyBonus,
    EntropyTerm,
    RunningScale,
    disagreement,
    joined_heads,
    normal_parameters,
    num_numbers,
    policy_entropy,
    policy_metrics,
    scheduled,
    spread,
    weighted_mean,
)

HEADS = torch.tensor([[[1.0, 4.0, 2.0], [-1.0, 0.0, 7.0]]]).double()


@pytest.mark.parametrize(
    ("mode", "expected"), [("mean", [7 / 3, 2.0]), ("min", [1.0, -1.0]), ("max", [4.0, 7.0])]
)
def test_heads_are_joined(mode: Any, expected: list[float]) -> None:
    torch.testing.assert_close(joined_heads(HEADS, mode)[0], torch.tensor(expected).double())


def test_disagreement_is_the_standard_deviation_of_the_heads() -> None:
    expected = [math.sqrt(7 / 3), math.sqrt(19)]
    torch.testing.assert_close(disagreement(HEADS)[0], torch.tensor(expected).double())


def test_heads_that_agree_or_are_alone_disagree_by_nothing() -> None:
    for count in (1, 4):
        same = torch.full((3, count), 0.1, requires_grad=True)
        found = disagreement(same)
        assert found.tolist() == [0.0, 0.0, 0.0]
        (slope,) = torch.autograd.grad((found + same.sum(-1)).sum(), same)
        assert torch.equal(slope, torch.ones(3, count))


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
def test_the_spread_is_that_of_torch_quantiles(
    starts: int, candidates: int, seed: int, double: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.float64 if double else torch.float32
    values = torch.randn(starts, candidates, generator=generator, dtype=dtype)
    weight = torch.rand(starts, generator=generator, dtype=dtype)
    weight[torch.rand(starts, generator=generator) < 0.4] = 0
    found = spread(values, weight[:, None])
    some = values[weight > 0].flatten()
    share = torch.tensor([0.05, 0.95], dtype=dtype)
    low, high = torch.quantile(some, share) if len(some) else (torch.zeros((), dtype=dtype),) * 2
    assert found.dtype == dtype
    torch.testing.assert_close(found, high - low, rtol=1e-5, atol=1e-5)


def test_the_spread_does_not_read_what_does_not_count() -> None:
    values = torch.tensor([[1.0, 2.0], [math.nan, math.inf], [0.0, 3.0]])
    weight = torch.tensor([[1.0], [0.0], [2.0]])
    # Of 0, 1, 2, 3: positions 0.15 and 2.85.
    assert float(spread(values, weight)) == pytest.approx(2.85 - 0.15)


class TestRunningScale:
    def test_it_follows_slowly_from_one_while_it_is_trained(self) -> None:
        scale, values = RunningScale(0.1), torch.arange(101.0)
        assert float(scale.eval()(values, torch.ones(101))) == pytest.approx(9.9)
        assert float(scale.value) == 1.0
        assert float(scale.train()(values, torch.ones(101))) == pytest.approx(9.9)
        assert float(scale.value) == pytest.approx(9.9)
        assert float(scale(values, torch.ones(101))) == pytest.approx(9.9 + 0.1 * (90 - 9.9))

    def test_it_is_never_less_than_one(self) -> None:
        scale = RunningScale(0.5)
        scale.value.fill_(3.0)
        for _ in range(60):
            scale(torch.zeros(5), torch.ones(5))
        assert float(scale.value) == 1.0

    def test_where_nothing_counts_it_stays(self) -> None:
        scale = RunningScale(0.5)
        scale.value.fill_(3.0)
        assert float(scale(torch.randn(5), torch.zeros(5))) == 3.0


def at(params: EntropyParams, progress: float) -> float:
    return float(scheduled(params, torch.tensor(progress, dtype=torch.float64)))


def linear(**params: Any) -> EntropyParams:
    return EntropyParams(schedule="linear", **params)


class TestSchedule:
    @pytest.mark.parametrize(
        ("progress", "expected"), [(0.0, 2.0), (0.25, 2.0), (0.5, 1.5), (0.75, 1.0), (1.0, 1.0)]
    )
    def test_a_linear_one_goes_straight(self, progress: float, expected: float) -> None:
        params = linear(coef=2.0, end=1.0, begin=0.25, finish=0.75)
        assert at(params, progress) == pytest.approx(expected, rel=1e-12)

    def test_a_linear_one_may_begin_and_end_at_nothing(self) -> None:
        assert at(linear(coef=1.0, end=0.0), 0.75) == pytest.approx(0.25)
        assert at(linear(coef=0.0, end=1.0), 0.75) == pytest.approx(0.75)

    @pytest.mark.parametrize(
        ("progress", "expected"), [(0.0, 1e-1), (0.5, 1e-1), (0.75, 1e-2), (1.0, 1e-3)]
    )
    def test_an_exponential_one_goes_straight_in_logarithms(
        self, progress: float, expected: float
    ) -> None:
        params = EntropyParams(coef=1e-1, end=1e-3, schedule="exponential", begin=0.5)
        assert at(params, progress) == pytest.approx(expected, rel=1e-12)

    def test_without_an_end_it_is_constant(self) -> None:
        assert {at(EntropyParams(coef=0.3), x) for x in (0.0, 0.4, 1.0)} == {0.3}

    def test_where_it_begins_and_finishes_at_once_it_jumps(self) -> None:
        for moment in (0.0, 0.5):
            params = linear(coef=2.0, end=1.0, begin=moment, finish=moment)
            assert at(params, moment) == 2.0
            assert at(params, moment + 1e-9) == 1.0
        at_the_end = linear(coef=2.0, end=1.0, begin=1.0, finish=1.0)
        assert at(at_the_end, 1.0) == 2.0

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"schedule": "exponential", "coef": 0.1, "end": 0.0}, "both .*above 0"),
            ({"schedule": "exponential", "coef": 0.0, "end": 0.1}, "both .*above 0"),
            ({"schedule": "linear"}, "an end"),
            ({"schedule": "exponential"}, "an end"),
            ({"end": 0.1}, "end: nothing moves"),
            ({"begin": 0.5}, "begin: nothing moves"),
            ({"finish": 0.5}, "finish: nothing moves"),
            ({"schedule": "linear", "end": 0.1, "begin": 0.6, "finish": 0.5}, "before begin"),
            ({"schedule": "linear", "end": 0.1, "finish": -1.0}, "greater_than_equal"),
            ({"schedule": "cosine", "end": 0.1}, "'linear' or 'exponential'"),
            ({"coef": -1e-3}, "greater_than_equal"),
            ({"rate": 0.1}, "belongs to target_entropy"),
            ({"target_entropy": -1.0, "coef": 0.0}, "coef .*above 0"),
            ({"target_entropy": -1.0, "schedule": "linear", "end": 0.1}, "drop one"),
            ({"jacobian": 1.1}, "less_than_equal"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, params: Any, message: str) -> None:
        with pytest.raises(ValidationError, match=message):
            EntropyParams(**params)

    def test_a_config_that_says_every_default_is_accepted(self) -> None:
        for params in (EntropyParams(), EntropyParams(target_entropy=-1.0), linear(end=0.1)):
            assert EntropyParams.model_validate(params.model_dump()) == params


def normal(mean: float, std: float, count: int = 3, numbers: int = 2) -> Independent:
    shape = (count, numbers)
    return Independent(Normal(torch.full(shape, mean), torch.full(shape, std)), 1)


def bonus_of(
    bonus: EntropyBonus, policy: Independent, weight: Tensor, progress: float = 0.0
) -> EntropyTerm:
    term: EntropyTerm = bonus(policy, weight, torch.tensor(progress))
    return term


def coefficient(bonus: EntropyBonus) -> float:
    assert bonus.tuned is not None
    return float(bonus.tuned)


class TestEntropyBonus:
    def test_it_follows_its_schedule(self) -> None:
        bonus = EntropyBonus(linear(coef=2.0, end=1.0))
        term = bonus_of(bonus, normal(0.0, 1.0), torch.ones(3), 0.5)
        assert float(term.metrics["entropy_coef"]) == 1.5
        assert not bonus.state_dict()

    def test_it_pays_the_scaled_entropy(self) -> None:
        bonus = EntropyBonus(EntropyParams(coef=0.1, jacobian=0.0, action_power=2.0))
        term = bonus_of(bonus, normal(0.0, 2.0), torch.tensor([1.0, 0.0, 3.0]))
        entropy = 2 * (0.5 + 0.5 * math.log(2 * math.pi) + math.log(2))
        torch.testing.assert_close(term.paid, torch.full((3,), 0.1 * 4 * entropy))
        expected = {
            "entropy": entropy,
            "entropy_scaled": 4 * entropy,
            "entropy_term": 0.4 * entropy,
            "entropy_coef": 0.1,
        }
        assert {k: float(x) for k, x in term.metrics.items()} == pytest.approx(expected)

    def test_what_is_paid_nothing_gets_no_gradient_but_is_reported(self) -> None:
        std = torch.ones(3, 2, requires_grad=True)
        policy = Independent(Normal(torch.zeros(3, 2), std), 1)
        term = bonus_of(EntropyBonus(EntropyParams(coef=0.0)), policy, torch.ones(3))
        assert not term.paid.requires_grad
        assert float(term.metrics["entropy"]) != 0
        rising = bonus_of(EntropyBonus(linear(coef=0.0, end=1.0)), policy, torch.ones(3))
        assert rising.paid.requires_grad

    def test_a_tuned_one_rises_while_there_is_too_little_entropy(self) -> None:
        params = EntropyParams(coef=0.1, target_entropy=-1.0, rate=0.5, jacobian=0.0)
        bonus, weight = EntropyBonus(params), torch.tensor([1.0, 0.0, 2.0])
        per_number = 0.5 + 0.5 * math.log(2 * math.pi)
        for std, entropy in ((1.0, per_number), (0.01, per_number + math.log(0.01))):
            before = coefficient(bonus)
            term = bonus_of(bonus, normal(0.0, std), weight)
            assert float(term.metrics["entropy_coef"]) == before
            expected = before * math.exp(-0.5 * (entropy + 1))
            assert coefficient(bonus) == pytest.approx(expected, rel=1e-5)
        bonus_of(bonus.eval(), normal(0.0, 1.0), weight)
        assert coefficient(bonus) == pytest.approx(expected, rel=1e-5)

    def test_a_tuned_one_ends_where_the_entropy_is_the_target(self) -> None:
        # A policy that slowly spreads the more, the more it is paid for that.
        bonus = EntropyBonus(EntropyParams(target_entropy=0.3, rate=0.05, jacobian=0.0))
        log_std = 0.0
        for _ in range(2000):
            log_std = 0.8 * log_std + 0.2 * math.log(coefficient(bonus))
            bonus_of(bonus, normal(0.0, math.exp(log_std)), torch.ones(3))
        entropy = 0.5 + 0.5 * math.log(2 * math.pi) + log_std
        assert entropy == pytest.approx(0.3, abs=1e-3)

    def test_a_target_out_of_reach_does_not_end_in_infinity(self) -> None:
        bonus = EntropyBonus(EntropyParams(target_entropy=100.0, rate=1.0, jacobian=0.0))
        for _ in range(50):
            bonus_of(bonus, normal(0.0, 1.0), torch.ones(3))
        assert coefficient(bonus) == pytest.approx(math.exp(10))

    def test_where_nothing_counts_a_tuned_one_stays(self) -> None:
        bonus = EntropyBonus(EntropyParams(coef=0.1, target_entropy=-1.0, rate=0.5))
        bonus_of(bonus, normal(0.0, 1.0), torch.zeros(3))
        assert coefficient(bonus) == pytest.approx(0.1)


def paid(policy: BoundedNormal, j: float, power: float) -> Tensor:
    """Entropy bonus of policies with a coefficient of 1."""
    params = EntropyParams(coef=1.0, jacobian=j, action_power=power)
    weight = torch.ones(policy.batch_shape, dtype=policy.loc.dtype)
    found: Tensor = EntropyBonus(params)(policy, weight, torch.zeros(())).paid
    return found


class TestEntropy:
    """Item 16 of the proofs: the two entropies, and what lies between."""

    def bounded(self, j: float, power: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """The entropy of one policy, and its gradients, as means over many samples."""
        loc = torch.tensor([0.8, -0.2]).double().requires_grad_()
        log_std = torch.tensor([-0.5, 0.3]).double().requires_grad_()
        many = 200_000 if j else 1
        policy = BoundedNormal(loc.expand(many, 2), log_std.expand(many, 2))
        torch.manual_seed(0)
        entropy = paid(policy, j, power).mean()
        by_loc, by_log_std = torch.autograd.grad(entropy, (loc, log_std), materialize_grads=True)
        return entropy.detach(), by_loc, by_log_std

    def exact(self, loc: float, log_std: float) -> tuple[float, float, float]:
        """Entropy of one squashed number and its gradient, by an integral over the noise."""
        at, by = torch.tensor(loc).double(), torch.tensor(log_std).double()
        at.requires_grad_()
        by.requires_grad_()
        noise = torch.linspace(-9, 9, 20_001).double()
        density = torch.exp(-0.5 * noise.square()) / math.sqrt(2 * math.pi)
        u = at + by.exp() * noise
        # E[log(1 - tanh(u)^2)], written with cosh, which is exact here.
        jacobian = torch.trapezoid(density * -2 * torch.cosh(u).log(), noise)
        entropy = by + 0.5 + 0.5 * math.log(2 * math.pi) + jacobian
        slopes = torch.autograd.grad(entropy, (at, by))
        return float(entropy.detach()), float(slopes[0]), float(slopes[1])

    def test_before_bounding_it_is_exact_and_blind_to_the_mean(self) -> None:
        entropy, by_loc, by_log_std = self.bounded(0.0, power=1.0)
        assert float(entropy) == pytest.approx(2 * (-0.2 + 1 + math.log(2 * math.pi)))
        assert by_loc.tolist() == [0.0, 0.0]
        assert by_log_std.tolist() == [2.0, 2.0]  # (numbers of an action) ** power
        assert self.bounded(0.0, power=0.0)[2].tolist() == [1.0, 1.0]
        assert self.bounded(0.0, power=2.0)[2].tolist() == [4.0, 4.0]

    def test_of_bounded_actions_it_is_the_integral(self) -> None:
        entropy, by_loc, by_log_std = self.bounded(1.0)
        exact = [self.exact(0.8, -0.5), self.exact(-0.2, 0.3)]
        assert float(entropy) == pytest.approx(2 * sum(each[0] for each in exact), abs=0.02)
        assert by_loc.tolist() == pytest.approx([2 * each[1] for each in exact], abs=0.02)
        assert by_log_std.tolist() == pytest.approx([2 * each[2] for each in exact], abs=0.02)
        assert float(by_loc[0]) < -0.5  # It pulls away from the bound.

    def test_between_it_is_a_mixture(self) -> None:
        ends, between = (self.bounded(0.0), self.bounded(1.0)), self.bounded(0.25)
        for without, with_it, found in zip(*ends, between, strict=True):
            torch.testing.assert_close(found, 0.75 * without + 0.25 * with_it)

    def test_a_sample_is_fresh_every_time(self) -> None:
        policy = normal(0.0, 1.0)
        first, second = policy_entropy(policy, 1.0), policy_entropy(policy, 1.0)
        assert not torch.equal(first, second)
        assert torch.equal(policy_entropy(policy, 0.0), policy_entropy(policy, 0.0))

    def test_unused_numbers_do_not_count(self) -> None:
        active = torch.tensor([[True, False], [True, True]])
        policy = BoundedNormal(torch.zeros(2, 2), torch.zeros(2, 2), active=active)
        one = 0.5 + 0.5 * math.log(2 * math.pi)
        torch.testing.assert_close(paid(policy, 0.0, 1.0), torch.tensor([one, 4 * one]))

    def test_numbers_are_counted_in_any_distribution(self) -> None:
        assert num_numbers(normal(0.0, 1.0, numbers=5)) == 5
        assert num_numbers(Beta(torch.ones(3), torch.ones(3))) == 1


def test_normal_parameters_are_found_in_both_kinds_of_policy() -> None:
    loc, log_std = torch.randn(3, 2), torch.randn(2)
    for policy in (
        BoundedNormal(loc, log_std),
        Independent(Normal(loc, log_std.exp().expand(3, 2)), 1),
        Normal(loc, log_std.exp().expand(3, 2)),
    ):
        found = normal_parameters(policy)
        torch.testing.assert_close(found[0], loc)
        torch.testing.assert_close(found[1], log_std.expand(3, 2))


def test_other_policies_have_no_normal_parameters() -> None:
    beta = Independent(Beta(torch.ones(3, 2), torch.ones(3, 2)), 1)
    with pytest.raises(ValueError, match=r"Independent\(Normal\).*Independent of Beta"):
        normal_parameters(beta)


def test_metrics_of_a_policy_are_about_what_counts() -> None:
    loc = torch.tensor([[2.0, 5.0], [-1.0, 3.0], [9.0, 9.0]])
    log_std = torch.tensor([[0.1, 7.0], [0.2, 0.3], [5.0, 5.0]])
    active = torch.tensor([[True, False], [True, True], [True, True]])
    weight = torch.tensor([1.0, 2.0, 0.0])
    found = policy_metrics(BoundedNormal(loc, log_std, active=active), weight)
    assert {key: float(each) for key, each in found.items()} == pytest.approx(
        {
            "mean_abs": (2 + 2 * (1 + 3)) / 5,
            "log_std": (0.1 + 2 * (0.2 + 0.3)) / 5,
            "saturated": (1 + 2) / 5,  # tanh(2) and tanh(3) are above 0.95
        }
    )
    unbounded = policy_metrics(Independent(Normal(loc, log_std.exp()), 1), torch.ones(3))
    assert float(unbounded["mean_abs"]) == pytest.approx(float(loc.abs().mean()))
    assert float(unbounded["log_std"]) == pytest.approx(float(log_std.mean()))


def test_a_weighted_mean_of_nothing_is_zero() -> None:
    values = torch.tensor([[1.0, 3.0], [5.0, 7.0]])
    assert float(weighted_mean(values, torch.tensor([[3.0], [1.0]]))) == 3.0
    assert float(weighted_mean(values, torch.zeros(2, 1))) == 0.0


def test_parameters_do_not_import_torch() -> None:
    script = "import sys, empo_learning.entropy_params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
