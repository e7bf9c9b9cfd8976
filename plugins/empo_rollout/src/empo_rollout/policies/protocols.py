"""The protocol of policies with a critic, and their outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.distributions import Distribution

from empo_core.trees import StateDict


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

    ``hidden`` is what ``ActorCritic.distribution`` turns into distributions over actions.
    """

    hidden: Float[Tensor, "time segment feature"]
    value: Float[Tensor, "time segment"]


@runtime_checkable
class ActorCritic(Protocol):
    """A policy and a critic, possibly with memory and with parts in common.

    Several agents may have networks of their own: ``agent`` says whose turn it is, as a position
    in ``EnvSpec.agents``.
    """

    @property
    def memory_size(self) -> int:
        """Units of the memory's state, 0 without a memory."""

    def initial_memory(self, num_agents: int) -> Float[Tensor, "agent unit"]:
        """The memory at the beginning of an episode: zeros."""

    def step(
        self,
        observation: Shaped[Tensor, "agent word"],
        memory: Float[Tensor, "agent unit"],
        starts: Bool[Tensor, " agent"],
        agent: Int[Tensor, " agent"],
        mask: Bool[Tensor, "agent option"] | None = None,
    ) -> PolicyStep:
        """Distribution, value and next memory; where an episode starts, memory is void."""

    def unroll(
        self,
        observation: Shaped[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
        agent: Int[Tensor, " segment"],
    ) -> Unrolled:
        """The same as ``step`` step by step, for whole segments at once."""

    def distribution(
        self,
        hidden: Float[Tensor, "row feature"],
        agent: Int[Tensor, " row"],
        mask: Bool[Tensor, "row option"] | None = None,
    ) -> Distribution:
        """The distributions over actions ``[row number]`` that belong to ``hidden``."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The trainable tensors."""

    def state_dict(self) -> StateDict:
        """Everything needed to restore the network, as tensors."""

    def load_state_dict(self, state_dict: StateDict) -> Any:
        """Restore what ``state_dict`` returned."""
