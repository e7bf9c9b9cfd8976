"""Layers that policies are built from, and what their weights start as."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from empo_core.protocols.environments import ObservationSpec
from empo_environments.normalisation import EPSILON
from empo_rollout.params import PolicyParams
from empo_rollout.policies.recurrent import Recurrent

COARSE = 16
"""A convolution that reads pictures with a longer side than this halves them."""
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = math.sqrt(2), 0.01, 1.0


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


class Trunk(nn.Module):
    """From scaled observations to features: convolutions over a picture, then dense layers.

    The words behind the picture join after the convolutions.
    """

    def __init__(self, params: PolicyParams, observations: ObservationSpec) -> None:
        super().__init__()
        activation, words = ACTIVATIONS[params.activation], observations.words
        self._grid: tuple[int, int, int] | None = None
        if params.network == "conv":
            assert observations.grid is not None
            self._grid = observations.grid
            self._pixels = math.prod(self._grid)
            self.convolutions, read = _convolutions(params.channels, self._grid, activation)
            words += read - self._pixels
        sizes = [words, *params.hidden]
        self.layers = nn.Sequential()
        for inputs, outputs in pairwise(sizes):
            self.layers.extend([nn.Linear(inputs, outputs), activation()])
        self.features = sizes[-1]

    @property
    def reads_pictures(self) -> bool:
        """True if there are convolutions."""
        return self._grid is not None

    def forward(self, observation: Float[Tensor, "row word"]) -> Float[Tensor, "row feature"]:
        """The features of each observation."""
        if self._grid is not None:
            picture = observation[:, : self._pixels].reshape(-1, *self._grid)
            # Convolutions take half the time, or less, where the channel counts fastest.
            picture = picture.contiguous(memory_format=torch.channels_last)
            read = self.convolutions(picture).flatten(1)
            observation = torch.cat([read, observation[:, self._pixels :]], 1)
        features: Tensor = self.layers(observation)
        return features


def _convolutions(
    channels: list[int], grid: tuple[int, int, int], activation: type[nn.Module]
) -> tuple[nn.Sequential, int]:
    """The convolutions, and how many numbers they make of a picture."""
    inputs, height, width = grid
    layers = nn.Sequential()
    for outputs in channels:
        stride = 2 if max(height, width) > COARSE else 1
        layers.extend([nn.Conv2d(inputs, outputs, 3, stride, padding=1), activation()])
        inputs, height, width = outputs, -(-height // stride), -(-width // stride)
    return layers, inputs * height * width


def scaled(
    observation: Shaped[Tensor, "*batch word"], scale: float
) -> Float[Tensor, "*batch word"]:
    """Pictures of bytes divided by their greatest value ``scale``; other numbers as they are."""
    if observation.dtype == torch.uint8:
        return observation.float().div_(scale)
    return observation


class ObservationNormalisation(nn.Module):
    """Observations shifted and scaled to mean 0 and variance 1, and cut to ``[-clip, clip]``.

    The same numbers as ``empo_environments.normalisation.normalise_observations`` gives.
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self, mean: Float[Tensor, " word"], variance: Float[Tensor, " word"], clip: float
    ) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("mean", mean)
        self.register_buffer("variance", variance)

    def forward(self, observation: Float[Tensor, "*batch word"]) -> Float[Tensor, "*batch word"]:
        """Normalised observations, float32."""
        scaled = (observation - self.mean) / torch.sqrt(self.variance + EPSILON)
        return scaled.clamp(-self.clip, self.clip).float()


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights with the gain of layers that an activation follows, and no biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            orthogonal(layer, HIDDEN_GAIN, generator)
        elif isinstance(layer, Recurrent):
            for weight in layer.parameters():
                if weight.ndim > 1:
                    nn.init.orthogonal_(weight, generator=generator)
                else:
                    nn.init.zeros_(weight)


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> None:
    """Orthogonal weights and no biases."""
    nn.init.orthogonal_(layer.weight, gain, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
