"""Policies with critics: dense, convolutional or recurrent, one for all agents or one for each."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec, ObservationSpec
from empo_environments.normalisation import EPSILON
from empo_learning.distributions import BoundedNormal
from empo_rollout.distributions import ActionMap, MultiCategorical, diagonal_normal
from empo_rollout.params import ComputeParams, PolicyParams

COMPILE_OPTIONS = {"layout_optimization": False}
"""Options for ``torch.compile``. Without them it plans wrong strides for convolutions over as
many rows as the data says, which agents with networks of their own have, and fails."""
COARSE = 16
"""A convolution that reads pictures with a longer side than this halves them."""
HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN = math.sqrt(2), 0.01, 1.0
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
}


class PolicyStep(NamedTuple):
    """Outputs of a policy for one observation of each agent.

    ``distribution`` is over actions ``[agent number]``; ``log_prob`` sums over an action's
    numbers, ``sample`` gives int64 options or float32 numbers.
    """

    distribution: Distribution
    value: Float[Tensor, " agent"]
    memory: Float[Tensor, "agent unit"]


class Unrolled(NamedTuple):
    """Outputs of a policy for whole segments, with gradients.

    ``hidden`` is what ``Networks.distribution`` turns into distributions over actions.
    """

    hidden: Float[Tensor, "time segment feature"]
    value: Float[Tensor, "time segment"]


def autocast(compute: ComputeParams) -> contextlib.AbstractContextManager[object]:
    """Context in which networks compute, for acting and learning alike."""
    if compute.precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(torch.device(compute.device).type, torch.bfloat16)


def build_policy(
    params: PolicyParams,
    env_spec: EnvSpec,
    *,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> Networks:
    """An untrained policy that fits some environments.

    Args:
        params: What it is made of.
        env_spec: What its agents see and do.
        generator: Where initial weights come from; torch's global one is left alone. On the CPU,
            so that weights do not depend on the device.
        device: Where the policy goes.

    Raises:
        ConfigError: if the parameters do not fit what agents see or do.
    """
    policy = blank_policy(params, env_spec).to_empty(device="cpu")
    for network in policy.members:
        initialise(network, generator)
        orthogonal(network.head, POLICY_GAIN, generator)
        orthogonal(network.critic, VALUE_GAIN, generator)
        if not env_spec.actions.is_discrete:
            nn.init.constant_(network.log_std, params.log_std)
    return policy.to(device)


def blank_policy(
    params: PolicyParams, env_spec: EnvSpec, normalisation: ObservationNormalisation | None = None
) -> Networks:
    """A policy that fits some environments, on device ``meta``: without any weights.

    Raises:
        ConfigError: if the parameters do not fit what agents see or do.
    """
    _check(params, env_spec)
    with torch.device("meta"):
        policy = Networks(params, env_spec)
    policy.normalisation = normalisation
    return policy


def _check(params: PolicyParams, env_spec: EnvSpec) -> None:
    observations, actions = env_spec.observations, env_spec.actions
    if not actions.size:
        raise ConfigError("policy: agents have no actions: neither choices nor numbers")
    if params.network == "conv" and observations.grid is None:
        raise ConfigError(
            f"policy.network: 'conv' reads pictures, but an observation here is a row of "
            f"{observations.words} {observations.dtype} numbers without a picture; choose 'mlp'"
        )
    if params.network == "conv" and not params.channels:
        raise ConfigError("policy.channels: 'conv' needs at least one; or choose network 'mlp'")
    if actions.is_discrete and params.log_std != 0:
        raise ConfigError(
            f"policy.log_std: is about actions that are numbers, but here they are choices among "
            f"{' x '.join(map(str, actions.choices))} options; drop it"
        )


class Network(nn.Module):
    """The policy and critic of one agent, or of all that share them.

    Attributes:
        scale: Greatest value of a picture of bytes.
        choices: As in ``ActionSpec``.
        trunk: From observations to features.
        memory: The recurrent layer behind it, if there is one.
        head: From features to what distributions of actions are made of.
        log_std: Logarithms of standard deviations of outputs, where actions are numbers.
        critic_trunk: The critic's own trunk; None: it reads the policy's features.
        critic: From features to values.
    """

    def __init__(self, params: PolicyParams, env_spec: EnvSpec) -> None:
        super().__init__()
        observations, actions = env_spec.observations, env_spec.actions
        self.scale, self.choices = observations.scale, actions.choices
        self.trunk = Trunk(params, observations)
        self.memory = (
            None
            if params.memory == "none"
            else Recurrent(params.memory, self.trunk.features, params.memory_size)
        )
        features = (self.memory or self.trunk).features
        self.head = nn.Linear(features, sum(actions.choices) or actions.size)
        if not actions.is_discrete:
            self.log_std = nn.Parameter(torch.empty(actions.size))
        self.critic_trunk = Trunk(params, observations) if params.critic == "own" else None
        self.critic = nn.Linear(features, 1)

    def forward(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> tuple[
        Float[Tensor, "time segment feature"],
        Float[Tensor, "time segment"],
        Float[Tensor, "segment unit"],
    ]:
        """Inputs of the head and values at each step of segments, and the memory behind them."""
        shape = observation.shape[:2]
        rows = scaled(observation.flatten(0, 1), self.scale)
        hidden = self.trunk(rows)
        if self.memory is not None:
            hidden, memory = self.memory(hidden.view(*shape, self.trunk.features), memory, starts)
            hidden = hidden.flatten(0, 1)
        read = hidden if self.critic_trunk is None else self.critic_trunk(rows)
        value = self.critic(read).float()
        return hidden.float().view(*shape, self.head.in_features), value.view(shape), memory


class Networks(nn.Module):
    """A policy and a critic: one network for all agents, or one for each.

    Where each agent has a network, ``agent`` says whose turn it is, as a position in
    ``EnvSpec.agents``.

    Attributes:
        members: The network of each agent, or the one of all.
        normalisation: Normalises observations before the networks read them, where a finished run
            learned from normalised ones; None while it learns, for the collector does it then.
        action_map: Maps outputs to the finite bounds of actions; None: nothing is mapped.
    """

    normalisation: ObservationNormalisation | None
    action_map: ActionMap | None

    def __init__(self, params: PolicyParams, env_spec: EnvSpec) -> None:
        """Use ``build_policy``, which checks its arguments and draws the weights."""
        super().__init__()
        self.normalisation = None
        self._choices = env_spec.actions.choices
        self.action_map = ActionMap.to_bounds(env_spec.actions)
        number = len(env_spec.agents) if params.agents == "separate" else 1
        self.networks = nn.ModuleList(Network(params, env_spec) for _ in range(number))
        self.members = cast(list[Network], list(self.networks))
        memory = self.members[0].memory
        self._memory_size = 0 if memory is None else memory.units

    @property
    def memory_size(self) -> int:
        """Units of the memory's state, 0 without a memory."""
        return self._memory_size

    def initial_memory(self, num_agents: int) -> Float[Tensor, "agent unit"]:
        """The memory at the beginning of an episode: zeros."""
        return torch.zeros(num_agents, self._memory_size, device=self.members[0].head.weight.device)

    def step(
        self,
        observation: Shaped[Tensor, "agent word"],
        memory: Float[Tensor, "agent unit"],
        starts: Bool[Tensor, " agent"],
        agent: Int[Tensor, " agent"],
        mask: Bool[Tensor, "agent option"] | None = None,
    ) -> PolicyStep:
        """Distribution, value and next memory; where an episode starts, memory is void."""
        hidden, value, memory = self._unrolled(observation[None], memory, starts[None], agent)
        return PolicyStep(self.distribution(hidden[0], agent, mask), value[0], memory)

    def unroll(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
        agent: Int[Tensor, " segment"],
    ) -> Unrolled:
        """The same as ``step`` step by step, for whole segments at once."""
        hidden, value, _ = self._unrolled(observation, memory, starts, agent)
        return Unrolled(hidden, value)

    def _unrolled(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
        agent: Int[Tensor, " segment"],
    ) -> tuple[
        Float[Tensor, "time segment feature"],
        Float[Tensor, "time segment"],
        Float[Tensor, "segment unit"],
    ]:
        """Inputs of heads, values, and the memory in the end."""
        if self.normalisation is not None:
            observation = self.normalisation(observation)
        if len(self.networks) == 1:
            hidden, value, memory = self.members[0](observation, memory, starts)
        else:
            hidden, value, memory = self._routed(
                agent,
                (1, 1, 0),
                lambda network, rows: network(observation[:, rows], memory[rows], starts[:, rows]),
            )
        return hidden, value, memory

    def distribution(
        self,
        hidden: Float[Tensor, "row feature"],
        agent: Int[Tensor, " row"],
        mask: Bool[Tensor, "row option"] | None = None,
    ) -> MultiCategorical | BoundedNormal:
        """The distributions over actions ``[row number]`` that belong to ``hidden``."""
        if len(self.networks) == 1:
            output = self.members[0].head(hidden)
        else:
            (output,) = self._routed(
                agent, (0,), lambda network, rows: (network.head(hidden[rows]),)
            )
        if self._choices:
            return MultiCategorical(output, self._choices, mask)
        log_std = torch.stack([network.log_std for network in self.members])
        if self.action_map is not None:
            self.action_map = self.action_map.to(output.device)
        return diagonal_normal(
            output, log_std if len(log_std) == 1 else log_std[agent], self.action_map
        )

    def _routed(
        self,
        agent: Int[Tensor, " row"],
        axes: tuple[int, ...],
        part: Callable[[Network, Tensor], tuple[Tensor, ...]],
    ) -> tuple[Tensor, ...]:
        """Outputs of each agent's network for its own rows, each put together along its axis."""
        rows = [torch.where(agent == position)[0] for position in range(len(self.networks))]
        order = torch.cat(rows)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        parts = [part(*pair) for pair in zip(self.members, rows, strict=True)]
        return tuple(
            torch.cat(group, axis).index_select(axis, back)
            for axis, group in zip(axes, zip(*parts, strict=True), strict=True)
        )


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
    clip: Tensor
    count: Tensor

    def __init__(
        self,
        mean: Float[Tensor, " word"],
        variance: Float[Tensor, " word"],
        clip: float | Tensor,
        count: Float[Tensor, ""],
    ) -> None:
        """Take over the statistics; ``count`` is the number of observations that they are of."""
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("variance", variance)
        self.register_buffer("clip", torch.as_tensor(clip, dtype=mean.dtype))
        self.register_buffer("count", count)

    @classmethod
    def within(cls, policy: Mapping[str, Tensor]) -> ObservationNormalisation | None:
        """The normalisation in the state dictionary of a policy; None: observations stay."""
        names = [f"normalisation.{name}" for name in ("mean", "variance", "clip", "count")]
        return cls(*(policy[name] for name in names)) if names[0] in policy else None

    def forward(self, observation: Float[Tensor, "*batch word"]) -> Float[Tensor, "*batch word"]:
        """Normalised observations, float32."""
        scaled = (observation - self.mean) / torch.sqrt(self.variance + EPSILON)
        return scaled.clamp(-self.clip, self.clip).float()


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
