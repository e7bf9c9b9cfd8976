"""Fitting: what it reaches, what it leaves alone, what it remembers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.types import Quantity, ValueQuery
from empo_networks.network import FORGETTING, Network, NetworkRegression
from empo_testing.value_network import QUANTITIES, every_question
from empo_testing.worlds import TinyWorld

Make = Callable[..., Network]


def problem(quantity: Quantity, outputs: int) -> tuple[ValueQuery, Tensor, Tensor]:
    """Questions, targets far apart that nothing but the questions explains, and even weights."""
    query = every_question(TinyWorld(), quantity)
    low, high = {"v_h_e": (0.0, 1.0), "x_h": (0.01, 2.0)}.get(quantity, (-40.0, -1.0))
    generator = torch.Generator().manual_seed(1)
    target = torch.empty(len(query), outputs).uniform_(low, high, generator=generator)
    key = query.states.long() @ torch.tensor([[2], [1]]) + 100 * query.steps_left[:, None]
    for index in (query.human, query.goal):
        if index is not None:
            key = 10 * key + index[:, None]
    _, same = key.squeeze(1).unique(return_inverse=True)
    return query, target[same], torch.ones_like(target)


@pytest.mark.parametrize("kind", ["mlp", pytest.param("identity", marks=pytest.mark.slow)])
@pytest.mark.parametrize("quantity", QUANTITIES)
def test_it_learns_any_values(make: Make, quantity: Quantity, kind: str) -> None:
    network = make(kind, TinyWorld().spec, quantity, hidden=32)
    query, target, weight = problem(quantity, network.out.out_features)
    target = target * network.unit(query)
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=10.0)
    for _ in range(200):
        regression.fit(query, target, weight, lr=5e-3)
    for _ in range(50):
        regression.fit(query, target, weight, lr=5e-4)
    error = (network(query).detach() - target).abs() / (1 if quantity == "v_h_e" else target.abs())
    assert float(error.mean()) < 0.02


@pytest.mark.parametrize("space", ["value", "log", "z"])
def test_the_loss_is_the_weighted_mean_of_those_of_all_answers(make: Make, space: str) -> None:
    network = make("mlp", TinyWorld().spec, "q_r", space=space)
    query, target, weight = problem("q_r", 2)
    weight = torch.arange(weight.numel()).reshape(weight.shape).float()
    loss = network.scale.loss(network.raw(query), target, network.unit(query))
    expected = (weight * loss).sum() / weight.sum()
    gradients = torch.autograd.grad(expected, list(network.parameters()))
    fit = NetworkRegression(network, weight_decay=0.0, max_grad_norm=None).fit(
        query, target, weight, lr=1e-3
    )
    torch.testing.assert_close(fit.loss, expected.detach())
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    torch.testing.assert_close(fit.gradient_norm, norm)


def test_targets_without_weight_are_not_read(make: Make) -> None:
    query, target, weight = problem("q_r", 2)
    weight[::2, 0] = 0
    results = []
    for unread in (-3.0, float("nan"), float("inf")):
        network = make("mlp", TinyWorld().spec, "q_r")
        target[::2, 0] = unread
        NetworkRegression(network, weight_decay=0.0, max_grad_norm=1.0).fit(
            query, target, weight, lr=1e-2
        )
        results.append(network(query).detach())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_nothing_changes_where_nothing_counts(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "q_r")
    query, target, weight = problem("q_r", 2)
    regression = NetworkRegression(network, weight_decay=0.1, max_grad_norm=None)
    regression.fit(query, target, weight, lr=1e-2)
    before = copy.deepcopy(network.state_dict())
    assert float(regression.fit(query, target, 0 * weight, lr=1e-2).loss) == 0
    assert all(torch.equal(before[name], now) for name, now in network.state_dict().items())


@pytest.mark.parametrize("culprit", ["target", "weight", "parameter"])
def test_a_step_that_would_spoil_the_network_is_refused_and_named(make: Make, culprit: str) -> None:
    network = make("mlp", TinyWorld().spec, "v_r")
    query, target, weight = problem("v_r", 1)
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=1.0)
    regression.fit(query, target, weight, lr=1e-2)
    kept = copy.deepcopy(regression.state_dict())
    if culprit == "parameter":
        with torch.no_grad():
            network.out.bias.fill_(float("nan"))
    else:
        {"target": target, "weight": weight}[culprit][1, 0] = float("nan")
    before = copy.deepcopy(network.state_dict())
    named = {"parameter": "parameter out.bias of v_r", "target": "target 1 of v_r"}
    with pytest.raises(NonFiniteError, match=named.get(culprit, "weight 1 of v_r")):
        regression.fit(query, target, weight, lr=1e-2)
    for name, now in network.state_dict().items():
        assert torch.equal(now.nan_to_num(7.0), before[name].nan_to_num(7.0)), name
    assert all(torch.equal(kept[name], now) for name, now in regression.state_dict().items())


def test_long_gradients_are_cut_and_reported_uncut(make: Make) -> None:
    query, target, weight = problem("v_r", 1)
    moved, norms = [], []
    for limit in (None, 1e-9):
        network = make("mlp", TinyWorld().spec, "v_r")
        before = network.out.bias.detach().clone()
        regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=limit)
        norms.append(float(regression.fit(query, target, weight, lr=1e-2).gradient_norm))
        moved.append(float((network.out.bias.detach() - before).abs().max()))
    assert norms[0] == norms[1] > 1e-3
    # Adam divides by the size of the gradient plus 1e-8, which is more than is left of it.
    assert moved[1] < 0.2 * moved[0]


def test_a_restored_regression_goes_on_bit_for_bit(make: Make) -> None:
    query, target, weight = problem("q_r", 2)
    network = make("mlp", TinyWorld().spec, "q_r")
    regression = NetworkRegression(network, weight_decay=1e-3, max_grad_norm=1.0)
    for _ in range(3):
        regression.fit(query, target, weight, lr=1e-2)
    other = make("mlp", TinyWorld().spec, "q_r")
    resumed = NetworkRegression(other, weight_decay=1e-3, max_grad_norm=1.0)
    other.load_state_dict(copy.deepcopy(network.state_dict()))
    resumed.load_state_dict(copy.deepcopy(regression.state_dict()))
    for _ in range(3):
        for one in (regression, resumed):
            one.fit(query, target, weight, lr=1e-2)
    assert torch.equal(network(query), other(query))
    assert all(isinstance(moment, Tensor) for moment in regression.state_dict().values())


def test_a_fresh_regression_can_be_stored_and_restored(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "q_r")
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=None)
    assert regression.state_dict() == {}
    regression.fit(*problem("q_r", 2), lr=1e-2)
    regression.load_state_dict({})
    assert regression.state_dict() == {}


def test_the_state_of_another_network_is_refused(make: Make) -> None:
    wide = make("mlp", TinyWorld().spec, "q_r", hidden=32)
    regression = NetworkRegression(wide, weight_decay=0.0, max_grad_norm=None)
    regression.fit(*problem("q_r", 2), lr=1e-2)
    other = make("mlp", TinyWorld().spec, "q_r", hidden=16)
    with pytest.raises(ValueError, match=r"weights .*q_r"):
        NetworkRegression(other, weight_decay=0.0, max_grad_norm=None).load_state_dict(
            regression.state_dict()
        )


def test_units_are_dropped_while_fitting_only(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "q_r", dropout=0.5)
    query, target, weight = problem("q_r", 2)
    assert torch.equal(network(query), network(query))
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=None)
    losses = {float(regression.fit(query, target, weight, lr=1e-12).loss) for _ in range(3)}
    assert len(losses) == 3


@pytest.mark.slow
def test_no_step_is_too_long_after_errors_were_small_for_long(make: Make) -> None:
    """Targets that move after a rest, as when beta_r ramps, do not throw the network off."""
    network = make("mlp", TinyWorld().spec, "v_h_e", hidden=32)
    query, target, weight = problem("v_h_e", 1)
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=10.0)

    def error(right: Tensor) -> float:
        return float((network(query).detach() - right).abs().mean())

    for _ in range(3000):
        regression.fit(query, target, weight, lr=3e-3)
    assert error(target) < 1e-6
    moved = 0.97 * target
    before, worst = error(moved), 0.0
    for _ in range(60):
        regression.fit(query, moved, weight, lr=3e-3)
        worst = max(worst, error(moved))
    assert worst < 1.3 * before  # Adam without AMSGrad gets twice as far away.


def test_large_errors_do_not_shorten_steps_for_ever(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "v_r")
    query, target, weight = problem("v_r", 1)
    regression = NetworkRegression(network, weight_decay=0.0, max_grad_norm=None)
    regression.fit(query, target, weight, lr=1e-12)
    largest = regression.state_dict()["max_exp_avg_sq"].clone()
    right = network(query).detach()
    for _ in range(10):
        regression.fit(query, right, weight, lr=1e-12)
    left = regression.state_dict()["max_exp_avg_sq"]
    torch.testing.assert_close(left, FORGETTING**10 * largest)
