"""The data that crosses a boundary: frozen dataclasses of tensors.

Axis names follow ``docs/reference/shapes.md``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution

from empo_core.errors import WorldError
from empo_core.features import Featurizer, RowFeatures

Role = Literal["human", "robot", "other"]
Reduction = Literal["sum", "mean"]
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
        features: Numbers that tell a network which goal it is, e.g. the rectangle
            ``(x_min, y_min, x_max, y_max)``; as many for every goal of a world.
    """

    human: int
    name: str
    weight: float
    features: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """Constants of a world, known without looking at a state.

    Attributes:
        name: Title of the world.
        agents: In index order; joint actions list one action per agent in this order.
        goals: Every human's goals, flat; the ``goal`` axis of every tensor follows it.
        state_words: Length of a state row.
        state_dtype: Integer dtype of a state row.
        horizon: Steps after which an episode ends, or None where the world ends by itself.
        releases_gil: Whether ``transitions`` runs outside Python's global lock, so that
            threads speed it up. Otherwise parallel expansion uses worker processes.
        features: Reads state rows as numbers for networks; None leaves the words as they are.
    """

    name: str
    agents: tuple[AgentSpec, ...]
    goals: tuple[Goal, ...]
    state_words: int
    state_dtype: torch.dtype
    horizon: int | None
    releases_gil: bool = False
    features: Featurizer | None = None

    @property
    def featurizer(self) -> Featurizer:
        """The featurizer that reads state rows as numbers for networks."""
        return RowFeatures(self.state_words) if self.features is None else self.features

    @property
    def num_robot_actions(self) -> int:
        """Number of joint actions the robots have."""
        return math.prod(self.num_actions[robot] for robot in self.robots)

    @property
    def robot_action_names(self) -> tuple[str, ...]:
        """Names of the robots' joint actions, robot 0 fastest, e.g. ``left + still``."""
        actions = [self.agents[robot].actions for robot in reversed(self.robots)]
        return tuple(
            " + ".join(reversed(names)) or "(no robot)" for names in itertools.product(*actions)
        )

    @property
    def num_human_actions(self) -> int:
        """Number of joint actions the humans have."""
        return math.prod(self.num_actions[human] for human in self.humans)

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
        """Number of actions each agent has."""
        return tuple(len(agent.actions) for agent in self.agents)

    @property
    def num_joint_actions(self) -> int:
        """Number of joint actions, available or not."""
        return math.prod(self.num_actions)

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each agent in the index of a joint action: agent 0 counts fastest."""
        counts = self.num_actions
        return tuple(math.prod(counts[:agent]) for agent in range(len(counts)))

    def goals_of(self, human: int) -> tuple[int, ...]:
        """Positions on the ``goal`` axis of one human's goals."""
        return tuple(i for i, goal in enumerate(self.goals) if goal.human == human)


@dataclass(frozen=True, slots=True)
class InitialStates:
    """The states that episodes start from, and how likely each is.

    Attributes:
        states: Distinct state rows.
        prob: Probability of each, in (0, 1]; they sum to 1.
    """

    states: Int[Tensor, "start word"]
    prob: Float[Tensor, " start"]

    def only(self, name: str) -> Int[Tensor, " word"]:
        """The one state that every episode of the world called ``name`` starts from.

        Raises:
            WorldError: if there are several.
        """
        if len(self.prob) > 1:
            raise WorldError(
                f"{name!r} starts in one of {len(self.prob)} states by chance, and what it is used "
                "for here takes worlds with one initial state only; give it one"
            )
        return self.states[0].clone()

    def draw(self, count: int, generator: torch.Generator) -> Int[Tensor, " draw"]:
        """Positions of the initial states of episodes; the generator is left as it is for one."""
        if len(self.prob) == 1:
            return torch.zeros(count, dtype=torch.int64)
        return torch.multinomial(self.prob, count, True, generator=generator)


@dataclass(frozen=True)
class Segments:
    """Consecutive items (CSR): segment ``i`` has those from ``offsets[i]`` to ``offsets[i + 1]``.

    Attributes:
        offsets: Start of each segment's items, and the number of all items.
        index: The segment of each item, which follows from the offsets.
    """

    offsets: Int[Tensor, " segment_plus_1"]
    index: Int[Tensor, " item"]

    @classmethod
    def from_offsets(cls, offsets: Int[Tensor, " segment_plus_1"]) -> Segments:
        """Segments of items that lie in segment order.

        Raises:
            IndexError: if the offsets do not start at 0 or decrease somewhere.
        """
        counts = offsets.diff()
        if int(offsets[0]) != 0 or bool((counts < 0).any()):
            raise IndexError("offsets must start at 0 and never decrease")
        number = torch.arange(len(counts), device=offsets.device)
        return cls(offsets, torch.repeat_interleave(number, counts))

    @property
    def num_segments(self) -> int:
        """Number of segments, empty ones included."""
        return self.offsets.shape[0] - 1

    @property
    def counts(self) -> Int[Tensor, " segment"]:
        """Number of items of each segment."""
        return self.offsets.diff()


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
        """Number of (state, joint action) pairs."""
        return self.offsets.shape[0] - 1

    @property
    def segments(self) -> Segments:
        """The pair of each item, as an aggregator wants it."""
        return Segments.from_offsets(self.offsets)


@dataclass(frozen=True)
class Expansion:
    """All successors of every joint action of some states, with shared outcomes listed once.

    The successors of pair ``i`` are the outcomes ``index[offsets[i] : offsets[i + 1]]``. The first
    of all items to name an outcome name them in order, so that the outcomes come in the order in
    which they would be found in ``Successors``.

    Attributes:
        offsets: Where each pair's items start [pair + 1].
        index: The outcome of each item [item].
        states: One state row per outcome [outcome word].
        prob: Probability of each outcome wherever it is named, in (0, 1] [outcome].
        duration: How long the transition takes, positive; None means 1 throughout [outcome].
    """

    offsets: Int[Tensor, " pair_plus_1"]
    index: Int[Tensor, " item"]
    states: Int[Tensor, "outcome word"]
    prob: Float[Tensor, " outcome"]
    duration: Float[Tensor, " outcome"] | None = None

    @classmethod
    def of(cls, successors: Successors) -> Expansion:
        """The same successors, each of them an outcome of its own."""
        index = torch.arange(len(successors.prob))
        return cls(
            successors.offsets, index, successors.states, successors.prob, successors.duration
        )

    @property
    def num_pairs(self) -> int:
        """Number of (state, joint action) pairs."""
        return self.offsets.shape[0] - 1


@dataclass(frozen=True, slots=True)
class ValueQuery:
    """A batch of questions to a value network.

    Attributes:
        states: State rows.
        steps_left: Remaining steps of the episode at each state; 1 where the world has no
            horizon.
        human: The human asked about (agent index), where the quantity has one.
        goal: The goal asked about (position on the ``goal`` axis), where it has one.
        state: Which state each question is about, as a position in ``states``; None means one
            question per state. Questions about several goals share what is computed per state.
        memo: Where networks keep what they made of the states, for whoever is asked about the
            same ones later, under keys that say what it is; None keeps nothing.
    """

    states: Int[Tensor, "state word"]
    steps_left: Int[Tensor, " state"]
    human: Int[Tensor, " query"] | None = None
    goal: Int[Tensor, " query"] | None = None
    state: Int[Tensor, " query"] | None = None
    memo: dict[Hashable, object] | None = None

    def __len__(self) -> int:
        """Number of questions."""
        # len() of a tensor takes as long as an addition of tensors.
        return (self.states if self.state is None else self.state).shape[0]

    def spread(self) -> ValueQuery:
        """The same questions with a state row for each, so that ``state`` is None."""
        if self.state is None:
            return self
        states, steps_left = self.states[self.state], self.steps_left[self.state]
        return ValueQuery(states, steps_left, self.human, self.goal)


@dataclass(frozen=True, slots=True)
class Fit:
    """Outcome of one step of fitting a value network.

    Attributes:
        loss: Weighted mean of the squared errors before the step.
        gradient_norm: Norm of the gradient before it was clipped.
    """

    loss: Float[Tensor, ""]
    gradient_norm: Float[Tensor, ""]


@dataclass(frozen=True, slots=True)
class Experience:
    """Experience that an actor collected in one call; collectors carry it without reading it.

    Attributes:
        arrays: Named arrays, as the learner expects them.
        env_steps: Steps of single environments that it took.
        actor: Which actor it comes from.
        version: The version of the weights that the actor acted with; 0 before any arrived.
    """

    arrays: Mapping[str, np.ndarray]
    env_steps: int
    actor: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Environments at the moment when some agents choose, as an explorer sees them.

    Attributes:
        states: State rows.
        steps_left: Remaining steps of each episode.
        available: Which joint actions of the choosing agents exist; the first agent counts
            fastest.
        started: Whether an episode begins here.
        successors: All successors of pair ``env * choice + action``, given what everybody else
            does; None where that is not known yet.
        training_step: Training steps so far.
        milestones: Training steps at which something begins that the learner names.
        total_steps: Training steps of the whole run.
    """

    states: Int[Tensor, "env word"]
    steps_left: Int[Tensor, " env"]
    available: Bool[Tensor, "env choice"]
    started: Bool[Tensor, " env"]
    successors: Successors | None = None
    training_step: int = 0
    milestones: Mapping[str, int] = field(default_factory=dict)
    total_steps: int = 1


@dataclass(frozen=True, slots=True)
class RecordedBatch:
    """Steps that were taken, and how good each action turned out.

    Everything is a constant, and finite: no field carries a gradient.

    Attributes:
        action: The action of each step, as the policy's distribution measures it.
        advantage: How much better than expected it was.
        log_prob: Its log-probability under the policy that acted.
        weight: Weight of each step in the loss, at least 0 and 1 on average; 0 masks it out. All
            are 0 where no step counts.
        progress: Share of the run that is done, from 0 to 1.
    """

    action: Float[Tensor, "step action"]
    advantage: Float[Tensor, " step"]
    log_prob: Float[Tensor, " step"]
    weight: Float[Tensor, " step"]
    progress: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    """Start states, candidate actions at each, and how good each candidate turned out.

    Everything is a constant: no field carries a gradient. All is finite, but for targets that were
    not asked for. Candidates come first, as a distribution over the starts samples them:
    ``distribution.log_prob(batch.action)`` compares with ``batch.log_prob`` as it is, and values of
    sampled actions with ``batch.target``.

    Attributes:
        start: Features of the start states, e.g. latents.
        action: Candidate actions as the policy's distribution measures them (for a squashed
            policy the pre-squash values, so that no inverse is ever needed).
        target: One-step return of each candidate under each ensemble head.
        log_prob: Log-probability of each candidate under the policy that proposed it.
        weight: Weight of each start state in the loss, at least 0; 0 masks it out. A learner
            puts here how much a step counts (``rho ** step``) and that ended episodes do not.
        proposal: The policy that proposed the candidates, one distribution per start; None
            where it was not kept. Measures actions as ``action`` does.
        expert: Policy of an expert at each start, e.g. of a planner; None where there is
            none. Measures actions as ``action`` does.
        progress: Share of the run that is done, from 0 to 1.
    """

    start: Float[Tensor, "start feature"]
    action: Float[Tensor, "candidate start action"]
    target: Float[Tensor, "candidate start head"]
    log_prob: Float[Tensor, "candidate start"]
    weight: Float[Tensor, " start"]
    proposal: Distribution | None = None
    expert: Distribution | None = None
    progress: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))


@dataclass(frozen=True, slots=True, kw_only=True)
class LossNeeds:
    """Inputs that a loss of candidates requires, so that a learner makes those and no others.

    Attributes:
        critic: A critic, through which it differentiates.
        expert: ``CandidateBatch.expert``.
        proposal: ``CandidateBatch.proposal``.
        targets: ``CandidateBatch.target``, which may be NaN without this.
        min_candidates: The fewest candidates per start that it works with.
        candidates: How many it does well with, where the config does not say.
    """

    critic: bool = False
    expert: bool = False
    proposal: bool = False
    targets: bool = True
    min_candidates: int = 1
    candidates: int = 1


@dataclass(frozen=True, slots=True)
class LossOutput:
    """Result of a policy loss.

    Attributes:
        loss: To be minimised.
        metrics: Numbers for people; a tensor is read when it is logged, so that no call waits for
            a device before that.
    """

    loss: Float[Tensor, ""]
    metrics: Mapping[str, float | Tensor] = field(default_factory=dict)


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
    """Overlay drawn on top of a rendered state.

    Attributes:
        goal_values: A number in [0, 1] per goal (the ``goal`` axis), drawn as a heat map over
            the cells that belong to the goal; a goal whose number is None gets no colour.
            None draws no heat map.
        human: Draw only this human's goals; None draws a board per human that has goals.
        titles: A line about a human, per agent index, for the title of its board; it may have
            symbols of one letter with another below or above it, such as ``$X_h$``.
        pursued: The goal that a human pursues, per agent index, framed and marked.
        policies: Action probabilities per agent index, drawn as arrows and bars; none at all
            keeps their place free.
        actions: The action that is taken, per agent index; None keeps its place free.
        caption: A line of text under the picture, with symbols as in titles.
    """

    goal_values: Sequence[float | None] | None = None
    human: int | None = None
    titles: Mapping[int, str] = field(default_factory=dict)
    pursued: Mapping[int, int] = field(default_factory=dict)
    policies: Mapping[int, Sequence[float]] = field(default_factory=dict)
    actions: Mapping[int, int | None] = field(default_factory=dict)
    caption: str = ""
