"""World models, and how humans and robots act in them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from empo_core.features import Featurizer
from empo_core.types import Expansion, InitialStates, Overlay, Successors, WorldSpec
from empo_core.world_structure import Reads, Symmetry


class WorldModel(ABC):
    """A stationary stochastic game on rows of integers; every method is pure.

    A state is one complete and canonical row: equal rows, equal situations. Time is not in
    the row; the horizon is ``spec.horizon``. No method changes the world, so answers never
    depend on the order of calls.

    Abstract members make a world. The other members are optional: None (of ``symmetries``, an
    empty sequence) says that a world has nothing of the kind.

    Attributes:
        spec: The constants of the world: agents, actions, goals, horizon, row format.
    """

    spec: WorldSpec

    @abstractmethod
    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from.

        Raises:
            WorldError: if episodes start from several states by chance; see ``initial_states``.
                Whatever does not support that asks here, and so refuses such worlds.
        """

    def initial_states(self) -> InitialStates:
        """The states that episodes start from, with probabilities; by default ``initial_state``."""
        return InitialStates(
            torch.stack([self.initial_state()]), torch.ones(1, dtype=torch.float64)
        )

    @abstractmethod
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

    @abstractmethod
    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; padded with False on the action axis.

        A state in which the agents have no available action is terminal.
        """

    @abstractmethod
    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where each goal of ``spec.goals`` is achieved in each state."""

    @abstractmethod
    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state, distributed as ``transitions`` says.

        A terminal state is returned as it is.
        """

    @abstractmethod
    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The state in a form people can read, possibly of several lines."""

    def render(
        self, state: Int[Tensor, " word"], overlay: Overlay | None = None
    ) -> UInt8[np.ndarray, "height width 3"] | None:
        """An RGB picture of a state; needs no window. All states have equal size."""
        return None

    def render_svg(self, state: Int[Tensor, " word"], overlay: Overlay | None = None) -> str | None:
        """The picture of ``render`` as an SVG document with texts as text elements."""
        return None

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"] | None:
        """The (x, y) cell of each agent in each state, of a world on a grid."""
        return None

    def headings(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent"] | None:
        """The direction of each agent in each state: 0 east, 1 south, 2 west, 3 north."""
        return None

    def views(
        self, states: Int[Tensor, "state word"]
    ) -> Float[Tensor, "state agent feature"] | None:
        """The features of each state from the place of each agent, who sees itself first.

        One policy can be learned by all agents of such a world and act for any of them.
        """
        return None

    def expand(self, states: Int[Tensor, "state word"]) -> Expansion | None:
        """``transitions(states)`` with successors that joint actions share listed once.

        Solvers are faster with ``expand``.
        """
        return None

    @property
    def max_states(self) -> int | None:
        """A number of states that is not exceeded, however long an episode lasts."""
        return None

    def content(self) -> Any:
        """All that successors, availability and goals depend on: plain data, arrays, dataclasses.

        Equal worlds have equal content in every process; nothing in the content names a place in
        memory or a file. ``empo_core.world_content.world_digest`` tells worlds apart by their
        specs and contents, and worlds without content by samples of their transitions.
        """
        return None

    @property
    def compact_features(self) -> Featurizer | None:
        """Reads compact rows; gives what ``spec.features`` gives for the rows themselves."""
        return None

    def compact(
        self, states: Int[Tensor, "state word"]
    ) -> Int[Tensor, "state compact_word"] | None:
        """The compact row (int32) of each state; equal states have equal compact rows.

        A row means nothing without its world. A compact row describes itself: it can be read
        where there is no world, and beside compact rows of other worlds of equal size.
        """
        return None

    def symmetries(self) -> Sequence[Symmetry]:
        """Symmetries from which all others follow by repetition and combination.

        A solver that uses symmetries checks them on sampled states first. It combines them in
        their order as long as no more than ``symmetry_group.MOST`` follow, so that exchanges of
        neighbours are better than one exchange and a cycle.
        """
        return ()

    def reads(self) -> Reads | None:
        """Dependencies of words, availability and goals; naming too many leaves out less.

        Words on which nothing that matters depends must go with all others: a row in which they
        have the values of another state is a state.
        """
        return None


@runtime_checkable
class HumanPrior(Protocol):
    """Policies of the humans for each of their hypothetical goals."""

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state goal action"]:
        """Action probabilities of each goal's human pursuing that goal.

        Args:
            states: Non-terminal state rows.
            steps_left: Remaining steps of each episode, at least 1.

        Returns:
            Probabilities over the human's own actions, summing to 1 on the last axis, padded
            with zeros where another human has more actions. Unavailable actions have 0.
        """


@runtime_checkable
class RobotPolicy(Protocol):
    """Joint policy of the robots in any state, as evaluations play it."""

    def policy(
        self, states: Int[Tensor, "state word"], steps_left: Int[Tensor, " state"]
    ) -> Float[Tensor, "state robot_action"]:
        """Probability of each joint robot action; unavailable ones have 0.

        Args:
            states: Non-terminal state rows of the world.
            steps_left: Remaining steps of each episode, at least 1.

        Raises:
            SolveError: if the policy is not defined in some of the states.
        """
