"""The policy loss kit passes small real losses and fails each one broken on purpose."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from empo_core.protocols import Critic, PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput, RecordedBatch
from empo_learning.distributions import BoundedNormal
from empo_testing.imagined import KitCritic, KitPolicy, imagined
from empo_testing.policy_loss import PolicyLossTests

Runner = Callable[..., set[str]]


def weighted_mean(values: Tensor, weight: Tensor) -> Tensor:
    return (weight * values).sum() / weight.sum().clamp(min=1e-12)


def test_candidates_targets_and_samples_have_one_order() -> None:
    """What a policy samples and a critic values needs no turning to be compared with a batch."""
    policy, critic = KitPolicy("bounded"), KitCritic()
    batch = imagined(policy, critic, starts=4, candidates=3)
    distribution = policy(batch.start)
    assert distribution.sample(torch.Size([3])).shape == batch.action.shape
    torch.testing.assert_close(distribution.log_prob(batch.action), batch.log_prob)
    values = critic(batch.start.expand(3, -1, -1), batch.action)
    torch.testing.assert_close(values, batch.target)


class Reinforce(PolicyLoss):
    """The simplest right loss of steps that were taken."""

    takes = RecordedBatch

    def forward(
        self, distribution: Distribution, batch: RecordedBatch, critic: Critic | None = None
    ) -> LossOutput:
        gain = batch.advantage * distribution.log_prob(batch.action)
        return LossOutput(-(batch.weight * gain).mean())


class Regression(PolicyLoss):
    """A right loss without a critic: imitate candidates, the better the more (exp(A), eq. 4)."""

    takes = CandidateBatch
    needs = LossNeeds(min_candidates=2, candidates=4)

    def advantage(self, batch: CandidateBatch) -> Tensor:
        value = batch.target.mean(-1)
        return value - value.mean(0)

    def weight(self, batch: CandidateBatch) -> Tensor:
        return batch.weight

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        share = self.weights(batch)
        log_prob = distribution.log_prob(batch.action)
        loss = -(self.weight(batch) * (share * log_prob).sum(0)).mean()
        return self.output(loss, share)

    def weights(self, batch: CandidateBatch) -> Tensor:
        return torch.softmax(self.advantage(batch), 0)

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.max(), "heads": 2})


class Ascent(PolicyLoss):
    """A right loss with a critic: move the policy's own actions uphill."""

    takes = CandidateBatch
    needs = LossNeeds(critic=True)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        assert critic is not None
        action = distribution.rsample()
        return LossOutput(-(batch.weight * self.gain(critic, batch.start, action)).mean())

    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        # The slope is taken by itself, so that the critic's parameters never see a gradient.
        slope = torch.func.grad(lambda at: critic(start, at).mean(-1).sum())(action.detach())
        return (slope.detach() * action).sum(-1)


class Following(Regression):
    """A right loss that remembers how much advantages vary, and falls silent in the end."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()).double())

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        output = super().forward(distribution, batch, critic)
        scale = self.scale.clone()
        if self.training:
            self.follow(self.advantage(batch).square().mean(0), batch.weight)
        factor = (1 - 0.9 * batch.progress) / (0.5 + scale)
        return replace(output, loss=output.loss * factor)

    def follow(self, size: Tensor, weight: Tensor) -> None:
        mean = torch.where(weight.sum() > 0, weighted_mean(size, weight), self.scale)
        self.scale.copy_(0.7 * self.scale + 0.3 * mean)


class Imitation(PolicyLoss):
    """A right loss that needs an expert."""

    takes = CandidateBatch
    needs = LossNeeds(expert=True)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        assert batch.expert is not None
        error = distribution.mean - batch.expert.mean
        return LossOutput((batch.weight * error.square().sum(-1)).mean())


class TakesAnything(Regression):
    takes = object  # type: ignore[assignment]


class Trains(Regression):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = torch.nn.Parameter(torch.ones(()))


class OnePerStart(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return replace(super().output(loss, share), loss=loss * share.detach().mean(1))


class SinglePrecision(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss.float(), share)


class VectorMetrics(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.amax(1)})


class NanMetrics(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": float("nan")})


class NanTensorMetrics(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.max().log() / 0})


class MetricsWithAGraph(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"nll": 2 * loss})


class Staying(Regression):
    """A right loss that keeps the policy near the one that proposed the candidates."""

    needs = LossNeeds(proposal=True, min_candidates=2, candidates=4)

    def forward(
        self, distribution: Distribution, batch: CandidateBatch, critic: Critic | None = None
    ) -> LossOutput:
        assert batch.proposal is not None
        output = super().forward(distribution, batch, critic)
        apart = (distribution.mean - batch.proposal.mean).square().sum(-1)
        return replace(output, loss=output.loss + 0.1 * (batch.weight * apart).mean())


class NormalAlone(Regression):
    def forward(self, distribution: Distribution, *args: Any) -> LossOutput:
        assert isinstance(distribution, Independent)
        return super().forward(distribution, *args)


class BoundedAlone(Regression):
    def forward(self, distribution: Distribution, *args: Any) -> LossOutput:
        assert isinstance(distribution, BoundedNormal)
        return super().forward(distribution, *args)


class CountsItsCalls(Regression):
    calls = 0

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        self.calls += 1
        return super().output(loss * (1 + 1e-6 * self.calls), share)


class FollowsAlways(Following):
    """A loss that forgets to ask whether it is trained."""

    def forward(self, *args: Any) -> LossOutput:
        was, self.training = self.training, True
        output = super().forward(*args)
        self.training = was
        return output


class RemembersAside(Following):
    """A loss whose memory is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        del self.scale
        self.scale = torch.ones(()).double()


class WritesToWhatItDifferentiates(Following):
    """A loss that changes its buffer before the backward pass has read it."""

    def forward(self, *args: Any) -> LossOutput:
        output = super().forward(*args)
        total = output.loss * self.scale
        if self.training:
            self.scale.mul_(0.9)
        return replace(output, loss=total)


class RemembersNothingAsNan(Following):
    def follow(self, size: Tensor, weight: Tensor) -> None:
        self.scale.copy_((size * weight).sum() / weight.sum())


class PrefersTheFirstStart(Regression):
    def weight(self, batch: CandidateBatch) -> Tensor:
        return batch.weight / (1 + torch.arange(len(batch.weight)))


class IgnoresWeights(Regression):
    def weight(self, batch: CandidateBatch) -> Tensor:
        return torch.ones_like(batch.weight)


class DividesByNoWeight(Regression):
    def weight(self, batch: CandidateBatch) -> Tensor:
        return batch.weight / batch.weight.sum()


class StandardisesASingleStart(Regression):
    def advantage(self, batch: CandidateBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage / (batch.start[:, 0].std() + 1e-8)


class StandardisesInPlace(Regression):
    def advantage(self, batch: CandidateBatch) -> Tensor:
        batch.target.sub_(batch.target.mean(0) / 2)
        return super().advantage(batch)


class AsksTensors(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(2 * loss if share.max() > 0.5 else loss, share)


class ComputesOtherwiseWhenCompiled(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss * 2 if torch.compiler.is_compiling() else loss, share)


class Detached(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss.detach(), share)


class LeaksIntoTheCritic(Ascent):
    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        return critic(start, action).mean(-1)


class FreezesTheCritic(Ascent):
    """The usual trick, but without thawing again."""

    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        for parameter in critic.parameters():  # type: ignore[attr-defined]
            parameter.requires_grad_(False)
        return critic(start, action).mean(-1)


class PrefersTheFirstCandidate(Regression):
    def advantage(self, batch: CandidateBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage - 0.1 * torch.arange(len(advantage))[:, None]


class StandardisesOverMaskedStarts(Regression):
    def advantage(self, batch: CandidateBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage / (1 + batch.target.abs().mean())


class AvoidsTheBest(Regression):
    def advantage(self, batch: CandidateBatch) -> Tensor:
        return -super().advantage(batch)


class GoesDownhill(Ascent):
    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        return -super().gain(critic, start, action)


FLAWS: list[tuple[type, list[str]]] = [
    (TakesAnything, ["test_it_fits_the_protocol"]),
    (Trains, ["test_it_fits_the_protocol"]),
    (OnePerStart, ["test_the_loss_is_a_finite_scalar"]),
    (SinglePrecision, ["test_the_loss_is_a_finite_scalar"]),
    (NormalAlone, ["test_the_loss_is_a_finite_scalar"]),
    (BoundedAlone, ["test_the_loss_is_a_finite_scalar"]),
    (VectorMetrics, ["test_metrics_are_finite_constants"]),
    (NanMetrics, ["test_metrics_are_finite_constants"]),
    (NanTensorMetrics, ["test_metrics_are_finite_constants"]),
    (MetricsWithAGraph, ["test_metrics_are_finite_constants"]),
    (Detached, ["test_the_gradient_reaches_the_policy"]),
    (LeaksIntoTheCritic, ["test_the_gradient_does_not_reach_the_critic"]),
    (FreezesTheCritic, ["test_policy_and_critic_stay_as_they_are"]),
    (StandardisesInPlace, ["test_the_batch_stays_as_it_is"]),
    (CountsItsCalls, ["test_outside_of_training_a_call_changes_nothing"]),
    (FollowsAlways, ["test_outside_of_training_a_call_changes_nothing"]),
    (RemembersAside, ["test_what_it_remembers_survives_a_checkpoint"]),
    (WritesToWhatItDifferentiates, ["test_what_it_remembers_survives_a_checkpoint"]),
    (PrefersTheFirstCandidate, ["test_the_order_of_candidates_does_not_matter"]),
    (PrefersTheFirstStart, ["test_the_order_of_starts_does_not_matter"]),
    (StandardisesOverMaskedStarts, ["test_starts_of_zero_weight_have_no_influence"]),
    (IgnoresWeights, ["test_weights_matter", "test_a_batch_without_weight_teaches_nothing"]),
    (DividesByNoWeight, ["test_a_batch_without_weight_teaches_nothing"]),
    (RemembersNothingAsNan, ["test_a_batch_without_weight_teaches_nothing"]),
    (StandardisesASingleStart, ["test_the_smallest_batch_works"]),
    (AsksTensors, ["test_it_compiles_as_one_graph"]),
    (ComputesOtherwiseWhenCompiled, ["test_it_compiles_as_one_graph"]),
    (AvoidsTheBest, ["test_following_the_gradient_finds_better_actions"]),
    (GoesDownhill, ["test_following_the_gradient_finds_better_actions"]),
]


def subclass(make: type) -> type:
    class TestIt(PolicyLossTests):
        @pytest.fixture
        def loss(self) -> PolicyLoss:
            return make()  # type: ignore[no-any-return]

    return TestIt


@pytest.mark.parametrize("make", [Reinforce, Regression, Ascent, Following, Staying, Imitation])
def test_a_right_loss_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_loss_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in dir(PolicyLossTests) if name.startswith("test_")}
