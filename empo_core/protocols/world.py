"""World models, and how humans and robots act in them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from empo_core.features import Featurizer
from empo_core.types import Expansion, Overlay, Successors, WorldSpec


@runtime_checkable
class WorldModel(Protocol):
    """A stationary stochastic game on rows of integers; every method is pure.

    A state is one complete and canonical row: equal rows, equal situations. Time is not in
    the row; the horizon is ``spec.horizon``. Nothing about the world changes when it is
    asked, so answers never depend on the order of questions.
    """

    @property
    def spec(self) -> WorldSpec:
        """The constants of the world: agents, actions, goals, horizon, row format."""

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
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
            WorldError: if a row is malformed, or an action index is out of range.
        """

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; padded with False on the action axis.

        A state in which the agents have no available action is terminal.
        """

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where each goal of ``spec.goals`` is achieved in each state."""

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
class VectorDrawable(Drawable, Protocol):
    """A world that can also draw its states as vectors; optional."""

    def render_svg(self, state: Int[Tensor, " word"], overlay: Overlay | None = None) -> str:
        """The picture of ``render`` as an SVG document with texts as text elements."""


@runtime_checkable
class Located(Protocol):
    """A world whose agents are somewhere on a grid; optional."""

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of each agent in each state."""


@runtime_checkable
class Bounded(Protocol):
    """A world that knows how many states there can be; optional."""

    @property
    def most_states(self) -> int:
        """A number of states that is not exceeded, however long an episode lasts."""


@runtime_checkable
class Composed(Protocol):
    """A world with the data that its law is made of, e.g. its layout; optional.

    Worlds are told apart by a digest of it and of their spec
    (``empo_core.world_content.world_digest``), so that a change far from the start is found, too.
    Worlds without it are told apart by samples of what they do.
    """

    def content(self) -> Any:
        """All that successors, availability and goals depend on: plain data, arrays, dataclasses.

        Equal worlds have equal content in every process; nothing in it names a place in memory
        or a file.
        """


@runtime_checkable
class Expandable(Protocol):
    """A world that lists successors shared by joint actions once, which is faster; optional."""

    def expand(self, states: Int[Tensor, "state word"]) -> Expansion:
        """The successors of every joint action of each state, as ``transitions`` lists them."""


@runtime_checkable
class Headed(Protocol):
    """A world whose agents look in a direction; optional."""

    def headings(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent"]:
        """The direction of each agent in each state: 0 east, 1 south, 2 west, 3 north."""


@runtime_checkable
class FirstPerson(Protocol):
    """A world whose agents have views of their own; optional.

    Each sees itself first, so that one policy can be learned by all and act for any of them.
    """

    def views(self, states: Int[Tensor, "state word"]) -> Float[Tensor, "state agent feature"]:
        """What each agent sees of each state."""


@runtime_checkable
class Compactable(Protocol):
    """A world whose states can be stored with everything a network needs to know; optional.

    Unlike a row, which means nothing without its world, a compact row describes itself, so it
    can be read where there is no world, and next to those of other worlds of equal size.
    """

    @property
    def compact_features(self) -> Featurizer:
        """Reads compact rows; gives what ``spec.features`` gives for the rows themselves."""

    def compact(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state compact_word"]:
        """The compact row (int32) of each state; equal states have equal ones."""


@runtime_checkable
class HumanPrior(Protocol):
    """Policies of the humans for each of their hypothetical goals."""

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
class RobotPolicy(Protocol):
    """Joint policy of the robots in any state, as evaluations play it."""

    def probabilities(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; unavailable ones have 0.

        Args:
            states: Non-terminal state rows of the world.
            steps_left: Remaining steps of each episode, at least 1.

        Raises:
            SolveError: if the policy is not defined in some of the states.
        """
