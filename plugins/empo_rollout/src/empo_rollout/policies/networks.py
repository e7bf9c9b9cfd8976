"""Policies with critics: dense, convolutional or recurrent, one for all agents or one for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from empo_core.errors import ConfigError
from empo_core.protocols.environments import EnvSpec
from empo_learning.distributions import BoundedNormal
from empo_rollout.params import PolicyParams
from empo_rollout.policies.distributions import ActionMap, MultiCategorical, diagonal_normal
from empo_rollout.policies.layers import (
    POLICY_GAIN,
    VALUE_GAIN,
    ObservationNormalisation,
    Trunk,
    initialise,
    orthogonal,
    scaled,
)
from empo_rollout.policies.protocols import PolicyStep, Unrolled
from empo_rollout.policies.recurrent import Recurrent, forgotten

COMPILE_OPTIONS = {"layout_optimization": False}
"""Options for ``torch.compile``. Without them it plans wrong strides for convolutions over as
many rows as the data says, which agents with networks of their own have, and fails."""


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

    def step(
        self, observation: Shaped[Tensor, "agent word"], memory: Float[Tensor, "agent unit"]
    ) -> tuple[Float[Tensor, "agent output"], Float[Tensor, " agent"], Float[Tensor, "agent unit"]]:
        """Outputs of the head, values, and the next memory."""
        observation = scaled(observation, self.scale)
        hidden = self.trunk(observation)
        if self.memory is not None:
            hidden, memory = self.memory.step(hidden, memory)
        return self.head(hidden), self._value(observation, hidden), memory

    def unroll(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> tuple[Float[Tensor, "time segment feature"], Float[Tensor, "time segment"]]:
        """Inputs of the head, and values, at each step of segments."""
        shape = observation.shape[:2]
        rows = scaled(observation.flatten(0, 1), self.scale)
        hidden = self.trunk(rows)
        if self.memory is not None:
            hidden = self.memory.unroll(
                hidden.view(*shape, self.trunk.features), memory, starts
            ).flatten(0, 1)
        value = self._value(rows, hidden)
        return hidden.float().view(*shape, self.head.in_features), value.view(shape)

    def _value(
        self, observation: Float[Tensor, "row word"], hidden: Float[Tensor, "row feature"]
    ) -> Float[Tensor, " row"]:
        if self.critic_trunk is not None:
            hidden = self.critic_trunk(observation)
        value: Tensor = self.critic(hidden).float().squeeze(1)
        return value


class Networks(nn.Module):
    """An ``ActorCritic``: one network for all agents, or one for each.

    Attributes:
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
        memory = self.members[0].memory
        self._memory_size = 0 if memory is None else memory.units

    @property
    def members(self) -> list[Network]:
        """The network of each agent, or the one of all."""
        return cast(list[Network], list(self.networks))

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
        if self.normalisation is not None:
            observation = self.normalisation(observation)
        if self._memory_size:
            memory = forgotten(memory, starts)
        if len(self.networks) == 1:
            output, value, memory = self.members[0].step(observation, memory)
        else:
            output, value, memory = self._routed(
                agent, 0, lambda network, rows: network.step(observation[rows], memory[rows])
            )
        return PolicyStep(self._distribution(output, agent, mask), value, memory)

    def unroll(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
        agent: Int[Tensor, " segment"],
    ) -> Unrolled:
        """The same as ``step`` step by step, for whole segments at once."""
        if self.normalisation is not None:
            observation = self.normalisation(observation)
        if len(self.networks) == 1:
            return Unrolled(*self.members[0].unroll(observation, memory, starts))
        hidden, value = self._routed(
            agent,
            1,
            lambda network, rows: network.unroll(
                observation[:, rows], memory[rows], starts[:, rows]
            ),
        )
        return Unrolled(hidden, value)

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
            (output,) = self._routed(agent, 0, lambda network, rows: (network.head(hidden[rows]),))
        return self._distribution(output, agent, mask)

    def _distribution(
        self,
        output: Float[Tensor, "row output"],
        agent: Int[Tensor, " row"],
        mask: Bool[Tensor, "row option"] | None,
    ) -> MultiCategorical | BoundedNormal:
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
        axis: int,
        part: Callable[[Network, Tensor], tuple[Tensor, ...]],
    ) -> tuple[Tensor, ...]:
        """Outputs of each agent's network for its own rows, put together along ``axis``."""
        rows = [torch.where(agent == position)[0] for position in range(len(self.networks))]
        order = torch.cat(rows)
        count = len(self.networks)
        # Unlike an if, this does not end a compiled graph.
        torch._check_value(  # type: ignore[no-untyped-call]
            len(order) == len(agent),
            lambda: f"agent names positions outside [0, {count}), where there are networks",
        )
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        parts = [part(*pair) for pair in zip(self.members, rows, strict=True)]
        return tuple(
            torch.cat(group, axis).index_select(axis, back) for group in zip(*parts, strict=True)
        )
