"""Encoders make latents of vectors and of pictures, of any size, and shift pictures honestly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from empo_core.errors import ConfigError
from empo_latent.networks.encoders import Encoder, shifted
from empo_latent.params import EncoderParams, LatentSpaceParams
from empo_latent.types import MultiTaskSpec

SIDE = 40


def spec(*shape: int) -> MultiTaskSpec:
    words = 1
    for length in shape:
        words *= length
    return MultiTaskSpec(
        words=words,
        pictures=len(shape) == 3,
        shape=shape,
        actions=1,
        active=((True,),),
        tasks=("one",),
        action_repeats=(1,),
        episode_lengths=(10,),
    )


def encoder(
    *shape: int, embedding: int = 0, latents: dict[str, Any] | None = None, **params: Any
) -> Encoder:
    """An encoder whose weights are no longer small."""
    generator = torch.Generator().manual_seed(0)
    small = {"width": 16, "channels": 4, **params}
    space = LatentSpaceParams.model_validate({"size": 12, "group": 4, **(latents or {})})
    result = Encoder(
        EncoderParams.model_validate(small),
        space,
        spec(*shape),
        embedding=embedding,
        generator=generator,
    )
    with torch.no_grad():
        for parameter in result.perceptron.parameters():
            parameter += torch.randn(parameter.shape, generator=generator)
    return result


def vectors(*batch: int) -> Tensor:
    return torch.randn((*batch, 5), generator=torch.Generator().manual_seed(1))


def pictures(*batch: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (*batch, channels * SIDE * SIDE)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def seen(kind: str, *batch: int) -> tuple[tuple[int, ...], Tensor]:
    """A shape and observations of it."""
    if kind == "vectors":
        return (5,), vectors(*batch)
    return (3, SIDE, SIDE), pictures(*batch)


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_groups_of_latents_are_distributions(kind: str, batch: tuple[int, ...]) -> None:
    shape, observation = seen(kind, *batch)

    latent = encoder(*shape)(observation)

    assert latent.shape == (*batch, 12)
    assert latent.min() >= 0
    sums = latent.view(*batch, 3, 4).sum(-1)
    torch.testing.assert_close(sums, torch.ones(*batch, 3))
    if batch:
        assert latent.flatten(0, -2).std(0).max() > 0.01


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
def test_observations_are_encoded_one_by_one(kind: str) -> None:
    shape, observation = seen(kind, 2, 3)
    made = encoder(*shape)

    torch.testing.assert_close(made(observation)[1, 2], made(observation[1, 2]))


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
@pytest.mark.parametrize(("layers", "width"), [(1, 16), (2, 16), (3, 16), (2, 20)])
def test_layers_and_width_count_what_they_say(kind: str, layers: int, width: int) -> None:
    shape, _ = seen(kind)

    weights = encoder(*shape, layers=layers, width=width).perceptron.weights

    assert len(weights) == layers
    assert [len(weight[0]) for weight in weights] == [width] * (layers - 1) + [12]


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
def test_the_size_of_groups_is_an_option(kind: str) -> None:
    shape, observation = seen(kind, 3)

    pairs = encoder(*shape, latents={"group": 2})(observation)

    torch.testing.assert_close(pairs.view(3, 6, 2).sum(-1), torch.ones(3, 6))


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
def test_what_stands_for_the_task_is_read(kind: str) -> None:
    shape, observation = seen(kind, 2, 3)
    made, embedding = encoder(*shape, embedding=2), torch.randn(3, 2)

    one = made(observation, embedding)
    other = made(observation, embedding + torch.tensor([[0.0], [1.0], [0.0]]) * 5)

    changed = (one - other).abs().amax((0, 2)) > 1e-4
    assert changed.tolist() == [False, True, False]


def test_pictures_are_shifted_in_training_only_and_by_the_shift() -> None:
    observation = pictures(8)
    moving, still = (encoder(3, SIDE, SIDE, shift=shift) for shift in (3, 0))
    torch.manual_seed(0)

    plain, trained = moving(observation), moving(observation, training=True)

    assert torch.equal(plain, moving(observation))
    assert not torch.allclose(plain, trained)
    assert torch.equal(still(observation), still(observation, training=True))


def test_shifted_pictures_are_crops_of_pictures_with_repeated_edges() -> None:
    items = 200
    generator = torch.Generator().manual_seed(1)
    before = torch.randint(0, 256, (items, 2, 5, 7), generator=generator, dtype=torch.uint8)
    padded = F.pad(before.float(), (1, 1, 1, 1), mode="replicate")
    crops = torch.stack(
        [padded[:, :, y : y + 5, x : x + 7] for y in range(3) for x in range(3)], dim=1
    )
    torch.manual_seed(0)

    after = shifted(before, 1)

    assert after.dtype == torch.uint8
    fits = (after[:, None].float() == crops).flatten(2).all(2)
    assert (fits.sum(1) == 1).all()
    # Every shift is as likely as any other: about 22 of 200 each.
    assert fits.sum(0).min() > 8


def test_pictures_are_read_as_numbers_around_zero() -> None:
    """Half-bright pictures say nothing to filters without offsets."""
    convolutions = encoder(3, SIDE, SIDE).convolutions
    assert convolutions is not None
    grey = torch.full((1, 3 * SIDE * SIDE), 127, dtype=torch.uint8)

    dark, bright = convolutions(grey), convolutions(grey + 128)

    assert dark.abs().max() < 0.01 * bright.abs().max()


@pytest.mark.parametrize("channels", [2, 4])
def test_channels_are_filters_of_each_convolution(channels: int) -> None:
    convolutions = encoder(3, SIDE, SIDE, channels=channels).convolutions

    assert convolutions is not None
    assert [len(layer.weight) for layer in convolutions.layers] == [channels] * 4
    assert convolutions(pictures(2)).shape == (2, convolutions.features)


def test_convolutions_keep_the_scale_of_what_they_see() -> None:
    convolutions = encoder(3, SIDE, SIDE, channels=32).convolutions

    assert convolutions is not None
    assert 0.1 < convolutions(pictures(8)).std().item() < 1


@pytest.mark.parametrize("shape", [(3, 38, 64), (3, 64, 38)])
def test_pictures_too_small_for_the_convolutions_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"too small .* at least 39 by 39"):
        encoder(*shape)


def test_the_smallest_pictures_are_read() -> None:
    made = encoder(1, 39, 39)

    assert made(torch.zeros(2, 39 * 39, dtype=torch.uint8)).shape == (2, 12)
