"""Numbers go into bins and come back, and losses of bins are what their formulas say."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_latent.networks.bins import TwoHot, symexp, symlog
from empo_latent.params import BinsParams

quick = settings(max_examples=20)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype)


def two_hot(**params: float) -> TwoHot:
    return TwoHot(BinsParams.model_validate(params)).double()


def encoded(bins: TwoHot, y: Tensor) -> Tensor:
    """By the formula: how near each bin is to the symlog, in widths of a bin."""
    centres = torch.linspace(bins.low, bins.high, bins.number, dtype=torch.float64)
    width = (bins.high - bins.low) / (bins.number - 1)
    return (1 - (symlog(y).clamp(bins.low, bins.high) - centres).abs() / width).clamp(min=0)


def test_symlog_is_a_signed_logarithm() -> None:
    x = torch.tensor([-math.e + 1, 0.0, math.e - 1, 22025.4657948])

    torch.testing.assert_close(symlog(x), torch.tensor([-1.0, 0.0, 1.0, 10.0]))


@quick
@given(st.floats(-1e6, 1e6))
def test_symexp_undoes_symlog(number: float) -> None:
    x = torch.tensor([number], dtype=torch.float64)

    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-9, atol=1e-12)


@quick
@given(st.floats(-2e4, 2e4))
def test_a_number_comes_back_from_its_bins(number: float) -> None:
    bins, y = two_hot(), torch.tensor([number], dtype=torch.float64)

    assert abs(bins.decode(encoded(bins, y).log()).item() - number) < 1e-3


@pytest.mark.parametrize(("number", "bin"), [(1e9, 100), (-1e9, 0), (0.0, 50)])
def test_numbers_beyond_the_bins_are_put_in_the_last(number: float, bin: int) -> None:
    logits = normal(101)

    found = two_hot().cross_entropy(logits, torch.tensor([number], dtype=torch.float64))

    torch.testing.assert_close(found, -logits.log_softmax(-1)[bin])


def test_bins_lie_where_they_are_told() -> None:
    bins, logits = two_hot(number=5, low=-2.0, high=2.0), normal(5)

    found = bins.cross_entropy(logits, torch.tensor([math.e**1.25 - 1], dtype=torch.float64))

    weights = torch.tensor([0, 0, 0, 0.75, 0.25], dtype=torch.float64)
    torch.testing.assert_close(found, -(weights * logits.log_softmax(-1)).sum())
    centres = symlog(bins.decode(torch.eye(5, dtype=torch.float64).log())).squeeze(-1)
    torch.testing.assert_close(centres, torch.arange(-2.0, 3.0, dtype=torch.float64))


def test_a_mixture_decodes_to_the_symexp_of_the_mean_symlog_and_not_to_the_mean() -> None:
    bins, both = two_hot(), torch.tensor([[0.0], [100.0]], dtype=torch.float64)

    mixture = bins.decode(encoded(bins, both).mean(0).log())
    mean = bins.decode(encoded(bins, both.mean(0)).log())

    assert mixture.item() == pytest.approx(9.05, abs=0.005)
    assert mean.item() == pytest.approx(50, abs=1e-3)


def test_even_logits_mean_zero() -> None:
    assert TwoHot(BinsParams()).decode(torch.zeros(3, 2, 101)).abs().max() < 1e-5


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 3, 4, 5)])
def test_cross_entropy_is_that_of_the_encoding_for_any_number_of_axes(
    batch: tuple[int, ...],
) -> None:
    bins, logits, y = two_hot(), normal(*batch, 101), 50 * normal(*batch, 1, seed=1)

    found = bins.cross_entropy(logits, y)

    expected = -(encoded(bins, y) * logits.log_softmax(-1)).sum(-1)
    assert found.shape == batch
    torch.testing.assert_close(found, expected)


def test_cross_entropy_broadcasts_both_ways() -> None:
    bins, logits, y = two_hot(), normal(4, 1, 3, 1, 101), 50 * normal(5, 3, 2, 1, seed=1)

    found = bins.cross_entropy(logits, y)

    wide, many = logits.expand(4, 5, 3, 2, 101), y.expand(4, 5, 3, 2, 1)
    torch.testing.assert_close(found, bins.cross_entropy(wide, many))


def test_the_gradient_of_cross_entropy_is_that_of_its_formula() -> None:
    bins, y = two_hot(number=7), normal(3, 1, seed=1)
    ours, theirs = (normal(3, 7).requires_grad_() for _ in range(2))

    bins.cross_entropy(ours, y).sum().backward()
    (-(encoded(bins, y) * theirs.log_softmax(-1)).sum()).backward()

    torch.testing.assert_close(ours.grad, theirs.grad)


def test_nan_stays_nan() -> None:
    bins, y = two_hot(), torch.tensor([[math.nan], [1.0]], dtype=torch.float64)

    loss = bins.cross_entropy(torch.zeros(2, 101).double(), y)

    assert loss.isnan().tolist() == [True, False]
