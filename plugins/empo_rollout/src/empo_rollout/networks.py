"""Policy networks: ``mlp``, ``conv``, and ``lstm`` behind either."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from empo_core.components import build
from empo_core.errors import ConfigError
from empo_core.protocols import PolicyNetwork
from empo_core.protocols.environments import ObservationSpec
from empo_rollout.network_params import ConvParams, LstmParams, MlpParams

COARSE = 16
"""A convolution that reads pictures with a longer side than this halves them."""
HIDDEN_GAIN = math.sqrt(2)
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


class Mlp(PolicyNetwork):
    """Dense layers, each with an activation behind it."""

    def __init__(self, params: MlpParams, observations: ObservationSpec) -> None:
        super().__init__()
        self.layers, self.features = _dense(observations.words, params)

    def forward(self, observation: Float[Tensor, "row word"]) -> Float[Tensor, "row feature"]:
        """The features of each observation."""
        features: Tensor = self.layers(observation)
        return features

    def initialise(self, generator: torch.Generator) -> None:
        """Orthogonal weights, and no biases."""
        orthogonal_layers(self, generator)


class Conv(PolicyNetwork):
    """Convolutions over a picture, then dense layers, which the words behind the picture join."""

    def __init__(self, params: ConvParams, observations: ObservationSpec) -> None:
        """Prepare for observations.

        Raises:
            ConfigError: if observations have no picture.
        """
        super().__init__()
        if observations.grid is None:
            raise ConfigError(
                f"policy network 'conv' reads pictures, but an observation here is a row of "
                f"{observations.words} {observations.dtype} numbers without a picture; choose "
                "'mlp'"
            )
        self._grid, self._pixels = observations.grid, math.prod(observations.grid)
        activation = ACTIVATIONS[params.activation]
        self.convolutions, read = _convolutions(params.channels, self._grid, activation)
        self.layers, self.features = _dense(observations.words - self._pixels + read, params)

    def forward(self, observation: Float[Tensor, "row word"]) -> Float[Tensor, "row feature"]:
        """The features of each observation."""
        picture = observation[:, : self._pixels].reshape(-1, *self._grid)
        # Convolutions take half the time, or less, where the channel counts fastest.
        picture = picture.contiguous(memory_format=torch.channels_last)
        read = self.convolutions(picture).flatten(1)
        features: Tensor = self.layers(torch.cat([read, observation[:, self._pixels :]], 1))
        return features

    def initialise(self, generator: torch.Generator) -> None:
        """Orthogonal weights, and no biases."""
        orthogonal_layers(self, generator)


def _dense(words: int, params: MlpParams) -> tuple[nn.Sequential, int]:
    """Dense layers that read so many numbers, and how many features they make."""
    sizes = [words, *params.hidden]
    layers = nn.Sequential()
    for inputs, outputs in pairwise(sizes):
        layers.extend([nn.Linear(inputs, outputs), ACTIVATIONS[params.activation]()])
    return layers, sizes[-1]


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


class Lstm(PolicyNetwork):
    """A recurrent layer behind another network, of which each agent has one row of memory."""

    def __init__(self, params: LstmParams, observations: ObservationSpec) -> None:
        """Prepare for observations.

        Raises:
            ConfigError: if the other network has a memory as well, or does not fit observations.
        """
        super().__init__()
        self.trunk: PolicyNetwork = build(params.trunk, observations)
        if self.trunk.memory_size:
            raise ConfigError(
                f"policy network 'lstm' has a memory, and so has its trunk {params.trunk.name!r}; "
                "choose one without, e.g. 'mlp'"
            )
        self.memory = Recurrent(params.cell, self.trunk.features, params.units)
        self.features, self.memory_size = params.units, self.memory.units

    def forward(self, observation: Float[Tensor, "row word"]) -> Float[Tensor, "row feature"]:
        """The features of observations that begin an episode."""
        memory = observation.new_zeros(len(observation), self.memory_size)
        starts = torch.ones(1, len(observation), dtype=torch.bool, device=observation.device)
        return self.unroll(observation[None], memory, starts)[0][0]

    def unroll(
        self,
        observation: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> tuple[Float[Tensor, "time segment feature"], Float[Tensor, "segment unit"]]:
        """Features at each step of segments, and the memory behind the last step."""
        read, _ = self.trunk.unroll(observation, memory[:, :0], starts)
        features, memory = self.memory(read, memory, starts)
        return features, memory

    def initialise(self, generator: torch.Generator) -> None:
        """Initial weights of the other network, then orthogonal ones of the layer, no biases."""
        self.trunk.initialise(generator)
        for weight in self.memory.parameters():
            if weight.ndim > 1:
                nn.init.orthogonal_(weight, generator=generator)
            else:
                nn.init.zeros_(weight)


class Recurrent(nn.Module):
    """An LSTM or GRU whose state is one row per agent; the LSTM's h and c lie side by side."""

    def __init__(self, kind: Literal["lstm", "gru"], inputs: int, size: int) -> None:
        super().__init__()
        self._states = 2 if kind == "lstm" else 1
        self.layer = (nn.LSTM if kind == "lstm" else nn.GRU)(inputs, size)
        self.features = size
        self.units = self._states * size

    def forward(
        self,
        features: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> tuple[Float[Tensor, "time segment feature"], Float[Tensor, "segment unit"]]:
        """Features at each step, and the memory behind the last; reset where episodes begin."""
        resets = (starts[1:].any(1).nonzero()[:, 0] + 1).tolist()
        outputs = []
        for first, last in pairwise([0, *resets, len(starts)]):
            memory = forgotten(memory, starts[first])
            state = [part[None].contiguous() for part in memory.chunk(self._states, 1)]
            hidden, new = self.layer(
                features[first:last], tuple(state) if self._states > 1 else state[0]
            )
            memory = torch.cat(new if self._states > 1 else [new], -1)[0].float()
            outputs.append(hidden)
        return torch.cat(outputs), memory


def forgotten(
    memory: Float[Tensor, "agent unit"], starts: Bool[Tensor, " agent"]
) -> Float[Tensor, "agent unit"]:
    """The memory, zero where an episode begins, whatever it was."""
    return memory.masked_fill(starts.unsqueeze(1), 0.0)


def orthogonal_layers(network: nn.Module, generator: torch.Generator) -> None:
    """Orthogonal weights with the gain of layers that an activation follows, and no biases."""
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            orthogonal(layer, HIDDEN_GAIN, generator)


def orthogonal(layer: nn.Linear | nn.Conv2d, gain: float, generator: torch.Generator) -> None:
    """Orthogonal weights and no biases."""
    nn.init.orthogonal_(layer.weight, gain, generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
