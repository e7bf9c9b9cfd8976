import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.distributions import (
    Categorical,
    Distribution,
    Independent,
    Normal,
    kl_divergence,
)

from empo_rollout.distributions import MultiCategorical, diagonal_normal

NVECS = [(3,), (2, 2), (4, 1, 3)]


def logits_for(nvec: tuple[int, ...], *batch: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(*batch, sum(nvec), generator=generator, dtype=torch.float64)


def plain(logits: Tensor, nvec: tuple[int, ...]) -> list[Categorical]:
    return [Categorical(logits=piece) for piece in logits.split(list(nvec), -1)]


def all_values(nvec: tuple[int, ...]) -> Tensor:
    return torch.tensor(list(itertools.product(*map(range, nvec))))


@pytest.mark.parametrize("nvec", NVECS)
class TestChoices:
    def test_log_prob_and_entropy_are_those_of_several_categorical_distributions(
        self, nvec: tuple[int, ...]
    ) -> None:
        logits = logits_for(nvec, 5)
        ours, theirs = MultiCategorical(logits, nvec), plain(logits, nvec)
        values = torch.stack([one.sample() for one in theirs], -1)
        expected = sum(one.log_prob(values[..., k]) for k, one in enumerate(theirs))
        torch.testing.assert_close(ours.log_prob(values), expected)
        torch.testing.assert_close(ours.log_prob(values.float()), expected)
        torch.testing.assert_close(ours.entropy(), sum(one.entropy() for one in theirs))
        assert (ours.batch_shape, ours.event_shape) == ((5,), (len(nvec),))

    def test_probabilities_of_all_values_sum_to_one(self, nvec: tuple[int, ...]) -> None:
        # All values in front, as candidates are.
        values = all_values(nvec)[:, None].expand(-1, 5, -1)
        log_prob = MultiCategorical(logits_for(nvec, 5), nvec).log_prob(values)
        assert log_prob.shape == (math.prod(nvec), 5)
        torch.testing.assert_close(log_prob.exp().sum(0), torch.ones(5).double())

    def test_samples_occur_as_often_as_their_probability_says(self, nvec: tuple[int, ...]) -> None:
        distribution, count = MultiCategorical(logits_for(nvec, 2), nvec), 20_000
        torch.manual_seed(0)
        drawn = distribution.sample((count,))
        assert drawn.shape == (count, 2, len(nvec))
        assert drawn.dtype == torch.int64
        for value in all_values(nvec):
            chance = distribution.log_prob(value.expand(2, -1)).exp()
            share = (drawn == value).all(-1).double().mean(0)
            assert bool(((share - chance).abs() < 5 * (chance / count).sqrt() + 1e-4).all())

    def test_the_mode_is_the_likeliest_value(self, nvec: tuple[int, ...]) -> None:
        distribution = MultiCategorical(logits_for(nvec, 7), nvec)
        values = all_values(nvec)[:, None].expand(-1, 7, -1)
        torch.testing.assert_close(
            distribution.log_prob(distribution.mode), distribution.log_prob(values).amax(0)
        )

    def test_kl_is_the_mean_log_ratio(self, nvec: tuple[int, ...]) -> None:
        one, other = (MultiCategorical(logits_for(nvec, 4, seed=seed), nvec) for seed in (1, 2))
        values = all_values(nvec)[:, None].expand(-1, 4, -1)
        log_ratio = one.log_prob(values) - other.log_prob(values)
        expected = (one.log_prob(values).exp() * log_ratio).sum(0)
        torch.testing.assert_close(kl_divergence(one, other), expected)

    def test_masked_options_are_never_drawn_and_the_rest_is_renormalised(
        self, nvec: tuple[int, ...]
    ) -> None:
        logits, mask = logits_for(nvec, 3), torch.ones(3, sum(nvec), dtype=torch.bool)
        mask[0, 0] = mask[2, 1] = False
        distribution = MultiCategorical(logits, nvec, mask)
        expected = plain(logits.masked_fill(~mask, -1e30), nvec)
        torch.testing.assert_close(distribution.entropy(), sum(one.entropy() for one in expected))
        drawn = distribution.sample((500,))
        assert not bool((drawn[:, 0, 0] == 0).any())
        assert not bool((drawn[:, 2, 0] == 1).any())
        assert bool((drawn[:, 1] == distribution.mode[1]).any())

    def test_gradients_stay_finite_where_options_are_masked(self, nvec: tuple[int, ...]) -> None:
        logits = logits_for(nvec, 3).float().requires_grad_()
        mask = torch.ones(3, sum(nvec), dtype=torch.bool)
        mask[0, 0] = False
        mask[1] = False
        distribution = MultiCategorical(logits, nvec, mask)
        value = distribution.sample()
        assert bool((value < torch.tensor(nvec)).all())
        (distribution.entropy() + distribution.log_prob(value)).sum().backward()
        assert logits.grad is not None
        assert bool(logits.grad.isfinite().all())
        assert bool((logits.grad[~mask] == 0).all())
        assert bool((logits.grad[2] != 0).any())


def test_a_choice_with_no_option_left_is_even() -> None:
    mask = torch.zeros(1, 5, dtype=torch.bool)
    distribution = MultiCategorical(torch.randn(1, 5), (2, 3), mask)
    assert distribution.entropy().item() == pytest.approx(math.log(2) + math.log(3))


def test_a_number_of_logits_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"4 logits .*\[2, 3\]"):
        MultiCategorical(torch.zeros(1, 4), (2, 3))


def numbers(*batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(*batch, 2, generator=generator, dtype=torch.float64)
    return mean, torch.tensor([-0.5, 0.3], dtype=torch.float64) + 0.1 * seed


def theirs(mean: Tensor, log_std: Tensor) -> Independent:
    return Independent(Normal(mean, log_std.exp().expand_as(mean)), 1)


class TestNumbers:
    def test_it_says_what_independent_normal_distributions_say(self) -> None:
        mean, log_std = numbers(6)
        one, other = diagonal_normal(mean, log_std), theirs(mean, log_std)
        values = torch.randn(3, 6, 2).double()
        torch.testing.assert_close(one.log_prob(values), other.log_prob(values))
        for name in ("mean", "mode", "variance", "stddev"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), msg=name)
        torch.testing.assert_close(one.entropy(), other.entropy())
        assert (one.batch_shape, one.event_shape) == (other.batch_shape, other.event_shape)

    def test_kl_is_that_of_independent_normal_distributions(self) -> None:
        left, right = numbers(6), numbers(6, seed=3)
        expected = kl_divergence(theirs(*left), theirs(*right))
        torch.testing.assert_close(
            kl_divergence(diagonal_normal(*left), diagonal_normal(*right)), expected
        )

    def test_samples_have_the_right_moments(self) -> None:
        torch.manual_seed(0)
        distribution = diagonal_normal(*numbers(4))
        drawn = distribution.sample((40_000,))
        torch.testing.assert_close(drawn.mean(0), distribution.mean, atol=0.04, rtol=0)
        torch.testing.assert_close(drawn.var(0), distribution.variance, atol=0, rtol=0.05)

    def test_only_rsample_carries_gradients(self) -> None:
        mean, log_std = numbers(4)
        distribution = diagonal_normal(mean.requires_grad_(), log_std.requires_grad_())
        assert not distribution.sample().requires_grad
        distribution.rsample((3,)).sum().backward()
        assert mean.grad is not None
        assert torch.equal(mean.grad, torch.full_like(mean, 3.0))
        assert log_std.grad is not None
        assert bool((log_std.grad != 0).all())


@pytest.mark.parametrize(
    "distribution",
    [
        MultiCategorical(torch.randn(4, 5).bfloat16(), (2, 3)),
        diagonal_normal(torch.randn(4, 2).bfloat16(), torch.zeros(2)),
    ],
    ids=["choices", "numbers"],
)
def test_half_precision_does_not_reach_probabilities(distribution: Distribution) -> None:
    assert distribution.log_prob(distribution.sample()).dtype == torch.float32
    assert distribution.entropy().dtype == torch.float32
