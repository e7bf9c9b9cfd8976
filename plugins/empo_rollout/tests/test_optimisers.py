"""Optimiser steps against each optimiser's formulas, and learning rate schedules."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from empo_core.errors import StorageError
from empo_learning.state_tree import flatten, unflatten
from empo_rollout.learning.learning_rate import learning_rate
from empo_rollout.learning.optimisers import Optimiser, flattened
from empo_rollout.params import OptimiserParams

NAMES = ["adam", "adamw", "sgd", "muon"]


def weights() -> list[nn.Parameter]:
    """A matrix, a bias and a filter."""
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 3), (5,), (2, 1, 3, 3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def optimiser(name: str, weights: list[nn.Parameter], **params: Any) -> Optimiser:
    return Optimiser(OptimiserParams(name=name, **params), weights)


def gradients(seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(weight.shape, generator=generator) for weight in weights()]


def test_sgd_steps_along_the_gradient_with_the_first_beta_as_momentum() -> None:
    some = weights()
    before = [weight.detach().clone() for weight in some]
    mover = optimiser("sgd", some, betas=(0.5, 0.9))
    first, second = gradients(1), gradients(2)
    mover.step(flattened(first), 0.1)
    mover.step(flattened(second), 0.2)
    for weight, start, one, two in zip(some, before, first, second, strict=True):
        torch.testing.assert_close(weight, start - 0.1 * one - 0.2 * (two + 0.5 * one))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_steps_by_its_formula(name: str) -> None:
    some = weights()
    before = [weight.detach().clone() for weight in some]
    decay = 0.3
    mover = optimiser(name, some, betas=(0.8, 0.9), eps=1e-3, weight_decay=decay)
    slopes = gradients(1)
    mover.step(flattened(slopes), 0.1)
    for weight, start, gradient in zip(some, before, slopes, strict=True):
        base, slope = start, gradient
        if name == "adam":
            slope = gradient + decay * start
        else:
            base = start * (1 - 0.1 * decay)
        # After one step the corrected averages are the gradient and its square.
        torch.testing.assert_close(weight, base - 0.1 * slope / (slope.abs() + 1e-3))


def test_muon_moves_matrices_in_all_directions_alike_and_the_rest_as_adamw() -> None:
    some, others = weights(), weights()
    before = some[0].detach().clone()
    for each, name in ((some, "muon"), (others, "adamw")):
        mover = optimiser(name, each, eps=1e-5)
        mover.step(flattened(gradients(1)), 0.1)
    for mine, theirs in zip(some[1:], others[1:], strict=True):
        torch.testing.assert_close(mine, theirs)
    sizes = torch.linalg.svdvals(some[0].detach() - before)
    assert sizes.max() / sizes.min() < 2  # Those of the gradient are 3 times apart.
    spread = torch.linalg.svdvals(gradients(1)[0])
    assert spread.max() / spread.min() > 2.5


@pytest.mark.parametrize("name", NAMES)
def test_a_step_begins_where_the_weights_are(name: str) -> None:
    some = weights()
    mover = optimiser(name, some)
    with torch.no_grad():
        for weight in some:
            weight += 1  # As loading a checkpoint may do.
    mover.step(flattened(gradients(1)), 0.0)
    for weight, before in zip(some, weights(), strict=True):
        assert torch.equal(weight, before + 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_optimiser_goes_on_exactly(name: str) -> None:
    some = weights()
    mover = optimiser(name, some)
    for seed in range(3):
        mover.step(flattened(gradients(seed)), 0.1)
    state, named = flatten(mover.state_dict())
    kept = {key: tensor.clone() for key, tensor in named.items()}
    saved = unflatten(state, {key: tensor.clone() for key, tensor in named.items()})
    others = [nn.Parameter(weight.detach().clone()) for weight in some]
    restored = optimiser(name, others)
    restored.load_state_dict(saved)
    for one in (mover, restored):
        one.step(flattened(gradients(7)), 0.05)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(some, others, strict=True))
    # What was saved is nobody's to change.
    assert all(torch.equal(tensor, kept[key]) for key, tensor in flatten(saved)[1].items())


def test_what_belongs_to_other_weights_is_refused() -> None:
    some = weights()
    mover = optimiser("adam", some)
    mover.step(flattened(gradients(0)), 0.1)
    saved = mover.state_dict()
    with pytest.raises(StorageError, match=r"exp_avg of weight 0 has shape \[35\]"):
        optimiser("adam", some[:2]).load_state_dict(saved)
    with pytest.raises(StorageError, match="weight 1"):
        optimiser("adam", some).load_state_dict({"adam": {"1": saved["adam"]["0"]}})
    with pytest.raises(StorageError, match=r"adam, .*adamw and muon"):
        optimiser("muon", some).load_state_dict(saved)


def test_the_learning_rate_falls_over_the_run() -> None:
    for schedule, half in (("constant", 2.0), ("linear", 1.0), ("cosine", 1.0)):
        assert learning_rate(2.0, schedule, 0.0) == 2.0
        assert math.isclose(learning_rate(2.0, schedule, 0.5), half)
    assert learning_rate(2.0, "constant", 1.0) == 2.0
    assert math.isclose(learning_rate(2.0, "linear", 0.25), 1.5)
    assert math.isclose(learning_rate(2.0, "cosine", 0.25), 1 + math.sqrt(0.5))
    for schedule in ("linear", "cosine"):
        assert learning_rate(2.0, schedule, 1.0) == 0.0
        assert learning_rate(2.0, schedule, 1.2) == 0.0  # The last rollout may go past the end.


def test_the_learning_rate_warms_up_over_its_first_steps() -> None:
    rates = [learning_rate(1.0, "constant", 0.0, step=step, warm_up=4) for step in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert learning_rate(1.0, "linear", 0.5, step=1, warm_up=4) == 0.25
