"""Conformance kit of policy losses: improve the policy and touch nothing else."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from empo_core.protocols import PolicyLoss
from empo_core.types import CandidateBatch, LossNeeds, LossOutput, RecordedBatch
from empo_testing.exploration import stored
from empo_testing.imagined import (
    STARTS,
    Case,
    Kind,
    KitCritic,
    KitPolicy,
    Trial,
    case,
    changed_starts,
    compilable,
    imagined,
    only_needed,
    slopes,
    tensors,
)

CANDIDATES = 6


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

    @pytest.fixture(params=["normal", "bounded"])
    def policy(self, request: pytest.FixtureRequest) -> KitPolicy:
        """A fresh policy."""
        kind: Kind = request.param
        return KitPolicy(kind)

    @pytest.fixture
    def trial(self, loss: PolicyLoss, policy: KitPolicy) -> Trial:
        """The loss that remembers nothing yet, and actions that the policy itself proposed."""
        return trial_of(loss.eval(), policy)


def trial_of(
    loss: PolicyLoss,
    policy: KitPolicy,
    *,
    starts: int = STARTS,
    candidates: int = CANDIDATES,
    seed: int = 0,
) -> Trial:
    """A loss on a batch of the type that it takes, with a fresh critic."""
    critic, candidates = KitCritic(), max(candidates, loss.needs.min_candidates)
    item = case(loss.takes, policy, critic, starts=starts, candidates=candidates, seed=seed)
    return Trial(loss, policy, critic, item)


class _GradientTests(_PolicyLossCase):
    """The gradient, which reaches the policy and nothing else."""

    def test_the_gradient_reaches_the_policy(self, trial: Trial) -> None:
        for gradient in trial.gradients():
            assert bool(gradient.isfinite().all())
        assert any(bool((g != 0).any()) for g in trial.gradients())

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

    def test_it_compiles_as_one_graph(self, loss: PolicyLoss, compiles: bool) -> None:
        if not compiles:
            pytest.skip("the loss says that it cannot")
        loss.train()
        trial = trial_of(copy.deepcopy(loss), KitPolicy("bounded"))
        policy, batch = trial.policy, only_needed(loss, trial.case.batch)
        critic = trial.critic if loss.needs.critic else None
        expected = trial.output()

        def step(features: Tensor) -> LossOutput:
            return loss(policy(features), batch, critic)

        with compilable():
            compiled = torch.compile(step, fullgraph=True, backend="eager")
            torch.manual_seed(0)
            output = compiled(trial.case.features)
            torch.testing.assert_close(output.loss, expected.loss)
            for left, right in zip(slopes(output, policy), slopes(expected, policy), strict=True):
                torch.testing.assert_close(left, right)
        torch.testing.assert_close(_saved(loss), _saved(trial.loss))

    def test_following_the_gradient_finds_better_actions(
        self, loss: PolicyLoss, policy: KitPolicy
    ) -> None:
        critic = KitCritic()
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.02)
        start_states = imagined(policy, critic, starts=100, candidates=1).start
        values = []
        for step in range(80):
            # New noise every time: a policy would run away from noise that never changes. One
            # action says less than several.
            count = STARTS if loss.takes is CandidateBatch else 8 * STARTS
            trial = trial_of(loss.train(), policy, starts=count, seed=step)
            with torch.no_grad():
                values.append(critic(start_states, policy.mean(start_states)).mean().item())
            optimiser.zero_grad()
            batch = replace(trial.case.batch, progress=torch.tensor(step / 80))
            torch.autograd.backward(trial.output(replace(trial.case, batch=batch)).loss)
            optimiser.step()
        assert values[-1] > 0.5 * values[0], f"the value went from {values[0]} to {values[-1]}"


class _BatchTests(_PolicyLossCase):
    """Effects of the order, the weights and the number of candidates and starts."""

    def test_the_batch_stays_as_it_is(self, trial: Trial) -> None:
        batch = trial.case.batch
        before = {name: tensor.clone() for name, tensor in tensors(batch).items()}
        trial.output()
        assert all(torch.equal(tensor, before[name]) for name, tensor in tensors(batch).items())

    def test_the_order_of_candidates_does_not_matter(self, trial: Trial) -> None:
        batch = trial.case.batch
        if not isinstance(batch, CandidateBatch):
            pytest.skip("one action was taken")
        order = torch.arange(len(batch.action)).roll(2).flip(0)
        changed = {name: getattr(batch, name)[order] for name in ("action", "target", "log_prob")}
        trial.assert_same_effect(replace(trial.case, batch=replace(batch, **changed)))

    def test_the_order_of_starts_does_not_matter(self, trial: Trial) -> None:
        order = torch.arange(STARTS).roll(3).flip(0)
        trial.assert_same_effect(
            changed_starts(trial.case, trial.policy.kind, lambda tensor: tensor[order])
        )

    def test_starts_of_zero_weight_have_no_influence(self, trial: Trial) -> None:
        masked = trial.case.batch.weight == 0
        assert bool(masked.any())
        assert not bool(masked.all())

        def disturbed(tensor: Tensor) -> Tensor:
            return torch.where(
                masked.view(-1, *[1] * (tensor.dim() - 1)), tensor * 1.5 - 0.7, tensor
            )

        other = changed_starts(trial.case, trial.policy.kind, disturbed)
        weight = trial.case.batch.weight
        trial.assert_same_effect(replace(other, batch=replace(other.batch, weight=weight)))

    def test_weights_matter(self, trial: Trial) -> None:
        heavier = self._with_weight(trial.case, torch.linspace(0.1, 3.0, STARTS).double())
        pairs = zip(trial.gradients(), trial.gradients(heavier), strict=True)
        assert any(not torch.allclose(left, right) for left, right in pairs)

    def test_a_batch_without_weight_teaches_nothing(self, trial: Trial) -> None:
        masked = self._with_weight(trial.case, torch.zeros(STARTS).double())
        trial.loss.train()
        output = trial.output(masked)
        assert bool(output.loss.isfinite()), f"the loss of a batch without weight is {output.loss}"
        assert all(bool((g == 0).all()) for g in trial.gradients(masked)), (
            "a batch without weight has a gradient"
        )
        assert bool(trial.output().loss.isfinite())

    def test_the_smallest_batch_works(self, loss: PolicyLoss, policy: KitPolicy) -> None:
        trial = trial_of(loss, policy, starts=1, candidates=1)
        assert bool(trial.output().loss.isfinite())
        for gradient in trial.gradients():
            assert bool(gradient.isfinite().all())

    @staticmethod
    def _with_weight(item: Case, factor: Tensor) -> Case:
        return replace(item, batch=replace(item.batch, weight=factor * item.batch.weight))


class PolicyLossTests(_GradientTests, _BatchTests):
    """Subclass this in your plugin's tests and override ``loss``.

    Override ``compiles`` if the loss cannot be compiled as one graph, because it asks tensors for
    their values; learners that compile their updates cannot use it then.
    """

    def test_it_fits_the_protocol(self, loss: PolicyLoss) -> None:
        assert isinstance(loss, PolicyLoss)
        assert loss.takes in (RecordedBatch, CandidateBatch)
        assert isinstance(loss.needs, LossNeeds)
        assert not list(loss.parameters()), "nobody trains parameters of a loss; use buffers"
        assert 1 <= loss.needs.min_candidates <= loss.needs.candidates

    def test_the_loss_is_a_finite_scalar(self, trial: Trial) -> None:
        output = trial.output()
        assert isinstance(output, LossOutput)
        assert output.loss.shape == ()
        assert output.loss.dtype == trial.case.batch.weight.dtype
        assert bool(output.loss.isfinite()), f"the loss is {output.loss}"

    def test_metrics_are_finite_constants(self, trial: Trial) -> None:
        for name, value in trial.output().metrics.items():
            assert isinstance(name, str)
            if not isinstance(value, Tensor):
                assert isinstance(value, int | float), f"{name} is a {type(value).__name__}"
                assert math.isfinite(value), f"{name} is {value}"
                continue
            assert value.shape == (), f"{name} has shape {tuple(value.shape)}; metrics have none"
            assert not value.requires_grad, f"{name} holds on to the graph; detach it"
            assert bool(value.isfinite()), f"{name} is {value}"

    def test_outside_of_training_a_call_changes_nothing(self, trial: Trial) -> None:
        before = _saved(trial.loss)
        first, second = (trial.output() for _ in range(2))
        assert_same_output(first, second)
        torch.testing.assert_close(_saved(trial.loss), before, rtol=0, atol=0)

    def test_what_it_remembers_survives_a_checkpoint(self, trial: Trial) -> None:
        other = copy.deepcopy(trial.loss)
        trial.loss.train()
        for _ in range(3):
            torch.autograd.backward(trial.output().loss)
        saved = _saved(trial.loss.eval())
        other.load_state_dict(saved)
        expected = trial.output()
        assert_same_output(replace(trial, loss=other).output(), expected)
        replace(trial, loss=other.train()).output()
        assert_same_output(trial.output(), expected)
        torch.testing.assert_close(_saved(trial.loss), saved, rtol=0, atol=0)


def assert_same_output(left: LossOutput, right: LossOutput) -> None:
    """Check that two outputs say the same, to the last bit."""
    torch.testing.assert_close(left.loss, right.loss, rtol=0, atol=0)
    assert left.metrics == right.metrics


def _saved(loss: PolicyLoss) -> dict[str, Tensor]:
    """State of a loss after a round trip through a checkpoint."""
    saved: dict[str, Tensor] = stored({name: x.clone() for name, x in loss.state_dict().items()})
    return saved
