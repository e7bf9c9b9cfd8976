"""What moves the weights, by the formulas of each optimiser."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from empo_core.errors import StorageError
from empo_core.training.tree import flatten, unflatten
from empo_rollout.learning.optimisers import Optimiser
from empo_rollout.params import OptimiserParams

NAMES = ["adam", "adamw", "sgd", "muon"]


def weights() -> list[nn.Parameter]:
    """A matrix, a bias and a filter."""
    generator = torch.Generator().manual_seed(0)
    shapes = (4, 3), (5,), (2, 1, 3, 3)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def optimiser(name: str, some: list[nn.Parameter], **params: Any) -> Optimiser:
    return Optimiser(OptimiserParams(name=name, **params), some)


def set_gradients(some: list[nn.Parameter], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for weight in some:
        weight.grad = torch.randn(weight.shape, generator=generator)
    return [weight.grad.clone() for weight in some if weight.grad is not None]


def test_sgd_steps_along_the_gradient_with_the_first_beta_as_momentum() -> None:
    some = weights()
    before = [weight.detach().clone() for weight in some]
    mover = optimiser("sgd", some, betas=(0.5, 0.9))
    first = set_gradients(some, 1)
    mover.step(0.1)
    second = set_gradients(some, 2)
    mover.step(0.2)
    for weight, start, one, two in zip(some, before, first, second, strict=True):
        torch.testing.assert_close(weight, start - 0.1 * one - 0.2 * (two + 0.5 * one))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam_steps_by_its_formula(name: str) -> None:
    some = weights()
    before = [weight.detach().clone() for weight in some]
    decay = 0.3
    mover = optimiser(name, some, betas=(0.8, 0.9), eps=1e-3, weight_decay=decay)
    gradients = set_gradients(some, 1)
    mover.step(0.1)
    for weight, start, gradient in zip(some, before, gradients, strict=True):
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
        set_gradients(each, 1)
        mover.step(0.1)
    for mine, theirs in zip(some[1:], others[1:], strict=True):
        torch.testing.assert_close(mine, theirs)
    sizes = torch.linalg.svdvals(some[0].detach() - before)
    assert sizes.max() / sizes.min() < 2  # Those of the gradient are 3 times apart.
    gradient = set_gradients(weights(), 1)[0]
    spread = torch.linalg.svdvals(gradient)
    assert spread.max() / spread.min() > 2.5


@pytest.mark.parametrize("name", NAMES)
def test_weights_without_gradient_stay(name: str) -> None:
    some = weights()
    before = [weight.detach().clone() for weight in some]
    mover = optimiser(name, some, weight_decay=0.1)
    set_gradients(some, 1)
    some[1].grad = None
    mover.step(0.1)
    same = [torch.equal(weight, start) for weight, start in zip(some, before, strict=True)]
    assert same == [False, True, False]


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_optimiser_goes_on_exactly(name: str) -> None:
    some = weights()
    mover = optimiser(name, some)
    for seed in range(3):
        set_gradients(some, seed)
        mover.step(0.1)
    state, named = flatten(mover.state_dict())
    kept = {key: tensor.clone() for key, tensor in named.items()}
    saved = unflatten(state, {key: tensor.clone() for key, tensor in named.items()})
    others = [nn.Parameter(weight.detach().clone()) for weight in some]
    restored = optimiser(name, others)
    restored.load_state_dict(saved)
    for each, one in ((some, mover), (others, restored)):
        set_gradients(each, 7)
        one.step(0.05)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(some, others, strict=True))
    # What was saved is nobody's to change.
    assert all(torch.equal(tensor, kept[key]) for key, tensor in flatten(saved)[1].items())


def test_what_belongs_to_other_weights_is_refused() -> None:
    some = weights()
    mover = optimiser("adam", some)
    set_gradients(some, 0)
    mover.step(0.1)
    saved = mover.state_dict()
    with pytest.raises(StorageError, match=r"exp_avg that adam remembers of weight 0, .* \(4, 3\)"):
        optimiser("adam", some[::-1]).load_state_dict(saved)
    with pytest.raises(StorageError, match="weight 2"):
        optimiser("adam", some[:2]).load_state_dict(saved)
    with pytest.raises(StorageError, match="one of adam, and the optimiser consists of muon and"):
        optimiser("muon", some).load_state_dict(saved)
