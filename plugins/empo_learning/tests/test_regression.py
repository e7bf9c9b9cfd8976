"""One step of fitting, against the same step written out by hand, and what it refuses."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from empo_core.errors import NonFiniteError, StorageError
from empo_core.protocols import Regression, ValueNetwork
from empo_core.types import Fit, Quantity, ValueQuery
from empo_learning.checkpoint import Checkpoints
from empo_learning.regression import FORGETTING, INTERVAL, GradientRegression, regression_of

QUERIES = 6


class Net(ValueNetwork):
    """Two layers in float64; the last parameter is not used."""

    quantity: Quantity = "v_h_e"

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first = nn.Linear(2, 3).double()
            self.second = nn.Linear(3, 1).double()
        self.unused = nn.Parameter(torch.ones(2, dtype=torch.float64))

    def forward(self, query: ValueQuery) -> Tensor:
        answers: Tensor = self.second(self.first(query.states.double()).tanh())
        return answers


@pytest.fixture
def query() -> ValueQuery:
    states = torch.randint(-2, 3, (QUERIES, 2), generator=torch.Generator().manual_seed(1))
    return ValueQuery(states, torch.ones(QUERIES, dtype=torch.int64))


@pytest.fixture
def target() -> Tensor:
    return torch.linspace(-1, 1, QUERIES, dtype=torch.float64)[:, None]


@pytest.fixture
def weight() -> Tensor:
    return torch.tensor([0.5, 1.0, 0.0, 2.0, 0.25, 1.0], dtype=torch.float64)[:, None]


def snapshot(network: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(network.state_dict())


def unchanged(network: nn.Module, before: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(before[name], now) for name, now in network.state_dict().items())


class ByHand:
    """AMSGrad that forgets, with decay of weights and clipped gradients, in plain formulas."""

    def __init__(self, network: nn.Module, decay: float, longest: float | None) -> None:
        self.network, self.decay, self.longest, self.step = network, decay, longest, 0
        self.m = [torch.zeros_like(p) for p in network.parameters()]
        self.v = [torch.zeros_like(p) for p in network.parameters()]
        self.largest = [torch.zeros_like(p) for p in network.parameters()]

    def fit(self, query: ValueQuery, target: Tensor, weight: Tensor, lr: float) -> tuple[Any, Any]:
        parameters = list(self.network.parameters())
        total = 0.0
        answers = self.network(query)
        for i in range(QUERIES):
            total = total + weight[i, 0] * (answers[i, 0] - target[i, 0]) ** 2
        loss = total / float(weight.sum())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients if g is not None))
        self.step += 1
        with torch.no_grad():
            for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
                if g is None:
                    continue
                if self.longest is not None and norm > self.longest:
                    g = g * self.longest / (norm + 1e-6)  # As torch does.
                g = g + self.decay * p
                self.m[i] = 0.9 * self.m[i] + 0.1 * g
                self.v[i] = 0.999 * self.v[i] + 0.001 * g**2
                kept = FORGETTING if self.step % INTERVAL == 0 else 1.0
                self.largest[i] = torch.maximum(kept * self.largest[i], self.v[i])
                m, v = self.m[i] / (1 - 0.9**self.step), self.largest[i] / (1 - 0.999**self.step)
                p -= lr * m / (v.sqrt() + 1e-8)
        return float(loss.detach()), norm


@pytest.mark.parametrize(("decay", "longest"), [(0.0, None), (0.1, None), (0.1, 0.05), (0.0, 1e9)])
def test_steps_equal_those_written_out_by_hand(
    query: ValueQuery, target: Tensor, weight: Tensor, decay: float, longest: float | None
) -> None:
    network, reference = Net(), Net()
    regression = GradientRegression(network, weight_decay=decay, max_grad_norm=longest)
    by_hand = ByHand(reference, decay, longest)
    for lr in (0.1, 0.05, 0.2, *[0.01] * INTERVAL):
        fit = regression.fit(query, target, weight, lr=lr)
        loss, norm = by_hand.fit(query, target, weight, lr)
        assert float(fit.loss) == pytest.approx(loss, rel=1e-10)
        assert float(fit.gradient_norm) == pytest.approx(norm, rel=1e-10)
    for name, value in network.state_dict().items():
        torch.testing.assert_close(value, reference.state_dict()[name], rtol=1e-12, atol=1e-12)
    assert torch.equal(network.unused, torch.ones(2, dtype=torch.float64))


def test_it_learns(query: ValueQuery, target: Tensor) -> None:
    network = Net()
    regression = GradientRegression(network, weight_decay=0.0, max_grad_norm=None)
    weight = torch.ones_like(target)
    first = regression.fit(query, network(query).detach() + 1, weight, lr=0.0).loss
    assert float(first) == pytest.approx(1.0)
    losses = [float(regression.fit(query, target, weight, lr=0.05).loss) for _ in range(400)]
    assert losses[-1] < 0.05 * losses[0]


def test_a_target_without_weight_is_not_read(
    query: ValueQuery, target: Tensor, weight: Tensor
) -> None:
    networks = Net(), Net()
    for network, hidden in zip(networks, (0.0, math.nan), strict=True):
        regression = GradientRegression(network, weight_decay=0.0, max_grad_norm=1.0)
        fit = regression.fit(query, torch.where(weight > 0, target, hidden), weight, lr=0.1)
        assert math.isfinite(fit.loss)
    assert unchanged(networks[0], networks[1].state_dict())


@pytest.mark.parametrize("hidden", [0.0, math.nan])
def test_without_any_weight_nothing_changes(
    query: ValueQuery, target: Tensor, weight: Tensor, hidden: float
) -> None:
    network = Net()
    regression = GradientRegression(network, weight_decay=0.5, max_grad_norm=1.0)
    regression.fit(query, target, weight, lr=0.1)
    before, remembered = snapshot(network), copy.deepcopy(regression.state_dict())
    nothing = torch.zeros_like(weight)
    fit = regression.fit(query, torch.full_like(target, hidden), nothing, lr=0.1)
    assert (float(fit.loss), float(fit.gradient_norm)) == (0.0, 0.0)
    assert unchanged(network, before)
    assert repr(regression.state_dict()) == repr(remembered)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["target", "weight", "parameter", "gradient"])
def test_what_is_not_finite_is_refused_before_anything_changes(
    query: ValueQuery, target: Tensor, weight: Tensor, bad: float, where: str
) -> None:
    network = Net()
    regression = GradientRegression(network, weight_decay=0.1, max_grad_norm=1.0)
    regression.fit(query, target, weight, lr=0.1)
    if where == "target":
        target[1] = bad
    elif where == "weight":
        weight[1] = bad
    elif where == "parameter":
        with torch.no_grad():
            network.second.bias.fill_(bad)
    else:
        network.first.weight.register_hook(lambda gradient: gradient.fill_(bad))
    before, remembered = snapshot(network), repr(regression.state_dict())
    what = {
        "parameter": r"weight v_h_e\.second\.bias",
        "gradient": "gradient of v_h_e",
    }.get(where, f"{where} 1 of v_h_e")
    with pytest.raises(NonFiniteError, match=what):
        regression.fit(query, target, weight, lr=0.1)
    assert all(
        torch.equal(before[name].nan_to_num(), now.nan_to_num())
        for name, now in network.state_dict().items()
    )
    assert repr(regression.state_dict()) == remembered
    assert all(parameter.grad is None for parameter in network.parameters())


def test_fitting_goes_on_exactly_from_a_checkpoint(
    query: ValueQuery, target: Tensor, weight: Tensor, tmp_path: Path
) -> None:
    network = Net()
    regression = GradientRegression(network, weight_decay=0.1, max_grad_norm=1.0)
    for _ in range(3):
        regression.fit(query, target, weight, lr=0.1)
    state = {"network": network.state_dict(), "regression": regression.state_dict()}
    Checkpoints(tmp_path).save(3, state)
    _, found = Checkpoints(tmp_path).newest() or (0, {})
    resumed = Net(seed=9)
    resumed.load_state_dict(found["network"])
    again = GradientRegression(resumed, weight_decay=0.1, max_grad_norm=1.0)
    again.load_state_dict(found["regression"])
    for _ in range(3):
        expected = regression.fit(query, target, weight, lr=0.1)
        assert torch.equal(again.fit(query, target, weight, lr=0.1).loss, expected.loss)
    assert unchanged(resumed, network.state_dict())


def test_a_fresh_regression_can_be_stored_too() -> None:
    regression = GradientRegression(Net(), weight_decay=0.0, max_grad_norm=None)
    assert regression.state_dict() == {"steps": 0, "moments": {}}
    regression.load_state_dict(regression.state_dict())


@pytest.mark.parametrize("number", ["0", "17", "x"])
def test_moments_of_another_network_are_refused(
    query: ValueQuery, target: Tensor, weight: Tensor, number: str
) -> None:
    regression = GradientRegression(Net(), weight_decay=0.0, max_grad_norm=None)
    moments = {number: {"step": torch.tensor(1.0), "exp_avg": torch.ones(7)}}
    with pytest.raises(StorageError, match=rf"weight {number}\b"):
        regression.load_state_dict({"steps": 1, "moments": moments})


def test_a_network_without_parameters_is_refused() -> None:
    network = Net().requires_grad_(False)
    with pytest.raises(ValueError, match="network of v_h_e"):
        GradientRegression(network, weight_decay=0.0, max_grad_norm=None)


def test_it_also_works_where_gradients_are_off(
    query: ValueQuery, target: Tensor, weight: Tensor
) -> None:
    network = Net()
    before = snapshot(network)
    with torch.no_grad():
        GradientRegression(network, weight_decay=0.0, max_grad_norm=None).fit(
            query, target, weight, lr=0.1
        )
    assert not unchanged(network, before)


class Means:
    """A regression of a network's own."""

    def __init__(self, **settings: float | None) -> None:
        self.settings = settings

    def fit(self, query: ValueQuery, target: Tensor, weight: Tensor, *, lr: float) -> Fit:
        raise AssertionError("not called here")

    def default_lr(self, *, sampled: bool) -> float:
        raise AssertionError("not called here")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        assert not state_dict


class FittedByMeans(Net):
    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        return Means(weight_decay=weight_decay, max_grad_norm=max_grad_norm)


def test_a_network_is_fitted_by_its_own_regression() -> None:
    regression = regression_of(FittedByMeans(), weight_decay=0.5, max_grad_norm=2.0)
    assert isinstance(regression, Means)
    assert regression.settings == {"weight_decay": 0.5, "max_grad_norm": 2.0}


def test_networks_are_fitted_by_gradient_descent_otherwise() -> None:
    regression = regression_of(Net(), weight_decay=0.5, max_grad_norm=2.0)
    assert isinstance(regression, GradientRegression)
    assert isinstance(regression, Regression)
