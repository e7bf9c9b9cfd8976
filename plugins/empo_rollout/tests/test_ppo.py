import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_core.protocols import PolicyLoss
from empo_core.types import RecordedBatch
from empo_rollout.distributions import MultiCategorical
from empo_rollout.ppo import Ppo, explained_variance, value_loss
from empo_rollout.ppo_params import PpoParams
from empo_testing.policy_loss import PolicyLossTests


@pytest.mark.parametrize("entropy", [{}, {"target_entropy": -1.0}], ids=["constant", "tuned"])
class TestPpo(PolicyLossTests):
    @pytest.fixture
    def loss(self, entropy: dict[str, float]) -> PolicyLoss:
        return Ppo(PpoParams.model_validate({"entropy": entropy}))


def batch(
    action: list[int], advantage: list[float], old: list[float], weight: list[float] | None = None
) -> RecordedBatch:
    """Steps with options of these numbers; ``old`` are probabilities."""
    weights = torch.ones(len(action)) if weight is None else torch.tensor(weight)
    return RecordedBatch(
        torch.tensor(action).double()[:, None],
        torch.tensor(advantage).double(),
        torch.tensor(old).double().log(),
        (weights / weights.mean()).double(),
    )


def logits(*probabilities: float) -> Tensor:
    """Of option 0 with these probabilities, one for each step, and of option 1."""
    p = torch.tensor(probabilities).double()
    return torch.stack([p.log(), (1 - p).log()], -1).requires_grad_()


def table(*probabilities: float) -> MultiCategorical:
    """Policies over two options."""
    return MultiCategorical(logits(*probabilities), (2,))


def ppo(entropy: float = 0.0, **params: Any) -> Ppo:
    return Ppo(PpoParams.model_validate({"entropy": {"coef": entropy}, **params}))


class TestSurrogate:
    @pytest.mark.parametrize(
        ("new", "old", "target", "loss"),
        [
            (0.55, 0.5, 2.0, -2.2),  # ratio 1.1, inside
            (0.75, 0.5, 2.0, -2.4),  # ratio 1.5: nothing to gain beyond 1.2
            (0.25, 0.5, 2.0, -1.0),  # ratio 0.5: everything to lose
            (0.75, 0.5, -2.0, 3.0),
            (0.25, 0.5, -2.0, 1.6),
        ],
    )
    def test_it_is_clipped_on_the_side_of_what_would_be_gained(
        self, new: float, old: float, target: float, loss: float
    ) -> None:
        output = ppo()(table(new), batch([0], [target], [old]))
        assert output.loss.item() == pytest.approx(loss)
        assert float(output.metrics["policy_loss"]) == pytest.approx(loss)

    @pytest.mark.parametrize(("target", "stuck"), [(2.0, True), (-2.0, False)])
    def test_what_is_clipped_has_no_gradient(self, target: float, stuck: bool) -> None:
        leaf = logits(0.75)
        ppo()(MultiCategorical(leaf, (2,)), batch([0], [target], [0.5])).loss.backward()
        assert leaf.grad is not None
        assert bool((leaf.grad == 0).all()) is stuck

    def test_the_gradient_at_ratio_one_is_that_of_reinforce_with_a_baseline(self) -> None:
        p, advantage = [0.3, 0.6, 0.8], [1.5, -0.5, 2.0]
        leaf, steps = logits(*p), batch([0, 1, 0], advantage, [0.3, 0.4, 0.8])
        ppo()(MultiCategorical(leaf, (2,)), steps).loss.backward()
        # d log p(a) / d logits = one_hot(a) - p
        score = torch.tensor([[0.7, -0.7], [-0.6, 0.6], [0.2, -0.2]]).double()
        expected = -torch.tensor(advantage).double()[:, None] * score / 3
        torch.testing.assert_close(leaf.grad, expected)

    def test_means_are_weighted(self) -> None:
        loss = ppo()(
            table(0.55, 0.45, 0.9),
            batch([0, 0, 0], [1.0, 1.0, 70.0], [0.5, 0.5, 0.5], weight=[3.0, 1.0, 0.0]),
        ).loss.item()
        assert loss == pytest.approx(-(3 * 1.1 + 0.9) / 4)

    def test_huge_ratios_stay_finite(self) -> None:
        output = ppo()(table(0.5), batch([0], [-1.0], [1e-300]))
        assert output.loss.item() == pytest.approx(math.exp(10))


class TestMetrics:
    def test_entropy_is_rewarded(self) -> None:
        p = [0.3, 0.9, 0.5]
        entropies = [-q * math.log(q) - (1 - q) * math.log(1 - q) for q in p]
        expected = (entropies[0] + 3 * entropies[1]) / 4
        output = ppo(entropy=0.25)(
            table(*p), batch([0, 0, 0], [0.0, 0.0, 0.0], p, weight=[1.0, 3.0, 0.0])
        )
        assert float(output.metrics["entropy"]) == pytest.approx(expected)
        assert float(output.metrics["policy_loss"]) == pytest.approx(0)
        assert output.loss.item() == pytest.approx(-0.25 * expected)

    def test_they_say_how_far_the_policy_has_moved(self) -> None:
        metrics = ppo()(
            table(0.55, 0.8, 0.9), batch([0, 0, 0], [1.0] * 3, [0.5, 0.5, 0.5], [1.0, 3.0, 0.0])
        ).metrics
        kl = [ratio - 1 - math.log(ratio) for ratio in (1.1, 1.6)]
        assert float(metrics["importance"]) == pytest.approx((1.1 + 3 * 1.6) / 4)
        assert float(metrics["approx_kl"]) == pytest.approx((kl[0] + 3 * kl[1]) / 4)
        assert float(metrics["clip_fraction"]) == pytest.approx(0.75)

    def test_a_policy_that_has_not_moved_says_so(self) -> None:
        metrics = ppo()(table(0.3, 0.6), batch([0, 1], [1.0, 2.0], [0.3, 0.4])).metrics
        assert float(metrics["importance"]) == pytest.approx(1)
        assert float(metrics["approx_kl"]) == pytest.approx(0, abs=1e-12)
        assert float(metrics["clip_fraction"]) == 0


def test_a_scheduled_entropy_coefficient_falls() -> None:
    loss = Ppo(
        PpoParams.model_validate({"entropy": {"coef": 0.4, "end": 0.0, "schedule": "linear"}})
    )
    for progress, coefficient in ((0.0, 0.4), (0.75, 0.1)):
        steps = replace(batch([0], [0.0], [0.3]), progress=torch.tensor(progress))
        output = loss(table(0.3), steps)
        assert float(output.metrics["entropy_coef"]) == pytest.approx(coefficient)
        assert output.loss.item() == pytest.approx(-coefficient * float(output.metrics["entropy"]))


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers).double()


class TestValueLoss:
    @pytest.mark.parametrize(
        ("value", "clip", "loss"),
        [
            (1.1, 0.2, 0.5 * 0.9**2),  # moved by 0.1, inside
            (1.5, 0.2, 0.5 * 0.8**2),  # closer to 2, but counts as 1.2
            (1.5, None, 0.5 * 0.5**2),
            (0.5, 0.2, 0.5 * 1.5**2),  # further away: counts as it is
        ],
    )
    def test_moving_further_than_the_clip_gains_nothing(
        self, value: float, clip: float | None, loss: float
    ) -> None:
        one = column(1.0)
        found = value_loss(column(value), one, column(2.0), one, clip)
        assert found.item() == pytest.approx(loss)

    def test_what_is_clipped_has_no_gradient_and_the_rest_that_of_squares(self) -> None:
        value = column(1.1, 1.5, 0.5, 7.0).requires_grad_()
        old, weight = column(1.0, 1.0, 1.0, 1.0), column(1.0, 1.0, 2.0, 0.0)
        value_loss(value, old, column(2.0, 2.0, 2.0, 0.0), weight, 0.2).backward()
        torch.testing.assert_close(value.grad, column(-0.9 / 4, 0.0, 2 * -1.5 / 4, 0.0))

    def test_nothing_counts_without_weight(self) -> None:
        value = column(1.0, 2.0).requires_grad_()
        loss = value_loss(value, value, column(5.0, 9.0), column(0.0, 0.0), None)
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(value.grad, column(0.0, 0.0))


class TestExplainedVariance:
    def test_it_is_the_share_of_the_variance_that_values_foresee(self) -> None:
        returns, weight = column(1.0, 3.0, 5.0, 0.0), column(1.0, 1.0, 2.0, 0.0)
        # Mean 3.5, variance (6.25 + 0.25 + 2 * 2.25) / 4; errors 1, 0, 0 with variance 3/16.
        found = explained_variance(column(0.0, 3.0, 5.0, 0.0), returns, weight)
        assert found.item() == pytest.approx(1 - (3 / 16) / 2.75)

    def test_right_values_explain_all_and_equal_ones_nothing(self) -> None:
        returns, ones = column(1.0, 3.0, 5.0), column(1.0, 1.0, 1.0)
        assert explained_variance(returns, returns, ones).item() == 1
        assert explained_variance(column(2.0, 2.0, 2.0), returns, ones).item() == pytest.approx(0)

    def test_returns_that_do_not_vary_explain_nothing(self) -> None:
        returns = torch.full((1001,), 0.1)
        values = torch.linspace(0, 1, 1001)
        assert explained_variance(values, returns, torch.ones(1001)).item() == 0
