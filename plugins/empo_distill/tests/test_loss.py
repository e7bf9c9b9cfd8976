from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal, kl_divergence

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch
from empo_distill.loss import Distill, normal_divergence
from empo_distill.params import DistillParams
from empo_learning.distributions import BoundedNormal
from empo_testing.policy_loss import PolicyLossTests

FREE = {"coef": 0.0}
STARTS = torch.zeros(4, 3).double()


class TestDistill(PolicyLossTests):
    @pytest.fixture
    def loss(self) -> PolicyLoss:
        return Distill(DistillParams())


class Fixed(nn.Module):
    """A policy that does the same everywhere."""

    def __init__(
        self, mean: list[float], std: list[float], active: list[bool] | None = None
    ) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(mean).double())
        self.log_std = nn.Parameter(torch.tensor(std).double().log())
        self.active = None if active is None else torch.tensor(active)

    def forward(self, features: Tensor) -> BoundedNormal:
        shape = (*features.shape[:-1], len(self.mean))
        mean, log_std = self.mean.expand(shape), self.log_std.expand(shape)
        return BoundedNormal(mean, log_std, active=self.active)


def at(policy: nn.Module, inputs: CandidateBatch) -> Distribution:
    """The policy at the starts of a batch."""
    found: Distribution = policy(inputs.start)
    return found


def expert(mean: list[float], std: list[float], starts: int = 4) -> BoundedNormal:
    """An expert that does the same everywhere."""
    means, stds = (torch.tensor(x).double().expand(starts, -1) for x in (mean, std))
    return BoundedNormal(means, stds.log())


def batch(target: Distribution | None, weight: tuple[float, ...] = (1.0,) * 4) -> CandidateBatch:
    starts = len(weight)
    return CandidateBatch(
        start=torch.zeros(starts, 3).double(),
        action=torch.zeros(1, starts, 1).double(),
        target=torch.zeros(1, starts, 1).double(),
        log_prob=torch.zeros(1, starts).double(),
        weight=torch.tensor(weight).double(),
        expert=target,
    )


def distill(**params: Any) -> Distill:
    return Distill(DistillParams(**({"entropy": FREE} | params)))


def slopes(output: Any, policy: nn.Module) -> list[list[float]]:
    gradients = torch.autograd.grad(output.loss, list(policy.parameters()))
    return [gradient.tolist() for gradient in gradients]


def test_the_divergence_is_that_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std, other, other_log_std = torch.randn(4, 50, generator=generator).double()

    divergence = normal_divergence(mean, log_std, other, other_log_std)

    normal, other_normal = Normal(mean, log_std.exp()), Normal(other, other_log_std.exp())
    torch.testing.assert_close(divergence, kl_divergence(normal, other_normal))
    torch.testing.assert_close(normal_divergence(mean, log_std, mean, log_std), 0 * mean)


# By hand, with mean 0 and standard deviation 1 against 1 and 2:
# KL(policy || expert) = ln 2 + (1 + 1) / 8 - 1/2, with slopes (0 - 1) / 4 in the mean and
# 1 / 4 - 1 in the log standard deviation;
# KL(expert || policy) = -ln 2 + (4 + 1) / 2 - 1/2, with slopes -1 and 1 - (4 + 1).
@pytest.mark.parametrize(
    ("direction", "divergence", "slope"),
    [
        ("policy_from_expert", math.log(2) - 0.25, (-0.25, -0.75)),
        ("expert_from_policy", 2 - math.log(2), (-1.0, -4.0)),
    ],
)
def test_loss_and_gradient_are_what_they_are_by_hand(
    direction: str, divergence: float, slope: tuple[float, float]
) -> None:
    policy = Fixed([0.0], [1.0])

    output = distill(direction=direction)(
        policy(STARTS), batch(expert([1.0], [2.0]), (1.0, 0.5, 0.0, 0.25))
    )

    # The weights sum to 1.75, and there are four starts.
    assert output.loss.item() == pytest.approx(divergence * 1.75 / 4)
    expected = [[pytest.approx(number * 1.75 / 4)] for number in slope]
    assert slopes(output, policy) == expected
    assert output.metrics["divergence"].item() == pytest.approx(divergence)


def test_numbers_of_an_action_are_averaged_and_inactive_ones_left_out() -> None:
    target = expert([1.0, 1.0, 7.0], [2.0, 1.0, 0.1])
    both = distill()(Fixed([0.0] * 3, [1.0] * 3, [True, True, False])(STARTS), batch(target))

    # KL of the second number is 1/2.
    assert both.loss.item() == pytest.approx((math.log(2) - 0.25 + 0.5) / 2)


def test_bounds_make_no_difference() -> None:
    target = expert([1.0], [2.0])
    policy = Fixed([0.2], [0.5])

    def clipped(features: Tensor) -> BoundedNormal:
        distribution = policy(features)
        return BoundedNormal(distribution.loc, distribution.log_std, bound="clip")

    def plain(features: Tensor) -> Distribution:
        distribution = policy(features)
        return Independent(Normal(distribution.loc, distribution.scale), 1)

    expected = distill()(policy(STARTS), batch(target)).loss
    for other in (clipped, plain):
        torch.testing.assert_close(distill()(other(STARTS), batch(target)).loss, expected)
    normal = Independent(Normal(target.loc, target.scale), 1)
    torch.testing.assert_close(distill()(policy(STARTS), batch(normal)).loss, expected)


@pytest.mark.parametrize("direction", ["policy_from_expert", "expert_from_policy"])
@pytest.mark.parametrize("std", [0.0, 1e-30, 0.1])
def test_an_expert_that_is_too_sure_is_taken_to_be_less_so(std: float, direction: str) -> None:
    policy = Fixed([0.0], [1.0])
    loss = distill(min_expert_std=0.25, direction=direction)

    output = loss(policy(STARTS), batch(expert([0.5], [std])))

    expected = loss(policy(STARTS), batch(expert([0.5], [0.25])))
    torch.testing.assert_close(output.loss, expected.loss)
    assert all(math.isfinite(x) for row in slopes(output, policy) for x in row)
    less = loss(policy(STARTS), batch(expert([0.5], [0.3])))
    assert less.loss.item() != output.loss.item()


def test_the_policy_becomes_the_expert() -> None:
    policy, loss = Fixed([1.5, -1.0], [2.0, 0.1]), distill()
    optimiser = torch.optim.Adam(policy.parameters(), lr=0.05)
    for _ in range(300):
        optimiser.zero_grad()
        output = loss(policy(STARTS), batch(expert([-0.5, 0.5], [0.3, 0.6])))
        torch.autograd.backward(output.loss)
        optimiser.step()

    assert policy.mean.tolist() == pytest.approx([-0.5, 0.5], abs=0.01)
    assert policy.log_std.exp().tolist() == pytest.approx([0.3, 0.6], abs=0.01)


def test_one_direction_keeps_to_one_place_and_the_other_covers_all() -> None:
    # Half of the starts look alike to the policy, and their experts disagree.
    means = torch.tensor([[-1.0], [1.0], [-1.0], [1.0]]).double()
    target = BoundedNormal(means, torch.full_like(means, 0.5).log())
    stds = []
    for direction in ("policy_from_expert", "expert_from_policy"):
        policy, loss = Fixed([0.2], [0.5]), distill(direction=direction, normaliser="none")
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.1)
        for _ in range(120):
            optimiser.zero_grad()
            torch.autograd.backward(loss(policy(STARTS), batch(target)).loss)
            optimiser.step()
        stds.append(policy.log_std.exp().item())

    # The mean of two quadratics is one of the same width; a normal of all has std sqrt(1.25).
    assert stds == pytest.approx([0.5, math.sqrt(1.25)], abs=0.01)


def test_entropy_is_paid_for() -> None:
    policy, target = Fixed([0.0, 0.0], [1.0, 0.5]), expert([1.0, 1.0], [2.0, 2.0])
    free = distill()(policy(STARTS), batch(target)).loss

    paid = distill(entropy={"coef": 0.1, "jacobian": 0.0})(policy(STARTS), batch(target)).loss

    entropy = math.log(2 * math.pi * math.e) + math.log(0.5)
    assert paid.item() == pytest.approx(free.item() - 0.1 * 2 * entropy)


@pytest.mark.parametrize(
    "params",
    [
        {"direction": "expert_from_policy"},
        {"min_expert_std": 3.0},
        {"entropy": {"coef": 0.02}},
        {"entropy": {"coef": 0.01, "jacobian": 0.0}},
        {"entropy": {"coef": 0.01, "action_power": 0.0}},
    ],
)
def test_every_option_changes_the_gradient(params: dict[str, Any]) -> None:
    policy, inputs = Fixed([0.3, 0.0], [1.0, 0.5]), batch(expert([1.0, 1.0], [2.0, 2.0]))
    gradients = []
    for options in ({"entropy": {"coef": 0.01}}, params):
        torch.manual_seed(0)
        loss = distill(**({"entropy": {"coef": 0.01}} | options))
        gradients.append(slopes(loss(at(policy, inputs), inputs), policy))

    assert gradients[0] != gradients[1]


@pytest.mark.parametrize(
    "params",
    [
        {"scale_rate": 0.5},
        {"normaliser": "none"},
        {"entropy": {"end": 0.0, "schedule": "linear"}},
        {"entropy": {"target_entropy": 3.0}},
    ],
)
def test_every_option_about_time_changes_what_is_remembered(params: dict[str, Any]) -> None:
    means = torch.tensor([[-9.0], [9.0], [0.0], [1.0]]).double()
    inputs = batch(BoundedNormal(means, torch.zeros_like(means)))
    inputs = replace(inputs, progress=torch.tensor(0.5))
    states = []
    for options in ({}, params):
        loss = Distill(DistillParams(**options))
        torch.manual_seed(0)
        for _ in range(2):
            metrics = loss(at(Fixed([0.0], [1.0]), inputs), inputs).metrics
        states.append((metrics["scale"], metrics["entropy_coef"]))

    assert states[0] != states[1]


def test_the_scale_follows_the_spread_and_divides() -> None:
    # Divergences are 0 and 200: their percentiles are 10 and 190.
    means = torch.tensor([[0.0], [20.0], [99.0]]).double()
    inputs = batch(BoundedNormal(means, torch.zeros_like(means)), (1.0, 2.0, 0.0))
    policy, loss = Fixed([0.0], [1.0]), distill(scale_rate=0.25)
    before = loss(at(policy, inputs), inputs)

    after = loss(at(policy, inputs), inputs)
    assert after.metrics["scale"].item() == pytest.approx(1 + 0.25 * (180 - 1))
    torch.testing.assert_close(after.loss, before.loss / after.metrics["scale"])


def test_a_restored_loss_goes_on_the_same() -> None:
    params = {"scale_rate": 0.5, "entropy": {"target_entropy": -1.0, "jacobian": 0.0}}
    loss, other = distill(**params), distill(**params)
    means = torch.tensor([[0.0], [5.0], [10.0], [15.0]]).double()
    policy, inputs = (
        Fixed([0.0], [1.0]),
        batch(BoundedNormal(means, torch.zeros_like(means))),
    )
    loss(at(policy, inputs), inputs)

    other.load_state_dict(loss.state_dict())

    losses = [each(at(policy, inputs), inputs).loss for each in (loss, other, distill(**params))]
    assert torch.equal(losses[0], losses[1])
    assert not torch.equal(losses[0], losses[2])


def test_an_expert_who_is_not_normal_is_refused() -> None:
    choices = Independent(Categorical(logits=torch.zeros(4, 1, 3).double()), 1)
    with pytest.raises(ValueError, match=r"BoundedNormal .*Independent"):
        distill()(Fixed([0.0], [1.0])(STARTS), batch(choices))


@pytest.mark.parametrize("params", [{}, {"normaliser": "none"}, {"entropy": {"coef": 0.1}}])
def test_the_params_of_a_run_can_be_read_again(params: dict[str, Any]) -> None:
    once = DistillParams(**params)

    assert DistillParams(**once.model_dump()) == once


def test_a_rate_without_a_scale_is_refused() -> None:
    with pytest.raises(ValueError, match="scale_rate belongs"):
        DistillParams(normaliser="none", scale_rate=0.5)
