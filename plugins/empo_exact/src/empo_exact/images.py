"""Images of states: rows of the goal tables that show a state's values with its goals renamed.

A transition of a reduced graph may lead to a state that is not in it, but is the image of one that
is: its values are those of that state, with goals renamed. The kernels read tables by rows, so that
each image which transitions lead to has a row of its own, behind those of the states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int32, Int64, UInt8

from empo_exact.game import goal_order
from empo_exact.graph import StateGraph
from empo_worlds.compilation import compiled


@compiled
def copy_row_goals(
    first: Int64[np.ndarray, " state_plus_1"],
    variant: Int32[np.ndarray, " image"],
    columns: Int32[np.ndarray, "variant padded_goal"],
    states: Int64[np.ndarray, " chosen"],
    table: Float64[np.ndarray, "row padded_goal"],
) -> None:
    """Copy the rows of some states to those of their images, with goals renamed."""
    before = len(first) - 1
    for chosen in range(len(states)):
        state = states[chosen]
        for image in range(first[state], first[state + 1]):
            for goal in range(table.shape[1]):
                table[before + image, goal] = table[state, columns[variant[image], goal]]


@compiled
def copy_rows(
    first: Int64[np.ndarray, " state_plus_1"],
    states: Int64[np.ndarray, " chosen"],
    table: Float64[np.ndarray, "row order"],
) -> None:
    """Copy the rows of some states, whose columns mean no goals, to those of their images."""
    before = len(first) - 1
    for chosen in range(len(states)):
        state = states[chosen]
        for image in range(first[state], first[state + 1]):
            for order in range(table.shape[1]):
                table[before + image, order] = table[state, order]


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

    def copy_goals(
        self,
        table: Float64[np.ndarray, "row padded_goal"],
        states: Int64[np.ndarray, " chosen"],
    ) -> None:
        """Copy the rows of some states in a table of goals to those of their images."""
        copy_row_goals(self.first, self.variant, self.columns, states, table)

    def copy_values(
        self, v_r: Float64[np.ndarray, " row"], states: Int64[np.ndarray, " chosen"]
    ) -> None:
        """Copy V_r of some states to that of their images."""
        copy_rows(self.first, states, v_r[:, None])

    def copy_orders(
        self, table: Float64[np.ndarray, "row order"], states: Int64[np.ndarray, " chosen"]
    ) -> None:
        """Copy norms or powers of some states to those of their images."""
        copy_rows(self.first, states, table)
