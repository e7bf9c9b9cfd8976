"""Learning: value networks, policy losses, aggregators, and how experience is collected.

Axis names follow ``docs/reference/shapes.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributions import Distribution

from empo_core.errors import ConfigError, written_at
from empo_core.trees import StateDict
from empo_core.types import (
    CandidateBatch,
    Experience,
    Fit,
    LossNeeds,
    LossOutput,
    Quantity,
    RecordedBatch,
    Reduction,
    Scene,
    Segments,
    ValueQuery,
)

Policy = Callable[[Tensor], Distribution]
"""From features ``[... feature]`` to a distribution over actions ``[... action]``."""
Critic = Callable[[Tensor, Tensor], Tensor]
"""From features and actions to values ``[... head]``, differentiable in the actions."""
Weights: TypeAlias = Mapping[str, Tensor]
"""Named tensors that a learner publishes to its actors, on the CPU."""


class ValueNetwork(torch.nn.Module, ABC):
    """One of Q_r, V_h^e, X_h, U_r, V_r as a trainable function of states.

    Attributes:
        quantity: The quantity.
        is_table: Whether each question about a state has a value of its own, so that fitting one
            changes no other.
    """

    quantity: Quantity
    is_table: ClassVar[bool] = False

    if TYPE_CHECKING:

        def __call__(self, query: ValueQuery) -> Tensor: ...  # noqa: D102

    @abstractmethod
    def forward(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each query, within the bounds of its quantity.

        Bounds: ``v_h_e`` is in [0, 1], ``x_h`` above 0, and ``q_r``, ``u_r`` and ``v_r`` are
        below 0, whatever the parameters are. The values of a query do not depend on the other
        queries of the batch, and an empty batch has none.

        Args:
            query: The questions; ``goal`` and ``human`` are set for ``v_h_e``, ``human`` for
                ``x_h``. A network that has no use for shared states starts with
                ``query.spread()``.

        Returns:
            One row per query. ``output`` is the number of joint robot actions for ``q_r`` (robot 0
            of ``spec.robots`` counts fastest) and 1 otherwise.
        """

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression | None:
        """Fits the network from now on; None: gradient descent on squared errors does.

        Args:
            weight_decay: How much of each weight is added to its gradient.
            max_grad_norm: Longer gradients are cut to this length; None cuts none.
        """
        return None

    def export_onnx(self, path: str | Path) -> None:
        """Write the network as an ONNX file; ``empo export`` does.

        Args:
            path: The file.

        Raises:
            ConfigError: if the network has no ONNX form, which is so by default.
            StorageError: if the file cannot be written.
        """
        raise ConfigError(f"{type(self).__name__} of {self.quantity} has no ONNX form")

    def share(self, source: ValueNetwork) -> bool:
        """Use the encoders of ``source`` beside its own, without training them.

        They become part of ``state_dict`` but not of ``parameters``. Returns whether ``source``
        has encoders that fit; where it has none, nothing changes.
        """
        return False


class PolicyLoss(torch.nn.Module, ABC):
    """From a policy's distribution, and actions of known worth, to a scalar and metrics.

    What a loss remembers in the course of training (a running scale, a coefficient that is tuned)
    are buffers, which a call changes in training mode alone, as ``torch.nn.BatchNorm1d`` does.

    Attributes:
        takes: What it learns from: steps that were taken, or candidates that were imagined.
        needs: The inputs that a loss of candidates requires.
    """

    takes: ClassVar[type[RecordedBatch] | type[CandidateBatch]]
    needs: LossNeeds = LossNeeds()

    if TYPE_CHECKING:

        def __call__(  # noqa: D102
            self,
            distribution: Distribution,
            batch: RecordedBatch | CandidateBatch,
            critic: Critic | None = None,
        ) -> LossOutput: ...

    @abstractmethod
    def forward(
        self, distribution: Distribution, batch: Any, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of a policy on a batch.

        The loss is a mean over steps (or starts), each times its ``batch.weight``; their order, and
        that of candidates, has no effect.

        Its gradient reaches ``distribution`` and nothing else: it leaves the critic's parameters
        without gradients. Without ``self.training`` a call changes nothing.

        Args:
            distribution: The policy at the steps, or starts, of the batch, with gradients.
            batch: A batch of type ``takes``.
            critic: Of actions at the starts, where ``needs`` asks for one.
        """


@runtime_checkable
class Aggregator(Protocol):
    """Reduces many items to one value per segment, e.g. successors to states."""

    def __call__(
        self,
        values: Float[Tensor, " item *trailing"],
        segments: Segments,
        *,
        reduction: Reduction = "sum",
        weight: Float[Tensor, " item"] | None = None,
    ) -> Float[Tensor, " segment *trailing"]:
        """Combine the items of each segment; their order has no effect beyond rounding.

        Values that are infinite or NaN affect their own segment only. Half precision is added up
        in float32 at least. Gradients reach ``values`` and ``weight``.

        Args:
            values: One row per item, any trailing axes.
            segments: The segment of each item.
            reduction: How items combine; an empty segment gives 0.
            weight: Factor of each item, of any floating dtype; the weighted mean divides by the
                total weight (0 where that is 0).

        Returns:
            One row per segment, in the dtype of ``values``.

        Raises:
            ValueError: if shapes disagree.
        """


class PolicyNetwork(torch.nn.Module, ABC):
    """From observations to features, which the heads of a policy and a critic read.

    Its factory gets an ``ObservationSpec``. A network without memory defines ``forward`` and
    ``features``; one that remembers also ``memory_size`` and ``unroll``, and its params have the
    class attribute ``has_memory = True``. It may be built on device ``meta``, where sizes are
    asked for, so whatever it needs besides its parameters is in its ``state_dict``.

    Attributes:
        features: Features of an observation.
        memory_size: Numbers that an agent remembers from step to step; 0: none.
    """

    features: int
    memory_size: int = 0

    @abstractmethod
    def forward(self, observation: Float[Tensor, "row word"]) -> Float[Tensor, "row feature"]:
        """The features of observations, each the first of an episode where there is a memory.

        Args:
            observation: Rows as ``ObservationSpec`` says; bytes of pictures were divided by its
                ``scale``.
        """

    def unroll(
        self,
        observation: Float[Tensor, "time segment word"],
        memory: Float[Tensor, "segment unit"],
        starts: Bool[Tensor, "time segment"],
    ) -> tuple[Float[Tensor, "time segment feature"], Float[Tensor, "segment unit"]]:
        """Features at each step of segments, and the memory behind the last step.

        Args:
            observation: As of ``forward``.
            memory: Before the first step, ``memory_size`` numbers of each segment.
            starts: Where episodes begin; nothing of before may have an effect there.

        Raises:
            ConfigError: if ``forward`` returns rows of another length than ``features``, or none.
        """
        features = self(observation.flatten(0, 1))
        if not isinstance(features, Tensor):
            raise ConfigError(
                f"policy network {type(self).__name__} has a forward that returned a "
                f"{type(features).__name__}; it must return rows of features"
                f"{written_at(self.forward)}"
            )
        if features.shape[-1] != self.features:
            raise ConfigError(
                f"policy network {type(self).__name__} says that features is {self.features}, and "
                f"its forward returned rows of {features.shape[-1]} numbers"
            )
        return features.view(*observation.shape[:2], self.features), memory

    def initialise(self, generator: torch.Generator) -> None:
        """Draw initial weights; by default they stay as the constructor drew them."""


@runtime_checkable
class Schedule(Protocol):
    """A factor of learning rates that changes in the course of a run; any function is one."""

    def __call__(self, progress: float) -> float:
        """The factor, finite and at least 0.

        Args:
            progress: The share of the run that is over, in [0, 1]; where a learner has a phase of
                constant rates, the share of what comes after it.
        """


@runtime_checkable
class Regression(Protocol):
    """Fits one value network to targets, and keeps what it needs for that, e.g. moments."""

    def fit(
        self,
        query: ValueQuery,
        target: Float[Tensor, "query output"],
        weight: Float[Tensor, "query output"],
        *,
        lr: float,
    ) -> Fit:
        """Move the network's answers towards the targets, by one step.

        Args:
            query: The questions.
            target: What the answers should be; read nowhere where the weight is 0.
            weight: How much each answer counts, at least 0.
            lr: Learning rate.

        Raises:
            NonFiniteError: if the loss or the gradient is not finite; the network is unchanged.
        """

    def default_lr(self, *, sampled: bool) -> float:
        """The learning rate where a config gives none.

        Args:
            sampled: Whether targets are samples rather than expectations, so that they scatter
                around what is to be learned.
        """

    def state_dict(self) -> StateDict:
        """The state of the regression, e.g. an optimiser's moments, without the network."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class Actor(Protocol):
    """Acts in environments and records what happened; in the learner's process or its own."""

    def load(self, weights: Weights, version: int) -> None:
        """Act with these weights from now on; every ``Experience`` names their version."""

    def act(self, training_step: int) -> Experience:
        """Act for a while: every environment takes one step.

        Args:
            training_step: Training steps so far, on which exploration depends.
        """

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so: environments, generators, counts.

        A tree of dictionaries and lists with tensors, numbers, strings, booleans and None.
        """

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


ActorFactory = Callable[[int], Actor]
"""Builds the actor with a number, from 0; can be pickled by ``cloudpickle``."""


@runtime_checkable
class Collector(Protocol):
    """Produces experience by running actors."""

    def start(self, make_actor: ActorFactory) -> None:
        """Build the actors.

        Raises:
            CollectError: if an actor cannot be built; the message holds its traceback.
        """

    def publish(self, weights: Weights, training_step: int) -> None:
        """Let all actors act with these weights as soon as possible."""

    def collect(self, training_step: int) -> Sequence[Experience]:
        """The experience that is due before the next training step; may be empty.

        Waits only while there is less than the learner may start with.

        Raises:
            CollectError: if no actor is alive.
        """

    def counters(self) -> dict[str, float]:
        """Numbers for people and trackers, ``env_steps`` among them."""

    def state_dict(self) -> StateDict:
        """Everything needed to go on; exactly so where the collector is synchronous."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned.

        Before that the collector is started, and what it had been told to publish last is
        published again.
        """

    def stop(self) -> None:
        """End all actors within seconds; may be called at any time and twice."""


class Explorer(ABC):
    """Changes what some agents do while experience is collected: the robots, or one human.

    ``agents`` of the factory call are who chooses, in index order: all robots jointly, or one
    human alone.

    Attributes:
        learns: Whether the explorer learns where experience is learned from. The learner then has
            an explorer of its own, trains it, and publishes its weights to those of the actors.
    """

    learns: bool = False

    @abstractmethod
    def explore(
        self, policy: Float[Tensor, "env choice"], scene: Scene, generator: torch.Generator
    ) -> Float[Tensor, "env choice"]:
        """Action probabilities to act with, given those of the policy.

        Unavailable actions keep probability 0, and rows keep summing to 1.
        """

    def rate(
        self, training_step: int, milestones: Mapping[str, int], total_steps: int
    ) -> float | None:
        """Probability of acting at random, for metrics; None where there is no such number.

        Args:
            training_step: Training steps so far.
            milestones: As in ``Scene``.
            total_steps: Training steps of the whole run.
        """
        return None

    def observe(self, scene: Scene, choice: Int[Tensor, " env"]) -> None:
        """Record which choice was made in a scene that ``explore`` answered."""

    def state_dict(self) -> StateDict:
        """The explorer's state, e.g. counts."""
        return {}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""

    def learn(
        self, states: Int[Tensor, "state word"], choice: Int[Tensor, " state"]
    ) -> dict[str, float]:
        """One training step on states and what was chosen there; returns numbers for people."""
        return {}

    def weights(self) -> dict[str, Tensor]:
        """The learned tensors that ``explore`` needs."""
        return {}

    def load_weights(self, weights: Weights) -> None:
        """Use what ``weights`` of another copy returned."""
