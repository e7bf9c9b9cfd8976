"""Experience: the buffer of a rollout's segments, advantages (GAE, V-trace), and minibatches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from empo_core.errors import NonFiniteError
from empo_core.protocols.environments import EnvSpec, TimeStep
from empo_learning.distributed import Group
from empo_rollout.params import AdvantageParams, UpdateParams
from empo_rollout.plan import VecPlan

PRIORITY_FLOOR = 1e-6
"""Added to every priority, so that each segment can be drawn."""

GATHERED_STEPS = 16_384
"""Most steps that are gathered at once for minibatches; a minibatch may be larger."""

PER_SEGMENT = frozenset({"memory", "agent"})
"""Fields of rollouts and batches that have no axis for time."""

Place: TypeAlias = tuple[int, slice]
"""Position of a block's step: its time within segments, and those segments."""


class Segmented:
    """Tensors of several segments, ``[time, segment, ...]`` but for those in ``PER_SEGMENT``."""

    __slots__: tuple[str, ...] = ()

    def segments(self, chosen: Int[Tensor, " chosen"]) -> Self:
        """Copies of some segments, in the order of ``chosen``."""
        fields = [(name, getattr(self, name)) for name in self.__slots__]
        return type(self)(
            **{
                name: tensor.index_select(0 if name in PER_SEGMENT else 1, chosen)
                for name, tensor in fields
                if tensor is not None  # Masks, where all options always are available.
            }
        )


@dataclass(slots=True)
class Rollout(Segmented):
    """Segments of consecutive steps, each of one agent, time first.

    An entry along ``time`` is one transition: an observation, the action taken there, and the
    outcome of that action. Segments are cut by time, not by episodes: where one ends, the next
    row belongs to the next episode of the same agent.

    Attributes:
        observation: Observations.
        action: Actions: options (int64) or numbers (float32).
        log_prob: Log-probability of the action under the policy that acted.
        value: Value estimate of the observation, by that policy's critic.
        reward: Reward of the action.
        terminated: The episode ended with this step, worth nothing from there.
        truncated: It was cut off after this step.
        next_value: Value estimate of the next observation in the same episode: of the last one
            where the episode was truncated; 0 where ``terminated``, where ``unseen``, and where
            the step is not ``valid``.
        unseen: It was cut off (not ``terminated``), and the observation that followed is not
            known; ``advantages`` says what it counts as.
        starts: The observation is the first of an episode.
        valid: The agent acted; where not, the step counts in no loss, its reward is 0 and it ends
            no episode.
        is_known: The outcome is known; False in the last step with ``tail: drop``.
        memory: State of the policy's memory before the first step of each segment; it was
            already forgotten where the first step begins an episode.
        agent: Index of the agent that each segment comes from, among those of all environments.
        version: Training iterations of the policy that acted at each step.
        mask: Which options were available; None where all always are.
    """

    observation: Shaped[Tensor, "time segment word"]
    action: Shaped[Tensor, "time segment number"]
    log_prob: Float[Tensor, "time segment"]
    value: Float[Tensor, "time segment"]
    reward: Float[Tensor, "time segment"]
    terminated: Bool[Tensor, "time segment"]
    truncated: Bool[Tensor, "time segment"]
    next_value: Float[Tensor, "time segment"]
    unseen: Bool[Tensor, "time segment"]
    starts: Bool[Tensor, "time segment"]
    valid: Bool[Tensor, "time segment"]
    is_known: Bool[Tensor, "time segment"]
    memory: Float[Tensor, "segment unit"]
    agent: Int[Tensor, " segment"]
    version: Int[Tensor, "time segment"]
    mask: Bool[Tensor, "time segment option"] | None = None

    @property
    def learnable(self) -> Bool[Tensor, "time segment"]:
        """The steps that losses are about: the agent acted, and the outcome is known."""
        return self.valid & self.is_known


@dataclass(slots=True)
class Batch(Segmented):
    """Segments as losses see them: a whole rollout, a minibatch, or a part of one.

    Attributes:
        observation: What agents saw.
        starts: The observation is the first of an episode.
        memory: State of the policy's memory before the first step of each segment.
        agent: Position of the agent in its environment.
        action: What it did; options are whole numbers.
        log_prob: Log-probability of that under the policy that acted.
        value: Value estimate of that policy.
        returns: Targets of the value function; finite.
        advantage: Of the actions; finite, and of no meaning where a step has no weight.
        weight: How much each step counts in losses; 0 masks it out.
        mask: Which actions were available; None where all always are.
    """

    observation: Shaped[Tensor, "time segment word"]
    starts: Bool[Tensor, "time segment"]
    memory: Float[Tensor, "segment unit"]
    agent: Int[Tensor, " segment"]
    action: Float[Tensor, "time segment number"]
    log_prob: Float[Tensor, "time segment"]
    value: Float[Tensor, "time segment"]
    returns: Float[Tensor, "time segment"]
    advantage: Float[Tensor, "time segment"]
    weight: Float[Tensor, "time segment"]
    mask: Bool[Tensor, "time segment option"] | None = None

    @classmethod
    def of(
        cls,
        rollout: Rollout,
        advantage: Float[Tensor, "time segment"],
        returns: Float[Tensor, "time segment"],
        *,
        num_agents: int,
        by_steps: bool,
    ) -> Batch:
        """A rollout of ``num_agents`` per environment; ``by_steps``, each step is a segment.

        Steps that are not learnable have no weight, and zeros for all numbers that losses
        read. Only policies without memory learn by steps.
        """
        learnable, agent, memory = rollout.learnable, rollout.agent % num_agents, rollout.memory
        steps = {
            "observation": rollout.observation,
            "starts": rollout.starts,
            "action": rollout.action.to(returns.dtype),
            "log_prob": rollout.log_prob.masked_fill(~learnable, 0.0),
            "value": rollout.value.masked_fill(~learnable, 0.0),
            "returns": returns.masked_fill(~learnable, 0.0),
            "advantage": advantage.masked_fill(~learnable, 0.0),
            "weight": learnable.to(returns.dtype),
        }
        if rollout.mask is not None:
            steps["mask"] = rollout.mask
        if by_steps:  # At ``time * segments + segment``, without copies.
            steps = {name: tensor.flatten(0, 1).unsqueeze(0) for name, tensor in steps.items()}
            agent = agent.repeat(len(learnable))
            memory = memory.new_zeros(len(agent), 0)
        return cls(agent=agent, memory=memory, **steps)

    def minibatches(self, order: Int[Tensor, " drawn"], size: int) -> Iterator[Batch]:
        """Minibatches of ``size`` segments each, in this order.

        Several of them are gathered at once, up to ``GATHERED_STEPS``.
        """
        at_once = size * max(1, GATHERED_STEPS // (size * len(self.value)))
        for chosen in torch.split(order, at_once):
            parts = {}
            for name in self.__slots__:
                tensor, axis = getattr(self, name), 0 if name in PER_SEGMENT else 1
                if tensor is not None:  # The mask, where all options always are available.
                    parts[name] = torch.split(tensor.index_select(axis, chosen), size, axis)
            for tensors in zip(*parts.values(), strict=True):
                yield Batch(**dict(zip(parts, tensors, strict=True)))


@dataclass(slots=True)
class WriteCursor:
    """Position at which a block writes.

    All agents of a block arrive together and act together, so their cursors never differ and the
    segments they write to lie side by side: one cursor stands for a cursor per agent, and a step of
    the block is a slice whatever order blocks arrive in.

    Attributes:
        segments: Those it writes to; None: none is left for it.
        time: Position of its next step in them.
        has_arrived: It has arrived in this rollout, and not been written since.
        awaits: Its last step was written, and the outcome has not arrived.
        open: The position that is kept for that outcome; None where the outcome is not stored.
        acts: Agents that acted in that step.
    """

    segments: slice | None = None
    time: int = 0
    has_arrived: bool = False
    awaits: bool = False
    open: Place | None = None
    acts: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


class SegmentBuffer:
    """One rollout: segments that fill up as blocks arrive, in whatever order they do.

    A segment belongs to one agent until it is full; then the agent goes on in a free one, as long
    as there are any. A block without segments has to wait (``has_room``) for the next rollout. So
    every segment holds consecutive steps of one agent, and every step that was stored is learned
    from, once.

    Nothing outlives a rollout, so there is nothing to save between two of them.
    """

    def __init__(
        self,
        env_spec: EnvSpec,
        plan: VecPlan,
        *,
        memory_size: int,
        tail: Literal["bootstrap", "drop"],
        device: torch.device | str = "cpu",
        reward_clip: float | None = None,
    ) -> None:
        """Reserve memory for one rollout, in RAM; ``rollout`` brings it to ``device``.

        ``tail`` and ``reward_clip`` are as in ``ExperienceParams``.
        """
        self._spec, self._horizon, self._segments = env_spec, plan.horizon, plan.segments
        self._tail, self._device, self._clip = tail, torch.device(device), reward_clip
        self._arrays = _empty(env_spec, plan.segments, plan.horizon, memory_size)
        self._cursors = [WriteCursor() for _ in range(env_spec.num_blocks)]
        self._free: deque[slice] = deque()
        self._full = 0

    def begin_rollout(self) -> None:
        """Start with empty segments; what ``rollout`` returned before is overwritten from now on.

        Raises:
            RuntimeError: if the last rollout is not ready, and its steps would be lost.
        """
        if (self._full or any(cursor.time for cursor in self._cursors)) and not self.ready:
            raise RuntimeError(f"{self._missing()}; a new one would lose its steps")
        size = self._spec.block_agents
        starts = range(0, self._segments, size)
        self._free = deque(slice(start, start + size) for start in starts)
        self._full = 0
        for cursor in self._cursors:
            cursor.segments, cursor.time = self._free.popleft(), 0
            cursor.has_arrived = False
        self._arrays["is_known"][:] = True
        if self._tail == "drop":
            self._arrays["is_known"][-1] = False

    def receive(
        self,
        time_step: TimeStep,
        value: Float[Tensor, " agent"],
        final_value: Float[Tensor, " final"],
    ) -> None:
        """Store the outcome of a block's last step, if that is in this rollout.

        Called once per time step, before ``store``; one that waited for this rollout has been
        received in the last one, and may be received again.

        Raises:
            RuntimeError: if the block has arrived before, and has not been stored since.
        """
        cursor = self._cursors[time_step.block]
        if cursor.has_arrived:
            raise RuntimeError(
                f"block {time_step.block} arrives twice without a step in between; store its step, "
                "or keep it waiting for the next rollout"
            )
        place, cursor.open = cursor.open, None
        cursor.has_arrived, cursor.awaits = True, False
        if place is None:
            return
        reward = np.where(cursor.acts, time_step.reward, 0)
        if self._clip is not None:
            np.clip(reward, -self._clip, self._clip, out=reward)
        terminated, truncated = (
            time_step.terminated & cursor.acts,
            time_step.truncated & cursor.acts,
        )
        unseen = truncated & ~terminated
        unseen[time_step.final_row] = False
        next_value = value.detach().cpu().numpy().copy()
        next_value[time_step.final_row] = final_value.detach().cpu().numpy()
        next_value[terminated | unseen | ~cursor.acts] = 0
        outcome = {
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "next_value": next_value,
            "unseen": unseen,
        }
        for name, array in outcome.items():
            self._arrays[name][place] = array

    def has_room(self, block: int) -> bool:
        """True if a block's next step can be stored; otherwise it waits for the next rollout."""
        return self._cursors[block].segments is not None

    def store(
        self,
        time_step: TimeStep,
        action: Shaped[Tensor, "agent number"],
        log_prob: Float[Tensor, " agent"],
        value: Float[Tensor, " agent"],
        memory: Float[Tensor, "agent unit"],
        version: int,
    ) -> None:
        """Store a step of a block, and the memory before it, in its segments.

        Raises:
            RuntimeError: if the block has no room, or the outcome of its last step is missing.
        """
        cursor = self._cursors[time_step.block]
        if cursor.awaits or cursor.segments is None:
            raise RuntimeError(
                f"block {time_step.block} cannot be stored: "
                + ("what its last step led to has not been received" if cursor.awaits
                   else "its segments are full, and no others are free; keep it waiting for the "
                   "next rollout (see has_room)")
            )  # fmt: skip
        place, arrays = (cursor.time, cursor.segments), self._arrays
        if cursor.time == 0:
            agents = self._spec.agents_of(time_step.block)
            arrays["agent"][cursor.segments] = np.arange(agents.start, agents.stop)
            stored = memory.detach().cpu().numpy()
            arrays["memory"][cursor.segments] = np.where(time_step.starts[:, None], 0, stored)
        arrays["observation"][place] = time_step.observation
        arrays["action"][place] = action.detach().cpu().numpy()
        arrays["log_prob"][place] = log_prob.detach().cpu().numpy()
        arrays["value"][place] = value.detach().cpu().numpy()
        arrays["starts"][place] = time_step.starts
        arrays["valid"][place] = time_step.acts
        arrays["version"][place] = version
        if time_step.mask is not None and "mask" in arrays:
            arrays["mask"][place] = time_step.mask
        # The environments may overwrite the time step's arrays once the block is sent.
        cursor.acts = time_step.acts.copy()
        cursor.has_arrived, cursor.awaits, cursor.open = False, True, place
        cursor.time += 1
        if cursor.time == self._horizon:
            self._full += cursor.segments.stop - cursor.segments.start
            cursor.segments, cursor.time = (self._free.popleft() if self._free else None), 0
            if self._tail == "drop":
                cursor.open = None

    @property
    def ready(self) -> bool:
        """True if all segments are full and every outcome that is waited for is known."""
        return self._full == self._segments and all(cursor.open is None for cursor in self._cursors)

    def rollout(self) -> Rollout:
        """The rollout; on the CPU the buffer's own memory, valid until the next one begins.

        Raises:
            RuntimeError: if the buffer is not ``ready``.
        """
        if not self.ready:
            raise RuntimeError(self._missing())
        tensors = {
            name: torch.from_numpy(array).to(self._device) for name, array in self._arrays.items()
        }
        return Rollout(**tensors)

    def _missing(self) -> str:
        waiting = sum(cursor.open is not None for cursor in self._cursors)
        return (
            f"the rollout is not ready: {self._full} of {self._segments} segments are full, and "
            f"{waiting} of {len(self._cursors)} blocks wait for what their last step led to"
        )


def _empty(
    env_spec: EnvSpec, segments: int, horizon: int, memory_size: int
) -> dict[str, np.ndarray]:
    """The arrays of a rollout, by name of its field; zeros."""
    shape = horizon, segments
    actions, observations = env_spec.actions, env_spec.observations
    kind = np.int64 if actions.is_discrete else np.float32
    arrays = {
        "observation": np.zeros((*shape, observations.words), observations.dtype),
        "action": np.zeros((*shape, actions.size), kind),
        "memory": np.zeros((segments, memory_size), np.float32),
        "agent": np.zeros(segments, np.int64),
        "version": np.zeros(shape, np.int64),
    }
    for name in ("log_prob", "value", "reward", "next_value"):
        arrays[name] = np.zeros(shape, np.float32)
    for name in ("terminated", "truncated", "unseen", "starts", "valid", "is_known"):
        arrays[name] = np.zeros(shape, bool)
    if env_spec.masks:
        arrays["mask"] = np.zeros((*shape, sum(actions.choices)), bool)
    return arrays


@torch.no_grad()
def advantages(
    rollout: Rollout,
    params: AdvantageParams,
    gamma: float,
    ratio: Float[Tensor, "time segment"] | None = None,
) -> tuple[Float[Tensor, "time segment"], Float[Tensor, "time segment"]]:
    """Advantages and returns by GAE (Schulman et al. 2016) and V-trace (Espeholt et al. 2018).

    With ``rho = min(ratio, rho_clip)`` and ``c = min(ratio, c_clip)``, both 1 without ratios::

        delta_t = rho_t (r_t + gamma V'_t - V_t)
        A_t     = delta_t + gamma lambda c_t A_{t+1}
        R_t     = A_t + V_t

    ``V'`` is ``rollout.next_value``, or what ``params.truncation`` says where an episode was cut
    off; if that is ``last``, and the observation after it is unknown, it is ``V_t``. The second
    term is missing where an episode ends and in the last step of a segment. Steps that are not
    ``learnable`` have advantage 0, so nothing reaches what precedes them.

    Args:
        rollout: Steps, values and outcomes.
        params: Reach of credit, clips, truncation.
        gamma: Discount per step, in [0, 1].
        ratio: Of the probabilities of each action under the policy now and under the one that
            acted; read only where steps are ``learnable``. None: both are the same.

    Returns:
        Advantages, and returns as targets of the value function.
    """
    value, learnable = rollout.value, rollout.learnable
    ends = rollout.terminated | rollout.truncated
    cut = rollout.unseen if params.truncation == "last" else rollout.truncated & ~rollout.terminated
    next_value = torch.where(cut, 0.0 if params.truncation == "zero" else value, rollout.next_value)
    delta = rollout.reward + gamma * next_value - value
    trace = torch.full_like(value, gamma * params.gae_lambda)
    if ratio is not None:
        delta *= ratio.clamp(max=params.rho_clip)
        trace *= ratio.clamp(max=params.c_clip)
    trace.masked_fill_(ends | ~learnable, 0.0)
    advantage = delta.masked_fill(~learnable, 0.0)
    for time in range(len(advantage) - 2, -1, -1):
        advantage[time] += trace[time] * advantage[time + 1]
    return advantage, advantage + value


def normalised(
    advantage: Float[Tensor, "time drawn"],
    weight: Float[Tensor, "time drawn"],
    size: int,
    name: str,
    group: Group,
) -> tuple[Float[Tensor, "time drawn"], list[float]]:
    """``(A - mean) / (std + 1e-8)`` over each minibatch of all processes; and its total weight.

    The standard deviation is the biased one. In a minibatch of a single step, which minus its own
    mean would teach nothing, the advantage stays as it is.

    Args:
        advantage: Of the steps of this process; 0 where they have no weight.
        weight: How much each step counts.
        size: Segments of a minibatch; one minibatch lies behind the other.
        name: What the minibatches are, for the error.
        group: The processes that learn together.

    Raises:
        NonFiniteError: if an advantage that counts is infinite or NaN.
    """
    # In float64, since the variance is a small difference of large numbers.
    shape = len(advantage), -1, size  # [time, minibatch, segment of it]
    exact, weights = advantage.double().reshape(shape), weight.double().reshape(shape)
    weighted = weights * exact
    sums = torch.stack((weights, weighted, weighted * exact)).sum((1, 3))
    group.add_up([sums])
    total, first, second = sums
    if not bool((first + second).isfinite().all()):
        raise NonFiniteError(f"the advantages of {name} are not finite; check the rewards")
    mean = first / total
    deviation = (second / total - mean.square()).clamp(min=0).sqrt()
    scaled = (exact - mean[:, None]) / (deviation[:, None] + 1e-8)
    scaled = torch.where(total[:, None] > 1, scaled, exact)
    return scaled.flatten(1).to(advantage.dtype), total.tolist()


def drawn_segments(
    advantage: Float[Tensor, "time segment"],
    params: UpdateParams,
    size: int,
    *,
    progress: float,
    generator: torch.Generator,
) -> tuple[Int[Tensor, " drawn"], Float[Tensor, " drawn"] | None]:
    """Segments of the minibatches of one epoch, one minibatch behind the other.

    All but those of ``sampling: prioritized`` are a partition: every segment is in one minibatch,
    with a sampling weight of 1.

    Args:
        advantage: Of every step, 0 where it has no weight; priorities depend on it.
        params: How to sample.
        size: Segments of a minibatch.
        progress: Share of the run that is done, from 0 to 1; see ``annealed_beta``.
        generator: The only source of randomness: equal generators give equal minibatches.

    Returns:
        Positions, and sampling weights: factors of the (normalised) advantages that correct for
        how often a segment is drawn; None where all are 1.
    """
    segments, device = advantage.shape[1], advantage.device
    if params.sampling == "prioritized":
        chances = probabilities(advantage, params.prio_alpha).to(generator.device)
        by_minibatch = chances.expand(segments // size, -1)
        drawn = torch.multinomial(by_minibatch, size, generator=generator).flatten()
        beta = annealed_beta(params.prio_beta0, progress)
        sampling_weight = (segments * chances[drawn]).pow(-beta).float()
        return drawn.to(device), sampling_weight.to(device)
    if params.sampling == "sequential":
        return torch.arange(segments, device=device), None
    order = torch.randperm(segments, generator=generator, device=generator.device)
    return order.to(device), None


def annealed_beta(beta0: float, progress: float) -> float:
    """Exponent of sampling weights, rising from ``beta0`` to 1 over the run.

    Args:
        beta0: Exponent at the start, from 0 to 1.
        progress: Share of the run that is done, from 0 to 1; more counts as 1.
    """
    return beta0 + (1 - beta0) * min(max(progress, 0.0), 1.0)


def probabilities(
    advantage: Float[Tensor, "time segment"], alpha: float
) -> Float[Tensor, " segment"]:
    """Probability that each segment is drawn first: ∝ ``(sum_t |A_t|) ** alpha``, float64.

    A segment whose advantages are not finite is hardly ever drawn.
    """
    size = advantage.double().abs().sum(0)
    usable = size.isfinite()
    priority = torch.where(usable, size, 0.0).pow(alpha).masked_fill(~usable, 0.0)
    priority = priority + PRIORITY_FLOOR
    return priority / priority.sum()
