from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal
from torch.utils._python_dispatch import TorchDispatchMode

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch
from empo_learning.distributions import BoundedNormal
from empo_svg.loss import Svg
from empo_svg.params import SvgParams
from empo_testing.policy_loss import PolicyLossTests

aten = torch.ops.aten
FREE = {"coef": 0.0}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"samples": 3, "reduction": "min", "disagreement": -0.5, "entropy": {"jacobian": 0.0}},
    ],
)
class TestSvg(PolicyLossTests):
    @pytest.fixture
    def loss(self, params: dict[str, Any]) -> PolicyLoss:
        return Svg(SvgParams(**params))


class Sure(nn.Module):
    """A policy that always does the same; so everything can be computed by hand."""

    def __init__(self, action: float) -> None:
        super().__init__()
        self.action = nn.Parameter(torch.tensor(action).double())

    def forward(self, features: Tensor) -> Distribution:
        return Exactly(self.action.expand(*features.shape[:-1], 1))


class Exactly(Independent):
    """Normal numbers without noise, which report a standard deviation of 1."""

    def __init__(self, mean: Tensor) -> None:
        super().__init__(Normal(mean, 1.0), 1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.mean.expand(*sample_shape, *self.mean.shape)


class Bounded(nn.Module):
    """A small network whose actions are bounded; the last number may be inactive."""

    def __init__(self, *, active: bool = True) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()
        self.active = torch.tensor([True, active])

    def forward(self, features: Tensor) -> BoundedNormal:
        loc, log_std = self.body(features).chunk(2, -1)
        return BoundedNormal(loc, log_std - 1, active=self.active)


class Heads(nn.Module):
    """A small critic with as many heads as wanted."""

    def __init__(self, heads: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, heads)).double()

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        return self.body(torch.cat([features, action.tanh()], -1))


def parabolas(features: Tensor, action: Tensor) -> Tensor:
    """Two heads: ``-(u - 1)^2`` and ``-2 (u - 1)^2``."""
    return -(action - 1).square() * torch.tensor([1.0, 2.0], dtype=action.dtype)


def batch(starts: int = 6, weight: list[float] | None = None) -> CandidateBatch:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(starts, 3, generator=generator, dtype=torch.float64)
    return CandidateBatch(
        start=start,
        action=torch.zeros(1, starts, 2).double(),
        target=torch.zeros(1, starts, 1).double(),
        log_prob=torch.zeros(1, starts).double(),
        weight=torch.ones(starts).double() if weight is None else torch.tensor(weight).double(),
    )


def svg(**params: Any) -> Svg:
    return Svg(SvgParams(**params))


def scaled(by: float, **params: Any) -> Svg:
    """A loss whose values are divided by this at first."""
    loss = svg(**params)
    state = loss.state_dict()
    loss.load_state_dict(state | {"scale.value": torch.tensor(by)})
    return loss


def networks(**params: Any) -> tuple[Bounded, Heads]:
    torch.manual_seed(5)
    return Bounded(**params), Heads()


def loss_and_gradient(
    loss: Svg, policy: nn.Module, critic: Any, inputs: CandidateBatch, seed: int = 0
) -> Any:
    """The loss and the policy's gradient, with the same noise every time."""
    torch.manual_seed(seed)
    output = loss(policy(inputs.start), inputs, critic)
    return output, torch.autograd.grad(output.loss, list(policy.parameters()))


# By hand: at u = 0.5 the heads say -0.25 and -0.5, with slopes 1 and 2; so their mean is -0.375
# with slope 1.5, and their standard deviation 0.25 / sqrt(2) with slope -1 / sqrt(2).
@pytest.mark.parametrize(
    ("params", "scale", "value", "slope"),
    [
        ({}, 1.0, -0.375, 1.5),
        ({"reduction": "min"}, 1.0, -0.5, 2.0),
        ({"reduction": "max"}, 1.0, -0.25, 1.0),
        ({}, 4.0, -0.375 / 4, 1.5 / 4),
        (
            {"disagreement": -2.0},
            1.0,
            -0.375 - 0.5 / math.sqrt(2),
            1.5 + math.sqrt(2),
        ),
        ({"disagreement": 2.0}, 4.0, (-0.375 + 0.5 / math.sqrt(2)) / 4, (1.5 - math.sqrt(2)) / 4),
        ({"samples": 5, "normaliser": "none"}, 1.0, -0.375, 1.5),
    ],
)
def test_loss_and_gradient_are_what_they_are_by_hand(
    params: dict[str, Any], scale: float, value: float, slope: float
) -> None:
    loss = scaled(scale, entropy=FREE, **params)

    output, (gradient,) = loss_and_gradient(
        loss, Sure(0.5), parabolas, batch(4, [1.0, 0.5, 0.0, 0.25])
    )

    # The weights sum to 1.75, and there are four starts.
    assert output.loss.item() == pytest.approx(-value * 1.75 / 4)
    assert gradient.item() == pytest.approx(-slope * 1.75 / 4)


def test_entropy_is_paid_for() -> None:
    policy, critic = networks()
    free, _ = loss_and_gradient(svg(entropy=FREE), policy, critic, batch())

    paid, _ = loss_and_gradient(
        svg(entropy={"coef": 0.1, "jacobian": 0.0}), policy, critic, batch()
    )

    entropy = policy(batch().start).entropy()
    torch.testing.assert_close(paid.loss, free.loss - (0.1 * 2 * entropy).mean())


@pytest.mark.parametrize("reduction", ["mean", "min", "max"])
def test_the_gradient_is_that_of_plain_backpropagation(reduction: str) -> None:
    policy, critic = networks()
    inputs = batch(6, [1.0, 0.5, 0.25, 0.0, 1.0, 2.0])
    loss = scaled(3.0, samples=4, reduction=reduction, disagreement=-0.7, entropy=FREE)
    _, gradient = loss_and_gradient(loss, policy, critic, inputs)
    assert all(weight.grad is None for weight in critic.parameters())

    torch.manual_seed(0)
    heads = critic(inputs.start.expand(4, -1, -1), policy(inputs.start).rsample((4,)))
    joined = heads.mean(-1) if reduction == "mean" else getattr(heads, f"a{reduction}")(-1)
    plain = -(inputs.weight * (joined - 0.7 * heads.std(-1)).mean(0) / 3.0).mean()

    expected = torch.autograd.grad(plain, list(policy.parameters()))
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("active", [True, False])
def test_the_gradient_is_that_of_finite_differences(active: bool) -> None:
    policy, critic = networks(active=active)
    entropy = {"coef": 0.3, "jacobian": 0.6}
    loss = scaled(2.0, samples=2, disagreement=0.4, entropy=entropy)
    names = [name for name, _ in policy.named_parameters()]

    def value(*weights: Tensor) -> Tensor:
        torch.manual_seed(0)

        def policy_of(features: Tensor) -> Distribution:
            named = dict(zip(names, weights, strict=True))
            return torch.func.functional_call(policy, named, features)

        return loss.eval()(policy_of(batch(2).start), batch(2), critic).loss

    assert torch.autograd.gradcheck(value, list(policy.parameters()))


class Products(TorchDispatchMode):
    """Counts matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}
        return func(*args, **(kwargs or {}))


def test_no_work_is_spent_on_gradients_of_the_critic() -> None:
    policy, critic = networks()
    inputs = batch()
    with Products() as plain:
        critic(inputs.start, policy(inputs.start).rsample()).sum().backward()
    critic.zero_grad(set_to_none=True)
    with Products() as frugal:
        svg()(policy(inputs.start), inputs, critic).loss.backward()

    # The critic has two layers, and the gradient of the weights of each is a product.
    assert frugal.count == plain.count - 2
    assert all(weight.grad is None for weight in critic.parameters())


def test_the_critic_is_asked_about_constants() -> None:
    policy, critic = networks()
    calls = []

    def watched(features: Tensor, action: Tensor) -> Tensor:
        heads = critic(features, action)
        calls.append((features.requires_grad, tuple(features.shape), tuple(action.shape)))
        return heads

    svg(samples=3)(policy(batch().start), batch(), watched)

    assert calls == [(False, (3, 6, 3), (3, 6, 2))]


def test_noise_comes_from_the_global_generator() -> None:
    policy, critic = networks()
    first, same, other = (
        loss_and_gradient(svg(), policy, critic, batch(), seed)[0].loss.item() for seed in (1, 1, 2)
    )

    assert first == same
    assert first != other


@pytest.mark.parametrize(
    "params",
    [
        {"reduction": "min"},
        {"reduction": "max"},
        {"disagreement": 0.5},
        {"disagreement": -0.5},
        {"entropy": {"coef": 0.02}},
        {"entropy": {"jacobian": 0.0}},
        {"entropy": {"jacobian": 0.5}},
        {"entropy": {"action_power": 0.0}},
    ],
)
def test_every_option_changes_the_gradient_at_the_same_actions(params: dict[str, Any]) -> None:
    policy, critic = networks()
    _, usual = loss_and_gradient(scaled(2.0), policy, critic, batch())

    _, changed = loss_and_gradient(scaled(2.0, **params), policy, critic, batch())

    assert any(
        not torch.allclose(before, after, rtol=1e-6, atol=0)
        for before, after in zip(usual, changed, strict=True)
    )


def test_the_gradient_of_several_samples_is_the_mean_of_that_of_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, critic = networks()
    noise = torch.randn(4, 6, 2).double()

    def gradients_with(noise: Tensor) -> Any:
        monkeypatch.setattr(BoundedNormal, "rsample", lambda self, _: self.loc + self.scale * noise)
        loss = scaled(2.0, samples=len(noise), entropy={"jacobian": 0.0})
        return loss_and_gradient(loss, policy, critic, batch())[1]

    gradients = zip(*(gradients_with(sample[None]) for sample in noise), strict=True)
    means = tuple(torch.stack(several).mean(0) for several in gradients)
    torch.testing.assert_close(gradients_with(noise), means)
    assert not torch.allclose(gradients_with(noise[:1])[0], means[0])


@pytest.mark.parametrize(
    "params",
    [
        {"scale_rate": 0.5},
        {"normaliser": "none"},
        {"entropy": {"end": 0.0, "schedule": "linear"}},
        {"entropy": {"end": 1e-5, "schedule": "exponential"}},
        {"entropy": {"end": 1e-5, "schedule": "exponential", "finish": 0.6}},
        {"entropy": {"end": 1e-5, "schedule": "exponential", "begin": 0.2}},
        {"entropy": {"target_entropy": 3.0}},
        {"entropy": {"target_entropy": 3.0, "rate": 0.1}},
    ],
)
def test_every_option_about_time_changes_what_is_remembered(params: dict[str, Any]) -> None:
    policy, critic = networks()
    states = []
    for options in ({}, {"entropy": {"target_entropy": -3.0}}, params):
        loss = svg(**options)
        inputs = replace(batch(), progress=torch.tensor(0.5))
        for _ in range(2):
            output, _ = loss_and_gradient(loss, policy, lambda z, u: 90 * critic(z, u), inputs)
        states.append((output.metrics["scale"], output.metrics["entropy_coef"]))

    assert states[2] != states[0]
    assert states[2] != states[1]


def test_the_scale_follows_the_spread() -> None:
    loss = svg(scale_rate=0.25, entropy=FREE)
    inputs = batch(3, [1.0, 2.0, 0.0])

    def critic(features: Tensor, action: Tensor) -> Tensor:
        # The start without weight must not count.
        return torch.where(features[..., :1] == 5, 1e6, 10 * features[..., :1].sign()) + 0 * action

    inputs = replace(inputs, start=torch.tensor([[1.0, 0, 0], [-1, 0, 0], [5, 5, 5]]).double())
    policy = Sure(0.1)(inputs.start)
    assert loss(policy, inputs, critic).metrics["scale"] == 1

    # Of two values, -10 and 10, the percentiles are -9 and 9.
    assert loss(policy, inputs, critic).metrics["scale"] == pytest.approx(1 + 0.25 * (18 - 1))


def test_nothing_is_followed_without_a_scale() -> None:
    loss = svg(normaliser="none")
    policy, critic = networks()
    for _ in range(2):
        output = loss(policy(batch().start), batch(), lambda z, u: 1e3 * critic(z, u))
        assert output.metrics["scale"] == 1


def test_a_restored_loss_goes_on_the_same() -> None:
    policy, critic = networks()
    params = {"scale_rate": 0.5, "entropy": {"target_entropy": -1.0}}
    loss, other = svg(**params), svg(**params)
    for step in range(3):
        loss_and_gradient(loss, policy, lambda z, u: 50 * critic(z, u), batch(), step)

    other.load_state_dict(loss.state_dict())

    original, two = (
        loss_and_gradient(svg_loss, policy, critic, batch()) for svg_loss in (loss, other)
    )
    assert torch.equal(original[0].loss, two[0].loss)
    assert original[0].metrics["scale"] > 1
    fresh = loss_and_gradient(svg(**params), policy, critic, batch())[0]
    assert not torch.equal(fresh.loss, original[0].loss)


def test_pessimism_stays_where_the_heads_agree_and_optimism_leaves() -> None:
    def critic(features: Tensor, action: Tensor) -> Tensor:
        # The mean of the heads is -(u - 1)^2; they are the further apart the larger u is.
        return -(action - 1).square() + action * torch.tensor([-1.0, 1.0], dtype=action.dtype)

    ends = []
    for factor in (-1.0, 0.0, 1.0):
        policy, loss = Sure(0.5), svg(disagreement=factor, entropy=FREE)
        optimiser = torch.optim.SGD(policy.parameters(), lr=0.2)
        for _ in range(40):
            optimiser.zero_grad()
            torch.autograd.backward(loss(policy(batch().start), batch(), critic).loss)
            optimiser.step()
        ends.append(policy.action.item())

    # The standard deviation is sqrt(2) u, so the optimum moves by sqrt(2) / 2.
    assert ends == pytest.approx([1 - math.sqrt(0.5), 1, 1 + math.sqrt(0.5)], abs=1e-4)


def test_metrics_say_what_the_policy_found() -> None:
    inputs = batch(3, [1.0, 3.0, 0.0])

    output = svg(entropy={"coef": 0.5, "jacobian": 0.0})(Sure(0.5)(inputs.start), inputs, parabolas)

    metrics = {name: float(value) for name, value in output.metrics.items()}
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    assert metrics == pytest.approx(
        {
            "value": -0.375,
            "disagreement": 0.25 / math.sqrt(2),
            "slope": 1.5,
            "scale": 1.0,
            "mean_abs": 0.5,
            "log_std": 0.0,
            "entropy": entropy,
            "entropy_scaled": entropy,
            "entropy_term": 0.5 * entropy,
            "entropy_coef": 0.5,
        }
    )


def test_metrics_leave_out_inactive_numbers() -> None:
    inputs = replace(batch(2), start=torch.zeros(2, 3).double())

    def policy(features: Tensor) -> Distribution:
        weight = torch.zeros(3, 2, requires_grad=True).double()
        loc = features @ weight + torch.tensor([2.0, 7.0])
        log_std = torch.tensor([-1.0, 5.0]).double().expand_as(loc)
        return BoundedNormal(loc, log_std, active=torch.tensor([True, False]))

    metrics = svg()(policy(inputs.start), inputs, Heads()).metrics

    assert metrics["mean_abs"].item() == pytest.approx(2)
    assert metrics["log_std"].item() == pytest.approx(-1)
    assert metrics["saturated"].item() == 1


def test_a_critic_with_one_head_never_disagrees() -> None:
    policy, _ = networks()
    critic = Heads(heads=1)
    with_it, _ = loss_and_gradient(svg(disagreement=9.0), policy, critic, batch())
    without, _ = loss_and_gradient(svg(), policy, critic, batch())

    assert with_it.metrics["disagreement"] == 0
    assert torch.equal(with_it.loss, without.loss)


@pytest.mark.parametrize("params", [{}, {"normaliser": "none"}, {"entropy": {"coef": 0.1}}])
def test_the_params_of_a_run_can_be_read_again(params: dict[str, Any]) -> None:
    once = SvgParams(**params)

    assert SvgParams(**once.model_dump()) == once


def test_a_rate_without_a_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="scale_rate belongs"):
        SvgParams(normaliser="none", scale_rate=0.5)
