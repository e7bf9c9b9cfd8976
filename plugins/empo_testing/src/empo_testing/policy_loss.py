"""Conformance kit of policy losses: improve the policy and touch nothing else."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from empo_core.protocols import PolicyLoss
from empo_core.types import ImaginedBatch, LossNeeds, LossOutput
from empo_testing.exploration import stored
from empo_testing.imagined import (
    STARTS,
    TENSORS,
    Kind,
    KitCritic,
    KitPolicy,
    Trial,
    changed_distributions,
    compilable,
    imagined,
    only_needed,
    slopes,
    some_candidates,
    some_starts,
)


class _PolicyLossCase:
    """The policy loss under test, a policy, a critic and a batch."""

    @pytest.fixture
    def loss(self) -> PolicyLoss:
        """The policy loss under test."""
        raise NotImplementedError("override the fixture 'loss'")

    @pytest.fixture
    def compiles(self) -> bool:
        """True if the loss can be compiled as one graph."""
        return True

    @pytest.fixture
    def min_candidates(self, loss: PolicyLoss) -> int:
        """The least number of candidates per start the loss works with."""
        return loss.needs.min_candidates

    @pytest.fixture(params=["normal", "bounded"])
    def policy(self, request: pytest.FixtureRequest) -> KitPolicy:
        """A fresh policy."""
        kind: Kind = request.param
        return KitPolicy(kind)

    @pytest.fixture
    def critic(self) -> KitCritic:
        """A fresh critic."""
        return KitCritic()

    @pytest.fixture
    def batch(self, policy: KitPolicy, critic: KitCritic, min_candidates: int) -> ImaginedBatch:
        """Candidates the policy itself proposed, valued by the critic."""
        return imagined(policy, critic, starts=STARTS, candidates=max(6, min_candidates))

    @pytest.fixture
    def trial(
        self, loss: PolicyLoss, policy: KitPolicy, critic: KitCritic, batch: ImaginedBatch
    ) -> Trial:
        """All of these."""
        return Trial(loss, policy, critic, batch)


class _GradientTests(_PolicyLossCase):
    """The gradient, which reaches the policy and nothing else."""

    def test_the_gradient_reaches_the_policy(self, trial: Trial) -> None:
        for gradient in trial.gradients():
            assert bool(gradient.isfinite().all())
        assert any(bool((g != 0).any()) for g in trial.gradients())

    def test_the_gradient_does_not_reach_the_batch(self, trial: Trial) -> None:
        leaves = {name: getattr(trial.batch, name).clone().requires_grad_() for name in TENSORS}

        def leaf(tensor: Tensor) -> Tensor:
            copied = tensor.detach().clone().requires_grad_()
            leaves[f"parameter {len(leaves)} of its distributions"] = copied
            return copied

        tracked = changed_distributions(trial.batch, trial.policy.kind, leaf)
        tracked = replace(tracked, **{name: leaves[name] for name in TENSORS})
        torch.autograd.backward(trial.output(tracked).loss)
        for name, tensor in leaves.items():
            assert tensor.grad is None, f"the gradient leaks into batch.{name}; detach it"

    def test_the_gradient_does_not_reach_the_critic(self, trial: Trial) -> None:
        torch.autograd.backward(trial.output().loss)
        for name, parameter in trial.critic.named_parameters():
            assert parameter.grad is None, f"the gradient leaks into the critic's {name}"

    def test_policy_and_critic_stay_as_they_are(self, trial: Trial) -> None:
        modules = nn.ModuleList([trial.policy, trial.critic])
        before = {name: tensor.clone() for name, tensor in modules.state_dict().items()}
        torch.autograd.backward(trial.output().loss)
        for name, parameter in modules.named_parameters():
            assert parameter.requires_grad, f"{name} can no longer be trained"
            assert torch.equal(parameter, before[name]), f"{name} was written to"

    def test_it_compiles_as_one_graph(
        self, loss: PolicyLoss, critic: KitCritic, min_candidates: int, compiles: bool
    ) -> None:
        if not compiles:
            pytest.skip("the loss says that it cannot")
        policy, critic_or_none = KitPolicy("bounded"), critic if loss.needs.critic else None
        batch = imagined(policy, critic, starts=STARTS, candidates=max(6, min_candidates))
        expected = Trial(loss, policy, critic, batch).output()
        with compilable():
            compiled = torch.compile(loss, fullgraph=True, backend="eager")
            torch.manual_seed(0)
            output = compiled(policy, only_needed(loss, batch), critic_or_none)
            torch.testing.assert_close(output.loss, expected.loss)
            for left, right in zip(slopes(output, policy), slopes(expected, policy), strict=True):
                torch.testing.assert_close(left, right)

    def test_following_the_gradient_finds_better_actions(
        self, trial: Trial, min_candidates: int
    ) -> None:
        policy, critic, count = trial.policy, trial.critic, max(6, min_candidates)
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.02)
        start_states = imagined(policy, critic, starts=100, candidates=1).start
        values = []
        for step in range(80):
            # New noise every time: a policy would run away from noise that never changes.
            batch = imagined(policy, critic, starts=STARTS, candidates=count, seed=step)
            with torch.no_grad():
                values.append(critic(start_states, policy.mean(start_states)).mean().item())
            optimiser.zero_grad()
            output = trial.output(batch)
            torch.autograd.backward(output.loss)
            optimiser.step()
            if trial.loss.is_adaptive:
                trial.loss.adapt(output.statistics, step / 80)
        assert values[-1] > 0.5 * values[0], f"the value went from {values[0]} to {values[-1]}"


class _BatchTests(_PolicyLossCase):
    """Effects of the order, the weights and the number of candidates and starts."""

    def test_the_batch_stays_as_it_is(self, trial: Trial) -> None:
        before = {name: getattr(trial.batch, name).clone() for name in TENSORS}
        trial.output()
        assert all(torch.equal(getattr(trial.batch, name), before[name]) for name in TENSORS)

    def test_the_order_of_candidates_does_not_matter(self, trial: Trial) -> None:
        order = torch.arange(len(trial.batch.action)).roll(2).flip(0)
        trial.assert_same_effect(some_candidates(trial.batch, order))

    def test_the_order_of_starts_does_not_matter(self, trial: Trial) -> None:
        order = torch.arange(len(trial.batch.start)).roll(3).flip(0)
        shuffled = some_starts(trial.batch, trial.policy.kind, order)
        trial.assert_same_effect(shuffled)

    def test_starts_of_zero_weight_have_no_influence(self, trial: Trial) -> None:
        batch = trial.batch
        masked = batch.weight == 0
        assert bool(masked.any())
        assert not bool(masked.all())
        other = changed_distributions(
            batch, trial.policy.kind, lambda tensor: tensor.masked_fill(masked[:, None], -0.7)
        )
        other = replace(
            other,
            start=batch.start.masked_fill(masked[:, None], 3.0),
            action=batch.action.masked_fill(masked[:, None], -1.0),
            target=batch.target.masked_fill(masked[:, None], 50.0),
            log_prob=batch.log_prob.masked_fill(masked, -4.0),
        )
        trial.assert_same_effect(other)

    def test_weights_matter(self, trial: Trial) -> None:
        weight = trial.batch.weight * torch.linspace(0.1, 3.0, STARTS).double()
        heavier = replace(trial.batch, weight=weight)
        pairs = zip(trial.gradients(), trial.gradients(heavier), strict=True)
        assert any(not torch.allclose(left, right) for left, right in pairs)

    def test_a_batch_without_weight_teaches_nothing(self, trial: Trial) -> None:
        masked = replace(trial.batch, weight=torch.zeros_like(trial.batch.weight))
        output = trial.output(masked)
        assert bool(output.loss.isfinite()), f"the loss of a batch without weight is {output.loss}"
        assert all(bool((g == 0).all()) for g in trial.gradients(masked)), (
            "a batch without weight has a gradient"
        )
        if trial.loss.is_adaptive:
            trial.loss.adapt(output.statistics, 0.5)
            assert bool(trial.output().loss.isfinite())

    def test_the_smallest_batch_works(self, trial: Trial, min_candidates: int) -> None:
        small = imagined(trial.policy, trial.critic, starts=1, candidates=min_candidates)
        assert bool(trial.output(small).loss.isfinite())
        for gradient in trial.gradients(small):
            assert bool(gradient.isfinite().all())

    def test_too_few_candidates_are_refused(self, trial: Trial, min_candidates: int) -> None:
        enough = imagined(trial.policy, trial.critic, starts=4, candidates=min_candidates)
        too_few = some_candidates(enough, torch.arange(1, min_candidates))
        with pytest.raises(ValueError, match="candidate"):
            trial.output(too_few)


class PolicyLossTests(_GradientTests, _BatchTests):
    """Subclass this in your plugin's tests and override ``loss``.

    Override ``compiles`` if the loss cannot be compiled as one graph, because it asks tensors for
    their values; learners that compile their updates cannot use it then.
    """

    def test_it_fits_the_protocol(self, loss: PolicyLoss) -> None:
        assert isinstance(loss, PolicyLoss)
        assert isinstance(loss.needs, LossNeeds)
        if type(loss).adapt is not PolicyLoss.adapt:
            assert loss.is_adaptive, "nobody calls `adapt` of a loss whose is_adaptive is False"
        if type(loss).weights is not PolicyLoss.weights:
            assert loss.weighs_candidates, (
                "nobody calls `weights` of a loss whose weighs_candidates is False"
            )
        assert 1 <= loss.needs.min_candidates <= loss.needs.candidates

    def test_the_loss_is_a_finite_scalar(self, trial: Trial) -> None:
        output = trial.output()
        assert isinstance(output, LossOutput)
        assert output.loss.shape == ()
        assert output.loss.dtype == trial.batch.target.dtype
        assert bool(output.loss.isfinite()), f"the loss is {output.loss}"

    def test_metrics_and_memory_are_finite_constants(self, trial: Trial) -> None:
        output = trial.output()
        for name, value in output.metrics.items():
            assert isinstance(name, str)
            if not isinstance(value, Tensor):
                assert isinstance(value, int | float), f"{name} is a {type(value).__name__}"
                assert math.isfinite(value), f"{name} is {value}"
        tensors = {k: v for k, v in output.metrics.items() if isinstance(v, Tensor)}
        for name, value in tensors.items():
            assert value.shape == (), f"{name} has shape {tuple(value.shape)}; metrics have none"
        for name, value in {**tensors, **output.statistics}.items():
            assert not value.requires_grad, f"{name} holds on to the graph; detach it"
            assert bool(value.isfinite().all()), f"{name} is {value}"

    def test_a_call_changes_nothing_about_the_loss(self, trial: Trial) -> None:
        before = _saved(trial.loss)
        first, second = (trial.output() for _ in range(2))
        assert_same_output(first, second)
        torch.testing.assert_close(_saved(trial.loss), before, rtol=0, atol=0)

    def test_what_it_remembers_survives_a_checkpoint(self, trial: Trial) -> None:
        if not trial.loss.is_adaptive:
            pytest.skip("the loss remembers nothing")
        other = copy.deepcopy(trial.loss)
        for progress in (0.0, 0.4, 1.0):
            trial.loss.adapt(trial.output().statistics, progress)
        saved = _saved(trial.loss)
        other.load_state_dict(saved)
        expected = trial.output()
        assert_same_output(replace(trial, loss=other).output(), expected)
        other.adapt(expected.statistics, 0.7)
        assert_same_output(trial.output(), expected)
        torch.testing.assert_close(_saved(trial.loss), saved, rtol=0, atol=0)

    def test_a_needed_critic_must_be_given(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch
    ) -> None:
        batch = only_needed(loss, batch)
        if loss.needs.critic:
            with pytest.raises(ValueError, match="critic"):
                loss(policy, batch, None)
            return

        def uncalled(features: Tensor, actions: Tensor) -> Tensor:
            raise AssertionError("a critic that is not needed must not be called")

        torch.manual_seed(0)
        without = loss(policy, batch)
        torch.manual_seed(0)
        assert torch.equal(without.loss, loss(policy, batch, uncalled).loss)

    @pytest.mark.parametrize("name", ["proposal", "expert"])
    def test_a_needed_distribution_must_be_given(self, trial: Trial, name: str) -> None:
        loss, policy, critic = trial.loss, trial.policy, trial.critic
        batch = only_needed(loss, trial.batch)
        if getattr(loss.needs, name):
            with pytest.raises(ValueError, match=name):
                loss(policy, replace(batch, **{name: None}), critic)  # type: ignore[arg-type]
            return
        torch.manual_seed(0)
        extended = loss(policy, replace(batch, **{name: getattr(trial.batch, name)}), critic)
        assert torch.equal(extended.loss, trial.output().loss)

    def test_preferences_add_up_to_one(
        self, loss: PolicyLoss, policy: KitPolicy, batch: ImaginedBatch
    ) -> None:
        if not loss.weighs_candidates:
            pytest.skip("the loss prefers no candidates")
        weights = loss.weights(only_needed(loss, batch))
        assert weights.shape == batch.log_prob.shape
        assert not weights.requires_grad
        assert bool((weights >= 0).all())
        torch.testing.assert_close(weights.sum(0), torch.ones(STARTS).double())


def assert_same_output(left: LossOutput, right: LossOutput) -> None:
    """Check that two outputs say the same, to the last bit."""
    torch.testing.assert_close(left.loss, right.loss, rtol=0, atol=0)
    assert left.metrics == right.metrics
    torch.testing.assert_close(dict(left.statistics), dict(right.statistics), rtol=0, atol=0)


def _saved(loss: PolicyLoss) -> dict[str, object]:
    """State of an adaptive loss after a round trip through a checkpoint; empty for others."""
    if not loss.is_adaptive:
        return {}
    return stored(loss.state_dict())
