"""The disempower world model: rows in, all successors out."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from empo_benchmarks.certain import certain_successors, every_action
from empo_benchmarks.disempower import kernel
from empo_benchmarks.disempower.board import (
    BYSTANDER,
    HUMAN_ACTIONS,
    HUMANS,
    USER,
    Board,
)
from empo_benchmarks.disempower.features import DisempowerFeatures
from empo_benchmarks.disempower.params import DisempowerParams, Layout
from empo_benchmarks.disempower.picture import sheet, sketch
from empo_benchmarks.disempower.ranks import Ranks
from empo_core.errors import WorldError
from empo_core.types import AgentSpec, Goal, Overlay, Successors, WorldSpec
from empo_core.world_structure import Reads
from empo_pictures.picture_sheet import PictureSheet
from empo_theory.inspection import Sketch
from empo_worlds.grid.world import GridWorld, text_rows
from empo_worlds.queries import checked_actions
from empo_worlds.rows import state_rows


def load_world(params: DisempowerParams) -> DisempowerWorld:
    """The world that the params describe."""
    layout = params.board
    return DisempowerWorld(layout, params.max_steps or layout.max_steps, key_goal=params.key_goal)


class DisempowerWorld(GridWorld):
    """An assistant, the user whom it may help, and a bystander; see ``WorldModel``.

    Both humans move at once on the board as it was, then the assistant acts. Every cell is a goal
    of both humans. Which goals they really have is no part of the world.

    Attributes:
        board: The layout, and what follows from it.
        spec: Agents, goals, row format, horizon. A row is the cells of the user, of the bystander,
            of an embodied assistant and of the boxes, ascending; whether user and bystander have
            the key, where there are keys; and for how many steps the bystander is still frozen,
            where the assistant can freeze.
    """

    def __init__(self, layout: Layout, max_steps: int, *, key_goal: bool = False) -> None:
        self.board = board = Board(layout)
        self._key_goal = key_goal
        self._values = np.array(board.values)
        self._features = DisempowerFeatures(
            layout.height,
            layout.width,
            tuple(board.places),
            board.first_box,
            board.key_word,
            board.values[board.key_word :],
        )
        self.spec = WorldSpec(
            name=layout.title,
            agents=(
                AgentSpec(name="user", role="human", actions=HUMAN_ACTIONS),
                AgentSpec(name="bystander", role="human", actions=HUMAN_ACTIONS),
                AgentSpec(name="assistant", role="robot", actions=board.assistant_actions),
            ),
            goals=tuple(goal for human in range(HUMANS) for goal in self._goals(human)),
            state_words=board.words,
            state_dtype=torch.int16,
            horizon=max_steps,
            releases_gil=True,
            features=self._features,
        )

    def _goals(self, human: int) -> list[Goal]:
        """To be in each cell, and, if that counts, to have the key."""
        board, has_key = self.board, (0.0,) * self._key_goal
        weight = 1 / (board.cells + self._key_goal)
        goals = [
            Goal(
                human=human,
                name=board.cell_name(cell),
                weight=weight,
                features=(*map(float, board.places[cell] * 2), *has_key),
            )
            for cell in range(board.cells)
        ]
        if self._key_goal:
            key = board.places[board.rules.key[human]]
            features = (*map(float, key * 2), 1.0)
            goals.append(Goal(human=human, name="has key", weight=weight, features=features))
        return goals

    @property
    def max_states(self) -> int:
        """Every row of cells, keys and timer, the boxes in ascending cells."""
        return Ranks(self.board).count

    def content(self) -> tuple[dict[str, object], bool]:
        """The layout, and whether keys are goals; see ``empo_core.protocols.WorldModel``."""
        return self.board.layout.model_dump(exclude={"title", "max_steps"}), self._key_goal

    def reads(self) -> Reads:
        """Cells of everything depend on all but keys; keys on humans and themselves."""
        board = self.board
        words = torch.zeros((board.words, board.words), dtype=torch.bool)
        cells = slice(0, board.key_word)
        words[cells, cells] = True
        if board.has_keys:
            for human in range(HUMANS):
                word = board.key_word + human
                words[word, cells] = True
                words[word, word] = True
        if board.freeze_steps:
            words[cells, board.timer_word] = True
            words[board.key_word :, board.timer_word] = True
        achieved = torch.zeros((len(self.spec.goals), board.words), dtype=torch.bool)
        for number, goal in enumerate(self.spec.goals):
            is_key = goal.name == "has key"
            achieved[number, board.key_word + goal.human if is_key else goal.human] = True
        return Reads(
            words=words,
            available=torch.zeros(board.words, dtype=torch.bool),
            achieved=achieved,
        )

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""
        return torch.tensor(self.board.start_row(), dtype=torch.int16)

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """One successor per state and joint action; see ``WorldModel.transitions``."""
        rows = self._checked(states)
        chosen = None if actions is None else checked_actions(self.spec, actions, len(rows))
        return certain_successors(kernel.successors(self.board, rows, chosen))

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """All actions, always: what is blocked does nothing."""
        self._checked(states)
        return every_action(self.spec, len(states))

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where the human is in the goal's cell, or has its key."""
        self._checked(states)
        cells = torch.arange(self.board.cells)
        parts = []
        for human in range(HUMANS):
            parts.append(states[:, human, None] == cells)
            if self._key_goal:
                parts.append(states[:, self.board.key_word + human, None] > 0)
        return torch.cat(parts, 1)

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """The successor of each state; nothing is left to chance."""
        return self.transitions(states, actions).states

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cells of the agents, (-1, -1) for an assistant that is nowhere."""
        self._checked(states)
        return self._features.agent_cells(states)

    def views(self, states: Int[Tensor, "state word"]) -> Float[Tensor, "state agent number"]:
        """What everybody sees: cells of each, cells with a box, keys and timer, one-hot.

        Walls, goals and traps are the same in all states, so that nobody need see them.
        """
        self._checked(states)
        board, rows = self.board, states.long()
        view = torch.zeros(len(rows), board.view_words)
        cells = rows[:, : board.first_box] + torch.arange(board.first_box) * board.cells
        boxes = rows[:, board.first_box : board.key_word] + board.first_box * board.cells
        view.scatter_(1, torch.cat([cells, boxes], 1), 1.0)
        first = (board.first_box + 1) * board.cells
        for word in range(board.key_word, board.words):
            view.scatter_(1, first + rows[:, word, None], 1.0)
            first += board.values[word]
        return view[:, None].expand(-1, len(self.spec.agents), -1)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The board: U the user, B the bystander, A the assistant, # walls, numbers the boxes."""
        board, row = self.board, self._checked(state[None])[0].tolist()
        tokens = ["#"] * (board.layout.width * board.layout.height)
        for cell in range(board.cells):
            tokens[board.grid_cell[cell]] = "."
        for number, cell in enumerate(row[board.first_box : board.key_word], start=1):
            tokens[board.grid_cell[cell]] = str(number)
        for agent, sign in enumerate("UBA"[: board.first_box]):
            tokens[board.grid_cell[row[agent]]] = sign
        lines = text_rows(tokens, board.layout.width)
        if row[USER] == row[BYSTANDER]:
            lines.append(f"user and bystander are at {board.cell_name(row[USER])}")
        for human in range(HUMANS if board.has_keys else 0):
            if row[board.key_word + human]:
                lines.append(f"{self.spec.agents[human].name} has the key")
        if board.freeze_steps and row[board.timer_word]:
            lines.append(f"bystander is frozen for {row[board.timer_word]} steps")
        return "\n".join(lines)

    def sketch(self, states: Int[Tensor, "state word"]) -> Sketch:
        """Pictures of many states for a page that draws them."""
        return sketch(self.board, self.spec, self._checked(states))

    def _sheet(
        self, row: Int16[np.ndarray, " word"], overlay: Overlay | None, tile_size: int | None
    ) -> PictureSheet:
        return sheet(self.board, self.spec, row.tolist(), overlay, tile_size)

    def _checked(self, states: Int[Tensor, "state word"]) -> Int16[np.ndarray, "state word"]:
        """The rows as the compiled code wants them."""
        rows = state_rows(self.spec, states)
        wrong = kernel.first_wrong(self.board.rules, self._values, rows)
        if wrong >= 0:
            raise WorldError(
                f"row {wrong}, {rows[wrong].tolist()}, is no state of {self.spec.name!r}: words "
                f"have {list(self.board.values)} values, cells of boxes ascend, and two things "
                "share a cell only where both humans stand on the goal of both"
            )
        return rows
