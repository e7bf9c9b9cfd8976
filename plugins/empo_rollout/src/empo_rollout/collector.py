"""Collection of rollouts: a policy acts in vectorised environments, a buffer stores the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from empo_core.protocols.environments import TimeStep, VectorEnv
from empo_learning.timers import Timers
from empo_rollout.episodes import Episodes
from empo_rollout.experience.buffer import SegmentBuffer
from empo_rollout.experience.rollout import Rollout
from empo_rollout.params import ComputeParams
from empo_rollout.policies.precision import autocast
from empo_rollout.policies.protocols import ActorCritic, Step


class RolloutCollector:
    """Collects rollouts: the policy acts in vectorised environments, the buffer stores the steps.

    A block that has no room left in the rollout is parked: its observation is evaluated, but no
    action is sent. It is the first to act in the next rollout, with the policy of that time.
    """

    def __init__(
        self,
        vector: VectorEnv,
        policy: ActorCritic,
        buffer: SegmentBuffer,
        episodes: Episodes,
        timers: Timers,
        *,
        compute: ComputeParams,
        device: torch.device,
        carry_memory: bool,
    ) -> None:
        """Put the parts together.

        Args:
            vector: The environments.
            policy: Acts; its parameters may change between rollouts.
            buffer: Where the rollout is put.
            episodes: Is told what became of episodes.
            timers: Measures 'env', 'inference' and 'send'.
            compute: How exactly it computes.
            device: Where the policy lives.
            carry_memory: Whether memory survives from one rollout to the next.
        """
        env_spec = vector.spec
        self._vector, self._policy, self._buffer = vector, policy, buffer
        self._episodes, self._timers = episodes, timers
        self._compute, self._device, self._carry = compute, device, carry_memory
        self._spec = env_spec
        self._agent = torch.arange(env_spec.num_agents, device=device) % len(env_spec.agents)
        self._memory = policy.initial_memory(env_spec.num_agents).to(device)
        self._acted = np.zeros(env_spec.num_agents, bool)
        self._parked: list[TimeStep] = []

    def start(self, seed: int) -> None:
        """Begin the first episodes."""
        self._vector.start(seed)

    @torch.no_grad()
    def collect(self, version: int) -> Rollout:
        """The next rollout; ``version`` is how often the policy was trained."""
        with autocast(self._compute):
            return self._collected(version)

    def _collected(self, version: int) -> Rollout:
        self._buffer.begin_rollout()
        if not self._carry:
            self._memory.zero_()
        parked, self._parked = self._parked, []
        for arrival in parked:
            with self._timers("inference"):
                step = self._policy_step(arrival)
            self._act(arrival, step, version)
        while not self._buffer.ready:
            with self._timers("env"):
                arrival = self._vector.recv()
            with self._timers("inference"):
                step = self._policy_step(arrival)
                final = self._final_values(arrival)
            self._settle(arrival, step, final)
            if self._buffer.has_room(arrival.block):
                self._act(arrival, step, version)
            else:
                self._parked.append(arrival)
        return self._buffer.rollout()

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly so, between two rollouts."""
        return {
            "vector": self._vector.state_dict(),
            "memory": self._memory.clone(),
            "acted": torch.from_numpy(self._acted.copy()),
            "parked": len(self._parked),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> bool:
        """Go on from what ``state_dict`` returned, instead of ``start``.

        Returns whether the environments stand exactly where they stood.
        """
        exact = self._vector.load_state_dict(state_dict["vector"])
        if not exact:
            return False
        self._memory.copy_(state_dict["memory"])
        self._acted[:] = state_dict["acted"].numpy()
        # Blocks that waited arrive again, but what led to them has been counted already.
        self._parked = [self._vector.recv() for _ in range(state_dict["parked"])]
        return True

    def _policy_step(self, arrival: TimeStep) -> Step:
        """What the policy makes of a block."""
        slots = self._spec.agents_of(arrival.block)
        return policy_step(self._policy, arrival, self._memory[slots], self._agent[slots])

    def _final_values(self, arrival: TimeStep) -> Tensor:
        """Values of the last observations of episodes that were cut off."""
        if not len(arrival.final_row):
            return self._memory.new_zeros(0)
        slots = self._spec.agents_of(arrival.block)
        rows = self._tensor(arrival.final_row).long()
        return self._policy.step(
            observation_tensor(arrival.final_observation, self._device),
            self._memory[slots][rows],  # That of the episode that ended: not yet forgotten.
            torch.zeros(len(rows), dtype=torch.bool, device=self._device),
            self._agent[slots][rows],
        ).value

    def _settle(self, arrival: TimeStep, step: Step, final: Tensor) -> None:
        """Note what a block's previous actions led to."""
        slots = self._spec.agents_of(arrival.block)
        self._buffer.receive(arrival, step.value, final)
        self._episodes.observe(arrival, self._acted[slots])

    def _act(self, arrival: TimeStep, step: Step, version: int) -> None:
        """Draw actions, remember them, and let the block go."""
        slots = self._spec.agents_of(arrival.block)
        with self._timers("inference"):
            action = step.distribution.sample()
            log_prob = step.distribution.log_prob(action)
        self._buffer.store(arrival, action, log_prob, step.value, self._memory[slots], version)
        self._memory[slots] = step.memory
        self._acted[slots] = arrival.acts
        with self._timers("send"):
            self._vector.send(arrival.block, action.cpu().numpy())

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def policy_step(
    policy: ActorCritic,
    arrival: TimeStep,
    memory: Float[Tensor, "slot unit"],
    agent: Int[Tensor, " slot"],
) -> Step:
    """Distributions, values and next memory for a block, on the device of ``memory``."""
    device = memory.device
    return policy.step(
        observation_tensor(arrival.observation, device),
        memory,
        torch.from_numpy(arrival.starts).to(device),
        agent,
        None if arrival.mask is None else torch.from_numpy(arrival.mask).to(device),
    )


def observation_tensor(
    observation: Shaped[np.ndarray, "slot word"], device: torch.device
) -> Tensor:
    """Observations in memory of torch's own.

    Products of matrices may differ in their last bits with the alignment of memory, which is
    another one in each process; torch aligns its own.
    """
    return torch.from_numpy(observation).to(device, copy=True)
