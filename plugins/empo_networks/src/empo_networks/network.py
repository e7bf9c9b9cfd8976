"""Value networks: encoders, a head that joins what they say, and a scale with bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from empo_core.errors import ConfigError
from empo_core.features import Features
from empo_core.protocols import Regression, ValueNetwork
from empo_core.types import Quantity, ValueQuery, WorldSpec
from empo_learning.onnx_file import write_onnx
from empo_learning.regression import GradientRegression
from empo_networks.encoders import (
    Encoder,
    FlatStates,
    Goals,
    GridStates,
    Humans,
    KnownGoals,
    KnownHumans,
    activated,
    layers,
    linear,
)
from empo_networks.features import FeatureScaler, ScaledFeatures
from empo_networks.plugin import GridConvParams, IdentityParams, MlpParams, NetworkParams
from empo_networks.scales import FLOOR, scale_of

ARGUMENTS: dict[Quantity, tuple[str, ...]] = {
    "q_r": ("state",),
    "v_r": ("state",),
    "u_r": ("state",),
    "x_h": ("state", "human"),
    "v_h_e": ("state", "human", "goal"),
}
"""Arguments of each quantity, and so the encoders of its network."""


class Network(ValueNetwork):
    """One quantity as a function of states, and of a human and a goal where it has them.

    The first layer of the head is a sum of one linear map per encoder, applied to what there is
    to encode: states and humans. What the head says of them is multiplied, unit by unit, by what is
    said of a goal, so that the head is as quick for many goals as for one.

    Attributes:
        quantity: The quantity it estimates.
        scale: The space of its output.
        is_fitted: Whether a regression fits its parameters, so that none may be added.
    """

    _slot: Tensor
    _goal_slot: Tensor

    def __init__(
        self,
        params: NetworkParams,
        spec: WorldSpec,
        quantity: Quantity,
        encoders: dict[str, Encoder],
        scaler: FeatureScaler,
        *,
        sharing: bool = False,
    ) -> None:
        super().__init__()
        self.quantity: Quantity = quantity
        self._sharing = sharing
        self.scaler, self.encoders = scaler, nn.ModuleDict(encoders)
        self.scale = scale_of(quantity, params.space, params.z_exponent)
        self.is_fitted = False
        self.join = nn.ModuleDict(
            {
                part: linear(encoder.width, params.hidden, bias=part == "state", active=active)
                for part, encoder in encoders.items()
                for active in [scaler.active if part == "state" and not encoder.learns else None]
            }
        )
        width, activation = params.hidden, params.activation
        norm, dropout = params.layer_norm, params.dropout
        sizes = [width] * params.head_layers
        self.head = nn.Sequential(
            *activated(width, activation, layer_norm=norm, dropout=dropout),
            *layers(sizes, activation, layer_norm=norm, dropout=dropout),
        )
        # Changing the mode of the whole head would take a twentieth of a step.
        self._dropouts = [part for part in self.head if isinstance(part, nn.Dropout)]
        self.out = nn.Linear(params.hidden, spec.num_robot_actions if quantity == "q_r" else 1)
        with torch.no_grad():
            self.out.weight.mul_(0.1)  # So that all answers start out alike.
            self.out.bias.fill_(self.scale.start)
        self.shared = nn.ModuleDict()
        self.shared_join = nn.ModuleDict()
        slot = [spec.humans.index(i) if i in spec.humans else -1 for i in range(len(spec.agents))]
        self.humans = spec.humans
        self.register_buffer("_slot", torch.tensor(slot), persistent=False)
        goal_slot = torch.tensor([slot[goal.human] for goal in spec.goals], dtype=torch.int64)
        self.register_buffer("_goal_slot", goal_slot, persistent=False)
        self.eval()  # Units are dropped while it is fitted only.

    def forward(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each query, within the bounds of its quantity."""
        return self.scale.value(self.raw(query), self.unit(query))

    def raw(
        self, query: ValueQuery, features: ScaledFeatures | None = None
    ) -> Float[Tensor, "query output"]:
        """Output of the head, in the space of ``scales``; of features that were read already.

        Raises:
            ValueError: if the questions do not name the goal or human that the quantity is about.
        """
        if features is None:
            features = self.scaler(query)
        x, row = self._first_layer("state", features), query.state
        if "human" in self.encoders:  # One row for each pair of a state and a human.
            humans = self._first_layer("human", features).view(-1, len(self.humans), x.shape[1])
            x = (x[:, None] + humans).flatten(0, 1)
            name, index, slots = "human", query.human, self._slot
            if self.quantity == "v_h_e":  # Every goal is the goal of one human.
                name, index, slots = "goal", query.goal, self._goal_slot
            if index is None:
                raise ValueError(f"{self.quantity} is about a {name}: ask with ValueQuery({name}=)")
            if row is None:
                row = torch.arange(query.steps_left.shape[0], device=index.device)
            row = row * len(self.humans) + slots.index_select(0, index)
        x = self.head(x)
        if row is not None and query.goal is not None and "goal" in self.encoders:
            # The answers to all pairs of a row and a goal, of which those asked for are taken.
            goals = self._first_layer("goal", features)
            products = functional.linear(x, self.out.weight * goals).flatten()
            return products.index_select(0, row * len(goals) + query.goal)[:, None] + self.out.bias
        raw: Tensor = self.out(x if row is None else x.index_select(0, row))
        return raw

    def _first_layer(self, part: str, features: ScaledFeatures) -> Float[Tensor, "row feature"]:
        """The first layer's sum of maps of the codes of states, humans or goals."""
        summed: Tensor = self.join[part](self.encoders[part](features))
        if part in self.shared:
            with torch.no_grad():
                code = self.shared[part](features)
            summed = summed + self.shared_join[part](code)
        return summed

    def unit(self, query: ValueQuery) -> Float[Tensor, "query 1"] | float:
        """How many U_r a value of the robot adds up, where episodes end; 1 for all others.

        Counting values in it spares networks learning how they grow with the time left.
        """
        added = {"q_r": 1, "v_r": 0}.get(self.quantity)
        if added is None or self.scaler.horizon is None:
            return 1.0
        steps = query.steps_left if query.state is None else query.steps_left[query.state]
        return (steps - added).to(self.out.weight.dtype).clamp(min=FLOOR)[:, None]

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        """Gradient descent on the errors in the space of the network (``scales``)."""
        self.is_fitted = True
        return GradientRegression(
            self, weight_decay=weight_decay, max_grad_norm=max_grad_norm, loss=self.loss,
            usual_lr=3e-3,
        )  # fmt: skip

    def loss(
        self, query: ValueQuery, target: Float[Tensor, "query output"]
    ) -> Float[Tensor, "query output"]:
        """The error of each answer in the space of the network."""
        for dropout in self._dropouts:
            dropout.train()
        raw = self.raw(query)
        for dropout in self._dropouts:
            dropout.eval()
        return self.scale.loss(raw, target, self.unit(query))

    def onnx_inputs(self, questions: int = 2) -> dict[str, Tensor]:
        """Inputs of the exported file by name, with an example of each; the first axis is free.

        ``states`` are rows (int64) of a world without a featurizer; else ``grid``, ``globals``,
        ``agents`` and ``objects`` (float32) are the parts of ``Features`` that the world has.
        ``steps_left``, ``human`` and ``goal`` (int64) are there where the network reads them.
        """
        shape = self.scaler.featurizer.shape
        sizes = {
            "grid": (shape.channels, shape.height, shape.width),
            "globals": (shape.globals,),
            "agents": (shape.agents, shape.agent_features),
            "objects": (shape.objects, shape.object_features),
        }
        if self.scaler.is_row:
            inputs = {"states": torch.zeros(questions, shape.globals, dtype=torch.int64)}
        else:
            inputs = {
                part: torch.zeros(questions, *size)
                for part, size in sizes.items()
                if math.prod(size)
            }
        index = torch.zeros(questions, dtype=torch.int64)
        if self.scaler.horizon is not None:
            inputs["steps_left"] = index + 1
        if self.quantity == "x_h":
            inputs["human"] = index + self.humans[0]
        if "goal" in ARGUMENTS[self.quantity]:
            inputs["goal"] = index
        return inputs

    def export_onnx(self, path: str | Path) -> None:
        """Write a file whose output ``value`` is what the network answers.

        It computes values from what a world's featurizer says, not from rows: what a featurizer
        does is the world's own business.

        Raises:
            ConfigError: if the package ``onnx`` is missing.
            StorageError: if the file cannot be written.
        """
        inputs = self.onnx_inputs()
        write_onnx(_OnnxGraph(self, tuple(inputs)), inputs, ["value"], path, row="question")

    def share(self, source: ValueNetwork) -> bool:
        """Read the encoders of ``source``, the network for V_h^e, beside the own ones.

        Only the loss of V_h^e trains them: they are no ``parameters`` of this network. Its
        ``state_dict`` has them, and copies of it have copies of them.

        Raises:
            ConfigError: if this network is being fitted already.
        """
        if not self._sharing or self.quantity == "v_h_e":
            return False
        if not isinstance(source, Network) or source.quantity != "v_h_e" or not source.has_encoders:
            return False
        if source.scaler.input_key != self.scaler.input_key:
            return False
        if self.is_fitted:
            raise ConfigError(f"share encoders with {self.quantity} before it is fitted")
        hidden = self.out.in_features
        for part in self.encoders:
            encoder = cast("Encoder", source.encoders[part])
            self.shared[part] = encoder
            self.shared_join[part] = linear(encoder.width, hidden, bias=False)
        return True

    @property
    def has_encoders(self) -> bool:
        """True where its encoders have parameters to share."""
        return cast("Encoder", self.encoders["state"]).learns

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The trainable tensors by name: all but those of shared encoders."""
        shared = f"{prefix}.shared." if prefix else "shared."
        for name, parameter in super().named_parameters(prefix, recurse, remove_duplicate):
            if not name.startswith(shared):
                yield name, parameter


def mlp(params: MlpParams, spec: WorldSpec, quantity: Quantity) -> Network:
    """A network with fully connected encoders.

    Raises:
        ConfigError: if the world lacks what the quantity is about, or the params do not fit it.
    """
    scaler = feature_scaler(params, spec, quantity)
    sizes = [params.hidden] * params.encoder_layers
    states = FlatStates(scaler, sizes, params.activation, layer_norm=params.layer_norm)
    encoders = learned_encoders(states, params, spec, quantity, scaler)
    return Network(params, spec, quantity, encoders, scaler, sharing=params.sharing)


def grid_conv(params: GridConvParams, spec: WorldSpec, quantity: Quantity) -> Network:
    """A network with convolutions.

    Raises:
        ConfigError: if the world has no grid, or as ``mlp``.
    """
    scaler = feature_scaler(params, spec, quantity)
    if not scaler.shape.channels:
        raise ConfigError(
            f"value network 'grid-conv' needs a grid to look at, and the features of world "
            f"{spec.name!r} have none; choose 'mlp'"
        )
    states = GridStates(
        scaler.shape, params.hidden, params.encoder_layers, params.activation,
        layer_norm=params.layer_norm,
    )  # fmt: skip
    encoders = learned_encoders(states, params, spec, quantity, scaler)
    return Network(params, spec, quantity, encoders, scaler, sharing=params.sharing)


def identity(params: IdentityParams, spec: WorldSpec, quantity: Quantity) -> Network:
    """A network without encoders.

    Raises:
        ConfigError: as ``mlp``.
    """
    scaler = feature_scaler(params, spec, quantity)
    encoders: dict[str, Encoder] = {
        "state": FlatStates(scaler, [], params.activation, layer_norm=False)
    }
    if "human" in ARGUMENTS[quantity]:
        encoders["human"] = KnownHumans(spec, scaler.shape)
    if "goal" in ARGUMENTS[quantity]:
        encoders["goal"] = KnownGoals(spec)
    return Network(params, spec, quantity, encoders, scaler)


def feature_scaler(params: NetworkParams, spec: WorldSpec, quantity: Quantity) -> FeatureScaler:
    """Feature scaling of the states of a world.

    Raises:
        ConfigError: if the world lacks what the quantity is about.
    """
    members = {"human": spec.humans, "goal": spec.goals}
    for part in ARGUMENTS[quantity]:
        if not members.get(part, True):
            raise ConfigError(f"{quantity} is about a {part}, and world {spec.name!r} has none")
    if quantity == "q_r" and not spec.robots:
        raise ConfigError(f"q_r values the actions of robots, and world {spec.name!r} has none")
    return FeatureScaler(spec, include_time=params.include_time)


def learned_encoders(
    states: Encoder, params: MlpParams, spec: WorldSpec, quantity: Quantity, scaler: FeatureScaler
) -> dict[str, Encoder]:
    """Encoders for all that the quantity is about."""
    encoders = {"state": states}
    if "human" in ARGUMENTS[quantity]:
        encoders["human"] = Humans(spec, scaler.shape, params.hidden, params.activation)
    if "goal" in ARGUMENTS[quantity]:
        encoders["goal"] = Goals(spec, params.hidden, params.activation)
    return encoders


class _OnnxGraph(nn.Module):
    """The network as a function of the inputs by position, one question per row."""

    def __init__(self, network: Network, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self._names = network, names

    def forward(self, *inputs: Shaped[Tensor, "query ..."]) -> Float[Tensor, "query output"]:
        """The value of each question."""
        named = dict(zip(self._names, inputs, strict=True))
        questions = inputs[0].shape[0]
        if "states" in named:
            named["globals"] = named["states"].to(torch.float32)
        features = Features(
            named.get("grid", torch.zeros(questions, 0, 0, 0)),
            named.get("globals", torch.zeros(questions, 0)),
            named.get("agents", torch.zeros(questions, 0, 0)),
            named.get("objects", torch.zeros(questions, 0, 0)),
        )
        steps_left = named.get("steps_left", torch.ones(questions, dtype=torch.int64))
        query = ValueQuery(
            named.get("states", steps_left[:, None]),
            steps_left,
            named.get("human"),
            named.get("goal"),
        )
        network = self.network
        raw = network.raw(query, network.scaler.scaled(features, steps_left))
        return network.scale.value(raw, network.unit(query))
