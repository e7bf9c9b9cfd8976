"""BushWorld as a world model: whole batches of states and joint actions at once.

A row holds the cell of each robot, the cell of each human, and the density of each cell.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_bushworld.features import BushFeatures
from empo_bushworld.layout import MOVES, Layout, read_layout
from empo_bushworld.picture import sheet
from empo_bushworld.plugin import BushworldParams
from empo_core.errors import WorldError
from empo_core.types import AgentSpec, Goal, Overlay, Successors, WorldSpec
from empo_pictures.picture_sheet import PictureSheet
from empo_worlds.grid.world import GridWorld, neighbours, positions, text_rows
from empo_worlds.queries import checked_actions
from empo_worlds.rows import state_rows
from empo_worlds.samples import joint_actions

ACTIONS = ("N", "W", "S", "E", "pass")
PASS = len(ACTIONS) - 1


def load_world(params: BushworldParams) -> BushWorld:
    """The world of a file.

    Raises:
        ConfigError: if the file cannot be used; one located line per problem.
    """
    return BushWorld(read_layout(params.file, params.max_steps, params.B))


class BushWorld(GridWorld):
    """Robots tread bushes down, humans get through the thin ones; see ``WorldModel``.

    Everybody moves at once. An agent may enter a cell of the grid that was empty before the
    step; of several that want the same cell only the first in order tries. A robot always
    succeeds and lowers the density of the cell it enters, or of its own if it passes, by 1. A
    human gets into a bush of density d with chance 1 - d / B.
    """

    def __init__(self, layout: Layout) -> None:
        """Prepare the tables that every transition looks up."""
        self.layout = layout
        cells = layout.width * layout.height
        names = [f"robot {i + 1}" for i in range(len(layout.robots))]
        names += [f"human {i + 1}" for i in range(len(layout.humans))]
        robots, agents = len(layout.robots), len(names)
        weight = 1 / len(layout.goals)
        self.spec = WorldSpec(
            name=layout.name,
            agents=tuple(
                AgentSpec(name=name, role="robot" if i < robots else "human", actions=ACTIONS)
                for i, name in enumerate(names)
            ),
            goals=tuple(
                Goal(human=human, name=str(goal), weight=weight, features=tuple(map(float, goal)))
                for human in range(robots, agents)
                for goal in layout.goals
            ),
            state_words=agents + cells,
            state_dtype=torch.int16,
            horizon=layout.max_steps,
            # Torch works outside of the lock.
            releases_gil=True,
            features=BushFeatures(
                layout.width, layout.height, robots, agents - robots, layout.impenetrable
            ),
        )
        self._agents, self._robots, self._cells = agents, robots, cells
        self._target = torch.from_numpy(neighbours(layout.width, layout.height, MOVES))
        self._in_goal = _goal_cells(layout)
        self._joint = joint_actions(self.spec)
        self._initial = torch.tensor(
            [*layout.robots, *layout.humans, *layout.densities], dtype=torch.int16
        )
        # Which humans succeed in each outcome of the coins.
        bits = torch.arange(2 ** (agents - robots))
        self._outcomes = (bits[:, None] >> torch.arange(agents - robots)) & 1 > 0

    def content(self) -> Layout:
        """The layout, start included; see ``empo_core.protocols.WorldModel``."""
        return self.layout

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""
        return self._initial.clone()

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """All successors; see ``WorldModel.transitions``."""
        states = torch.from_numpy(self._checked(states))
        if actions is None:
            number = self.spec.num_joint_actions
            actions = self._joint.repeat(len(states), 1)
            states = states.repeat_interleave(number, 0)
        else:
            actions = torch.from_numpy(checked_actions(self.spec, actions, len(states)))
        robots, agents = self._robots, self._agents
        cells, densities = states[:, :agents].long(), states[:, agents:]
        target, moves = self._attempts(cells, actions)
        after = torch.where(moves, target, cells)
        chance = self._chances(densities, target, moves)
        # [pair outcome]: the probability that exactly these humans succeed.
        prob = chance.new_ones(len(chance), 1)
        for succeeds in chance.T[:, :, None]:
            prob = torch.cat([prob * (1 - succeeds), prob * succeeds], 1)
        pair, outcome = (prob > 0).nonzero(as_tuple=True)
        items = torch.cat(
            [after.to(states.dtype), self._trodden(after, moves, actions, densities)], 1
        )
        items = items[pair]
        failed = ~self._outcomes[outcome]
        items[:, robots:agents][failed] = states[pair, robots:agents][failed]
        counts = (prob > 0).sum(1)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return Successors(offsets, items, prob[pair, outcome])

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """All actions, always: an impossible action does nothing."""
        self._checked(states)
        return torch.ones(len(states), self._agents, len(ACTIONS), dtype=torch.bool)

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where a human stands in one of its goals."""
        states = torch.from_numpy(self._checked(states))
        humans = states[:, self._robots : self._agents].long()
        return self._in_goal[humans].flatten(1)

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of each agent in each state."""
        states = torch.from_numpy(self._checked(states))
        return positions(states[:, : self._agents].long(), self.layout.width)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The map in the form of a world file, with agents' numbers, and what they stand on."""
        row = self._checked(state[None])[0].tolist()
        tokens = [str(density) if density else "." for density in row[self._agents :]]
        under = []
        for agent, cell in enumerate(row[: self._agents]):
            robots = self._robots
            token = f"R{agent + 1}" if agent < robots else f"H{agent - robots + 1}"
            if tokens[cell] != ".":
                under.append(f"{token} stands on {tokens[cell]}")
            tokens[cell] = token
        lines = text_rows(tokens, self.layout.width)
        return "\n".join([*lines, ", ".join(under)] if under else lines)

    def _attempts(
        self, cells: Int[Tensor, "pair agent"], actions: Int[Tensor, "pair agent"]
    ) -> tuple[Int[Tensor, "pair agent"], Bool[Tensor, "pair agent"]]:
        """Target cell of each agent, and whether it may move there."""
        target = self._target[cells, actions]
        occupied = (target[:, :, None] == cells[:, None, :]).any(2)
        wants = (target >= 0) & (actions != PASS) & ~occupied
        rivals = (target[:, :, None] == target[:, None, :]) & wants[:, None, :]
        first = ~rivals.tril(-1).any(2)
        return target, wants & first

    def _chances(
        self,
        densities: Int[Tensor, "pair cell"],
        target: Int[Tensor, "pair agent"],
        moves: Bool[Tensor, "pair agent"],
    ) -> Float[Tensor, "pair human"]:
        """The probability that each human's attempt succeeds; 0 without an attempt."""
        mine = slice(self._robots, self._agents)
        density = densities.gather(1, target[:, mine].clamp(min=0)).double()
        return torch.where(moves[:, mine], 1 - density / self.layout.impenetrable, 0.0)

    def _trodden(
        self,
        after: Int[Tensor, "pair agent"],
        moves: Bool[Tensor, "pair agent"],
        actions: Int[Tensor, "pair agent"],
        densities: Int[Tensor, "pair cell"],
    ) -> Int[Tensor, "pair cell"]:
        """Densities after the robots have moved or passed."""
        mine = slice(0, self._robots)
        treads = moves[:, mine] | (actions[:, mine] == PASS)
        # No two robots end in one cell, so nothing is subtracted twice.
        return densities.scatter_add(1, after[:, mine], -treads.to(densities.dtype)).clamp(min=0)

    def _sheet(
        self, row: Int16[np.ndarray, " word"], overlay: Overlay | None, tile_size: int | None
    ) -> PictureSheet:
        return sheet(self.layout, self.spec, row.tolist(), overlay, tile_size)

    def _checked(self, states: Int[Tensor, "state word"]) -> Int16[np.ndarray, "state word"]:
        """The rows as ``spec`` says: cells of agents, then densities."""
        rows = state_rows(self.spec, states)
        cells, densities = rows[:, : self._agents], rows[:, self._agents :]
        outside = (cells < 0) | (cells >= self._cells)
        dense = (densities < 0) | (densities > self.layout.impenetrable)
        ordered = np.sort(cells, 1)
        for wrong, problem in (
            (outside.any(1), f"an agent is not in one of the {self._cells} cells"),
            (dense.any(1), f"a density is not in [0, {self.layout.impenetrable}]"),
            ((ordered[:, 1:] == ordered[:, :-1]).any(1), "two agents are in one cell"),
        ):
            if wrong.any():
                row = int(wrong.argmax())
                raise WorldError(f"row {row}, {rows[row].tolist()}, is no state: {problem}")
        return rows


def _goal_cells(layout: Layout) -> Bool[Tensor, "cell goal"]:
    cell = torch.arange(layout.width * layout.height)[:, None]
    x1, y1, x2, y2 = torch.tensor(layout.goals).T
    x, y = cell % layout.width, cell // layout.width
    inside: Tensor = (x1 <= x) & (x <= x2) & (y1 <= y) & (y <= y2)
    return inside
