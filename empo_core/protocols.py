"""What the core asks of each kind of component.

A component's factory (its ``target``) is called once, with its validated params first:

=============  ==========================================
kind           factory call
=============  ==========================================
world_model    ``factory(params)``
human_prior    ``factory(params, world)``
value_network  ``factory(params, spec, quantity)``
policy_loss    ``factory(params)``
aggregator     ``factory(params)``
tracker        ``factory(params)``
algorithm      ``factory(params)``
=============  ==========================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from rich.console import RenderableType
from torch import Tensor
from torch.distributions import Distribution

from empo_core.types import (
    Histogram,
    ImaginedBatch,
    LossOutput,
    Overlay,
    Quantity,
    Reduction,
    Segments,
    Successors,
    ValueQuery,
    WorldSpec,
)


@runtime_checkable
class WorldModel(Protocol):
    """A stationary stochastic game on rows of integers; every method is pure.

    A state is one complete and canonical row: equal rows, equal situations. Time is not in
    the row; the horizon is ``spec.horizon``. Nothing about the world changes when it is
    asked, so answers never depend on the order of questions.
    """

    @property
    def spec(self) -> WorldSpec:
        """What never changes: agents, actions, goals, horizon, row format."""

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """All successors of each state under its joint action, with exact probabilities.

        Args:
            states: State rows.
            actions: One joint action per state. None asks for every joint action of every
                state: pair ``i * spec.num_joint_actions + j`` is then state ``i`` under the
                joint action with index ``j = sum(action[k] * spec.strides[k])``.

        Returns:
            One pair per row of ``actions`` (or per state and joint action). Terminal states
            and unavailable actions have no successors.

        Raises:
            WorldError: A row is malformed, or an action index is out of range.
        """

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; padded with False on the action axis.

        A state in which the agents have no available action is terminal.
        """

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """Whether each goal of ``spec.goals`` is achieved in each state."""

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state, distributed as ``transitions`` says.

        A terminal state is returned as it is.
        """

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The state in a form people can read, possibly of several lines."""


@runtime_checkable
class Drawable(Protocol):
    """A world that can draw its states; optional."""

    def render(
        self, state: Int[Tensor, " word"], overlay: Overlay | None = None
    ) -> UInt8[np.ndarray, "height width 3"]:
        """An RGB picture of a state; needs no window. All states have equal size."""


@runtime_checkable
class Located(Protocol):
    """A world whose agents are somewhere on a grid; optional."""

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of each agent in each state."""


@runtime_checkable
class HumanPrior(Protocol):
    """How the humans act for each of their hypothetical goals."""

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human pursuing that goal.

        Args:
            states: Non-terminal state rows.
            steps_left: Remaining steps of the episode, at least 1; the same for all rows.

        Returns:
            Probabilities over the human's own actions, summing to 1 on the last axis, padded
            with zeros where another human has more actions. Unavailable actions have 0.
        """


@runtime_checkable
class ValueNetwork(Protocol):
    """One of Q_r, V_h^e, X_h, U_r, V_r as a trainable function of states.

    Every ``torch.nn.Module`` with a ``quantity`` and a suitable ``forward`` fits.
    """

    quantity: Quantity

    def __call__(self, query: ValueQuery) -> Float[Tensor, "query output"]:
        """The value of each query, within the bounds of its quantity.

        ``output`` is the number of joint robot actions for ``q_r`` (robot 0 of
        ``spec.robots`` counts fastest) and 1 otherwise.
        """

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The trainable tensors."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to restore the network, as tensors."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore what ``state_dict`` returned."""


Policy = Callable[[Tensor], Distribution]
"""From features ``[... feature]`` to a distribution over actions ``[... action]``."""

Critic = Callable[[Tensor, Tensor], Tensor]
"""From features and actions to values ``[... head]``, differentiable in the actions."""


@runtime_checkable
class PolicyLoss(Protocol):
    """From candidate actions and their targets to a scalar and metrics."""

    @property
    def needs_critic(self) -> bool:
        """Whether the loss differentiates through a critic."""

    def __call__(
        self, policy: Policy, batch: ImaginedBatch, critic: Critic | None = None
    ) -> LossOutput:
        """The loss of ``policy`` on ``batch``.

        Its gradient reaches the parameters of ``policy`` and no others: the batch is
        constant and the critic's parameters must be left without gradients.

        Raises:
            ValueError: A critic is needed and missing, or the batch has too few candidates.
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
        """Combine the items of each segment; the order of items has no effect.

        Args:
            values: One row per item, any trailing axes.
            segments: The segment of each item.
            reduction: How items combine. An empty segment gives the neutral value: 0 for
                ``sum`` and ``mean``, +inf for ``min``, -inf for ``max``.
            weight: Factor of each item, for ``sum`` and ``mean``; the weighted mean divides
                by the total weight (0 where that is 0).

        Returns:
            One row per segment, in the dtype of ``values``.

        Raises:
            ValueError: Shapes disagree, or a weight is given with ``min`` or ``max``.
        """


RunStatus = Literal["finished", "failed", "interrupted"]


@runtime_checkable
class Tracker(Protocol):
    """Watches a run and changes nothing about it."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """A run begins; files go into ``directory``, ``config`` is the resolved config."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Numbers at a step; keys are slash-separated, e.g. ``value/V_r``."""

    def progress(self, task: str, done: float, total: float) -> None:
        """How far a named task is, in any unit; ``done == total`` finishes it."""

    def finish(self, status: RunStatus) -> None:
        """The run is over; write out what is held back."""


@runtime_checkable
class Result(Protocol):
    """What a run computed."""

    def summary(self) -> dict[str, Any]:
        """The result as JSON data; what ``empo run --json`` prints."""

    def report(self) -> RenderableType:
        """The result for people, printed at the end of a run."""

    def save(self, directory: Path) -> None:
        """Write tables and pictures into ``directory``."""


@runtime_checkable
class RunContext(Protocol):
    """What an algorithm is given besides its params."""

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool


@runtime_checkable
class Algorithm(Protocol):
    """What a run does."""

    def run(self, context: RunContext) -> Result:
        """Do it, reporting to ``context.tracker``; large files go to ``context.directory``.

        With ``context.resume`` the directory holds what an interrupted run of the same
        config left behind.

        Raises:
            SolveError: The problem cannot be solved as posed.
            ConfigError: The config lacks something this algorithm needs, e.g. a world.
        """

    def check(self, world: WorldModel | None) -> Mapping[str, Any]:
        """What a run would need (sizes, memory), without running it; for ``empo check``."""
