"""The policy loss kit passes small real losses and fails each one broken on purpose."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent

from empo_core.protocols import Critic, Policy, PolicyLoss
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
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


class Regression(PolicyLoss):
    """A right loss without a critic: imitate candidates, the better the more (exp(A), eq. 4)."""

    weighs_candidates = True
    needs = LossNeeds(min_candidates=2, candidates=4)

    def constant(self, batch: ImaginedBatch) -> ImaginedBatch:
        names = ("start", "action", "target", "log_prob", "weight")
        constants = (getattr(batch, name).detach() for name in names)
        return ImaginedBatch(*constants, batch.proposal, batch.expert)

    def advantage(self, batch: ImaginedBatch) -> Tensor:
        value = batch.target.mean(-1)
        return value - value.mean(0)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if len(batch.action) < 2:
            raise ValueError("comparing needs at least 2 candidates per start")
        batch = self.constant(batch)
        share = self.weights(batch)
        log_prob = policy(batch.start).log_prob(batch.action)
        loss = -weighted_mean((share * log_prob).sum(0), batch.weight)
        return self.output(loss, share)

    def weights(self, batch: ImaginedBatch) -> Tensor:
        return torch.softmax(self.advantage(batch), 0)

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return LossOutput(loss, {"largest_share": share.max(), "heads": 2})


class Ascent(PolicyLoss):
    """A right loss with a critic: move the policy's own actions uphill."""

    needs = LossNeeds(critic=True)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if critic is None:
            raise ValueError("this loss differentiates through a critic; give one")
        if len(batch.action) < 1:
            raise ValueError("at least 1 candidate per start is needed")
        start = batch.start.detach()
        action = policy(start).rsample()
        return LossOutput(-weighted_mean(self.gain(critic, start, action), batch.weight.detach()))

    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        # The slope is taken by itself, so that the critic's parameters never see a gradient.
        slope = torch.func.grad(lambda at: critic(start, at).mean(-1).sum())(action.detach())
        return (slope.detach() * action).sum(-1)


class Following(Regression):
    """A right loss that remembers how much advantages vary, and falls silent in the end."""

    is_adaptive = True

    def __init__(self) -> None:
        self.scale, self.coef = torch.ones(()).double(), 1.0

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        output = super().__call__(policy, batch, critic)
        size = self.advantage(self.constant(batch)).square().mean(0)
        found = torch.where(batch.weight.sum() > 0, weighted_mean(size, batch.weight), self.scale)
        return LossOutput(
            output.loss * self.factor(), output.metrics, self.statistics(found, output)
        )

    def factor(self) -> Tensor:
        return (0.1 + 0.9 * self.coef) / (0.5 + self.scale)

    def statistics(self, statistic: Tensor, output: LossOutput) -> dict[str, Tensor]:
        return {"scale": (0.7 * self.scale + 0.3 * statistic).detach()}

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        self.scale = statistics["scale"].clone()
        self.coef = 1 - progress

    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "coef": self.coef}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.scale, self.coef = state_dict["scale"].clone(), state_dict["coef"]


class Staying(Regression):
    """A right loss that keeps the policy near the one that proposed the candidates."""

    needs = LossNeeds(proposal=True, min_candidates=2, candidates=4)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if batch.proposal is None:
            raise ValueError("staying near a proposal needs the proposal")
        output = super().__call__(policy, batch, critic)
        apart = (policy(batch.start.detach()).mean - self.place(batch)).square().sum(-1)
        loss = output.loss + 0.1 * weighted_mean(apart, batch.weight.detach())
        return LossOutput(loss, output.metrics)

    def place(self, batch: ImaginedBatch) -> Tensor:
        assert batch.proposal is not None
        return batch.proposal.mean.detach()


class Imitation(PolicyLoss):
    """A right loss that needs an expert."""

    needs = LossNeeds(expert=True)

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if len(batch.action) < 1:
            raise ValueError("at least 1 candidate per start is needed")
        if batch.expert is None:
            raise ValueError("imitation needs an expert")
        error = policy(batch.start.detach()).mean - batch.expert.mean.detach()
        return LossOutput(weighted_mean(error.square().sum(-1), batch.weight.detach()))


class NoNeedsCritic:
    def __call__(self, policy: Policy, batch: ImaginedBatch) -> LossOutput:
        raise NotImplementedError


class AdaptsUnasked(Following):
    is_adaptive = False


class WeighsUnasked(Regression):
    weighs_candidates = False


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


class StatisticsWithAGraph(Following):
    def statistics(self, statistic: Tensor, output: LossOutput) -> dict[str, Tensor]:
        return {"scale": 0.9 * self.scale + 0.1 * output.loss}


class NormalAlone(Regression):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        assert isinstance(policy(batch.start), Independent)
        return super().__call__(policy, batch, critic)


class BoundedAlone(Regression):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        assert isinstance(policy(batch.start), BoundedNormal)
        return super().__call__(policy, batch, critic)


class CountsItsCalls(Regression):
    calls = 0

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        self.calls += 1
        return super().output(loss * (1 + 1e-6 * self.calls), share)


class CountsItsCallsAside(Regression):
    calls = 0

    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        self.calls += 1
        return LossOutput(loss, {"calls": self.calls})


class AdaptsInTheCall(Following):
    """A loss that changes its remembered coefficient during the call, before ``adapt``."""

    def statistics(self, statistic: Tensor, output: LossOutput) -> dict[str, Tensor]:
        statistics = super().statistics(statistic, output)
        self.coef *= 0.5
        self.factor = lambda: torch.ones(()).double()  # type: ignore[method-assign]
        return statistics


class ForgetsItsSchedule(Following):
    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "coef": 1.0}


class LosesItsScale(Following):
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.coef = state_dict["coef"]


class RemembersAnObject(Following):
    def state_dict(self) -> dict[str, Any]:
        return {"scale": self.scale, "coef": self.coef, "loss": self}


class SharesItsScale(Following):
    """A loss that loads its state without a copy, and so shares a tensor with the checkpoint."""

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        self.scale.copy_(statistics["scale"])
        self.coef = 1 - progress

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.scale, self.coef = state_dict["scale"], state_dict["coef"]


class FailsAtTheEnd(Following):
    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        super().adapt(statistics, progress)
        self.coef = 1 / (1 - progress)


class RemembersNothingAsNan(Following):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        output = super().__call__(policy, batch, critic)
        size = self.advantage(batch).square().mean(0)
        found = (size * batch.weight).sum() / batch.weight.sum()
        return replace(output, statistics=self.statistics(found, output))


class LeaksIntoTheProposal(Staying):
    def place(self, batch: ImaginedBatch) -> Tensor:
        assert batch.proposal is not None
        return batch.proposal.mean


class DoesWithoutItsProposal(Staying):
    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        if batch.proposal is None:
            return Regression.__call__(self, policy, batch, critic)
        return super().__call__(policy, batch, critic)


class UsesAnExpertItDoesNotNeed(Staying):
    def place(self, batch: ImaginedBatch) -> Tensor:
        return super().place(batch) if batch.expert is None else batch.expert.mean.detach()


class PreferencesOverEverything(Regression):
    def weights(self, batch: ImaginedBatch) -> Tensor:
        return torch.softmax(self.advantage(batch).flatten(), 0).view_as(batch.log_prob)


class AsksTensors(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(2 * loss if share.max() > 0.5 else loss, share)


class ComputesOtherwiseWhenCompiled(Regression):
    def output(self, loss: Tensor, share: Tensor) -> LossOutput:
        return super().output(loss * 2 if torch.compiler.is_compiling() else loss, share)


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
        batch.target.sub_(batch.target.mean(0) / 2)
        return super().constant(batch)


class PrefersTheFirstCandidate(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        advantage = super().advantage(batch)
        return advantage - 0.1 * torch.arange(len(advantage))[:, None]


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
        if len(batch.action) == 1:
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
            critic(batch.start, batch.action[0])
        return super().__call__(policy, batch)


class AvoidsTheBest(Regression):
    def advantage(self, batch: ImaginedBatch) -> Tensor:
        return -super().advantage(batch)


class GoesDownhill(Ascent):
    def gain(self, critic: Critic, start: Tensor, action: Tensor) -> Tensor:
        return -super().gain(critic, start, action)


FLAWS: list[tuple[type, list[str]]] = [
    (NoNeedsCritic, ["test_it_fits_the_protocol"]),
    (AdaptsUnasked, ["test_it_fits_the_protocol"]),
    (WeighsUnasked, ["test_it_fits_the_protocol"]),
    (OnePerStart, ["test_the_loss_is_a_finite_scalar"]),
    (SinglePrecision, ["test_the_loss_is_a_finite_scalar"]),
    (NormalAlone, ["test_the_loss_is_a_finite_scalar"]),
    (BoundedAlone, ["test_the_loss_is_a_finite_scalar"]),
    (VectorMetrics, ["test_metrics_and_memory_are_finite_constants"]),
    (NanMetrics, ["test_metrics_and_memory_are_finite_constants"]),
    (NanTensorMetrics, ["test_metrics_and_memory_are_finite_constants"]),
    (MetricsWithAGraph, ["test_metrics_and_memory_are_finite_constants"]),
    (StatisticsWithAGraph, ["test_metrics_and_memory_are_finite_constants"]),
    (Detached, ["test_the_gradient_reaches_the_policy"]),
    (LeaksIntoTheBatch, ["test_the_gradient_does_not_reach_the_batch"]),
    (LeaksIntoTheProposal, ["test_the_gradient_does_not_reach_the_batch"]),
    (LeaksIntoTheCritic, ["test_the_gradient_does_not_reach_the_critic"]),
    (FreezesTheCritic, ["test_policy_and_critic_stay_as_they_are"]),
    (StandardisesInPlace, ["test_the_batch_stays_as_it_is"]),
    (CountsItsCalls, ["test_a_call_changes_nothing_about_the_loss"]),
    (CountsItsCallsAside, ["test_a_call_changes_nothing_about_the_loss"]),
    (AdaptsInTheCall, ["test_a_call_changes_nothing_about_the_loss"]),
    (ForgetsItsSchedule, ["test_what_it_remembers_survives_a_checkpoint"]),
    (LosesItsScale, ["test_what_it_remembers_survives_a_checkpoint"]),
    (RemembersAnObject, ["test_what_it_remembers_survives_a_checkpoint"]),
    (SharesItsScale, ["test_what_it_remembers_survives_a_checkpoint"]),
    (FailsAtTheEnd, ["test_what_it_remembers_survives_a_checkpoint"]),
    (PrefersTheFirstCandidate, ["test_the_order_of_candidates_does_not_matter"]),
    (PrefersTheFirstStart, ["test_the_order_of_starts_does_not_matter"]),
    (StandardisesOverMaskedStarts, ["test_starts_of_zero_weight_have_no_influence"]),
    (IgnoresWeights, ["test_weights_matter", "test_a_batch_without_weight_teaches_nothing"]),
    (DividesByNoWeight, ["test_a_batch_without_weight_teaches_nothing"]),
    (RemembersNothingAsNan, ["test_a_batch_without_weight_teaches_nothing"]),
    (StandardisesASingleStart, ["test_the_smallest_batch_works"]),
    (TakesOneCandidate, ["test_too_few_candidates_are_refused"]),
    (DoesWithoutItsCritic, ["test_a_needed_critic_must_be_given"]),
    (UsesACriticItDoesNotNeed, ["test_a_needed_critic_must_be_given"]),
    (DoesWithoutItsProposal, ["test_a_needed_distribution_must_be_given"]),
    (UsesAnExpertItDoesNotNeed, ["test_a_needed_distribution_must_be_given"]),
    (PreferencesOverEverything, ["test_preferences_add_up_to_one"]),
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


@pytest.mark.parametrize("make", [Regression, Ascent, Following, Staying, Imitation])
def test_a_right_loss_passes(kit_failures: Runner, make: type) -> None:
    assert kit_failures(subclass(make)) == set()


@pytest.mark.parametrize(("make", "caught_by"), FLAWS)
def test_a_broken_loss_fails(kit_failures: Runner, make: type, caught_by: list[str]) -> None:
    assert kit_failures(subclass(make), only=caught_by) == set(caught_by)


def test_every_test_of_the_kit_can_fail() -> None:
    caught = {name for _, names in FLAWS for name in names}
    assert caught == {name for name in dir(PolicyLossTests) if name.startswith("test_")}
