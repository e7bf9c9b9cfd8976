"""The policy loss kit passes two small real losses and fails each one broken on purpose."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.testing.policy_loss import PolicyLossTests
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput

Runner = Callable[..., set[str]]


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    return (weight * values).sum() / weight.sum().clamp(min=1e-12)


class Regression:
    """A right loss without a critic: imitate candidates, the better the more (exp(A), eq. 4)."""

    needs = LossNeeds()

    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        names = ("start", "action", "target", "log_prob", "weight")
        return ImaginedBatch(*(getattr(batch, name).detach() for name in names))

    def advantage(self, batch: ImaginedBatch) -> Tensor:
        value = batch.target.mean(-1)
        return value - value.mean(1, keepdim=True)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if batch.action.shape[1] < 2:
            raise ValueError("comparing needs at least 2 candidates per start")
        batch = self.constant(batch)
        share = torch.softmax(self.advantage(batch), 1)
        log_prob = policy(batch.start).log_prob(batch.action.transpose(0, 1)).transpose(0, 1)
        loss = -weighted_mean((share * log_prob).sum(1), batch.weight)
        return self.output(loss, share)

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.max().item()})


class Ascent:
    """A right loss with a critic: move the policy's own actions uphill."""

    needs = LossNeeds(critic=True)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if critic is None:
            raise ValueError("this loss differentiates through a critic; give one")
        if batch.action.shape[1] < 1:
            raise ValueError("at least 1 candidate per start is needed")
        start = batch.start.detach()
        action = policy(start).rsample()
        return LossOutput(-weighted_mean(self.gain(critic, start, action), batch.weight.detach()))

    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        # The slope is taken by itself, so that the critic's parameters never see a gradient.
        probe = action.detach().requires_grad_()
        (slope,) = torch.autograd.grad(critic(start, probe).mean(-1).sum(), probe)
        return (slope * action).sum(-1)


class NoNeedsCritic:
    def __call__(self, policy: Policy, batch: ImaginedBatch) -> LossOutput:
        raise NotImplementedError


class OnePerStart(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return replace(super().output(loss, share), loss=loss * share.detach().mean(1))


class SinglePrecision(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss.float(), share)


class TensorMetrics(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.max()})  # type: ignore[dict-item]


class NanMetrics(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": float("nan")})


class Detached(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss.detach(), share)


class LeaksIntoTheBatch(Regression):
    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        return batch


class LeaksIntoTheCritic(Ascent):
    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        return critic(start, action).mean(-1)


class FreezesTheCritic(Ascent):
    """The usual trick, but without thawing again."""

    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        for parameter in critic.parameters():  # type: ignore[attr-defined]
            parameter.requires_grad_(False)
        return critic(start, action).mean(-1)


class StandardisesInPlace(Regression):
    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        batch.target.sub_(batch.target.mean(1, keepdim=True) / 2)
        return super().constant(batch)


class PrefersTheFirstCandidate(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage - 0.1 * torch.arange(advantage.shape[1])


class PrefersTheFirstStart(Regression):
    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        batch = super().constant(batch)
        return replace(batch, weight=batch.weight / (1 + torch.arange(len(batch.weight))))


class StandardisesOverMaskedStarts(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage / (1 + batch.target.abs().mean())


class IgnoresWeights(Regression):
    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        batch = super().constant(batch)
        return replace(batch, weight=torch.ones_like(batch.weight))


class DividesByNoWeight(Regression):
    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        batch = super().constant(batch)
        return replace(batch, weight=batch.weight / batch.weight.sum())


class StandardisesASingleStart(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage / (batch.start[:, 0].std() + 1e-8)


class TakesOneCandidate(Regression):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if batch.action.shape[1] == 1:
            return LossOutput(policy(batch.start).mean.sum() * 0)
        return super().__call__(policy, batch, critic)


class DoesWithoutItsCritic(Ascent):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        return super().__call__(policy, batch, critic or (lambda _, action: action))


class UsesACriticItDoesNotNeed(Regression):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if critic is not None:
            critic(batch.start, batch.action[:, 0])
        return super().__call__(policy, batch)


class AvoidsTheBest(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        return -super().advantage(batch)


class GoesDownhill(Ascent):
    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        return -super().gain(critic, start, action)


FLAWS: list[tuple[type, list[str]]] = [
    (NoNeedsCritic, ["test_it_fits_the_protocol"]),
    (OnePerStart, ["test_the_loss_is_a_finite_scalar"]),
    (SinglePrecision, ["test_the_loss_is_a_finite_scalar"]),
    (TensorMetrics, ["test_metrics_are_plain_finite_numbers"]),
    (NanMetrics, ["test_metrics_are_plain_finite_numbers"]),
    (Detached, ["test_the_gradient_reaches_the_policy"]),
    (LeaksIntoTheBatch, ["test_the_gradient_does_not_reach_the_batch"]),
    (LeaksIntoTheCritic, ["test_the_gradient_does_not_reach_the_critic"]),
    (FreezesTheCritic, ["test_policy_and_critic_stay_as_they_are"]),
    (StandardisesInPlace, ["test_the_batch_stays_as_it_is"]),
    (PrefersTheFirstCandidate, ["test_the_order_of_candidates_does_not_matter"]),
    (PrefersTheFirstStart, ["test_the_order_of_starts_does_not_matter"]),
    (StandardisesOverMaskedStarts, ["test_starts_of_zero_weight_have_no_influence"]),
    (IgnoresWeights, ["test_weights_matter", "test_a_batch_without_weight_teaches_nothing"]),
    (DividesByNoWeight, ["test_a_batch_without_weight_teaches_nothing"]),
    (StandardisesASingleStart, ["test_the_smallest_batch_works"]),
    (TakesOneCandidate, ["test_too_few_candidates_are_refused"]),
    (DoesWithoutItsCritic, ["test_a_needed_critic_must_be_given"]),
    (UsesACriticItDoesNotNeed, ["test_a_needed_critic_must_be_given"]),
    (AvoidsTheBest, ["test_following_the_gradient_finds_better_actions"]),
    (GoesDownhill, ["test_following_the_gradient_finds_better_actions"]),
]


def subclass(make: type) -> type:
    class TestIt(PolicyLossTests):
        @pytest.fixture
        def loss(self) -> PolicyLoss:
            return make()  # type: ignore[no-any-return]

        @pytest.fixture
        def min_candidates(self) -> int:
            return 1 if issubclass(make, Ascent) else 2

    return TestIt


@pytest.mark.parametrize("make", [Regression, Ascent])
def test_a_right_loss_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_loss_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in vars(PolicyLossTests) if name.startswith("test_")}
