"""Pictures of boards, drawn with Pillow and without a window."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from jaxtyping import Int16

from empo_benchmarks.disempower.board import (
    ASSISTANT,
    BYSTANDER,
    HUMANS,
    MOVES,
    PULLS,
    USER,
    Board,
)
from empo_core.types import Overlay, WorldSpec
from empo_pictures.canvas import GROUND, INK, PAPER, RGB, Pen, text_on
from empo_pictures.picture_sheet import PictureSheet, goal_key
from empo_theory.inspection import Sketch
from empo_worlds.grid.pictures import (
    Glyphs,
    best_value,
    draw_cell,
    draw_goal,
    draw_move,
    tile_size_of,
)

_LINE: Final[RGB] = (190, 186, 176)
_WALL: Final[RGB] = (92, 96, 104)
_BOX: Final[RGB] = (176, 128, 78)
_USER: Final[RGB] = (240, 190, 30)
_BYSTANDER: Final[RGB] = (92, 158, 214)
_ASSISTANT: Final[RGB] = (110, 115, 125)
_FLAG: Final[RGB] = (84, 160, 92)
_KEY: Final[RGB] = (200, 150, 40)
_ICE: Final[RGB] = (150, 215, 235)
TINTS: Final = (_USER, _BYSTANDER, _ASSISTANT)
TURNS: Final = len(MOVES)


def sheet(
    board: Board,
    spec: WorldSpec,
    row: Sequence[int],
    overlay: Overlay | None,
    tile_size: int | None,
) -> PictureSheet:
    """A picture of a state: humans are discs, the user yellow, an embodied assistant a square.

    Flags are true goals, boxes have the numbers that actions call them. Goals are framed in the
    colour of their value. Lines show where agents move how likely.
    """
    annotations, layout = overlay or Overlay(), board.layout

    def paint(pen: Pen, human: int | None) -> None:
        grid = [(x, y) for y in range(layout.height) for x in range(layout.width)]
        for place, draw in zip(grid, _grounds(board), strict=True):
            draw(pen.inset(*place, 1))
        pens = [pen.inset(*place, 1) for place in board.places]
        boxes = row[board.first_box : board.key_word]
        for number, cell in enumerate(boxes, start=1):
            _box(pens[cell], str(number))
        if human is not None:
            _goals(board, spec, pens, annotations, human)
        for agent in range(board.first_box):
            _agent(pens[row[agent]], board, row, agent)
        for agent in range(HUMANS):
            for action, p in enumerate(_policy(annotations, spec, agent)):
                is_taken = annotations.actions.get(agent) == action
                draw_move(
                    pens[row[agent]], MOVES[action - 1] if action else (0, 0), p, is_taken=is_taken
                )
        _assistance(board, spec, row, pens, annotations)

    tile = tile_size_of(layout.width, layout.height, annotations, tile_size)
    return PictureSheet(spec, TINTS, annotations, tile, layout.width, layout.height, paint)


def sketch(board: Board, spec: WorldSpec, rows: Int16[np.ndarray, "state word"]) -> Sketch:
    """Pictures of some states for a page."""
    glyphs, layout = Glyphs(), board.layout
    ground = [
        glyphs.number(f"ground {cell}", draw, lambda: "")
        for cell, draw in enumerate(_grounds(board))
    ]
    box = glyphs.number("box", partial(_box, number=""))
    grid_cell = board.grid_cell.astype(np.int32)
    cells = np.zeros((len(rows), len(spec.agents)), np.int32)
    agents = np.zeros_like(cells)
    things = np.zeros((len(rows), layout.width * layout.height), np.int32)
    boxes = grid_cell[rows[:, board.first_box : board.key_word]].astype(np.int64)
    np.put_along_axis(things, boxes, box, 1)
    cells[:, : board.first_box] = grid_cell[rows[:, : board.first_box]]
    for state, row in enumerate(rows.tolist()):
        for agent in range(board.first_box):
            name = ", ".join([spec.agents[agent].name, *_marks(board, row, agent)])
            paint = partial(_agent, board=board, row=row, agent=agent)
            agents[state, agent] = glyphs.number(name, paint)
    goals = np.zeros((len(spec.goals), layout.width * layout.height), np.bool_)
    for number, goal in enumerate(spec.goals):
        goals[number, grid_cell[list(goal_cells(board, spec, number, goal.human))]] = True
    return Sketch(
        width=layout.width,
        height=layout.height,
        glyphs=tuple(glyphs.glyphs),
        ground=np.array(ground, np.int32),
        things=things,
        agents=agents,
        places=cells,
        headings=np.full_like(cells, -1),
        goals=goals,
    )


def goal_cells(board: Board, spec: WorldSpec, goal: int, human: int) -> list[int]:
    """Where a goal is drawn: at its cell, and to have a key where the key is."""
    number = goal - spec.goals_of(human)[0]
    return [number if number < board.cells else int(board.rules.key[human])]


def _grounds(board: Board) -> list[partial[None]]:
    """What draws each cell of the grid without boxes and agents."""
    layout = board.layout
    walls = {(x, y) for y, x in layout.wall_pos}
    keys = {(x, y): str(i + 1) for i, (y, x) in enumerate(layout.key_pos)}
    flags = {(x, y): str(i + 1) for i, (y, x) in enumerate(layout.goal_pos)}
    if len(keys) == 1:
        keys = dict.fromkeys(keys, "")
    if len(flags) == 1:
        flags = dict.fromkeys(flags, "")
    traps = {(x, y) for y, x in layout.trap_pos}
    return [
        partial(
            _ground,
            is_wall=(x, y) in walls,
            is_trap=(x, y) in traps,
            flag=flags.get((x, y)),
            key=keys.get((x, y)),
        )
        for y in range(layout.height)
        for x in range(layout.width)
    ]


def _ground(pen: Pen, *, is_wall: bool, is_trap: bool, flag: str | None, key: str | None) -> None:
    draw_cell(pen, _LINE, _WALL if is_wall else GROUND)
    if is_trap and not is_wall:
        pen.line([(0.25, 0.25), (0.75, 0.75)], INK, 0.05)
        pen.line([(0.25, 0.75), (0.75, 0.25)], INK, 0.05)
    if flag is not None:
        pen.line([(0.72, 0.12), (0.72, 0.5)], INK, 0.035)
        pen.polygon([(0.72, 0.12), (0.94, 0.21), (0.72, 0.3)], _FLAG)
        pen.text((0.78, 0.21), flag, 0.14, text_on(_FLAG))
    if key is not None:
        pen.ring((0.22, 0.78), 0.09, _KEY, 0.05)
        pen.line([(0.3, 0.78), (0.5, 0.78), (0.5, 0.87)], _KEY, 0.05)
        pen.line([(0.42, 0.78), (0.42, 0.85)], _KEY, 0.05)
        pen.text((0.22, 0.78), key, 0.12)


def _box(pen: Pen, number: str) -> None:
    pen.rect((0.14, 0.14), (0.86, 0.86), INK, radius=0.06)
    pen.rect((0.17, 0.17), (0.83, 0.83), _BOX, radius=0.05)
    pen.text((0.27, 0.28), number, 0.18, text_on(_BOX))


def _marks(board: Board, row: Sequence[int], agent: int) -> list[str]:
    """What is to be seen of an agent."""
    marks = []
    if board.has_keys and agent < HUMANS and row[board.key_word + agent]:
        marks.append("has the key")
    if agent == BYSTANDER and board.freeze_steps and row[board.timer_word]:
        marks.append(f"frozen for {row[board.timer_word]}")
    if agent < HUMANS and row[USER] == row[BYSTANDER]:
        marks.append("beside the other")
    return marks


def _agent(pen: Pen, board: Board, row: Sequence[int], agent: int) -> None:
    """A disc for a human, a square for the assistant; a key and ice where they apply."""
    marks = _marks(board, row, agent)
    if agent == ASSISTANT:
        pen.rect((0.26, 0.26), (0.74, 0.74), INK, radius=0.04)
        pen.rect((0.29, 0.29), (0.71, 0.71), _ASSISTANT, radius=0.03)
        return
    x = 0.5
    if "beside the other" in marks:
        x += 0.16 if agent else -0.16
    if any(mark.startswith("frozen") for mark in marks):
        pen.circle((x, 0.5), 0.36, _ICE)
    pen.circle((x, 0.5), 0.25, INK)
    pen.circle((x, 0.5), 0.22, TINTS[agent])
    if "has the key" in marks:
        pen.ring((x, 0.28), 0.07, _KEY, 0.05)
        pen.line([(x, 0.35), (x, 0.52)], _KEY, 0.05)


def _goals(
    board: Board, spec: WorldSpec, pens: Sequence[Pen], overlay: Overlay, human: int
) -> None:
    """Frames, letters and the largest value of a human's goals in each cell."""
    pursued = overlay.pursued.get(human)
    cells: dict[int, list[int]] = {}
    for goal in spec.goals_of(human):
        for cell in goal_cells(board, spec, goal, human):
            cells.setdefault(cell, []).append(goal)
    for cell, goals in cells.items():
        values = [] if overlay.goal_values is None else [overlay.goal_values[g] for g in goals]
        key = " ".join(goal_key(spec, goal) for goal in goals)
        draw_goal(pens[cell], key, best_value(values), is_pursued=pursued in goals)


def _assistance(
    board: Board, spec: WorldSpec, row: Sequence[int], pens: Sequence[Pen], overlay: Overlay
) -> None:
    """Lines for moves of the assistant and of boxes; a ring around whom it freezes."""
    policy = _policy(overlay, spec, ASSISTANT)
    for action, p in enumerate(policy):
        is_taken = overlay.actions.get(ASSISTANT) == action
        if board.freeze_steps and action == len(policy) - 1:
            if p >= 0.005 or is_taken:
                bold = 0.05 * is_taken
                pens[row[BYSTANDER]].ring((0.5, 0.5), 0.3 + 0.1 * p, _ICE, 0.04 + bold)
        elif action == 0:
            if board.is_embodied:
                draw_move(pens[row[ASSISTANT]], (0, 0), p, is_taken=is_taken)
        elif not board.is_embodied:
            cell = row[board.first_box + (action - 1) // TURNS]
            draw_move(pens[cell], MOVES[(action - 1) % TURNS], p, is_taken=is_taken)
        else:
            kind, turn = divmod(action - 1, TURNS)
            move = MOVES[PULLS[turn] if kind == 2 else turn]
            draw_move(pens[row[ASSISTANT]], move, p, is_taken=is_taken)
            if kind and (p >= 0.05 or is_taken):
                at = (0.5 + 0.3 * move[0], 0.5 + 0.3 * move[1])
                text = "+" if kind == 1 else "-"
                pens[row[ASSISTANT]].text(at, text, 0.2, INK, halo=PAPER)


def _policy(overlay: Overlay, spec: WorldSpec, agent: int) -> Sequence[float]:
    """The policy of an agent, or the action that is taken as one; nothing where none is."""
    if policy := overlay.policies.get(agent):
        return policy
    chosen = overlay.actions.get(agent)
    actions = range(len(spec.agents[agent].actions))
    return [] if chosen is None else [float(action == chosen) for action in actions]
