"""Protocols of learning: value networks, regressions, policy losses, aggregators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from empo_core.trees import StateDict
from empo_core.types import (
    Fit,
    ImaginedBatch,
    LossNeeds,
    LossOutput,
    Quantity,
    Reduction,
    Segments,
    ValueQuery,
)


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

        ``output`` is the number of joint robot actions for ``q_r`` (robot 0 of
        ``spec.robots`` counts fastest) and 1 otherwise.
        """

    def regression(self, *, weight_decay: float, max_grad_norm: float | None) -> Regression | None:
        """Fits the network from now on; None: gradient descent on squared errors does.

        Args:
            weight_decay: How much of each weight is added to its gradient.
            max_grad_norm: Longer gradients are cut to this length; None cuts none.
        """
        return None

    def share(self, source: ValueNetwork) -> bool:
        """Use the encoders of ``source`` beside its own, without training them.

        They become part of ``state_dict`` but not of ``parameters``. Returns whether ``source``
        has encoders that fit; where it has none, nothing changes.
        """
        return False


Policy = Callable[[Tensor], Distribution]
"""From features ``[... feature]`` to a distribution over actions ``[... action]``."""


Critic = Callable[[Tensor, Tensor], Tensor]
"""From features and actions to values ``[... head]``, differentiable in the actions."""


@runtime_checkable
class PolicyLoss(Protocol):
    """From candidate actions and their targets to a scalar and metrics."""

    @property
    def needs(self) -> LossNeeds:
        """The inputs that the loss requires."""

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``.

        Its gradient reaches the parameters of ``policy`` and no others: the batch is
        constant and the critic's parameters must be left without gradients. A call changes
        nothing, not even the loss.

        Raises:
            ValueError: if an input of ``needs`` is missing, or there are too few candidates.
        """


@runtime_checkable
class AdaptivePolicyLoss(Protocol):
    """A policy loss that changes in the course of training; optional.

    A running scale, a coefficient that falls or is tuned: the learner calls ``adapt`` once after
    each step of the policy's optimiser, and puts the state into its checkpoints.
    """

    def adapt(self, statistics: Mapping[str, Tensor], progress: float) -> None:
        """Update the loss's state with the statistics of a call.

        Args:
            statistics: ``LossOutput.statistics`` of the call that the optimiser followed.
            progress: Share of the run that is done, from 0 to 1.
        """

    def state_dict(self) -> StateDict:
        """Everything needed to go on exactly so: a tree as checkpoints take it."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""


@runtime_checkable
class WeighsCandidates(Protocol):
    """A policy loss that prefers some candidates to others; optional.

    A learner may let its value targets prefer the same ones.
    """

    def weights(self, batch: ImaginedBatch) -> Float[Tensor, "candidate start"]:
        """Weight of each candidate; at least 0, adding up to 1 at each start."""


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

        Args:
            values: One row per item, any trailing axes.
            segments: The segment of each item.
            reduction: How items combine; an empty segment gives 0.
            weight: Factor of each item; the weighted mean divides by the total weight (0 where
                that is 0).

        Returns:
            One row per segment, in the dtype of ``values``.

        Raises:
            ValueError: if shapes disagree.
        """
