"""The blocks world model: rows in, all successors out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int, Int16, Int32
from torch import Tensor

from empo_benchmarks.blocks import kernel
from empo_benchmarks.blocks.board import DIRECTIONS, HUMAN_MOVES, Board, start_row
from empo_benchmarks.blocks.features import BlocksFeatures, places
from empo_benchmarks.blocks.params import BlocksParams
from empo_benchmarks.blocks.picture import sheet, sketch
from empo_benchmarks.blocks.ranks import Ranks
from empo_benchmarks.blocks.symmetries import board_symmetries
from empo_benchmarks.certain import certain_successors, every_action
from empo_core.errors import WorldError
from empo_core.types import AgentSpec, Goal, Overlay, Successors, WorldSpec
from empo_core.world_structure import Symmetry
from empo_pictures.picture_sheet import PictureSheet
from empo_theory.inspection import Sketch
from empo_worlds.grid.world import GridWorld, text_rows
from empo_worlds.queries import checked_actions
from empo_worlds.rows import state_rows


def load_world(params: BlocksParams) -> BlocksWorld:
    """The world that the params describe."""
    board = Board(params.size, params.boxes, params.robot_actions)
    return BlocksWorld(board, start_row(params), params.max_steps)


class BlocksWorld(GridWorld):
    """A robot without a body pushes boxes around a human; see ``WorldModel``.

    The human moves first, into a neighbouring cell without a box. Then a box moves into a
    neighbouring cell without a box, and crushes the human if that is there. Nothing moves after
    that, but the episode goes on: the human counts as long as it lasts.

    Attributes:
        board: Size, number of boxes, actions.
        spec: Agents, goals, row format, horizon. A row is the human's cell and those of the
            boxes, ascending, which tells boxes apart only by where they are.
    """

    def __init__(self, board: Board, start: Sequence[int], max_steps: int) -> None:
        self.board = board
        self._initial = torch.tensor(start, dtype=torch.int16)
        moves = tuple(DIRECTIONS[move] for move in HUMAN_MOVES)
        self.spec = WorldSpec(
            name=f"{board.boxes} boxes on {board.size} x {board.size} cells",
            agents=(
                AgentSpec(name="human", role="human", actions=moves),
                AgentSpec(name="robot", role="robot", actions=board.robot_action_names),
            ),
            goals=tuple(
                Goal(
                    human=0,
                    name=board.cell_name(cell),
                    weight=1 / board.cells,
                    features=tuple(map(float, board.place(cell) * 2)),
                )
                for cell in range(board.cells)
            ),
            state_words=1 + board.boxes,
            state_dtype=torch.int16,
            horizon=max_steps,
            releases_gil=True,
            features=BlocksFeatures(board.size, board.boxes),
        )

    @property
    def max_states(self) -> int:
        """Every cell of the human with every choice of cells for the boxes."""
        return Ranks(self.board.cells, self.board.boxes).count

    def symmetries(self) -> list[Symmetry]:
        """Mirrors and rotations of the board."""
        return board_symmetries(self.board)

    def content(self) -> tuple[Board, Tensor]:
        """The board and the start; see ``empo_core.protocols.WorldModel``."""
        return self.board, self._initial

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""
        return self._initial.clone()

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
        """True where the human is in the goal's cell, under a box or not."""
        self._checked(states)
        return states[:, :1] == torch.arange(self.board.cells)

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """The successor of each state; nothing is left to chance."""
        return self.transitions(states, actions).states

    def is_crushed(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, " state"]:
        """True where the human is under a box."""
        self._checked(states)
        return (states[:, 1:] == states[:, :1]).any(1)

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of the human, and (-1, -1) for the robot, which is nowhere."""
        self._checked(states)
        return places(states, self.board.size)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The board: H the human, numbers the boxes as actions call them."""
        human, *boxes = self._checked(state[None])[0].tolist()
        tokens = ["."] * self.board.cells
        tokens[human] = "H"
        for number, cell in enumerate(boxes, start=1):
            tokens[cell] = str(number)
        lines = text_rows(tokens, self.board.size)
        if human in boxes:
            lines.append(f"box {boxes.index(human) + 1} has crushed the human")
        return "\n".join(lines)

    def sketch(self, states: Int[Tensor, "state word"]) -> Sketch:
        """Pictures of many states for a page that draws them."""
        return sketch(self.board, self._checked(states))

    @property
    def compact_features(self) -> BlocksFeatures:
        """Reads compact rows: those of boards of equal size with as many boxes are alike."""
        return BlocksFeatures(self.board.size, self.board.boxes)

    def compact(self, states: Int[Tensor, "state word"]) -> Int32[Tensor, "state compact_word"]:
        """The rows themselves, which need no world to be read."""
        self._checked(states)
        return states.int()

    def _sheet(
        self, row: Int16[np.ndarray, " word"], overlay: Overlay | None, tile_size: int | None
    ) -> PictureSheet:
        return sheet(self.board, self.spec, row.tolist(), overlay, tile_size)

    def _checked(self, states: Int[Tensor, "state word"]) -> Int16[np.ndarray, "state word"]:
        """The rows as the compiled code wants them."""
        rows, cells = state_rows(self.spec, states), self.board.cells
        wrong = kernel.first_wrong(rows, cells)
        if wrong >= 0:
            raise WorldError(
                f"row {wrong}, {rows[wrong].tolist()}, is no state: cells are 0 to {cells - 1}, "
                "and those of the boxes ascend"
            )
        return rows
