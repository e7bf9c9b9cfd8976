"""What every policy loss must do: improve the policy and touch nothing else."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Independent, Normal

from empo_core.protocols import PolicyLoss
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput

STARTS, FEATURES, ACTIONS, HEADS = 12, 3, 2, 2


class SteadyNormal(Normal):
    """A normal distribution whose noise depends on its mean alone.

    So a loss that samples gives the same number for the same start, wherever it stands in
    the batch, and its invariances can be tested exactly.
    """

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """The mean plus reproducible noise, differentiable as usual."""
        shape = self._extended_shape(torch.Size(sample_shape))
        copies = torch.arange(math.prod(sample_shape)).reshape(
            (*sample_shape, *[1] * self.loc.dim())
        )
        noise = torch.sin(1e4 * self.loc.detach() + 2.4 * copies)
        return (self.loc + self.scale * noise).expand(shape)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """The same without a gradient."""
        with torch.no_grad():
            return self.rsample(sample_shape)


class KitPolicy(nn.Module):
    """A linear Gaussian policy."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Linear(FEATURES, ACTIONS).double()
        self.log_std = nn.Parameter(torch.full((ACTIONS,), -0.5, dtype=torch.float64))
        fill(self)

    def forward(self, features: Tensor) -> Distribution:
        """A distribution over actions."""
        mean = self.mean(features)
        return Independent(SteadyNormal(mean, self.log_std.exp().expand_as(mean)), 1)


class KitCritic(nn.Module):
    """Values that are highest where the action equals a linear function of the features."""

    def __init__(self) -> None:
        super().__init__()
        self.best = nn.Linear(FEATURES, ACTIONS).double()
        self.offset = nn.Parameter(torch.linspace(-0.1, 0.1, HEADS, dtype=torch.float64))
        fill(self, shift=0.7)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """One value per head."""
        value = -(actions - self.best(features)).square().sum(-1, keepdim=True)
        result: Tensor = value + self.offset
        return result


class PolicyLossTests:
    """Subclass this in your plugin's tests and override ``loss``.

    Override ``min_candidates`` if the loss compares candidates and so needs several.
    """

    @pytest.fixture
    def loss(self) -> PolicyLoss:
        """The policy loss under test."""
        raise NotImplementedError("override the fixture 'loss'")

    @pytest.fixture
    def min_candidates(self) -> int:
        """The least number of candidates per start the loss works with."""
        return 1

    @pytest.fixture
    def policy(self) -> KitPolicy:
        """A fresh policy."""
        return KitPolicy()

    @pytest.fixture
    def critic(self) -> KitCritic:
        """A fresh critic."""
        return KitCritic()

    @pytest.fixture
    def batch(self, policy: KitPolicy, critic: KitCritic, min_candidates: int) -> ImaginedBatch:
        """Candidates the policy itself proposed, valued by the critic."""
        return imagined(policy, critic, starts=STARTS, candidates=max(6, min_candidates))

    def test_it_fits_the_protocol(self, loss: PolicyLoss) -> None:
        assert isinstance(loss, PolicyLoss)
        assert isinstance(loss.needs, LossNeeds)
        assert 1 <= loss.needs.min_candidates <= loss.needs.candidates

    def test_the_loss_is_a_finite_scalar(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        output = evaluate(loss, policy, batch, critic)
        assert isinstance(output, LossOutput)
        assert output.loss.shape == ()
        assert output.loss.dtype == batch.target.dtype
        assert bool(output.loss.isfinite())

    def test_metrics_are_plain_finite_numbers(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        for name, value in evaluate(loss, policy, batch, critic).metrics.items():
            assert isinstance(name, str)
            assert isinstance(value, int | float), f"{name} is a {type(value).__name__}"
            assert math.isfinite(value), f"{name} is {value}"

    def test_the_gradient_reaches_the_policy(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        for gradient in gradients(loss, policy, batch, critic):
            assert bool(gradient.isfinite().all())
        assert any(bool((g != 0).any()) for g in gradients(loss, policy, batch, critic))

    def test_the_gradient_does_not_reach_the_batch(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        leaves = {
            name: getattr(batch, name).clone().requires_grad_()
            for name in ("start", "action", "target", "log_prob", "weight")
        }
        torch.autograd.backward(evaluate(loss, policy, ImaginedBatch(**leaves), critic).loss)
        for name, leaf in leaves.items():
            assert leaf.grad is None, f"the gradient leaks into batch.{name}"

    def test_the_gradient_does_not_reach_the_critic(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        torch.autograd.backward(evaluate(loss, policy, batch, critic).loss)
        for name, parameter in critic.named_parameters():
            assert parameter.grad is None, f"the gradient leaks into the critic's {name}"

    def test_policy_and_critic_stay_as_they_are(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        modules = nn.ModuleList([policy, critic])
        before = {name: tensor.clone() for name, tensor in modules.state_dict().items()}
        torch.autograd.backward(evaluate(loss, policy, batch, critic).loss)
        for name, parameter in modules.named_parameters():
            assert parameter.requires_grad, f"{name} can no longer be trained"
            assert torch.equal(parameter, before[name]), f"{name} was written to"

    def test_the_batch_stays_as_it_is(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        names = ("start", "action", "target", "log_prob", "weight")
        before = {name: getattr(batch, name).clone() for name in names}
        first = evaluate(loss, policy, batch, critic).loss.detach()
        assert all(torch.equal(getattr(batch, name), before[name]) for name in names)
        torch.testing.assert_close(evaluate(loss, policy, batch, critic).loss.detach(), first)

    def test_the_order_of_candidates_does_not_matter(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        order = torch.arange(batch.action.shape[1]).roll(2).flip(0)
        shuffled = replace(
            batch,
            action=batch.action[:, order],
            target=batch.target[:, order],
            log_prob=batch.log_prob[:, order],
        )
        assert_same_effect(loss, policy, critic, batch, shuffled)

    def test_the_order_of_starts_does_not_matter(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        order = torch.arange(len(batch.start)).roll(3).flip(0)
        shuffled = ImaginedBatch(
            batch.start[order],
            batch.action[order],
            batch.target[order],
            batch.log_prob[order],
            batch.weight[order],
        )
        assert_same_effect(loss, policy, critic, batch, shuffled)

    def test_starts_of_zero_weight_have_no_influence(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        masked = batch.weight == 0
        assert bool(masked.any())
        assert not bool(masked.all())
        changed = ImaginedBatch(
            batch.start.masked_fill(masked[:, None], 3.0),
            batch.action.masked_fill(masked[:, None, None], -1.0),
            batch.target.masked_fill(masked[:, None, None], 50.0),
            batch.log_prob.masked_fill(masked[:, None], -4.0),
            batch.weight,
        )
        assert_same_effect(loss, policy, critic, batch, changed)

    def test_weights_matter(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        heavier = replace(batch, weight=batch.weight * torch.linspace(0.1, 3.0, STARTS).double())
        pairs = zip(
            gradients(loss, policy, batch, critic),
            gradients(loss, policy, heavier, critic),
            strict=True,
        )
        assert any(not torch.allclose(one, other) for one, other in pairs)

    def test_a_batch_without_weight_teaches_nothing(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
    ) -> None:
        masked = replace(batch, weight=torch.zeros_like(batch.weight))
        assert bool(evaluate(loss, policy, masked, critic).loss.isfinite())
        assert all(bool((g == 0).all()) for g in gradients(loss, policy, masked, critic))

    def test_the_smallest_batch_works(
        self, loss: PolicyLoss, policy: KitPolicy, critic: KitCritic, min_candidates: int
    ) -> None:
        small = imagined(policy, critic, starts=1, candidates=min_candidates)
        assert bool(evaluate(loss, policy, small, critic).loss.isfinite())
        for gradient in gradients(loss, policy, small, critic):
            assert bool(gradient.isfinite().all())

    def test_too_few_candidates_are_refused(
        self, loss: PolicyLoss, policy: KitPolicy, critic: KitCritic, min_candidates: int
    ) -> None:
        enough = imagined(policy, critic, starts=4, candidates=min_candidates)
        few = replace(
            enough,
            action=enough.action[:, 1:],
            target=enough.target[:, 1:],
            log_prob=enough.log_prob[:, 1:],
        )
        with pytest.raises(ValueError, match="candidate"):
            evaluate(loss, policy, few, critic)

    def test_a_needed_critic_must_be_given(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch
    ) -> None:
        if loss.needs.critic:
            with pytest.raises(ValueError, match="critic"):
                loss(policy, batch, None)
            return

        def nobody(features: Tensor, actions: Tensor) -> Tensor:
            raise AssertionError("a critic that is not needed must not be called")

        without, given = loss(policy, batch), loss(policy, batch, nobody)
        assert torch.equal(without.loss, given.loss)

    def test_following_the_gradient_finds_better_actions(
        self, loss: PolicyLoss, policy: KitPolicy, critic: KitCritic, min_candidates: int
    ) -> None:
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.02)
        judged = imagined(policy, critic, starts=100, candidates=1).start
        values = []
        for step in range(80):
            # New noise every time: a policy would run away from noise that never changes.
            batch = imagined(
                policy, critic, starts=STARTS, candidates=max(6, min_candidates), seed=step
            )
            with torch.no_grad():
                values.append(critic(judged, policy.mean(judged)).mean().item())
            optimiser.zero_grad()
            torch.autograd.backward(evaluate(loss, policy, batch, critic).loss)
            optimiser.step()
        assert values[-1] > 0.5 * values[0], f"the value went from {values[0]} to {values[-1]}"


def fill(module: nn.Module, shift: float = 0.0) -> None:
    """Set weights to fixed, irregular numbers, drawing nothing from any generator."""
    with torch.no_grad():
        for layer in module.children():
            for parameter in layer.parameters():
                count = torch.arange(parameter.numel(), dtype=torch.float64)
                parameter.copy_((0.8 * torch.sin(3.1 * count + 1 + shift)).view_as(parameter))


def imagined(
    policy: KitPolicy, critic: KitCritic, *, starts: int, candidates: int, seed: int = 0
) -> ImaginedBatch:
    """A batch as a learner would make it, with every third start of several masked out."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(starts, FEATURES, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        proposal = policy(start)
        noise = torch.randn(starts, candidates, ACTIONS, generator=generator).double()
        action = proposal.mean[:, None] + proposal.stddev[:, None] * noise
        log_prob = proposal.log_prob(action.transpose(0, 1)).transpose(0, 1)
        repeated = start[:, None].expand(-1, candidates, -1)
        target = critic(repeated, action)
    weight = 0.5 + torch.rand(starts, generator=generator, dtype=torch.float64)
    weight[2::3] = 0
    return ImaginedBatch(start, action, target, log_prob, weight)


def evaluate(
    loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
) -> LossOutput:
    """The loss, with a critic where it needs one; global chance is the same every time."""
    torch.manual_seed(0)
    return loss(policy, batch, critic if loss.needs.critic else None)


def gradients(
    loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch, critic: KitCritic
) -> list[Tensor]:
    """The gradient of the loss by each parameter of the policy, 0 where unused."""
    scalar = evaluate(loss, policy, batch, critic).loss
    assert scalar.requires_grad, "the loss is detached from the policy"
    parameters = list(policy.parameters())
    found = torch.autograd.grad(scalar, parameters, allow_unused=True)
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(parameters, found, strict=True)
    ]


def assert_same_effect(
    loss: PolicyLoss,
    policy: KitPolicy,
    critic: KitCritic,
    batch: ImaginedBatch,
    other: ImaginedBatch,
) -> None:
    """Check that two batches give one loss and one gradient."""
    one, two = evaluate(loss, policy, batch, critic), evaluate(loss, policy, other, critic)
    torch.testing.assert_close(one.loss, two.loss)
    for left, right in zip(
        gradients(loss, policy, batch, critic),
        gradients(loss, policy, other, critic),
        strict=True,
    ):
        torch.testing.assert_close(left, right)
