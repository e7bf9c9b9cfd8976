"""Weights of candidates: invariances, the three rules of the temperature, and published numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from empo_awr.loss import (
    CandidateWeighting,
    WeighedCandidates,
    divergence_from_even,
    effective_sample_size,
    weight_entropy,
)
from empo_awr.params import AwrParams
from empo_core.types import CandidateBatch

OWN = ("state_std", "state_range")


def weighed(target: Tensor, weight: Tensor | None = None, **params: Any) -> WeighedCandidates:
    """Weighed candidates of a batch in which only targets ``[candidate start head]`` matter."""
    candidates: WeighedCandidates = CandidateWeighting(AwrParams.model_validate(params))(
        imagined(target, weight)
    )
    return candidates


def imagined(target: Tensor, weight: Tensor | None = None) -> CandidateBatch:
    candidates, starts, _ = target.shape
    weight = torch.ones(starts, dtype=target.dtype) if weight is None else weight
    nothing = torch.zeros(candidates, starts, 1, dtype=target.dtype)
    return CandidateBatch(nothing[0], nothing, target, nothing[..., 0], weight)


def random_target(starts: int = 9, candidates: int = 8, heads: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(starts, candidates, heads, generator=generator, dtype=torch.float64)
    return drawn.transpose(0, 1)


def one_start(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None, None]


@pytest.mark.parametrize(
    ("params", "scaled"),
    [
        ({"normaliser": "none"}, [0.0, 2.0, 4.0, 2.0]),
        ({"normaliser": "state_range"}, [0.0, 0.5, 1.0, 0.5]),
        ({"normaliser": "state_std"}, [0.0, math.sqrt(2), math.sqrt(8), math.sqrt(2)]),
        # Percentiles at 0.15 and 2.85 of 0, 2, 2, 4, from a scale of 1 on.
        (
            {"normaliser": "running_scale", "scale_rate": 0.5},
            [x / (0.5 * (1 + 3.4)) for x in (0.0, 2.0, 4.0, 2.0)],
        ),
    ],
)
def test_weights_are_a_softmax_of_what_each_normaliser_leaves(
    params: dict[str, Any], scaled: list[float]
) -> None:
    candidates = weighed(
        one_start(0, 2, 4, 2), temperature={"rule": "fixed", "value": 0.8}, **params
    )
    expected = [math.exp(x / 0.8) for x in scaled]
    torch.testing.assert_close(candidates.scaled, torch.tensor([scaled]).double().T)
    torch.testing.assert_close(
        candidates.weights, torch.tensor([[x / sum(expected)] for x in expected]).double()
    )
    assert float(candidates.temperature) == 0.8


@pytest.mark.parametrize(
    ("params", "quality"),
    [
        ({}, 3.0),
        ({"reduction": "min"}, 1.0),
        ({"reduction": "max"}, 5.0),
        ({"disagreement": -0.5}, 3 - 0.5 * math.sqrt(8)),
        ({"disagreement": 2.0, "reduction": "min"}, 1 + 2 * math.sqrt(8)),
    ],
)
def test_heads_are_joined_and_their_disagreement_added(
    params: dict[str, Any], quality: float
) -> None:
    target = torch.tensor([[[1.0, 5.0]], [[2.0, 2.0]]]).double()
    candidates = weighed(target, **params)
    torch.testing.assert_close(candidates.quality, torch.tensor([[quality], [2.0]]).double())


def test_one_head_does_not_disagree() -> None:
    target = random_target(heads=1)
    assert torch.equal(weighed(target, disagreement=-3.0).weights, weighed(target).weights)


def test_disagreement_does_not_change_the_running_scale() -> None:
    target, params = 5 * random_target(), {"normaliser": "running_scale"}
    plain, other = weighed(target, **params), weighed(target, disagreement=4.0, **params)
    assert torch.equal(plain.scale, other.scale)
    assert not torch.allclose(plain.weights, other.weights)


VARIANTS: dict[str, dict[str, Any]] = {
    "none": {"normaliser": "none"},
    "range": {"normaliser": "state_range"},
    "deviation": {"normaliser": "state_std", "disagreement": -0.4},
    "running": {"normaliser": "running_scale", "scale_rate": 0.2, "reduction": "min"},
    "sample size": {"normaliser": "none", "temperature": {"rule": "ess", "share": 0.4}},
    "divergence": {"normaliser": "none", "temperature": {"rule": "kl", "bound": 0.4}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_permute_as_candidates_do(variant: str) -> None:
    target, order = random_target(), torch.tensor([5, 0, 7, 1, 2, 6, 4, 3])
    plain, permuted = (weighed(values, **VARIANTS[variant]) for values in (target, target[order]))
    torch.testing.assert_close(plain.weights[order], permuted.weights)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_permute_as_starts_do(variant: str) -> None:
    target, order = random_target(), torch.tensor([8, 5, 0, 7, 1, 2, 6, 4, 3])
    plain, permuted = (
        weighed(values, **VARIANTS[variant]) for values in (target, target[:, order])
    )
    torch.testing.assert_close(plain.weights[:, order], permuted.weights)


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - {"running"}))
def test_what_all_candidates_of_a_start_are_worth_does_not_matter(variant: str) -> None:
    target = random_target()
    shifted = target + 30 * torch.linspace(-1, 1, 9).double()[:, None]
    plain, other = (weighed(values, **VARIANTS[variant]) for values in (target, shifted))
    torch.testing.assert_close(plain.weights, other.weights)


def test_a_shift_of_all_starts_does_not_move_the_running_scale() -> None:
    target, params = random_target(), VARIANTS["running"]
    plain, other = (weighed(values, **params) for values in (target, target + 30))
    torch.testing.assert_close(plain.weights, other.weights)


@pytest.mark.parametrize("normaliser", ["none", *OWN])
def test_values_and_temperature_may_be_scaled_together(normaliser: str) -> None:
    target = random_target()

    def at(temperature: float, values: Tensor) -> Tensor:
        rule = {"rule": "fixed", "value": temperature}
        return weighed(values, normaliser=normaliser, temperature=rule).weights

    factor = 1.0 if normaliser in OWN else 7.0
    torch.testing.assert_close(at(0.5 * factor, 7 * target), at(0.5, target))
    assert not torch.allclose(at(0.7, target), at(0.5, target))


@pytest.mark.parametrize("rule", [{"rule": "ess"}, {"rule": "kl"}])
@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_a_temperature_that_is_found_scales_with_the_values(
    rule: dict[str, Any], factor: float
) -> None:
    target, params = random_target(), {"normaliser": "none", "temperature": rule}
    plain, other = weighed(target, **params), weighed(factor * target, **params)
    torch.testing.assert_close(other.weights, plain.weights)
    torch.testing.assert_close(other.temperature, factor * plain.temperature)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normaliser", OWN)
def test_rounding_is_not_taken_for_a_preference(normaliser: str, dtype: torch.dtype) -> None:
    even = torch.full((16, 1, 1), 1e4, dtype=dtype)
    signs = torch.tensor([1, -1, 1, 1, -1, 1, -1, -1] * 2, dtype=dtype)[:, None, None]
    noisy = even * (1 + torch.finfo(dtype).eps * signs)
    for target in (even, noisy):
        # At most a part in eight of what a start's own differences would be divided by.
        candidates = weighed(target, normaliser=normaliser)
        assert bool(candidates.weights.isfinite().all())
        assert float(effective_sample_size(candidates.weights)) > 0.75 * 16
    flat = weighed(torch.zeros(16, 1, 1, dtype=dtype), normaliser=normaliser)
    assert torch.equal(flat.weights, torch.full((16, 1), 1 / 16, dtype=dtype))


@settings(max_examples=25)
@given(st.floats(0.15, 0.95), st.integers(0, 10**6), st.sampled_from(["none", *OWN]))
def test_the_effective_sample_size_is_as_asked(share: float, seed: int, normaliser: str) -> None:
    target = random_target(starts=20, candidates=16, seed=seed)
    weight = torch.linspace(0.5, 2, 20).double()
    rule = {"rule": "ess", "share": share}
    candidates = weighed(target, weight, normaliser=normaliser, temperature=rule)
    size = (weight * effective_sample_size(candidates.weights)).sum() / weight.sum()
    assert float(size) == pytest.approx(16 * share, rel=1e-4)


def dual(temperature: Tensor, quality: Tensor, bound: float) -> Tensor:
    """MPO's dual, written out."""
    mean = torch.log(torch.exp(quality / temperature).mean(0)).mean()
    return temperature * bound + temperature * mean


@settings(max_examples=25)
@given(st.floats(0.02, 1.2), st.integers(0, 10**6))
def test_the_temperature_of_a_divergence_minimises_the_dual(bound: float, seed: int) -> None:
    target = random_target(starts=20, candidates=16, heads=1, seed=seed)
    rule = {"rule": "kl", "bound": bound}
    candidates = weighed(target, normaliser="none", temperature=rule)
    temperature, quality = candidates.temperature.clone().requires_grad_(), target.squeeze(-1)
    value = dual(temperature, quality, bound)
    (slope,) = torch.autograd.grad(value, temperature)
    # Where the dual does not change, the mean divergence is the bound.
    assert abs(float(slope)) < 1e-4
    divergence = divergence_from_even(candidates.weights).mean()
    assert float(divergence) == pytest.approx(bound, abs=1e-4)
    for factor in (0.8, 0.95, 1.05, 1.3):
        assert float(dual(factor * temperature.detach(), quality, bound)) > float(value.detach())


def test_starts_without_weight_do_not_decide_the_temperature() -> None:
    target, weight = random_target(), torch.tensor([1.0, 0, 2, 1, 0, 1, 1, 3, 1]).double()
    changed = target.clone()
    changed[:, weight == 0] *= 1e7
    for rule in ("ess", "kl"):
        params = {"normaliser": "none", "temperature": {"rule": rule}}
        plain, other = (weighed(values, weight, **params) for values in (target, changed))
        torch.testing.assert_close(plain.temperature, other.temperature, rtol=1e-5, atol=0)


@pytest.mark.parametrize("rule", ["ess", "kl"])
def test_where_all_candidates_are_equal_they_count_alike(rule: str) -> None:
    candidates = weighed(torch.full((8, 3, 1), 2.5), normaliser="none", temperature={"rule": rule})
    assert torch.equal(candidates.weights, torch.full((8, 3), 1 / 8))
    assert bool(candidates.temperature > 0)


def test_what_no_temperature_can_do_is_approached() -> None:
    # ln 8 is the greatest divergence of 8 weights from even ones.
    rule = {"rule": "kl", "bound": 5.0}
    candidates = weighed(random_target(heads=1), normaliser="none", temperature=rule)
    assert float(divergence_from_even(candidates.weights).mean()) == pytest.approx(
        math.log(8), abs=0.01
    )
    # Of four candidates three are equally good: no temperature has fewer of them count.
    tied = one_start(0, 1, 1, 1)
    candidates = weighed(tied, normaliser="none", temperature={"rule": "ess", "share": 0.5})
    torch.testing.assert_close(
        candidates.weights, torch.tensor([[0], [1 / 3], [1 / 3], [1 / 3]]).double()
    )


TABLE = {
    4: {0.01: (4.0, 4.0, 2.7), 0.05: (4.0, 3.5, 1.4), 0.2: (3.9, 2.0, 1.1), 1.0: (2.7, 1.2, 1.0)},
    8: {0.01: (8.0, 7.9, 4.7), 0.05: (8.0, 6.6, 1.6), 0.2: (7.7, 2.8, 1.1), 1.0: (4.7, 1.3, 1.0)},
    32: {0.01: (32, 32, 15), 0.05: (32, 25, 2.1), 0.2: (31, 5.9, 1.2), 1.0: (15, 1.4, 1.0)},
}
"""Effective sample sizes by candidates and standard deviation, at temperatures 1, 0.1, 0.01."""


@pytest.mark.parametrize("candidates", TABLE)
def test_how_many_candidates_count_at_a_fixed_temperature(candidates: int) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(candidates, 6000, 1, generator=generator)
    for deviation, expected in TABLE[candidates].items():
        for temperature, size in zip((1.0, 0.1, 0.01), expected, strict=True):
            rule = {"rule": "fixed", "value": temperature}
            weighing = weighed(deviation * noise, normaliser="none", temperature=rule)
            mean = float(effective_sample_size(weighing.weights).mean())
            assert mean == pytest.approx(size, rel=0.03, abs=0.06)


def test_measures_of_weights_agree_with_counting() -> None:
    even, uneven, single = (
        torch.tensor(x).double()[:, None] for x in ([0.25] * 4, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0])
    )
    for weights, count in ((even, 4), (uneven, 2), (single, 1)):
        assert float(effective_sample_size(weights)) == pytest.approx(count)
        assert float(weight_entropy(weights)) == pytest.approx(math.log(count))
        assert float(divergence_from_even(weights)) == pytest.approx(math.log(4 / count))


@pytest.mark.parametrize("normaliser", ["none", "running_scale", *OWN])
def test_a_single_candidate_has_all_the_weight(normaliser: str) -> None:
    candidates = weighed(random_target(candidates=1), normaliser=normaliser)
    assert torch.equal(candidates.weights, torch.ones(1, 9).double())


def test_a_single_candidate_teaches_nothing_on_average() -> None:
    # Item 7 of the proofs: weights are 1, and the mean of the score is 0.
    noise = torch.randn(1, 200_000, 1, generator=torch.Generator().manual_seed(0))
    for count, expected in ((1, 0.0), (4, 1 - 1 / 4)):
        noises = noise.view(count, -1, 1)
        # Hot, where the gradient is (1 - 1/N) / tau * Cov(Q, score), here with Q = noise.
        weights = weighed(
            noises, normaliser="none", temperature={"rule": "fixed", "value": 20.0}
        ).weights
        gradient = 20 * (weights * noises.squeeze(-1)).sum(0).mean()
        assert float(gradient) == pytest.approx(expected, abs=0.1)
