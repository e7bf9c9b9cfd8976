"""Many networks in one are what they would be one by one, and begin the same however many."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference_latent_networks import reference_ensemble
from torch import Tensor, nn

from empo_latent.networks.ensemble import BLOCK, MlpEnsemble, mish, simnorm


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(heads: int = 3, stir: bool = True, seed: int = 0, **options: Any) -> MlpEnsemble:
    """An ensemble from 5 numbers to 6, in float64; stirred, no parameter is 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    result = MlpEnsemble(heads, 5, [7, 8], 6, generator=generator, **options).double()
    if stir:
        with torch.no_grad():
            for parameter in result.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.add_(0.5 * noise)
    return result


FINALS: list[dict[str, Any]] = [
    {},
    {"final": partial(simnorm, group=3)},
]


@pytest.mark.parametrize(
    ("heads", "split", "options"), list(itertools.product([1, 3], [False, True], FINALS))
)
def test_outputs_and_gradients_are_those_of_plain_torch(
    heads: int, split: bool, options: dict[str, Any]
) -> None:
    ours = made(heads, **options)
    plain = reference_ensemble(ours)
    shape = (heads, 2, 4, 5) if split else (2, 4, 5)
    x, other = (normal(*shape, seed=1).requires_grad_() for _ in range(2))
    weight = normal(heads, 2, 4, 6, seed=2)

    found, expected = ours(x, split=split), plain(other, split=split)

    assert found.shape == (heads, 2, 4, 6)
    torch.testing.assert_close(found, expected)
    for result in (found, expected):
        (result * weight).sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    for head, network in enumerate(plain.networks):
        for tensor, other in zip(layer_by_layer(ours), network.parameters(), strict=True):
            torch.testing.assert_close(tensor.grad[head], other.grad)


def layer_by_layer(ensemble: MlpEnsemble) -> Iterator[nn.Parameter]:
    """The parameters in the order of the layers they belong to."""
    for index in range(len(ensemble.weights)):
        yield from (ensemble.weights[index], ensemble.biases[index])
        if index < len(ensemble.scales):
            yield from (ensemble.scales[index], ensemble.shifts[index])


@pytest.mark.parametrize("batch", [(), (0,), (4,), (2, 3, 4), (BLOCK + 3,)])
def test_inputs_have_any_number_of_axes(batch: tuple[int, ...]) -> None:
    ensemble, x = made(), normal(*batch, 5)

    found = ensemble(x)

    assert found.shape == (3, *batch, 6)
    torch.testing.assert_close(found, reference_ensemble(ensemble)(x))


def test_single_heads_see_only_what_is_theirs() -> None:
    x = normal(3, 4, 5).requires_grad_()

    made()(x, split=True)[1].sum().backward()

    assert x.grad is not None
    assert x.grad.flatten(1).any(1).tolist() == [False, True, False]


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("chosen", [[2], [0, 2], [2, 1], [1, 1]])
def test_chosen_heads_say_what_they_say_among_all(split: bool, chosen: list[int]) -> None:
    ensemble, heads = made(), torch.tensor(chosen)
    x = normal(3, 4, 5) if split else normal(4, 5)

    found = ensemble(x[heads] if split else x, split=split, heads=heads)

    torch.testing.assert_close(found, ensemble(x, split=split)[heads])
    found.square().sum().backward()
    for parameter in ensemble.parameters():
        touched = [head for head in range(3) if parameter.grad[head].any()]
        assert touched == sorted(set(chosen))


@pytest.mark.parametrize("heads", [1, 5])
def test_initial_weights_do_not_depend_on_how_many_heads_there_are(heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    ensemble = MlpEnsemble(
        heads, 300, [200, 200], 50, zero_output=True, generator=generator, final=torch.tanh
    )

    for weight in ensemble.weights[:-1]:
        for head in weight:
            assert head.mean().abs().item() < 3 * 0.02 / head.numel() ** 0.5
            assert head.std().item() == pytest.approx(0.02, rel=0.03)
    for weight in (ensemble.weights[-1], *ensemble.biases, *ensemble.shifts):
        assert not weight.any()
    for scale in ensemble.scales:
        assert torch.equal(scale, torch.ones(heads, scale.shape[1]))
    assert len(ensemble.scales) == 3


def test_heads_begin_different_and_with_other_outputs_than_0_unless_told() -> None:
    ensemble = made(stir=False)

    first, second, third = ensemble(normal(4, 5))

    assert (first - second).abs().min() > 0
    assert (second - third).abs().min() > 0


def test_weights_are_drawn_with_the_given_generator_alone() -> None:
    torch.manual_seed(1)
    one = made(stir=False, seed=5)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    same, other = made(stir=False, seed=5), made(stir=False, seed=6)

    assert torch.equal(before, torch.get_rng_state())
    assert all(map(torch.equal, one.parameters(), same.parameters()))
    assert not torch.equal(one.weights[0], other.weights[0])


def test_dropout_leaves_out_a_share_of_the_first_layer_in_training() -> None:
    generator = torch.Generator().manual_seed(0)
    ensemble = MlpEnsemble(2, 3, [], 5000, dropout=0.2, generator=generator)
    torch.nn.init.constant_(ensemble.biases[0], 1.0)
    torch.manual_seed(0)

    left, right = ensemble(torch.zeros(2, 3), training=True).unbind(1)

    assert set(left.unique().tolist()) == {0.0, 1.25}
    assert (left == 0).float().mean().item() == pytest.approx(0.2, abs=0.02)
    assert not torch.equal(left, right)
    assert torch.equal(ensemble(torch.zeros(2, 3)), torch.ones(2, 2, 5000))


@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_comes_before_the_first_normalisation_and_nowhere_else(layers: int) -> None:
    """Normalised, what was left out is the same anywhere in a row, but not 0."""
    generator = torch.Generator().manual_seed(0)
    ensemble = MlpEnsemble(2, 400, [400] * layers, 400, dropout=0.2, generator=generator)
    with torch.no_grad():
        for weight in ensemble.weights:
            weight.copy_(torch.eye(400))
    torch.manual_seed(0)

    for outputs in ensemble(torch.linspace(1, 2, 400), training=True):
        values, counts = outputs.unique(return_counts=True)
        assert values[counts > 1].numel() == 1
        assert values[counts > 1].abs() > 0.1
        assert counts.max().item() == pytest.approx(80, abs=20)


def test_a_function_without_a_plain_version_is_refused() -> None:
    with pytest.raises(TypeError, match=r"tanh"):
        reference_ensemble(made(final=torch.tanh))


@pytest.mark.parametrize("group", [2, 4, 5, 8])
def test_simnorm_is_a_softmax_in_each_group(group: int) -> None:
    x = 10 * normal(3, 2, 40)

    found = simnorm(x, group)

    expected = F.softmax(x.view(3, 2, -1, group), -1)
    torch.testing.assert_close(found, expected.view(3, 2, 40))
    torch.testing.assert_close(
        found.view(3, 2, -1, group).sum(-1), torch.ones(3, 2, 40 // group).double()
    )


def test_simnorm_of_huge_numbers_is_finite() -> None:
    x = torch.tensor([1e30, 0.0, -1e30, 1e30, 5e3, 4e3, 3e3, -5e3])

    expected = torch.tensor([0.5, 0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(simnorm(x, 4), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mish_is_torch_s_mish_however_large_numbers_are(dtype: torch.dtype) -> None:
    x = torch.cat([torch.linspace(-30, 30, 601), torch.tensor([-1e4, -100.0, 100.0, 1e4])]).to(
        dtype
    )
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))

    with torch.no_grad():
        constant = mish(ours)
    found, expected = mish(ours), F.mish(theirs)

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(constant, expected)
    for result in (found, expected):
        result.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("function", [mish, lambda x: simnorm(x, 3)], ids=["mish", "simnorm"])
def test_gradients_are_those_of_finite_differences(function: Callable[[Tensor], Tensor]) -> None:
    x = (3 * normal(4, 6)).requires_grad_()

    assert torch.autograd.gradcheck(function, x)


@pytest.mark.parametrize("function", [mish, lambda x: simnorm(x, 3)], ids=["mish", "simnorm"])
def test_arguments_stay_as_they_are(function: Callable[[Tensor], Tensor]) -> None:
    x = normal(4, 6)
    before = x.clone()

    function(x)
    function(x.requires_grad_()).sum().backward()

    assert torch.equal(x, before)


@pytest.mark.parametrize("function", [mish, lambda x: simnorm(x, 3)], ids=["mish", "simnorm"])
def test_function_transforms_see_the_same_gradients(function: Callable[[Tensor], Tensor]) -> None:
    x, weight = normal(4, 6).requires_grad_(), normal(4, 6, seed=1)
    (function(x) * weight).sum().backward()

    found = torch.func.grad(lambda x: (function(x) * weight).sum())(x.detach())

    torch.testing.assert_close(found, x.grad)
