"""Encoders of states, humans and goals: from features to a table of codes.

Each encodes everything once, however many questions are about it: states to ``[state code]``,
goals to ``[goal code]``, humans to ``[state * human code]``, or to ``[human code]`` where nothing
that a state says about its agents is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from empo_core.features import Features, FeatureShape
from empo_core.types import WorldSpec
from empo_networks.features import FeatureScaler, goal_numbers

Activation = Callable[[Tensor], Tensor]
MANY = 64
"""Rows from which on it pays to look for features that are 0 in all of them."""
ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
}


def linear(
    in_features: int, out_features: int, *, bias: bool = True, active: int | None = None
) -> nn.Linear:
    """A linear map whose answers start out moderate, few of its inputs being other than 0.

    Args:
        in_features: How many inputs there are.
        out_features: How many outputs.
        bias: Whether something is added.
        active: About how many inputs are not 0; None means all.
    """
    made = nn.Linear(in_features, out_features, bias=bias)
    with torch.no_grad():
        made.weight.normal_(0.0, (2 / max(active or in_features, 1)) ** 0.5)
        if bias:
            made.bias.zero_()
    return made


def of_sparse(
    layer: nn.Linear, parts: list[Float[Tensor, "batch _feature"]]
) -> Float[Tensor, "batch code"]:
    """The same as ``layer(torch.cat(parts, 1))``, without the columns that are 0 in all rows.

    Most columns of pictures are: those of what is not in a world, or not where it could be.
    """
    if not _pays(parts[0]):
        plain: Tensor = layer(torch.cat(parts, 1))
        return plain
    used = [_used(part) for part in parts]
    # index_select would first copy parts of a larger tensor.
    x = torch.cat([part[:, columns_of] for part, columns_of in zip(parts, used, strict=True)], 1)
    begins = accumulate((part.shape[1] for part in parts[:-1]), initial=0)
    columns = torch.cat(
        [columns_of + begin for columns_of, begin in zip(used, begins, strict=True)]
    )
    return functional.linear(x, layer.weight.index_select(1, columns), layer.bias)


def of_sparse_picture(
    layer: nn.Conv2d, picture: Float[Tensor, "batch channel height width"]
) -> Float[Tensor, "batch filter height width"]:
    """The same as ``layer(picture)``, without the channels that are 0 everywhere."""
    if not _pays(picture):
        plain: Tensor = layer(picture)
        return plain
    used = _used(picture)
    weight = layer.weight.index_select(1, used)
    return functional.conv2d(picture[:, used], weight, layer.bias, padding=layer.padding)


def _pays(batch: Float[Tensor, "batch ..."]) -> bool:
    """Whether to look for zeros takes less time than to multiply by them."""
    return len(batch) >= MANY and batch.is_cpu and not torch.onnx.is_in_onnx_export()


def _used(batch: Float[Tensor, "batch feature ..."]) -> Int[Tensor, " some"]:
    """Which features are not 0 everywhere."""
    others = tuple(axis for axis in range(batch.ndim) if axis != 1)
    return torch.from_numpy(np.flatnonzero(batch.numpy().any(others)))


class Layers(nn.Module):
    """Hidden layers one after the other, each with its activation."""

    def __init__(
        self, sizes: Sequence[int], activation: str,
        *, layer_norm: bool = False, active: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        pairs = list(pairwise(sizes))
        self._activation = activation
        self.linears = nn.ModuleList(
            linear(in_features, out_features, active=None if i else active)
            for i, (in_features, out_features) in enumerate(pairs)
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(out_features) for _, out_features in pairs if layer_norm
        )

    def forward(
        self, x: Float[Tensor, "batch feature"], dropout: float = 0.0
    ) -> Float[Tensor, "batch code"]:
        """Output of the last layer."""
        for i, layer in enumerate(self.linears):
            x = self._activated(i, layer(x), dropout)
        return x

    def of_parts(self, parts: list[Float[Tensor, "batch _feature"]]) -> Float[Tensor, "batch code"]:
        """The same where the input is in parts, and most of its columns are 0."""
        if not len(self.linears):
            return torch.cat(parts, 1)
        first, *others = self.linears
        x = self._activated(0, of_sparse(cast("nn.Linear", first), parts))
        for i, layer in enumerate(others, 1):
            x = self._activated(i, layer(x))
        return x

    def _activated(
        self, i: int, x: Float[Tensor, "batch code"], dropout: float = 0.0
    ) -> Float[Tensor, "batch code"]:
        if self.norms:
            x = self.norms[i](x)
        x = ACTIVATIONS[self._activation](x)
        return functional.dropout(x, dropout) if dropout else x


class Encoder(nn.Module):
    """From features to a table of codes."""

    width: int
    """Length of a code."""

    @property
    def learns(self) -> bool:
        """True where it has parameters to train."""
        return any(True for _ in self.parameters())


class FlatStates(Encoder):
    """All features of a state in a row, through some layers; none of them is the identity."""

    def __init__(
        self, scaler: FeatureScaler, sizes: Sequence[int], activation: str, *, layer_norm: bool
    ) -> None:
        super().__init__()
        sizes = [scaler.shape.flat, *sizes]
        self.layers = Layers(sizes, activation, layer_norm=layer_norm, active=scaler.active)
        self.width = sizes[-1]
        self._parts = filled_parts(scaler.shape)

    def forward(self, features: Features) -> Float[Tensor, "state code"]:
        """The code of each state."""
        flat = [getattr(features, part).flatten(1) for part in self._parts]
        return self.layers.of_parts(flat)


class GridStates(Encoder):
    """Convolutions over the grid, beside agents, objects and globals.

    Of ``hidden`` units a fourth (at least 8) are the filters of each convolution; half say what
    is on the grid, a fourth what the agents do, an eighth what the objects do.
    """

    def __init__(
        self, shape: FeatureShape, hidden: int, convolutions: int, activation: str,
        *, layer_norm: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        self._activation = activation
        filters = max(hidden // 4, 8)
        channels = [shape.channels, *[filters] * convolutions]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(in_features, out_features, kernel_size=3, padding=1)
            for in_features, out_features in pairwise(channels)
        )
        parts = {
            "grid": (filters * shape.height * shape.width, hidden // 2),
            "agents": (shape.agents * shape.agent_features, hidden // 4),
            "objects": (shape.objects * shape.object_features, hidden // 8),
        }
        parts = {name: sizes for name, sizes in parts.items() if sizes[0]}
        self.parts = nn.ModuleDict({name: Layers(part, activation) for name, part in parts.items()})
        joined = sum(out_features for _, out_features in parts.values()) + shape.globals
        self.joint = Layers([joined, hidden], activation, layer_norm=layer_norm)
        self.width = hidden
        self._has_globals = shape.globals > 0

    def forward(self, features: Features) -> Float[Tensor, "state code"]:
        """The code of each state."""
        activation = ACTIVATIONS[self._activation]
        first, *others = self.convolutions
        picture = activation(of_sparse_picture(cast("nn.Conv2d", first), features.grid))
        for convolution in others:
            picture = activation(convolution(picture))
        flat = {"grid": picture, "agents": features.agents, "objects": features.objects}
        codes = [part(flat[name].flatten(1)) for name, part in self.parts.items()]
        if self._has_globals:
            codes.append(features.globals)
        code: Tensor = self.joint(torch.cat(codes, 1))
        return code


class Humans(Encoder):
    """Encoding of humans: a learned code each, and the state's features of that agent.

    The code of its own tells agents apart that look alike.
    """

    _humans: Tensor

    def __init__(self, spec: WorldSpec, shape: FeatureShape, width: int, activation: str) -> None:
        super().__init__()
        self._activation, self.width = activation, width
        embedding = 0.5 * torch.randn(len(spec.humans), width)
        self.register_parameter("own", nn.Parameter(embedding))  # The name that files have.
        self.register_buffer("_humans", torch.tensor(spec.humans), persistent=False)
        self.features = linear(shape.agent_features, width) if reads_agents(shape) else None

    def forward(self, features: Features) -> Float[Tensor, "row code"]:
        """The code of each human, in each state if that matters."""
        code: Tensor = self.get_parameter("own")
        if self.features is not None:
            code = self.features(features.agents.index_select(1, self._humans)) + code
        return ACTIVATIONS[self._activation](code).flatten(0, -2)


class KnownHumans(Encoder):
    """Encoding of humans without learning: one-hot number, and the agent's features."""

    _humans: Tensor
    _number: Tensor

    def __init__(self, spec: WorldSpec, shape: FeatureShape) -> None:
        super().__init__()
        self._reads_agents = reads_agents(shape)
        count = len(spec.humans)
        self.width = count + (shape.agent_features if self._reads_agents else 0)
        self.register_buffer("_humans", torch.tensor(spec.humans), persistent=False)
        self.register_buffer("_number", torch.eye(count), persistent=False)

    def forward(self, features: Features) -> Float[Tensor, "row code"]:
        """Number and features of each human, in each state if that matters."""
        number = self._number
        if not self._reads_agents:
            return number
        numbers = features.agents.index_select(1, self._humans)
        return torch.cat([numbers, number.expand(numbers.shape[0], -1, -1)], -1).flatten(0, 1)


class Goals(Encoder):
    """Which goal it is: a code of its own, and what its features say."""

    _numbers: Tensor

    def __init__(self, spec: WorldSpec, width: int, activation: str) -> None:
        super().__init__()
        self._activation, self.width = activation, width
        numbers = goal_numbers(spec)
        embedding = 0.5 * torch.randn(len(spec.goals), width)
        self.register_parameter("own", nn.Parameter(embedding))  # The name that files have.
        self.register_buffer("_numbers", numbers, persistent=False)
        self.features = linear(numbers.shape[1], width) if numbers.shape[1] else None

    def forward(self, features: Features) -> Float[Tensor, "goal code"]:
        """The code of each goal, whatever the states."""
        code: Tensor = self.get_parameter("own")
        if self.features is not None:
            code = self.features(self._numbers) + code
        return ACTIVATIONS[self._activation](code)


class KnownGoals(Encoder):
    """Which goal it is, without learning: its number and its features."""

    _numbers: Tensor

    def __init__(self, spec: WorldSpec) -> None:
        super().__init__()
        numbers = torch.cat([goal_numbers(spec), torch.eye(len(spec.goals))], 1)
        self.width = numbers.shape[1]
        self.register_buffer("_numbers", numbers, persistent=False)

    def forward(self, features: Features) -> Float[Tensor, "goal code"]:
        """Number and features of each goal."""
        return self._numbers


def reads_agents(shape: FeatureShape) -> bool:
    """True where states have features of single agents."""
    return bool(shape.agents and shape.agent_features)


def filled_parts(shape: FeatureShape) -> tuple[str, ...]:
    """Names of the features that a world has."""
    sizes = {
        "grid": shape.channels * shape.height * shape.width,
        "globals": shape.globals,
        "agents": shape.agents * shape.agent_features,
        "objects": shape.objects * shape.object_features,
    }
    return tuple(name for name, size in sizes.items() if size)
