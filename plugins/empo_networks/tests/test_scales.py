"""Values, errors and transformations, against the formulas that define them."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from empo_core.errors import ConfigError
from empo_networks.scales import (
    FLOOR,
    Clamped,
    Logit,
    Size,
    log_of_raw,
    scale_of,
    soft_clamp,
    z_of_log,
)
from empo_theory.equations import robot_policy

numbers = st.floats(-50, 50, width=32)
QUICK = settings(max_examples=60)


def tensor(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float64)


@QUICK
@given(numbers, st.floats(-3, 3), st.floats(0.1, 5))
def test_the_soft_clamp_is_the_curve_of_its_definition(x: float, low: float, reach: float) -> None:
    high = low + reach
    if x > high:
        expected = high + reach * (1 - math.exp(-(x - high) / reach))
    elif x < low:
        expected = low - reach * (1 - math.exp(-(low - x) / reach))
    else:
        expected = x
    clamped = float(soft_clamp(tensor(x), low, high))
    assert clamped == pytest.approx(expected, abs=1e-9)
    assert low - reach - 1e-12 <= clamped <= high + reach + 1e-12


@pytest.mark.parametrize("x", [-2.0, -0.5, 0.0, 0.3, 1.0, 1.5, 3.0])
def test_the_soft_clamp_has_a_gradient_everywhere(x: float) -> None:
    point = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad(soft_clamp(point), point)
    beyond = max(x - 1, -x, 0.0)
    assert float(slope) == pytest.approx(math.exp(-beyond), rel=1e-5)


def test_probabilities_answer_hard_and_err_softly() -> None:
    raw = torch.tensor([-0.5, 0.4, 1.5], requires_grad=True)
    value = Clamped().value(raw)
    assert value.tolist() == pytest.approx([0.0, 0.4, 1.0])
    loss = Clamped().loss(raw, torch.tensor([0.0, 0.4, 1.0]))
    assert loss.tolist() == pytest.approx([math.expm1(-0.5) ** 2, 0.0, math.expm1(-0.5) ** 2])
    (slope,) = torch.autograd.grad(value.sum(), raw)
    assert bool((slope > 0).all()), "answers at a bound cannot be trained away from it"


@QUICK
@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=5))
def test_the_logit_loss_is_least_at_the_mean_of_targets(targets: list[float]) -> None:
    target = torch.tensor(targets, dtype=torch.float64)
    mean = target.mean()
    raw = (mean.logit() + torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)).requires_grad_()
    losses = Logit().loss(raw[:, None].expand(3, len(target)), target.expand(3, -1)).mean(1)
    (slope,) = torch.autograd.grad(losses.sum(), raw)
    assert int(losses.argmin()) == 1
    assert float(slope[1]) == pytest.approx(0, abs=1e-5)


@QUICK
@given(st.floats(-1e6, 1e6), st.floats(0, 1))
def test_the_logit_loss_is_0_for_the_target_and_its_gradient_is_the_error(
    raw: float, target: float
) -> None:
    point, right = tensor(raw).requires_grad_(), tensor(target)
    (slope,) = torch.autograd.grad(Logit().loss(point, right), point)
    assert float(slope) == pytest.approx(float(tensor(raw).sigmoid()) - target, abs=1e-12)
    exact = right.clamp(1e-9, 1 - 1e-9)
    assert float(Logit().loss(exact.logit(), exact)) == pytest.approx(0, abs=1e-9)


def test_values_are_counted_in_units() -> None:
    raw, unit = torch.tensor([0.3, -0.7]), torch.tensor([5.0, 0.5])
    scale = Size(-1, "log")
    torch.testing.assert_close(scale.value(raw, unit), unit * scale.value(raw))
    torch.testing.assert_close(
        scale.loss(raw, unit * torch.tensor([-4.0, -2.0]), unit),
        scale.loss(raw, torch.tensor([-4.0, -2.0])),
    )


@QUICK
@given(st.floats(-1e6, 1e6))
def test_the_size_of_a_value_is_an_increasing_function_of_what_comes_out(raw: float) -> None:
    low, high = log_of_raw(tensor(raw)), log_of_raw(tensor(raw + 1))
    assert math.isfinite(float(high.exp()))
    assert float(low) < float(high)
    if abs(raw) < 0.5:
        assert float(low) == pytest.approx(raw, rel=1e-2, abs=1e-9)


@QUICK
@given(st.floats(1.0, 1e6), st.floats(0.5, 4))
def test_z_is_the_power_of_the_value(size: float, exponent: float) -> None:
    z = float(z_of_log(tensor(math.log(size)), exponent))
    # Near 0 it is a difference of numbers near 1, so its error is that of those.
    assert z == pytest.approx(size ** (-1 / exponent), abs=1e-15, rel=1e-9)
    assert 0 < z <= 1


@QUICK
@given(st.floats(1e-10, 1.0), st.floats(0.5, 4))
def test_z_goes_on_as_a_logarithm_where_the_power_would_explode(
    size: float, exponent: float
) -> None:
    z = float(z_of_log(tensor(math.log(size)), exponent))
    assert z == pytest.approx(1 - math.log(size) / exponent, rel=1e-9)


def test_z_has_no_kink_at_one() -> None:
    below = torch.tensor([-1e-6, 1e-6], dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(z_of_log(below, 1.5).sum(), below)
    torch.testing.assert_close(slopes, torch.full_like(slopes, -1 / 1.5), rtol=1e-5, atol=0)


@QUICK
@given(
    st.lists(st.floats(-1e4, -1.0), min_size=2, max_size=5),
    st.floats(0, 20), st.floats(1, 3), st.floats(1, 3),
)  # fmt: skip
def test_the_policy_is_a_positive_power_of_z(
    q: list[float], beta: float, eta: float, xi: float
) -> None:
    q_r = torch.tensor(q, dtype=torch.float64)
    expected = robot_policy(q_r, beta, torch.ones_like(q_r, dtype=torch.bool))
    log_z = z_of_log((-q_r).log(), eta * xi).log()
    torch.testing.assert_close(torch.softmax(eta * xi * beta * log_z, -1), expected)


def test_losses_are_squared_differences_in_their_space() -> None:
    raw, target = torch.tensor([0.3, -0.7]), torch.tensor([-5.0, -2.0])
    for space, exponent in (("value", 1.0), ("log", 1.0), ("z", 2.0)):
        scale = Size(-1, space, exponent)
        value = scale.value(raw)
        expected = {
            "value": value - target,
            "log": (-value).log() - (-target).log(),
            "z": z_of_log((-value).log(), exponent) - (-target) ** (-1 / exponent),
        }[space]
        torch.testing.assert_close(scale.loss(raw, target), expected.square())


@pytest.mark.parametrize("space", ["log", "z"])
def test_values_near_the_horizon_count_as_the_floor(space: str) -> None:
    scale, raw = Size(-1, space), torch.zeros(3)  # type: ignore[arg-type]
    losses = scale.loss(raw, torch.tensor([-1e-10, 0.0, -FLOOR]))
    assert losses.tolist() == pytest.approx([math.log(FLOOR) ** 2] * 3, rel=1e-4)


@pytest.mark.parametrize(("quantity", "space"), [("v_h_e", "log"), ("v_h_e", "z"), ("x_h", "z")])
def test_a_space_that_a_quantity_does_not_fit_into_is_refused(quantity: str, space: str) -> None:
    with pytest.raises(ConfigError, match=rf"{quantity} .*space '{space}'"):
        scale_of(quantity, space, 1.0)  # type: ignore[arg-type]
