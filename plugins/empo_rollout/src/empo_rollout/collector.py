"""Collection of rollouts: a policy acts in vectorised environments, a buffer stores the steps."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from empo_core.errors import ConfigError, NonFiniteError
from empo_core.protocols.environments import EnvSpec, TimeStep, VectorEnv
from empo_core.trees import StateDict
from empo_environments.normalisation import Normaliser
from empo_learning.timers import Timers
from empo_rollout.buffer import Rollout, SegmentBuffer
from empo_rollout.closed_form import DensePolicy
from empo_rollout.params import ComputeParams, RolloutParams
from empo_rollout.plan import VecPlan
from empo_rollout.policy import Networks, PolicyStep, autocast


class EpisodeObserver(Protocol):
    """Takes in every step, as ``EpisodeReturns`` does."""

    def observe(
        self,
        reward: Float[np.ndarray, " agent"],
        done: Bool[np.ndarray, " agent"],
        reason: Int[np.ndarray, " agent"],
        *,
        success: Int[np.ndarray, " agent"] | None = None,
        starts: Bool[np.ndarray, " agent"] | None = None,
        acted: Bool[np.ndarray, " agent"] | None = None,
        agents: slice = ...,
    ) -> None:
        """Take in one step of some agents."""


class Decision(NamedTuple):
    """What the agents of a block do, and what the policy says of it."""

    action: Shaped[Tensor, "agent number"]
    log_prob: Float[Tensor, " agent"]
    value: Float[Tensor, " agent"]
    memory: Float[Tensor, "agent unit"]


class RolloutCollector:
    """Collects rollouts: the policy acts in vectorised environments, the buffer stores the steps.

    A block that has no room left in the rollout is parked: its observation is evaluated, but no
    action is sent. It is the first to act in the next rollout, with the policy of that time.

    Attributes:
        normaliser: Normalises what the policy and the buffer are given; None: nothing does.
    """

    def __init__(
        self,
        vector: VectorEnv,
        policy: Networks,
        buffer: SegmentBuffer,
        episodes: EpisodeObserver,
        timers: Timers,
        *,
        compute: ComputeParams,
        device: torch.device,
        carry_memory: bool,
        normaliser: Normaliser | None = None,
        acting: Networks | DensePolicy | None = None,
    ) -> None:
        """Put the parts together; ``acting`` computes the steps of ``policy``, None: itself."""
        env_spec = vector.spec
        self._vector, self._policy, self._buffer = vector, acting or policy, buffer
        self._episodes, self._timers = episodes, timers
        self._compute, self._device, self._carry = compute, device, carry_memory
        self._spec, self.normaliser = env_spec, normaliser
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
        for time_step in parked:
            with self._timers("inference"):
                decision = self._decision(time_step)
            self._act(time_step, decision, version)
        while not self._buffer.ready:
            with self._timers("env"):
                received = self._vector.recv()
            time_step = self._observed(received)
            with self._timers("inference"):
                decision = self._decision(time_step)
                final = self._final_values(time_step)
            self._buffer.receive(time_step, decision.value, final)
            if self._buffer.has_room(time_step.block):
                self._act(time_step, decision, version)
            else:
                self._parked.append(time_step)
        return self._buffer.rollout()

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so, between two rollouts."""
        return {
            "vector": self._vector.state_dict(),
            "memory": self._memory.clone(),
            "acted": torch.from_numpy(self._acted.copy()),
            "parked": len(self._parked),
            "normalised": None
            if self.normaliser is None
            else [torch.from_numpy(time_step.observation.copy()) for time_step in self._parked],
        }

    def load_state_dict(self, state_dict: StateDict) -> bool:
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
        if state_dict["normalised"] is not None:  # By the statistics of the time they arrived.
            self._parked = [
                replace(time_step, observation=observation.numpy())
                for time_step, observation in zip(
                    self._parked, state_dict["normalised"], strict=True
                )
            ]
        return True

    def _observed(self, time_step: TimeStep) -> TimeStep:
        """Count a time step as the environments gave it; the same, normalised."""
        agents = self._spec.agents_of(time_step.block)
        acted = self._acted[agents]
        self._episodes.observe(
            time_step.reward,
            time_step.terminated | time_step.truncated,
            time_step.reasons,
            success=time_step.success,
            starts=time_step.starts,
            acted=acted,
            agents=agents,
        )
        time_step = readable(time_step, acted)
        return time_step if self.normaliser is None else self.normaliser.update(time_step, acted)

    def _decision(self, time_step: TimeStep) -> Decision:
        """What each agent of a block does, drawn at random."""
        agents = self._spec.agents_of(time_step.block)
        step = policy_step(self._policy, time_step, self._memory[agents], self._agent[agents])
        action = step.distribution.sample()
        log_prob = step.distribution.log_prob(action)
        refuse_non_finite(step, log_prob, time_step)
        return Decision(action, log_prob, step.value, step.memory)

    def _final_values(self, time_step: TimeStep) -> Tensor:
        """Values of the last observations of episodes that were cut off."""
        if not len(time_step.final_row):
            return self._memory.new_zeros(0)
        agents = self._spec.agents_of(time_step.block)
        rows = self._tensor(time_step.final_row).long()
        return self._policy.step(
            observation_tensor(time_step.final_observation, self._device),
            self._memory[agents][rows],  # That of the episode that ended: not yet forgotten.
            torch.zeros(len(rows), dtype=torch.bool, device=self._device),
            self._agent[agents][rows],
        ).value

    def _act(self, time_step: TimeStep, decision: Decision, version: int) -> None:
        """Store what agents do, and send it to the block."""
        agents = self._spec.agents_of(time_step.block)
        action, log_prob, value, memory = decision
        self._buffer.store(time_step, action, log_prob, value, self._memory[agents], version)
        self._memory[agents] = memory
        self._acted[agents] = time_step.acts
        with self._timers("send"):
            self._vector.send(time_step.block, action.cpu().numpy())

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def build_collector(
    params: RolloutParams,
    plan: VecPlan,
    vector: VectorEnv,
    policy: Networks,
    episodes: EpisodeObserver,
    timers: Timers,
    device: torch.device,
) -> RolloutCollector:
    """A collector of rollouts of the planned size, as the params say.

    Raises:
        ConfigError: if observations cannot be normalised.
    """
    buffer = SegmentBuffer(
        vector.spec,
        plan,
        memory_size=policy.memory_size,
        tail=params.experience.tail,
        device=device,
        reward_clip=params.experience.reward_clip,
    )
    return RolloutCollector(
        vector,
        policy,
        buffer,
        episodes,
        timers,
        compute=params.compute,
        device=device,
        carry_memory=params.experience.carry_memory,
        normaliser=build_normaliser(params, vector.spec),
        acting=DensePolicy(policy) if params.update.gradient == "closed-form" else None,
    )


def build_normaliser(params: RolloutParams, env_spec: EnvSpec) -> Normaliser | None:
    """Normalises what agents of these environments see and are paid, where that is asked for.

    Raises:
        ConfigError: if observations cannot be normalised.
    """
    if params.normalise is None:
        return None
    try:
        return Normaliser(env_spec, params.normalise, params.gamma)
    except ConfigError as error:
        raise ConfigError(f"algorithm.params.{error}") from error


def policy_step(
    policy: Networks | DensePolicy,
    time_step: TimeStep,
    memory: Float[Tensor, "agent unit"],
    agent: Int[Tensor, " agent"],
) -> PolicyStep:
    """Distributions, values and next memory for a block, on the device of ``memory``."""
    device = memory.device
    return policy.step(
        observation_tensor(time_step.observation, device),
        memory,
        torch.from_numpy(time_step.starts).to(device),
        agent,
        None if time_step.mask is None else torch.from_numpy(time_step.mask).to(device),
    )


def readable(time_step: TimeStep, acted: Bool[np.ndarray, " agent"]) -> TimeStep:
    """The same with zeros for what is infinite or NaN and observed by agents that do not act.

    Networks would make NaN of it, which a weight of 0 in a loss does not undo.

    Args:
        time_step: What a block returned.
        acted: The agents whose outcome it tells.

    Raises:
        NonFiniteError: if an agent that acted and goes on observes such numbers, for its last
            action counts by what it led to.
    """
    observation = time_step.observation
    if time_step.acts.all() or observation.dtype.kind != "f":
        return time_step
    unreadable = ~time_step.acts & ~np.isfinite(observation).all(1)
    if not unreadable.any():
        return time_step
    going_on = unreadable & acted & ~time_step.terminated & ~time_step.truncated
    if going_on.any():
        raise NonFiniteError(
            f"agent {int(going_on.argmax())} of its block goes on and observes numbers that are "
            "infinite or NaN: mend the environment"
        )
    return replace(time_step, observation=np.where(unreadable[:, None], 0, observation))


def refuse_non_finite(
    step: PolicyStep, log_prob: Float[Tensor, " agent"], time_step: TimeStep
) -> None:
    """Refuse to act by a policy or value that is infinite or NaN.

    Raises:
        NonFiniteError: if one is; the message says whether the weights or the environment did it.
    """
    # Whatever is not finite makes the sum so; that of agents that do not act may be.
    if math.isfinite(float((log_prob + step.value).sum())):
        return
    is_finite = log_prob.isfinite() & step.value.isfinite()
    acting = torch.from_numpy(time_step.acts).to(is_finite.device)
    if bool((is_finite | ~acting).all()):
        return
    agent = int((~is_finite & acting).nonzero()[0])
    if not np.isfinite(time_step.observation[agent]).all():
        raise NonFiniteError(
            f"agent {agent} of its block observes numbers that are infinite or NaN, and no action "
            "can be drawn by them: mend the environment"
        )
    raise NonFiniteError(
        f"the policy that agent {agent} of its block acts by is not finite: log-probability "
        f"{log_prob[agent].item()}, value {step.value[agent].item()}; the weights have diverged: "
        "go on from an older checkpoint with a lower optimiser.lr"
    )


def observation_tensor(
    observation: Shaped[np.ndarray, "agent word"], device: torch.device
) -> Shaped[Tensor, "agent word"]:
    """Observations in memory of torch's own.

    Products of matrices may differ in their last bits with the alignment of memory, which is
    another one in each process; torch aligns its own.
    """
    return torch.from_numpy(observation).to(device, copy=True)
