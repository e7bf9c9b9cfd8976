"""Results with the exact values of every state, which learned values are compared with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from jaxtyping import Float, Int
from torch import Tensor


class SolvedWorld(ABC):
    """A result with the exact values of every reachable state."""

    @abstractmethod
    def reachable_states(self, steps_left: int) -> Int[Tensor, "state word"]:
        """Non-terminal states that an episode can be in with so many steps left, sorted."""

    @abstractmethod
    def robot_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, " state"]:
        """V_r of each state."""

    @abstractmethod
    def robot_policies(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state robot_action"]:
        """The robots' policy in each state."""

    @abstractmethod
    def goal_values(
        self, states: Int[Tensor, "state word"], steps_left: int
    ) -> Float[Tensor, "state goal"]:
        """V_h^e of each state and goal."""

    def occupancy(
        self,
    ) -> Iterator[tuple[int, Int[Tensor, "state word"], Float[Tensor, " state"]]] | None:
        """Steps left, non-terminal states, and the expected visits to each in an episode.

        The humans act by the average of their policies over goals. Steps left count down. None: the
        result does not say which states its policies lead to.
        """
        return None
