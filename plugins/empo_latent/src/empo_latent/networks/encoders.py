"""Encoders from observations to latents."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from empo_core.errors import ConfigError
from empo_latent.networks.ensemble import MlpEnsemble, simnorm
from empo_latent.params import SMALLEST_PICTURE, EncoderParams, LatentSpaceParams
from empo_latent.types import MultiTaskSpec

FILTERS = ((7, 2), (5, 2), (3, 2), (3, 1))
"""Size and stride of each convolution."""


class Encoder(nn.Module):
    """Observations, and what stands for their task, to latents.

    Vectors go through a multilayer perceptron; pictures first through convolutions.
    """

    def __init__(
        self,
        params: EncoderParams,
        latents: LatentSpaceParams,
        spec: MultiTaskSpec,
        *,
        embedding: int,
        generator: torch.Generator,
    ) -> None:
        """Make an encoder whose tasks are told by ``embedding`` numbers."""
        super().__init__()
        self.convolutions: Convolutions | None = None
        features = spec.words
        if spec.pictures:
            self.convolutions = Convolutions(params, spec.shape, spec.scale, generator=generator)
            features = self.convolutions.features
        self.perceptron = MlpEnsemble(
            1,
            features + embedding,
            [params.width] * (params.layers - 1),
            latents.size,
            final=partial(simnorm, group=latents.group),
            generator=generator,
        )

    def forward(
        self,
        observation: Shaped[Tensor, "*batch word"],
        embedding: Float[Tensor, "*#batch task_feature"] | None = None,
        *,
        training: bool = False,
    ) -> Float[Tensor, "*batch latent"]:
        """The latent of each observation; ``training`` shifts pictures."""
        if self.convolutions is not None:
            inputs = self.convolutions(observation, training=training)
        else:
            inputs = observation.to(next(self.perceptron.parameters()).dtype)
        if embedding is not None:
            inputs = torch.cat([inputs, embedding.expand(*inputs.shape[:-1], -1)], -1)
        latent: Tensor = self.perceptron(inputs)[0]
        return latent


class Convolutions(nn.Module):
    """Features of pictures."""

    def __init__(
        self,
        params: EncoderParams,
        shape: tuple[int, ...],
        scale: float = 255.0,
        *,
        generator: torch.Generator,
    ) -> None:
        """Make convolutions for channel-first pictures of ``shape``, from 0 to ``scale``."""
        super().__init__()
        channels, height, width = shape
        if min(height, width) < SMALLEST_PICTURE:
            raise ConfigError(
                f"pictures of {height} by {width} are too small for the encoder's {len(FILTERS)} "
                f"convolutions: use some of at least {SMALLEST_PICTURE} by {SMALLEST_PICTURE}, "
                "e.g. 64 by 64"
            )
        self._shape, self._shift = (channels, height, width), params.shift
        self._scale = scale
        self.layers = nn.ModuleList()
        for size, stride in FILTERS:
            height, width = ((side - size) // stride + 1 for side in (height, width))
            layer = nn.Conv2d(channels, params.channels, size, stride, device="meta")
            layer.to_empty(device="cpu")
            # LayerNorm follows only after all of them: until there, they keep the scale.
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            self.layers.append(layer)
            channels = params.channels
        self.features = channels * height * width

    def forward(
        self, observation: UInt8[Tensor, "*batch word"], *, training: bool = False
    ) -> Float[Tensor, "*batch feature"]:
        """The features of each picture, shifted at random in training."""
        batch = observation.shape[:-1]
        pictures = observation.reshape(math.prod(batch), *self._shape)
        if training and self._shift:
            pictures = shifted(pictures, self._shift)
        h = pictures.to(next(self.parameters()).dtype).div_(self._scale).sub_(0.5)
        for layer in self.layers[:-1]:
            h = F.relu(layer(h))
        features: Tensor = self.layers[-1](h)
        return features.reshape(*batch, self.features)


def shifted(
    pictures: UInt8[Tensor, "item channel height width"], max_shift: int
) -> UInt8[Tensor, "item channel height width"]:
    """Each picture moved by up to ``max_shift`` pixels along each axis, its edge repeated.

    The augmentation of DrQ (Yarats et al. 2021, sec. 4.1): pad by repeating the edge, crop at
    random. Here the crop's rows and columns are looked up in the picture itself, so neither a
    padded copy nor an interpolation is needed.
    """
    items, _, height, width = pictures.shape
    offsets = torch.randint(-max_shift, max_shift + 1, (2, items, 1), device=pictures.device)
    rows, columns = (
        (torch.arange(side, device=pictures.device) + offset).clamp(0, side - 1)
        for side, offset in zip((height, width), offsets, strict=True)
    )
    place = (rows[:, :, None] * width + columns[:, None, :]).flatten(1)
    flat = pictures.flatten(2)
    return flat.gather(2, place[:, None].expand_as(flat)).view_as(pictures)
