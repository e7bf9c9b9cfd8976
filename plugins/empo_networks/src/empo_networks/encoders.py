"""Encoders of states, humans and goals: from features to a table of codes.

Each encodes everything once, however many questions are about it: states to ``[state code]``,
goals to ``[goal code]``, humans to ``[state * human code]``, or to ``[human code]`` where nothing
that a state says about its agents is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from empo_core.features import FeatureShape
from empo_core.types import WorldSpec
from empo_networks.features import FeatureScaler, ScaledFeatures, goal_numbers, nonzero_columns

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
}


class FeatureLinear(nn.Linear):
    """A linear map of features, most of which are 0, that multiplies only columns that are not.

    Most features of a state are 0: the channels of things that a world lacks or that are elsewhere.
    In a room of 12 by 12 cells a training step takes half the time thereby.
    """

    def forward(
        self, x: Float[Tensor, "batch feature"] | ScaledFeatures
    ) -> Float[Tensor, "batch code"]:
        """The same as that of ``nn.Linear`` for features in a row, but for rounding."""
        if isinstance(x, ScaledFeatures):
            if x.parts.globals.is_cpu and not torch.onnx.is_in_onnx_export():
                nonzero = x.nonzero
                weight = self.weight.index_select(1, nonzero.columns)
                return functional.linear(nonzero.values, weight, self.bias)
            x = x.flat
        return super().forward(x)


class SparseConv2d(nn.Conv2d):
    """A convolution of pictures that leaves out channels in which all numbers are 0."""

    def forward(
        self, x: Float[Tensor, "batch channel height width"]
    ) -> Float[Tensor, "batch code height width"]:
        """The same as that of ``nn.Conv2d``, but for rounding."""
        if not x.is_cpu or torch.onnx.is_in_onnx_export():
            return super().forward(x)
        channels = nonzero_columns(x)
        if not len(channels):
            return super().forward(x)
        weight = self.weight.index_select(1, channels)
        picture = x.index_select(1, channels)
        return functional.conv2d(picture, weight, self.bias, padding=self.padding)


def linear(
    in_features: int, out_features: int, *, bias: bool = True, active: int | None = None
) -> nn.Linear:
    """A linear map whose answers start out moderate.

    Args:
        in_features: How many inputs there are.
        out_features: How many outputs.
        bias: Whether something is added.
        active: About how many inputs are not 0, where they are ``ScaledFeatures``; None means that
            they are a tensor, and all may be.
    """
    kind = nn.Linear if active is None else FeatureLinear
    layer = kind(in_features, out_features, bias=bias)
    with torch.no_grad():
        layer.weight.normal_(0.0, (2 / max(active or in_features, 1)) ** 0.5)
        if bias:
            layer.bias.zero_()
    return layer


def activated(
    width: int, activation: str, *, layer_norm: bool, dropout: float = 0.0
) -> list[nn.Module]:
    """Modules that follow a linear map to ``width`` hidden units."""
    modules: list[nn.Module] = [nn.LayerNorm(width)] if layer_norm else []
    modules.append(ACTIVATIONS[activation]())
    if dropout:
        modules.append(nn.Dropout(dropout))
    return modules


def layers(
    sizes: Sequence[int], activation: str,
    *, layer_norm: bool = False, dropout: float = 0.0, active: int | None = None,
) -> nn.Sequential:  # fmt: skip
    """Hidden layers from the first of the sizes to the last; the identity of a single size.

    Args:
        sizes: Number of inputs, and units of each layer.
        activation: One of ``ACTIVATIONS``.
        layer_norm: Whether layers are normalised before the activation.
        dropout: Probability of dropping a unit, in training mode.
        active: As in ``linear``.
    """
    modules: list[nn.Module] = []
    for in_features, out_features in pairwise(sizes):
        modules += [
            linear(in_features, out_features, active=None if modules else active),
            *activated(out_features, activation, layer_norm=layer_norm, dropout=dropout),
        ]
    return nn.Sequential(*modules)


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
        self.layers = layers(sizes, activation, layer_norm=layer_norm, active=scaler.active)
        self.width = sizes[-1]

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "state code"] | ScaledFeatures:
        """The code of each state; the features themselves where there are no layers."""
        code: Tensor | ScaledFeatures = self.layers(features)
        return code


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
        filters = max(hidden // 4, 8)
        picture: list[nn.Module] = []
        for number in range(convolutions):
            kind, channels = (nn.Conv2d, filters) if number else (SparseConv2d, shape.channels)
            convolution = kind(channels, filters, kernel_size=3, padding=1)
            picture += [convolution, ACTIVATIONS[activation]()]
        self.convolutions = nn.Sequential(*picture)
        parts = {
            "grid": (filters * shape.height * shape.width, hidden // 2),
            "agents": (shape.agents * shape.agent_features, hidden // 4),
            "objects": (shape.objects * shape.object_features, hidden // 8),
        }
        parts = {name: sizes for name, sizes in parts.items() if sizes[0]}
        self.parts = nn.ModuleDict({name: layers(part, activation) for name, part in parts.items()})
        joined = sum(out_features for _, out_features in parts.values()) + shape.globals
        self.joint = layers([joined, hidden], activation, layer_norm=layer_norm)
        self.width = hidden

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "state code"]:
        """The code of each state."""
        whole = features.parts
        picture = self.convolutions(whole.grid)
        flat = {"grid": picture, "agents": whole.agents, "objects": whole.objects}
        codes = [part(flat[name].flatten(1)) for name, part in self.parts.items()]
        code: Tensor = self.joint(torch.cat([*codes, whole.globals], 1))
        return code


class Humans(Encoder):
    """Encoding of humans: a learned code each, and the state's features of that agent.

    The code of its own tells agents apart that look alike.
    """

    _humans: Tensor

    def __init__(self, spec: WorldSpec, shape: FeatureShape, width: int, activation: str) -> None:
        super().__init__()
        self.activation, self.width = ACTIVATIONS[activation](), width
        self.embedding = nn.Parameter(0.5 * torch.randn(len(spec.humans), width))
        self.register_buffer("_humans", torch.tensor(spec.humans), persistent=False)
        self.features = linear(shape.agent_features, width) if reads_agents(shape) else None

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "row code"]:
        """The code of each human, in each state if that matters."""
        code: Tensor = self.embedding
        if self.features is not None:
            code = self.features(features.parts.agents.index_select(1, self._humans)) + code
        output: Tensor = self.activation(code)
        return output.flatten(0, -2)


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

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "row code"]:
        """Number and features of each human, in each state if that matters."""
        number = self._number
        if not self._reads_agents:
            return number
        numbers = features.parts.agents.index_select(1, self._humans)
        return torch.cat([numbers, number.expand(numbers.shape[0], -1, -1)], -1).flatten(0, 1)


class Goals(Encoder):
    """Which goal it is: a code of its own, and what its features say."""

    _numbers: Tensor

    def __init__(self, spec: WorldSpec, width: int, activation: str) -> None:
        super().__init__()
        self.activation, self.width = ACTIVATIONS[activation](), width
        numbers = goal_numbers(spec)
        self.embedding = nn.Parameter(0.5 * torch.randn(len(spec.goals), width))
        self.register_buffer("_numbers", numbers, persistent=False)
        self.features = linear(numbers.shape[1], width) if numbers.shape[1] else None

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "goal code"]:
        """The code of each goal, whatever the states."""
        code: Tensor = self.embedding
        if self.features is not None:
            code = self.features(self._numbers) + code
        output: Tensor = self.activation(code)
        return output


class KnownGoals(Encoder):
    """Which goal it is, without learning: its number and its features."""

    _numbers: Tensor

    def __init__(self, spec: WorldSpec) -> None:
        super().__init__()
        numbers = torch.cat([goal_numbers(spec), torch.eye(len(spec.goals))], 1)
        self.width = numbers.shape[1]
        self.register_buffer("_numbers", numbers, persistent=False)

    def forward(self, features: ScaledFeatures) -> Float[Tensor, "goal code"]:
        """Number and features of each goal."""
        return self._numbers


def reads_agents(shape: FeatureShape) -> bool:
    """True where states have features of single agents."""
    return bool(shape.agents and shape.agent_features)
