"""The data that crosses a boundary: frozen dataclasses of tensors.

Axis names follow ``docs/reference/shapes.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Role = Literal["human", "robot", "other"]
Reduction = Literal["sum", "mean", "min", "max"]
Quantity = Literal["q_r", "v_h_e", "x_h", "u_r", "v_r"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """One agent of a world.

    Attributes:
        name: What people call it, unique in its world, e.g. ``"human 1 (yellow)"``.
        role: Whose power counts (``human``), who is controlled (``robot``), or neither.
        actions: The names of its actions; an action is an index into these.
    """

    name: str
    role: Role
    actions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One hypothetical goal of one human; reaching any of its states pays 1, once.

    Attributes:
        human: Index of the agent whose goal it is.
        name: Short and unique among this human's goals, e.g. ``"(2,1)"``.
        weight: Its factor in X_h, at least 0. Not a probability; need not sum to 1.
    """

    human: int
    name: str
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """What never changes about a world and is known without looking at a state.

    Attributes:
        name: Title of the world.
        agents: In index order; joint actions list one action per agent in this order.
        goals: Every human's goals, flat; the ``goal`` axis of every tensor follows it.
        state_words: Length of a state row.
        state_dtype: Integer dtype of a state row.
        horizon: Steps after which an episode ends, or None where the world ends by itself.
        releases_gil: Whether ``transitions`` runs outside Python's global lock, so that
            threads speed it up. Otherwise parallel expansion uses worker processes.
    """

    name: str
    agents: tuple[AgentSpec, ...]
    goals: tuple[Goal, ...]
    state_words: int
    state_dtype: torch.dtype
    horizon: int | None
    releases_gil: bool = False

    @property
    def humans(self) -> tuple[int, ...]:
        """Indices of the humans, ascending."""
        return tuple(i for i, agent in enumerate(self.agents) if agent.role == "human")

    @property
    def robots(self) -> tuple[int, ...]:
        """Indices of the robots, ascending."""
        return tuple(i for i, agent in enumerate(self.agents) if agent.role == "robot")

    @property
    def num_actions(self) -> tuple[int, ...]:
        """How many actions each agent has."""
        return tuple(len(agent.actions) for agent in self.agents)

    @property
    def num_joint_actions(self) -> int:
        """How many joint actions there are, available or not."""
        count = 1
        for number in self.num_actions:
            count *= number
        return count

    @property
    def strides(self) -> tuple[int, ...]:
        """What one action of each agent adds to a joint index: agent 0 counts fastest."""
        strides, stride = [], 1
        for number in self.num_actions:
            strides.append(stride)
            stride *= number
        return tuple(strides)

    def goals_of(self, human: int) -> tuple[int, ...]:
        """Positions on the ``goal`` axis of one human's goals."""
        return tuple(i for i, goal in enumerate(self.goals) if goal.human == human)


@dataclass(frozen=True, slots=True)
class Successors:
    """All successors of a list of (state, joint action) pairs, ragged and flat.

    The successors of pair ``i`` are the items ``offsets[i] : offsets[i + 1]``; they are
    distinct and their probabilities sum to 1. A pair without items is one that cannot
    happen: its state is terminal or one of its actions is not available there.

    Attributes:
        offsets: Where each pair's items start; ``offsets[0] == 0``, never decreasing.
        states: One state row per item.
        prob: Probability of each item within its pair, in (0, 1].
        duration: How long each transition takes, positive; None means 1 throughout.
    """

    offsets: Int[Tensor, " pair_plus_1"]
    states: Int[Tensor, "item word"]
    prob: Float[Tensor, " item"]
    duration: Float[Tensor, " item"] | None = None

    @property
    def num_pairs(self) -> int:
        """How many (state, joint action) pairs were asked for."""
        return self.offsets.shape[0] - 1

    @property
    def segments(self) -> Segments:
        """The pair of each item, as an aggregator wants it."""
        return Segments.from_offsets(self.offsets)


@dataclass(frozen=True)
class Segments:
    """Which segment each item belongs to. Build it with one of the constructors.

    Attributes:
        index: The segment of each item, in ``[0, num_segments)``.
        num_segments: How many segments there are, empty ones included.
        offsets: Start of each segment's items where the items are sorted by segment,
            ``[segment + 1]``; None where they are not known to be.
    """

    index: Int[Tensor, " item"]
    num_segments: int
    offsets: Int[Tensor, " segment_plus_1"] | None = None

    @classmethod
    def from_index(cls, index: Int[Tensor, " item"], num_segments: int) -> Segments:
        """Segments of unsorted items.

        Raises:
            IndexError: An index lies outside ``[0, num_segments)``.
        """
        if index.numel():
            low, high = (int(bound) for bound in torch.aminmax(index))
            if low < 0 or high >= num_segments:
                wrong = low if low < 0 else high
                advice = "" if low < 0 else f"pass num_segments={high + 1} or "
                raise IndexError(
                    f"segment index {wrong} is outside [0, {num_segments}): "
                    f"{advice}correct the index"
                )
        return cls(index, num_segments)

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " segment_plus_1"]) -> Segments:
        """Segments of items that already lie in segment order (CSR).

        Raises:
            IndexError: The offsets do not start at 0 or decrease somewhere.
        """
        counts = offsets.diff()
        if int(offsets[0]) != 0 or bool((counts < 0).any()):
            raise IndexError("offsets must start at 0 and never decrease")
        number = offsets.shape[0] - 1
        index = torch.repeat_interleave(torch.arange(number, device=offsets.device), counts)
        return cls(index, number, offsets)

    @cached_property
    def counts(self) -> Int[Tensor, " segment"]:
        """How many items each segment has."""
        if self.offsets is not None:
            return self.offsets.diff()
        return torch.bincount(self.index, minlength=self.num_segments)


@dataclass(frozen=True, slots=True)
class ValueQuery:
    """What a value network is asked about: one row per question.

    Attributes:
        states: State rows.
        steps_left: Remaining steps of the episode at each state.
        human: The human asked about (agent index), where the quantity has one.
        goal: The goal asked about (position on the ``goal`` axis), where it has one.
    """

    states: Int[Tensor, "query word"]
    steps_left: Int[Tensor, " query"]
    human: Int[Tensor, " query"] | None = None
    goal: Int[Tensor, " query"] | None = None


@dataclass(frozen=True, slots=True)
class ImaginedBatch:
    """Start states, candidate actions at each, and how good each candidate turned out.

    Everything is a constant: no field carries a gradient. A learner without imagination
    (PPO) uses one candidate, the action that was taken.

    Attributes:
        start: Features of the start states, e.g. latents.
        action: Candidate actions as the policy's distribution measures them (for a squashed
            policy the pre-squash values, so that no inverse is ever needed).
        target: One-step return of each candidate under each ensemble head.
        log_prob: Log-probability of each candidate under the policy that proposed it.
        weight: Weight of each start state in the loss, at least 0; 0 masks it out.
    """

    start: Float[Tensor, "start feature"]
    action: Float[Tensor, "start candidate action"]
    target: Float[Tensor, "start candidate head"]
    log_prob: Float[Tensor, "start candidate"]
    weight: Float[Tensor, " start"]


@dataclass(frozen=True, slots=True)
class LossOutput:
    """What a policy loss returns: a scalar to minimise, and numbers for people."""

    loss: Float[Tensor, ""]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bin, as a tracker may receive them beside plain numbers.

    Attributes:
        edges: Bin boundaries, ascending, one more than there are counts.
        counts: How many values fell into each bin.
    """

    edges: Sequence[float]
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """What to draw on top of a rendered state.

    Attributes:
        goal_values: A number in [0, 1] per goal (the ``goal`` axis), drawn as a heat map
            over the cells that belong to the goal; None draws no heat map.
        human: Draw only this human's goals; None draws those of the first human.
        policies: Action probabilities per agent index, drawn as arrows and bars.
        caption: A line of text under the picture.
    """

    goal_values: Sequence[float] | None = None
    human: int | None = None
    policies: Mapping[int, Sequence[float]] = field(default_factory=dict)
    caption: str = ""


__all__ = [
    "AgentSpec",
    "Goal",
    "Histogram",
    "ImaginedBatch",
    "LossOutput",
    "Overlay",
    "Quantity",
    "Reduction",
    "Role",
    "Segments",
    "Successors",
    "ValueQuery",
    "WorldSpec",
]
