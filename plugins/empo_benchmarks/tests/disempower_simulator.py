"""Disempower-Grid as its rules are told, one step at a time: imports nothing of this plugin.

Cells are (row, column), row 0 on top. Human actions: right 0, down 1, left 2, up 3, stay 4. Of
assistants without a body: 4 b + d moves box b in direction d, then nothing, then freeze. Of those
with one: four walks, four pushes, four pulls (left, up, right, down) where there are any, nothing,
freeze. Boxes keep their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

Cell = tuple[int, int]
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
STAY = 4
PULLS = (2, 3, 0, 1)


@dataclass(frozen=True)
class State:
    """A state of an episode."""

    humans: tuple[Cell, Cell]
    boxes: tuple[Cell, ...]
    helper: Cell | None = None
    has_key: tuple[bool, bool] = (False, False)
    timer: int = 0


class Simulator:
    """The rules on one layout, which has the keys of the published file."""

    def __init__(self, layout: dict[str, Any]) -> None:
        def cells(key: str) -> list[Cell]:
            return [(row, column) for row, column in layout.get(key, [])]

        self.height, self.width = layout["height"], layout["width"]
        self.walls, self.traps = cells("wall_pos"), cells("trap_pos")
        self.goals, self.keys = cells("goal_pos"), cells("key_pos")
        self.pulls, self.freezes = layout.get("pull", False), layout.get("freeze", False)
        self.barred = [] if layout["boxes_can_cover_goal"] else self.goals
        self.embodied = layout["assistant"] == "embodied"
        helper = cells("helper_pos")
        user, bystander = cells("agent_pos")
        self.start = State(
            (user, bystander), tuple(cells("box_pos")), helper[0] if helper else None
        )

    @property
    def num_actions(self) -> int:
        """How many actions the assistant has."""
        acts = 8 + 4 * self.pulls if self.embodied else 4 * len(self.start.boxes)
        return acts + 1 + self.freezes

    def step(self, state: State, actions: tuple[int, int, int]) -> tuple[State, tuple[int, int]]:
        """The next state, and the rewards of user and bystander."""
        user, bystander, assistant = actions
        freezes = self.freezes and assistant == self.num_actions - 1
        if freezes or state.timer > 0:
            bystander = STAY
        state = replace(state, humans=self._walked(state, (user, bystander)))
        state = replace(state, has_key=self._with_keys(state))
        timer = state.timer
        if freezes:
            timer = 2 if self.embodied else 4
        else:
            state = self._assisted(state, assistant)
        state = replace(state, timer=max(timer - 1, 0))
        return state, (self._reward(state, 0), self._reward(state, 1))

    def _on_board(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.height and 0 <= cell[1] < self.width

    def _walked(self, state: State, actions: tuple[int, int]) -> tuple[Cell, Cell]:
        """Both humans move at once on the board as it is."""
        targets = []
        for cell, action in zip(state.humans, actions, strict=True):
            target = cell
            if action != STAY and cell not in self.traps:
                ahead = ahead_of(cell, action)
                solid = (*state.boxes, *self.walls, state.helper)
                if self._on_board(ahead) and ahead not in solid:
                    target = ahead
            targets.append(target)
        first, second = targets
        swap = first == state.humans[1] and second == state.humans[0]
        if first == second or swap:
            share = len(self.goals) == 1 and first == second == self.goals[0]
            return (first, second) if share else state.humans
        return first, second

    def _with_keys(self, state: State) -> tuple[bool, bool]:
        """Who is on its key cell has the key for ever."""
        if not self.keys:
            return state.has_key
        own = (self.keys[0], self.keys[-1])
        has = [
            had or cell == key
            for had, cell, key in zip(state.has_key, state.humans, own, strict=True)
        ]
        return has[0], has[1]

    def _free_for_box(self, state: State, cell: Cell) -> bool:
        solid = (*state.boxes, *state.humans, *self.walls, *self.barred)
        return self._on_board(cell) and cell not in solid

    def _assisted(self, state: State, action: int) -> State:
        """The assistant acts once the humans have moved; what is blocked does nothing."""
        if not self.embodied:
            box, turn = divmod(action, 4)
            if box >= len(state.boxes):
                return state
            target = ahead_of(state.boxes[box], turn)
            return moved(state, box, target) if self._free_for_box(state, target) else state
        assert state.helper is not None
        kind, turn = divmod(action, 4)
        if kind > 1 + self.pulls:
            return state
        turn = PULLS[turn] if kind == 2 else turn
        ahead = ahead_of(state.helper, turn)
        if kind == 1:
            target = ahead_of(ahead, turn)
            if ahead in state.boxes and self._free_for_box(state, target):
                return replace(moved(state, state.boxes.index(ahead), target), helper=ahead)
            return state
        if not self._on_board(ahead) or ahead in (*state.boxes, *state.humans, *self.walls):
            return state
        if kind == 0:
            return replace(state, helper=ahead)
        behind = ahead_of(state.helper, (turn + 2) % 4)
        if behind not in state.boxes or state.helper in self.barred:
            return state
        return replace(moved(state, state.boxes.index(behind), state.helper), helper=ahead)

    def _reward(self, state: State, human: int) -> int:
        cell = state.humans[human]
        on_goal = cell == self.goals[min(human, len(self.goals) - 1)]
        has_key = state.has_key[human] or not self.keys
        return int(on_goal and has_key) - int(cell in self.traps)


def ahead_of(cell: Cell, turn: int) -> Cell:
    """The cell next to a cell in a direction."""
    return cell[0] + MOVES[turn][0], cell[1] + MOVES[turn][1]


def moved(state: State, box: int, target: Cell) -> State:
    """The state with one box elsewhere."""
    return replace(state, boxes=(*state.boxes[:box], target, *state.boxes[box + 1 :]))
