"""Encoders of states, humans and goals: from features to a table of codes.

Each encodes everything once, however many questions are about it: states to ``[state code]``,
goals to ``[goal code]``, humans to ``[state * human code]``, or to ``[human code]`` where nothing
that a state says about its agents is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from empo_core.types import Features, FeatureShape, WorldSpec
from empo_networks.reading import goal_numbers

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "tanh": torch.tanh,
}


class Layers(nn.Module):
    """Hidden layers one after the other, each with its activation."""

    def __init__(self, sizes: Sequence[int], activation: str, *, layer_norm: bool = False) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self._activation = activation
        self.linears = nn.ModuleList(nn.Linear(read, said) for read, said in pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(said) for _, said in pairs if layer_norm)

    def forward(
        self, x: Float[Tensor, "batch feature"], dropout: float = 0.0
    ) -> Float[Tensor, "batch code"]:
        """What the last layer says."""
        for i, linear in enumerate(self.linears):
            x = linear(x)
            if self.norms:
                x = self.norms[i](x)
            x = ACTIVATIONS[self._activation](x)
            if dropout:
                x = functional.dropout(x, dropout)
        return x


class Encoder(nn.Module):
    """From features to a table of codes."""

    width: int
    """Length of a code."""


class FlatStates(Encoder):
    """All features of a state in a row, through some layers; none of them is the identity."""

    def __init__(
        self, shape: FeatureShape, sizes: Sequence[int], activation: str, *, layer_norm: bool
    ) -> None:
        super().__init__()
        self.layers = Layers([shape.flat, *sizes], activation, layer_norm=layer_norm)
        self.width = [shape.flat, *sizes][-1]

    def forward(self, features: Features) -> Float[Tensor, "state code"]:
        """The code of each state."""
        code: Tensor = self.layers(features.flat())
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
        self._activation = activation
        filters = max(hidden // 4, 8)
        channels = [shape.channels, *[filters] * convolutions]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(read, said, kernel_size=3, padding=1)
            for read, said in pairwise(channels)
        )
        parts = {
            "grid": (filters * shape.height * shape.width, hidden // 2),
            "agents": (shape.agents * shape.agent_features, hidden // 4),
            "objects": (shape.objects * shape.object_features, hidden // 8),
        }
        parts = {name: sizes for name, sizes in parts.items() if sizes[0]}
        self.parts = nn.ModuleDict({name: Layers(part, activation) for name, part in parts.items()})
        joined = sum(said for _, said in parts.values()) + shape.globals
        self.joint = Layers([joined, hidden], activation, layer_norm=layer_norm)
        self.width = hidden

    def forward(self, features: Features) -> Float[Tensor, "state code"]:
        """The code of each state."""
        picture = features.grid
        for convolution in self.convolutions:
            picture = ACTIVATIONS[self._activation](convolution(picture))
        flat = {"grid": picture, "agents": features.agents, "objects": features.objects}
        said = [part(flat[name].flatten(1)) for name, part in self.parts.items()]
        code: Tensor = self.joint(torch.cat([*said, features.globals], 1))
        return code


class Humans(Encoder):
    """Who a human is: a code of its own, and what the state says about that agent.

    The code of its own tells agents apart that look alike.
    """

    _humans: Tensor

    def __init__(self, spec: WorldSpec, shape: FeatureShape, width: int, activation: str) -> None:
        super().__init__()
        self._activation, self.width = activation, width
        self.own = nn.Parameter(0.5 * torch.randn(len(spec.humans), width))
        self.register_buffer("_humans", torch.tensor(spec.humans), persistent=False)
        self.features = nn.Linear(shape.agent_features, width) if reads_agents(shape) else None

    def forward(self, features: Features) -> Float[Tensor, "row code"]:
        """The code of each human, in each state if that matters."""
        code = self.own
        if self.features is not None:
            code = self.features(features.agents.index_select(1, self._humans)) + code
        return ACTIVATIONS[self._activation](code).flatten(0, -2)


class KnownHumans(Encoder):
    """Who a human is, without learning: which number it has, and its features."""

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
        told = features.agents.index_select(1, self._humans)
        return torch.cat([told, number.expand(told.shape[0], -1, -1)], -1).flatten(0, 1)


class Goals(Encoder):
    """Which goal it is: a code of its own, and what its features say."""

    _numbers: Tensor

    def __init__(self, spec: WorldSpec, width: int, activation: str) -> None:
        super().__init__()
        self._activation, self.width = activation, width
        numbers = goal_numbers(spec)
        self.own = nn.Parameter(0.5 * torch.randn(len(spec.goals), width))
        self.register_buffer("_numbers", numbers, persistent=False)
        self.features = nn.Linear(numbers.shape[1], width) if numbers.shape[1] else None

    def forward(self, features: Features) -> Float[Tensor, "goal code"]:
        """The code of each goal, whatever the states."""
        code = self.own
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
    """Whether states say anything about single agents."""
    return bool(shape.agents and shape.agent_features)
