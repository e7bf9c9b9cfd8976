"""The loss and its gradient, against closed forms, torch, and numbers worked out by hand."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import (
    Distribution,
    Independent,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from empo_awr.loss import Awr
from empo_awr.params import AwrParams
from empo_core.types import CandidateBatch
from empo_learning.distributions import BoundedNormal

SILENT = {"coef": 0.0}
"""No entropy is paid for."""
PLAIN = {"normaliser": "none", "temperature": {"rule": "fixed", "value": 1.0}, "entropy": SILENT}


def awr(**params: Any) -> Awr:
    return Awr(AwrParams.model_validate({"entropy": SILENT, **params}))


def weights_of(loss: Awr, batch: CandidateBatch) -> Tensor:
    """Weights of the candidates, before any is cut."""
    weights: Tensor = copy.deepcopy(loss.weighting).eval()(batch).weights
    return weights


class Table(nn.Module):
    """A policy whose parameters at each start are given, whatever the features."""

    def __init__(self, loc: Tensor, log_std: Tensor, kind: str = "tanh") -> None:
        super().__init__()
        self.loc, self.log_std = nn.Parameter(loc.clone()), nn.Parameter(log_std.clone())
        self.kind = kind

    def forward(self, features: Tensor) -> Distribution:
        if self.kind == "torch":
            normal = Independent(Normal(self.loc, self.log_std.exp()), 1)
            return TransformedDistribution(normal, [TanhTransform()])
        if self.kind == "normal":
            return Independent(Normal(self.loc, self.log_std.exp()), 1)
        return BoundedNormal(self.loc, self.log_std, bound=self.kind)  # type: ignore[arg-type]

    def slopes(self, loss: Tensor) -> tuple[Tensor, Tensor]:
        return torch.autograd.grad(loss, (self.loc, self.log_std))


def table(kind: str = "tanh", starts: int = 5, numbers: int = 2) -> Table:
    generator = torch.Generator().manual_seed(3)
    loc = torch.randn(starts, numbers, generator=generator, dtype=torch.float64)
    log_std = 0.4 * torch.randn(starts, numbers, generator=generator, dtype=torch.float64) - 0.3
    return Table(loc, log_std, kind)


def imagined(policy: Table, candidates: int = 6, heads: int = 2, seed: int = 0) -> CandidateBatch:
    """Candidates of the policy itself, worth anything."""
    generator = torch.Generator().manual_seed(seed)
    starts, numbers = policy.loc.shape

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        drawn = noise(starts, candidates, numbers).transpose(0, 1)
        u = policy.loc + policy.log_std.exp() * drawn
    return CandidateBatch(
        noise(starts, 3),
        u,
        noise(starts, candidates, heads).transpose(0, 1),
        noise(starts, candidates).T,
        torch.linspace(0.5, 1.5, starts).double(),
        BoundedNormal(policy.loc.detach(), policy.log_std.detach()),
    )


def test_a_case_worked_out_by_hand() -> None:
    policy = Table(torch.tensor([[0.2], [-1.0]]).double(), torch.tensor([[0.0], [0.5]]).double())
    batch = CandidateBatch(
        start=torch.zeros(2, 1).double(),
        action=torch.tensor([[[0.7], [0.0]], [[-0.3], [-2.0]]]).double(),
        # Heads have the means 1 and 1 - ln 3, then 2 and 2 + ln 4.
        target=torch.tensor(
            [
                [[0.5, 1.5], [2.0, 2.0]],
                [[1.0 - math.log(3)] * 2, [1.0 + math.log(4), 3.0 + math.log(4)]],
            ]
        ).double(),
        log_prob=torch.zeros(2, 2).double(),
        weight=torch.tensor([1.0, 0.5]).double(),
    )
    # Weights 3/4, 1/4 and 1/5, 4/5; with epsilon 0.5, -0.5 and e^-0.5, -e^-0.5.
    half_log = 0.5 * math.log(2 * math.pi)

    def nll(epsilon: float, log_std: float, u: float) -> float:
        return 0.5 * epsilon**2 + log_std + half_log + math.log(1 - math.tanh(u) ** 2)

    first = 0.75 * nll(0.5, 0.0, 0.7) + 0.25 * nll(-0.5, 0.0, -0.3)
    far = math.exp(-0.5)
    second = 0.2 * nll(far, 0.5, 0.0) + 0.8 * nll(-far, 0.5, -2.0)
    entropies = [half_log + 0.5, half_log + 1.0]
    alpha = 0.1
    expected = (first - alpha * entropies[0] + 0.5 * (second - alpha * entropies[1])) / 2
    output = Awr(AwrParams.model_validate({**PLAIN, "entropy": {"coef": 0.1, "jacobian": 0.0}}))(
        policy(batch.start), batch
    )
    assert float(output.loss.detach()) == pytest.approx(expected, rel=1e-6)
    by_loc, by_log_std = policy.slopes(output.loss)
    # -(w . epsilon) / sigma and -(w . (epsilon ** 2 - 1)) - alpha, times weight / starts.
    locs = [-(0.75 * 0.5 - 0.25 * 0.5) / 2, -(0.2 * far - 0.8 * far) / math.exp(0.5) / 4]
    stds = [-(0.25 - 1) / 2 - alpha / 2, -(math.exp(-1) - 1) / 4 - alpha / 4]
    torch.testing.assert_close(by_loc[:, 0], torch.tensor(locs).double(), atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(by_log_std[:, 0], torch.tensor(stds).double(), atol=1e-7, rtol=1e-6)
    weights = weights_of(awr(**PLAIN), batch)
    expected_weights = torch.tensor([[3 / 4, 1 / 5], [1 / 4, 4 / 5]]).double()
    torch.testing.assert_close(weights, expected_weights)


class TestTheScore:
    """Item 1 of the proofs: which log-probability is differentiated."""

    def test_the_gradient_is_the_closed_form(self) -> None:
        for kind in ("tanh", "clip", "normal"):
            policy = table(kind)
            batch = imagined(policy)
            loss = awr()
            by_loc, by_log_std = policy.slopes(loss(policy(batch.start), batch).loss)
            weights = weights_of(loss, batch)[..., None] * batch.weight[:, None] / 5
            sigma = policy.log_std.detach().exp()
            epsilon = (batch.action - policy.loc.detach()) / sigma
            torch.testing.assert_close(by_loc, -(weights * epsilon / sigma).sum(0))
            torch.testing.assert_close(by_log_std, -(weights * (epsilon**2 - 1)).sum(0))

    def test_it_is_that_of_torch_for_actions_given_from_outside(self) -> None:
        policy, batch = table(), imagined(table())
        loss = awr()
        output = loss(policy(batch.start), batch)
        other = table("torch")
        log_prob = other(batch.start).log_prob(batch.action.tanh())
        expected = -(batch.weight * (weights_of(loss, batch) * log_prob).sum(0)).mean()
        torch.testing.assert_close(output.loss, expected, rtol=1e-5, atol=1e-5)
        for actual, reference in zip(
            policy.slopes(output.loss), other.slopes(expected), strict=True
        ):
            torch.testing.assert_close(actual, reference, rtol=1e-5, atol=1e-5)

    def test_that_of_a_sample_as_it_is_drawn_is_another(self) -> None:
        policy, batch = table(), imagined(table())
        loss = awr()
        score = policy.slopes(loss(policy(batch.start), batch).loss)
        # The same numbers, as functions of the parameters: u = mu + sigma * epsilon.
        sigma = policy.log_std.exp()
        epsilon = ((batch.action - policy.loc) / sigma).detach()
        log_prob = policy(batch.start).log_prob(policy.loc + sigma * epsilon)
        drawn = -(batch.weight * (weights_of(loss, batch) * log_prob).sum(0)).mean()
        torch.testing.assert_close(
            drawn, loss(policy(batch.start), batch).loss
        )  # One value, two gradients.
        for actual, reference in zip(score, policy.slopes(drawn), strict=True):
            assert float((actual - reference).abs().max()) > 0.1

    def test_the_jacobian_changes_the_value_alone(self) -> None:
        # Item 15: it does not depend on the parameters where the action is constant.
        squashed, plain = table("tanh"), table("clip")
        batch = imagined(squashed)
        with_jacobian, without_jacobian = (
            awr()(squashed(batch.start), batch),
            awr()(plain(batch.start), batch),
        )
        assert float((with_jacobian.loss - without_jacobian.loss).abs().detach()) > 0.1
        for left, right in zip(
            squashed.slopes(with_jacobian.loss), plain.slopes(without_jacobian.loss), strict=True
        ):
            torch.testing.assert_close(left, right, rtol=0, atol=0)

    def test_actions_far_out_have_finite_gradients(self) -> None:
        policy = table()
        batch = replace(imagined(policy), action=torch.full((6, 5, 2), 40.0).double())
        output = awr()(policy(batch.start), batch)
        assert all(bool(slope.isfinite().all()) for slope in policy.slopes(output.loss))
        assert bool(output.loss.isfinite())


@pytest.mark.parametrize("kind", ["tanh", "clip", "normal"])
@pytest.mark.parametrize(
    "params",
    [
        {"entropy": {"coef": 0.05}},
        {
            "temperature": {"rule": "kl", "bound": 0.2},
            "trust_region": {"multiplier": 2.0},
            "max_weight": 1.5,
            "entropy": {"coef": 0.05, "jacobian": 0.3},
        },
    ],
)
def test_gradients_agree_with_finite_differences(kind: str, params: dict[str, Any]) -> None:
    policy = table(kind, starts=3)
    batch = imagined(policy)
    loss = awr(**params)
    shifted_loc = (
        policy.loc.detach() + 0.3
    )  # Away from the proposal, where the region costs something.

    def value(loc: Tensor, log_std: Tensor) -> Tensor:
        torch.manual_seed(0)
        other = copy.copy(policy)
        other._parameters = {"loc": loc, "log_std": log_std}  # type: ignore[dict-item]
        return loss.eval()(other(batch.start), batch).loss

    inputs = (shifted_loc.requires_grad_(), (policy.log_std.detach() - 0.2).requires_grad_())
    assert torch.autograd.gradcheck(value, inputs)


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_gradient_is_the_mean_over_starts_times_their_weights(share: float) -> None:
    policy = table()
    batch = imagined(policy)
    whole = policy.slopes(awr()(policy(batch.start), batch).loss)[0]
    scaled = replace(batch, weight=share * batch.weight)
    torch.testing.assert_close(
        policy.slopes(awr()(policy(batch.start), scaled).loss)[0], share * whole
    )
    for i, weight in enumerate(batch.weight.tolist()):
        alone = torch.zeros_like(batch.weight)
        alone[i] = 1
        single = policy.slopes(awr()(policy(batch.start), replace(batch, weight=alone)).loss)[0]
        torch.testing.assert_close(whole[i], weight * single[i])


def test_it_needs_a_proposal_only_for_a_trust_region() -> None:
    assert not awr().needs.proposal
    assert awr(trust_region={}).needs.proposal
    assert awr().needs.candidates == 16
    assert awr(candidates=5).needs.candidates == 5


OPTIONS: list[dict[str, Any]] = [
    {"reduction": "min"},
    {"reduction": "max"},
    {"disagreement": -0.5},
    {"disagreement": 0.5},
    {"normaliser": "state_range"},
    {"normaliser": "running_scale"},
    {"normaliser": "running_scale", "scale_rate": 0.5},
    {"normaliser": "none"},
    {"temperature": {"rule": "fixed", "value": 0.7}},
    {"temperature": {"rule": "ess", "share": 0.5}},
    {"temperature": {"rule": "ess", "share": 0.6}},
    {"temperature": {"rule": "kl", "bound": 0.1}},
    {"temperature": {"rule": "kl", "bound": 0.2}},
    {"max_weight": 1.2},
    {"trust_region": {}},
    {"trust_region": {"multiplier": 3.0}},
    {"entropy": {"coef": 0.1}},
    {"entropy": {"coef": 0.1, "jacobian": 0.0}},
    {"entropy": {"coef": 0.1, "action_power": 0.0}},
]


def test_every_option_changes_the_loss() -> None:
    policy = table()
    batch = imagined(table(starts=5))
    with torch.no_grad():
        policy.loc += 0.2
    batch = replace(batch, target=20 * batch.target)

    def value(params: dict[str, Any]) -> float:
        torch.manual_seed(0)
        return float(awr(**params)(policy(batch.start), batch).loss.detach())

    values = [value(params) for params in [{}, *OPTIONS]]
    assert len({round(number, 9) for number in values}) == len(values), values


LATER: list[dict[str, Any]] = [
    {"trust_region": {"mean": 0.01}},
    {"trust_region": {"std": 1e-3}},
    {"trust_region": {"rate": 0.5}},
    {"entropy": {"coef": 0.1, "end": 0.2, "schedule": "linear"}},
    {"entropy": {"coef": 0.1, "end": 0.2, "schedule": "exponential"}},
    {"entropy": {"coef": 0.1, "end": 0.2, "schedule": "linear", "begin": 0.2}},
    {"entropy": {"coef": 0.1, "end": 0.2, "schedule": "linear", "finish": 0.7}},
    {"entropy": {"coef": 0.1, "target_entropy": -1.0}},
    {"entropy": {"coef": 0.1, "target_entropy": -3.0}},
    {"entropy": {"coef": 0.1, "target_entropy": -1.0, "rate": 0.1}},
]


def test_every_other_option_changes_the_loss_after_a_step() -> None:
    policy, batch = table(), imagined(table())
    with torch.no_grad():
        policy.loc += 0.2
        policy.log_std -= 0.1

    def value(params: dict[str, Any]) -> float:
        torch.manual_seed(0)
        loss = awr(**params)
        later = replace(batch, progress=torch.tensor(0.5))
        loss(policy(batch.start), later)
        return float(loss(policy(batch.start), later).loss.detach())

    base = [{}, {"trust_region": {}}, {"entropy": {"coef": 0.1}}]
    values = [value(params) for params in [*base, *LATER]]
    assert len({round(number, 12) for number in values}) == len(values), values


def test_weights_are_cut_in_the_loss_alone() -> None:
    policy, batch = table(), imagined(table())
    plain, cut = awr(), awr(max_weight=1.5)
    weights = weights_of(plain, batch)
    assert bool((weights > 1.5 / 6).any())
    assert torch.equal(weights_of(cut, batch), weights)
    log_prob = policy(batch.start).log_prob(batch.action)
    expected = -(batch.weight * (weights.clamp(max=0.25) * log_prob).sum(0)).mean()
    torch.testing.assert_close(cut(policy(batch.start), batch).loss, expected)


def test_the_running_scale_moves_once_per_call() -> None:
    policy, batch = table(), imagined(table())
    batch = replace(batch, target=10 * batch.target)
    loss = awr(normaliser="running_scale", scale_rate=0.5)
    first = loss(policy(batch.start), batch)
    weights_of(loss, batch)
    second = loss(policy(batch.start), batch)
    assert float(second.metrics["scale"]) == pytest.approx(
        1.5 * float(first.metrics["scale"]) - 0.5 * 1.0, rel=1e-6
    )


class TestMetrics:
    def test_they_are_what_they_say(self) -> None:
        policy, batch = table(), imagined(table())
        batch = replace(batch, weight=torch.tensor([1.0, 2.0, 0.0, 1.0, 0.5]).double())
        loss = Awr(AwrParams.model_validate({"entropy": {"coef": 0.1, "jacobian": 0.0}}))
        metrics = {
            name: float(value) for name, value in loss(policy(batch.start), batch).metrics.items()
        }
        share, counts = batch.weight / batch.weight.sum(), batch.weight > 0
        weights, quality = weights_of(loss, batch), batch.target.mean(-1)
        score = policy(batch.start).log_prob(batch.action).detach()
        entropy = policy(batch.start).entropy().detach()
        deviation = quality.std(0, correction=0)
        scaled = quality / deviation
        mean = (share * scaled / 6).sum()
        nll = -(share * (weights * score).sum(0)).sum()
        bonus = 0.1 * 2 * (share * entropy).sum()
        saturated = (policy.loc.tanh().abs() > 0.95).double()
        expected = {
            "nll": nll,
            "entropy": (share * entropy).sum(),
            "entropy_scaled": 2 * (share * entropy).sum(),
            "entropy_term": bonus,
            "entropy_ratio": bonus.abs() / nll.abs(),
            "entropy_coef": 0.1,
            "log_prob": (share * score.mean(0)).sum(),
            "weight_entropy": (share * -(weights * weights.log()).sum(0)).sum(),
            "ess": (share / weights.square().sum(0)).sum(),
            "weight_max": weights[:, counts].max(),
            "weight_min": weights[:, counts].min(),
            "state_std": (share * deviation).sum(),
            "scaled_mean": mean,
            "scaled_std": (share * (scaled - mean).square() / 6).sum().sqrt(),
            "scale": (share * deviation).sum(),
            "temperature": 0.5,
            "mean_abs": (share[:, None] * policy.loc.abs() / 2).sum(),
            "log_std": (share[:, None] * policy.log_std / 2).sum(),
            "saturated": (share[:, None] * saturated / 2).sum(),
        }
        assert metrics == pytest.approx(
            {k: float(torch.as_tensor(v).detach()) for k, v in expected.items()}
        )

    def test_weight_entropy_is_a_mean_over_starts(self) -> None:
        # The sum over a whole batch would grow with it; this is at most ln N.
        policy = table(starts=50)
        batch = replace(imagined(policy), target=torch.ones(6, 50, 2).double())
        metrics = awr()(policy(batch.start), batch).metrics
        assert float(metrics["weight_entropy"]) == pytest.approx(math.log(6))
        assert float(metrics["ess"]) == pytest.approx(6)

    def test_nothing_is_said_of_bounds_where_there_are_none(self) -> None:
        policy = table("normal")
        assert "saturated" not in awr()(policy(torch.zeros(5, 3)), imagined(policy)).metrics


@pytest.mark.parametrize(("share", "fewest"), [(0.9, 2), (0.5, 3), (0.05, 21)])
def test_it_says_how_many_candidates_a_sample_size_takes(share: float, fewest: int) -> None:
    assert awr(temperature={"rule": "ess", "share": share}).needs.min_candidates == fewest
