"""Fitting: values that it reaches, errors that it counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from empo_core.types import Quantity, ValueQuery
from empo_networks.network import Network
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
    regression = network.regression(weight_decay=0.0, max_grad_norm=10.0)
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
    fit = network.regression(weight_decay=0.0, max_grad_norm=None).fit(
        query, target, weight, lr=1e-3
    )
    torch.testing.assert_close(fit.loss, expected.detach())
    norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
    torch.testing.assert_close(fit.gradient_norm, norm)


def test_units_are_dropped_while_fitting_only(make: Make) -> None:
    network = make("mlp", TinyWorld().spec, "q_r", dropout=0.5)
    query, target, weight = problem("q_r", 2)
    assert torch.equal(network(query), network(query))
    regression = network.regression(weight_decay=0.0, max_grad_norm=None)
    losses = {float(regression.fit(query, target, weight, lr=1e-12).loss) for _ in range(3)}
    assert len(losses) == 3


@pytest.mark.slow
def test_no_step_is_too_long_after_errors_were_small_for_long(make: Make) -> None:
    """Targets that move after a rest, as when beta_r ramps, do not throw the network off."""
    network = make("mlp", TinyWorld().spec, "v_h_e", hidden=32)
    query, target, weight = problem("v_h_e", 1)
    regression = network.regression(weight_decay=0.0, max_grad_norm=10.0)

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
