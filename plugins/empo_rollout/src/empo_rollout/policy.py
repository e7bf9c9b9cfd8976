"""Policies with critics: heads on a policy network, one for all agents or one for each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.distributions import Distribution

from empo_core.components import build
from empo_core.errors import ConfigError, failure, written_at
from empo_core.protocols import PolicyNetwork
from empo_core.protocols.environments import EnvSpec
from empo_environments.normalisation import EPSILON
from empo_learning.distributions import BoundedNormal
from empo_learning.room import num_parameters
from empo_rollout.distributions import ActionMap, MultiCategorical, diagonal_normal
from empo_rollout.networks import HIDDEN_GAIN, orthogonal
from empo_rollout.params import ComputeParams, PolicyParams

COMPILE_OPTIONS = {"layout_optimization": False}
"""Options for ``torch.compile``. Without them it plans wrong strides for convolutions over as
many rows as the data says, which agents with networks of their own have, and fails."""
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0
MOST_TRIED = 10**7
"""Numbers of networks that are tried out before a run."""


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

    ``hidden`` is what ``Networks.distribution`` turns into distributions over actions, ``memory``
    is the one behind the last step.
    """

    hidden: Float[Tensor, "time segment feature"]
    value: Float[Tensor, "time segment"]
    memory: Float[Tensor, "segment unit"]


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
    _check(params, env_spec)
    # What draws weights in its constructor draws them by the same seed.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        policy = Networks(params, env_spec)
    for network in policy.members:
        network.initialise(generator)
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


def require_forward(params: PolicyParams, env_spec: EnvSpec) -> None:
    """Ask networks for the features of one observation, zeros, before anything is collected.

    Raises:
        ConfigError: if the component's code fails, or returns other rows than it says.
    """
    if num_parameters(lambda: [blank_policy(params, env_spec)]) > MOST_TRIED:
        return
    policy = build_policy(params, env_spec, generator=torch.Generator())
    trunk = policy.members[0].trunk
    observation = torch.zeros(1, 1, env_spec.observations.words)
    memory, starts = torch.zeros(1, trunk.memory_size), torch.ones(1, 1, dtype=torch.bool)
    try:
        with torch.no_grad():
            features, after = trunk.unroll(observation, memory, starts)
    except ConfigError:
        raise
    except Exception as error:
        problem = failure(error, trunk, "forward of one row of zeros")
        raise ConfigError(f"policy.network: {params.network.name!r}: {problem}") from error
    for name, rows, shape in (
        ("features", features, (1, 1, trunk.features)),
        ("memory", after, (1, trunk.memory_size)),
    ):
        if tuple(rows.shape) != shape:
            raise ConfigError(
                f"policy.network: {params.network.name!r} returns {name} of shape "
                f"{tuple(rows.shape)} for one row of an observation; they should have shape "
                f"{shape}{written_at(trunk)}"
            )


def _check(params: PolicyParams, env_spec: EnvSpec) -> None:
    actions = env_spec.actions
    if not actions.size:
        raise ConfigError("policy: agents have no actions: neither choices nor numbers")
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
        trunk: From observations to features, a component of kind ``policy_network``.
        head: From features to what distributions of actions are made of.
        log_std: Logarithms of standard deviations of outputs, where actions are numbers.
        critic_trunk: The critic's own trunk, another one of that component; None: it reads the
            policy's features.
        critic: From features to values.
    """

    def __init__(self, params: PolicyParams, env_spec: EnvSpec) -> None:
        super().__init__()
        observations, actions = env_spec.observations, env_spec.actions
        self.scale, self.choices = observations.scale, actions.choices
        self.trunk: PolicyNetwork = build(params.network, observations)
        if (self.trunk.memory_size > 0) != params.has_memory:
            raise ConfigError(
                f"policy.network: {params.network.name!r} remembers {self.trunk.memory_size} "
                f"numbers, and the class attribute has_memory of its params is "
                f"{params.has_memory}; correct one of them"
            )
        features = self.trunk.features
        self.head = nn.Linear(features, sum(actions.choices) or actions.size)
        if not actions.is_discrete:
            self.log_std = nn.Parameter(torch.empty(actions.size))
        self.critic_trunk: PolicyNetwork | None = (
            build(params.network, observations) if params.critic == "own" else None
        )
        self.critic = nn.Linear(features, 1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw initial weights; the heads say little at first."""
        self.trunk.initialise(generator)
        orthogonal(self.head, HIDDEN_GAIN, generator)
        if self.critic_trunk is not None:
            self.critic_trunk.initialise(generator)
        orthogonal(self.critic, HIDDEN_GAIN, generator)
        # Heads are drawn a second time, as they always were, so that seeds keep their weights.
        orthogonal(self.head, POLICY_GAIN, generator)
        orthogonal(self.critic, VALUE_GAIN, generator)

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
        observation = scaled(observation, self.scale)
        hidden, memory = self.trunk.unroll(observation, memory, starts)
        read = hidden
        if self.critic_trunk is not None:
            read, _ = self.critic_trunk.unroll(observation, memory, starts)
        value = self.critic(read)[..., 0].float()
        return hidden.float(), value, memory


class Networks(nn.Module):
    """A policy and a critic: one network for all agents, or one for each.

    Where each agent has a network, ``agent`` says whose turn it is, as a position in
    ``EnvSpec.agents``.

    Attributes:
        members: The network of each agent, or the one of all.
        normalisation: Normalises observations before the networks read them, where a finished run
            learned from normalised ones; None while it learns, for the collector does it then.
        action_map: Maps outputs to the finite bounds of actions; None: nothing is mapped.
        observations: The observations that it was made for.
    """

    normalisation: ObservationNormalisation | None
    action_map: ActionMap | None

    def __init__(self, params: PolicyParams, env_spec: EnvSpec) -> None:
        """Use ``build_policy``, which checks its arguments and draws the weights."""
        super().__init__()
        self.normalisation = None
        self.observations, self._choices = env_spec.observations, env_spec.actions.choices
        self.action_map = ActionMap.to_bounds(env_spec.actions)
        number = len(env_spec.agents) if params.agents == "separate" else 1
        self.networks = nn.ModuleList(Network(params, env_spec) for _ in range(number))
        self.members = cast(list[Network], list(self.networks))
        self._memory_size = self.members[0].trunk.memory_size

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
        hidden, value, memory = self.unroll(observation[None], memory, starts[None], agent)
        return PolicyStep(self.distribution(hidden[0], agent, mask), value[0], memory)

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
            hidden, value, memory = self.members[0](observation, memory, starts)
        else:
            hidden, value, memory = self._routed(
                agent,
                (1, 1, 0),
                lambda network, rows: network(observation[:, rows], memory[rows], starts[:, rows]),
            )
        return Unrolled(hidden, value, memory)

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
