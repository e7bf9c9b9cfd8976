"""Images of states: rows of the goal tables that show a state's values with its goals renamed.

A transition of a reduced graph may lead to a state that is not in it, but is the image of one that
is: its values are those of that state, with goals renamed. The kernels read tables by rows, so that
each image which transitions lead to has a row of its own, behind those of the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, UInt8

from empo_exact.game import Floats, goal_order
from empo_exact.graph import StateGraph
from empo_worlds.compilation import compiled


class Renamed(NamedTuple):
    """The images of states, as kernels read them; see ``Images``."""

    first: Int64[np.ndarray, " state_plus_1"]
    variant: Int32[np.ndarray, " image"]
    columns: Int32[np.ndarray, "variant padded_goal"]


@compiled
def write_image_payoffs(
    values: Float64[np.ndarray, "place padded_goal"],
    achieved: UInt8[np.ndarray, "row padded_goal"],
    factor: float,
    paid: float,
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    images: Renamed,
    payoffs: Float64[np.ndarray, "row padded_goal"],
) -> None:
    """Write the rows of the images of some states; see ``problem.set_payoffs``."""
    before = len(images.first) - 1
    for chosen in range(len(states)):
        place, state = places[chosen], states[chosen]
        for image in range(images.first[state], images.first[state + 1]):
            of = images.variant[image]
            for goal in range(values.shape[1]):
                column = images.columns[of, goal]
                value = factor * values[place, column]
                payoffs[before + image, goal] = paid if achieved[state, column] > 0 else value


@compiled
def write_image_values(
    v_r: Float64[np.ndarray, " place"],
    places: Int64[np.ndarray, " chosen"],
    states: Int64[np.ndarray, " chosen"],
    first: Int64[np.ndarray, " state_plus_1"],
    spread: Float64[np.ndarray, " row"],
) -> None:
    """Write V_r of some states and their images."""
    before = len(first) - 1
    for chosen in range(len(states)):
        value, state = v_r[places[chosen]], states[chosen]
        spread[state] = value
        for image in range(first[state], first[state + 1]):
            spread[before + image] = value


@dataclass(frozen=True, eq=False)
class Images:
    """The images of the states of a reduced graph, and the transitions that lead to them.

    Attributes:
        first: Where the images of each state begin, and the end of all [state + 1].
        variant: How each image has its goals renamed [image].
        columns: Each goal's place among the goals of the state, by variant; variant 0 renames
            none [variant goal], goals as the sweep has them.
        successor: The row that each transition leads to: states come first, then images
            [transition].
    """

    first: Int64[np.ndarray, " state_plus_1"]
    variant: Int32[np.ndarray, " image"]
    columns: Int32[np.ndarray, "variant padded_goal"]
    successor: Int32[np.ndarray, " transition"]

    @classmethod
    def none(cls, graph: StateGraph) -> Images:
        """No images: transitions lead to the states themselves."""
        goals = np.arange(len(goal_order(graph.spec)), dtype=np.int32)[None]
        first = np.zeros(graph.num_states + 1, np.int64)
        return cls(first, np.zeros(0, np.int32), goals, graph.successor)

    @property
    def rows(self) -> int:
        """Number of states and images."""
        return len(self.first) - 1 + len(self.variant)

    @property
    def states(self) -> Int32[np.ndarray, " row"]:
        """The state of each row [row]."""
        states = np.arange(len(self.first) - 1, dtype=np.int32)
        return np.concatenate([states, np.repeat(states, np.diff(self.first))])

    def achieved(
        self, of_states: UInt8[np.ndarray, "state padded_goal"]
    ) -> UInt8[np.ndarray, "row padded_goal"]:
        """Which goals each row achieves, from those of the states."""
        of_images = of_states[np.repeat(np.arange(len(of_states)), np.diff(self.first))]
        renamed = np.take_along_axis(of_images, self.columns[self.variant].astype(np.int64), 1)
        return np.concatenate([of_states, renamed])

    def renew_payoffs(
        self,
        values: Floats,
        achieved: UInt8[np.ndarray, "row padded_goal"],
        payoff: tuple[float, float],
        states: Int64[np.ndarray, " chosen"],
        places: Int64[np.ndarray, " chosen"],
        payoffs: Floats,
    ) -> None:
        """Renew the rows of the images of some states; see ``Problem.renew_payoffs``."""
        of = Renamed(self.first, self.variant, self.columns)
        write_image_payoffs(values, achieved, *payoff, places, states, of, payoffs)

    def renew_values(
        self,
        v_r: Float64[np.ndarray, " place"],
        states: Int64[np.ndarray, " chosen"],
        spread: Float64[np.ndarray, " row"],
    ) -> None:
        """Renew V_r of some states, given by state number, and of their images [row]."""
        write_image_values(v_r, states, states, self.first, spread)
