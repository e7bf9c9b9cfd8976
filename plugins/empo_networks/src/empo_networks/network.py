"""Value networks: encoders, a head that joins what they say, and a scale with bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, cast

import safetensors.torch
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adam import adam

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.features import Features
from empo_core.protocols import Regression, ValueNetwork
from empo_core.trees import StateDict
from empo_core.types import Fit, Quantity, ValueQuery, WorldSpec
from empo_networks.encoders import (
    ACTIVATIONS,
    Encoder,
    FlatStates,
    Goals,
    GridStates,
    Humans,
    KnownGoals,
    KnownHumans,
    Layers,
    linear,
)
from empo_networks.features import FeatureScaler
from empo_networks.plugin import GridConvParams, IdentityParams, MlpParams, NetworkParams
from empo_networks.scales import FLOOR, scale_of

ASKED: dict[Quantity, tuple[str, ...]] = {
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
        dropout: Probability of dropping a hidden unit while it is fitted.
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
        self._activation, self.dropout = params.activation, params.dropout
        self.is_fitted = False
        self.join = nn.ModuleDict(
            {
                part: linear(encoder.width, params.hidden, bias=part == "state", active=active)
                for part, encoder in encoders.items()
                for active in [scaler.active if part == "state" and not encoder.learns else None]
            }
        )
        self.norm = nn.LayerNorm(params.hidden) if params.layer_norm else None
        self.layers = Layers(
            [params.hidden] * params.head_layers, params.activation, layer_norm=params.layer_norm
        )
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

    def forward(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each query, within the bounds of its quantity."""
        return self.scale.value(self.raw(query), self.unit(query))

    def raw(self, query: ValueQuery, dropout: float = 0.0) -> Float[Tensor, "query output"]:
        """Output of the head, in the space of ``scales``."""
        return self.raw_of(self.scaler.of_query(query), query, dropout)

    def raw_of(
        self, features: Features, query: ValueQuery, dropout: float = 0.0
    ) -> Float[Tensor, "query output"]:
        """The same for states that were read already."""
        x = self._joined(features, query)
        if self.norm is not None:
            x = self.norm(x)
        x = ACTIVATIONS[self._activation](x)
        if dropout:
            x = functional.dropout(x, dropout)
        x = self.layers(x, dropout)
        row = self._row(query)
        if row is not None and "goal" in self.encoders:
            return self._of_goals(x, row, self._table("goal", features, query), query)
        raw: Tensor = self.out(x if row is None else x.index_select(0, row))
        return raw

    def _of_goals(
        self,
        x: Float[Tensor, "row feature"],
        row: Int[Tensor, " query"],
        goals: Float[Tensor, "goal feature"],
        query: ValueQuery,
    ) -> Float[Tensor, "query 1"]:
        """Output for a row and a goal each: for all of both, of which those asked for are taken."""
        products = functional.linear(x, self.out.weight * goals)
        chosen = row * len(goals) + required(query, "goal", self.quantity)
        return products.flatten().index_select(0, chosen)[:, None] + self.out.bias

    def unit(self, query: ValueQuery) -> Float[Tensor, "query 1"] | float:
        """How many U_r a value of the robot adds up, where episodes end; 1 for all others.

        Counting values in it spares networks learning how they grow with the time left.
        """
        added = {"q_r": 1, "v_r": 0}.get(self.quantity)
        if added is None or self.scaler.horizon is None:
            return 1.0
        steps = query.steps_left if query.state is None else query.steps_left[query.state]
        return (steps - added).to(self.out.weight.dtype).clamp(min=FLOOR)[:, None]

    def _joined(self, features: Features, query: ValueQuery) -> Float[Tensor, "row feature"]:
        """Output of the encoders of states and humans together, for each pair of them."""
        x = self._table("state", features, query)
        if "human" not in self.encoders:
            return x
        humans = self._table("human", features, query).view(-1, len(self.humans), x.shape[1])
        return (x[:, None] + humans).flatten(0, 1)

    def _table(
        self, part: str, features: Features, query: ValueQuery
    ) -> Float[Tensor, "row feature"]:
        """What the encoders of one part say together, with as many numbers as there are units."""
        table: Tensor = self.join[part](code_of(self.encoders[part], features, query))
        if part in self.shared:
            with torch.no_grad():
                code = code_of(self.shared[part], features, query)
            table = table + self.shared_join[part](code)
        return table

    def _row(self, query: ValueQuery) -> Int[Tensor, " query"] | None:
        """Position of the state, or of its pair with the human, that each query is about."""
        state = query.state
        if "human" not in self.encoders:
            return state
        if self.quantity == "v_h_e":  # Every goal is the goal of one human.
            slot = self._goal_slot.index_select(0, required(query, "goal", self.quantity))
        else:
            slot = self._slot.index_select(0, required(query, "human", self.quantity))
        if state is None:
            state = torch.arange(query.steps_left.shape[0], device=slot.device)
        return state * len(self.humans) + slot

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression:
        """One fused step of Adam; see ``NetworkRegression``."""
        return NetworkRegression(self, weight_decay=weight_decay, max_grad_norm=max_grad_norm)

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
        if source.scaler.layout != self.scaler.layout:
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


def code_of(encoder: nn.Module, features: Features, query: ValueQuery) -> Float[Tensor, "row code"]:
    """Output of an encoder, cached in the query's memo for networks that share it.

    It is not cached for those that train it.
    """
    if query.memo is None or torch.is_grad_enabled():
        code: Tensor = encoder(features)
        return code
    # Its weights may change between two queries about the same states.
    key = (encoder, *(weight._version for weight in encoder.parameters()))
    if key not in query.memo:
        query.memo[key] = encoder(features)
    memoised = query.memo[key]
    assert isinstance(memoised, Tensor)
    return memoised


def required(
    query: ValueQuery, name: Literal["human", "goal"], quantity: Quantity
) -> Int[Tensor, " query"]:
    """Indices that each query names.

    Raises:
        ValueError: if the questions do not name it.
    """
    index = query.human if name == "human" else query.goal
    if index is None:
        raise ValueError(f"{quantity} is about a {name}: ask with ValueQuery({name}=...)")
    return index


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
    if "human" in ASKED[quantity]:
        encoders["human"] = KnownHumans(spec, scaler.shape)
    if "goal" in ASKED[quantity]:
        encoders["goal"] = KnownGoals(spec)
    return Network(params, spec, quantity, encoders, scaler)


def feature_scaler(params: NetworkParams, spec: WorldSpec, quantity: Quantity) -> FeatureScaler:
    """Feature scaling of the states of a world.

    Raises:
        ConfigError: if the world lacks what the quantity is about.
    """
    members = {"human": spec.humans, "goal": spec.goals}
    for part in ASKED[quantity]:
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
    if "human" in ASKED[quantity]:
        encoders["human"] = Humans(spec, scaler.shape, params.hidden, params.activation)
    if "goal" in ASKED[quantity]:
        encoders["goal"] = Goals(spec, params.hidden, params.activation)
    return encoders


def size_bytes(network: nn.Module) -> int:
    """Length of its state in the format that checkpoints and actors are sent."""
    return len(safetensors.torch.save(network.state_dict()))


FORGETTING = 0.9995
"""The largest second moment shrinks by this with each step, so that errors from before anything
was learned do not shorten steps for ever."""

MOMENTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
"""Names of Adam's moments: of gradients, of their squares, and the largest of these."""


class NetworkRegression:
    """Fits one network; a regression as ``empo_core.protocols`` wants it.

    The loss is the weighted mean of those in the space of the network (``scales``). Adam
    has the usual 0.9 and 0.999, divides by the largest second moment so far (AMSGrad), which it
    slowly forgets, and decays weights through the gradient.
    """

    def __init__(
        self, network: Network, *, weight_decay: float, max_grad_norm: float | None
    ) -> None:
        network.is_fitted = True
        self._network, self._max_norm = network, max_grad_norm
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        self._names, self._parameters = [list(part) for part in zip(*named, strict=True)]
        # One tensor of all weights: then a step is a few operations, not a few per layer.
        self._weights = flattened(self._parameters)
        self._weight_decay = weight_decay
        self._forget()

    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """One step of Adam; see ``empo_core.protocols.Regression``."""
        total = weight.sum()
        if not total:  # Adam's momentum would move the network all the same.
            return Fit(total, total)
        # Where nothing counts the target may be anything, also NaN.
        read = target.where(weight > 0, 1.0)
        network = self._network
        raw, unit, share = network.raw(query, network.dropout), network.unit(query), weight / total
        # To derive the loss automatically takes longer than all of the backward pass.
        output = raw.detach()
        loss = (share * network.scale.loss(output, read, unit)).sum()
        slope = share * network.scale.slope(output, read, unit)
        gradients = torch.autograd.grad(raw, self._parameters, slope)
        gradient = torch.cat([part.flatten() for part in gradients])
        norm = gradient.norm()
        # Moments are finite as long as gradients are so short that their squares are.
        if not torch.isfinite(loss + norm):
            raise NonFiniteError(self._complaint(target, weight, loss))
        if self._max_norm is not None:
            gradient *= (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        self._advance(gradient, lr)
        # Torch counts changes of a tensor, but not those of others that share its memory.
        torch.autograd.graph.increment_version(self._parameters)
        return Fit(loss, norm)

    def default_lr(self, *, sampled: bool) -> float:
        """The same for expectations and samples: errors of a batch are averaged anyway."""
        return 3e-3

    @torch.no_grad()
    def _advance(self, gradient: Float[Tensor, " weight"], lr: float) -> None:
        """One step of Adam."""
        # The optimiser around this function takes twice the time of the step.
        mean, square, largest = self._moments
        # The largest second moment so far: with the newest, errors that are small before beta_r
        # rises let steps grow, and the first change of targets throws the network off.
        largest *= FORGETTING
        adam(
            [self._weights], [gradient], [mean], [square], [largest], [self._steps],
            fused=True, amsgrad=True, lr=lr, beta1=0.9, beta2=0.999, eps=1e-8,
            weight_decay=self._weight_decay, maximize=False,
        )  # fmt: skip

    def _forget(self) -> None:
        """Be as before the first step."""
        weights = self._weights
        self._moments = weights.new_zeros(len(MOMENTS), len(weights))
        self._steps = torch.zeros((), device=weights.device)

    def _complaint(self, target: Tensor, weight: Tensor, loss: Tensor) -> str:
        """Message that names the first cause of something not finite."""
        quantity = self._network.quantity
        for name, wrong in {
            "weight": ~weight.isfinite(),
            "target": ~target.isfinite() & (weight > 0),
        }.items():
            if bool(wrong.any()):
                row = int(wrong.any(1).int().argmax())
                values = (weight if name == "weight" else target)[row].tolist()
                return f"{name} {row} of {quantity} is {values}; {quantity} was left as it is"
        for name, parameter in zip(self._names, self._parameters, strict=True):
            if not bool(parameter.isfinite().all()):
                return f"parameter {name} of {quantity} is not finite"
        culprit = "gradient" if bool(loss.isfinite()) else "loss"
        return (
            f"the {culprit} of {quantity} is not finite; it was left as it is. "
            f"Lower its learning rate, or choose another space"
        )

    def state_dict(self) -> dict[str, Tensor]:
        """The moments of all weights, one after the other; none before the first step."""
        if not self._steps:
            return {}
        return dict(zip(MOMENTS, self._moments, strict=True)) | {"step": self._steps}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Raises:
            ValueError: if the state belongs to another network.
        """
        weights = self._weights
        for key, moment in state_dict.items():
            if moment.shape not in {torch.Size(), weights.shape}:
                raise ValueError(
                    f"the state of an optimiser has {key} of shape {list(moment.shape)}, which "
                    f"does not fit the {len(weights):,} weights of this {self._network.quantity} "
                    f"network; it was saved for other params or another world"
                )
        self._forget()
        if state_dict:
            for stored, name in zip(self._moments, MOMENTS, strict=True):
                stored.copy_(state_dict[name])
            self._steps.copy_(state_dict["step"])


def flattened(parameters: Sequence[nn.Parameter]) -> nn.Parameter:
    """All numbers of some parameters, which go on as views of it."""
    flat = torch.cat([parameter.detach().flatten() for parameter in parameters])
    parts = torch.split(flat, [parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.data = part.view_as(parameter)
    return nn.Parameter(flat)
