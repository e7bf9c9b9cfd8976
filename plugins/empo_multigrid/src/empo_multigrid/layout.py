"""The constant part of a world, and the position of each changing fact in a state row.

A state row (int16) has, in this order:

* per agent four words: its cell (``y * width + x``), its direction (0 east, 1 south, 2 west,
  3 north), its flags (bit 0 terminated, bit 1 paused), and its forced next action plus 1
  (0 where none is forced);
* per item (block, rock, key, ball, box) one word, its *place*: a cell; ``num_cells + i`` where
  agent ``i`` carries it; ``GONE``. A box that was opened has become what it contained, which
  adds ``num_cells + num_agents`` to its place (an opened empty box is ``GONE``);
* per fixed object that can change one word: door 0 open, 1 closed, 2 locked; magic wall
  1 active, 0 solidified; bush 1 trampled, 0 not; kill button 1 enabled; pause switch bit 0 on,
  bit 1 enabled; control button bit 0 enabled, bit 1 awaiting the action to record, from bit 2
  the programmed agent plus 1, from bit 8 the recorded action plus 1 (0: none).

Items that cannot be told apart form a group; their words are sorted, which makes the row
canonical. Terrain is not in the row because nothing changes it: what lies on top of lava or
unsteady ground hides it only while it is there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

EAST, SOUTH, WEST, NORTH = range(4)
DX: Final = (1, 0, -1, 0)
DY: Final = (0, 1, 0, -1)

RED, GREEN, BLUE, PURPLE, YELLOW, GREY, BROWN = range(7)
COLOURS: Final = ("red", "green", "blue", "purple", "yellow", "grey", "brown")

# Terrain: under everything, immutable.
EMPTY, WALL, LAVA, UNSTEADY, SWITCH, GOAL_SQUARE, FLOOR = range(7)

# Objects that stay in their cell.
DOOR, MAGIC_WALL, BUSH, KILL_BUTTON, PAUSE_SWITCH, DISABLING_SWITCH, CONTROL_BUTTON = range(7)

# Objects that move.
BLOCK, ROCK, KEY, BALL, BOX = range(5)

# What an action index of a world means.
STILL, LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE, BUILD = range(9)
ACTION_NAMES: Final = (
    "still", "left", "right", "forward", "pickup", "drop", "toggle", "done", "build",
)  # fmt: skip
ACTION_SETS: Final[dict[str, tuple[int, ...]]] = {
    "SmallActions": (STILL, LEFT, RIGHT, FORWARD),
    "ObjectActions": (STILL, LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE),
    "Actions": (STILL, LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE),
    "MinimalActions": (FORWARD, LEFT),
    "MineActions": (STILL, LEFT, RIGHT, FORWARD, BUILD),
}

DOOR_OPEN, DOOR_CLOSED, DOOR_LOCKED = range(3)
ANY_SIDE: Final = 4
AGENT_WORDS: Final = 4
CELL, DIRECTION, FLAGS, FORCED = range(AGENT_WORDS)
TERMINATED: Final = 1
PAUSED: Final = 2
PROGRAMMED_SHIFT: Final = 2
RECORDED_SHIFT: Final = 8
GONE: Final = -1
NOTHING: Final = -1

Ints = NDArray[np.int16]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Layout(NamedTuple):
    """One world's immutable part, as flat arrays that a compiled kernel can read.

    Axes: ``cell`` = y * width + x, ``agent``, ``item``, ``fixed`` (objects that stay in their
    cell), ``action``, ``goal``.

    Attributes:
        width: Columns of the grid.
        height: Rows of the grid.
        actions: What each action index means (``STILL`` ... ``BUILD``) [action].
        terrain: ``EMPTY`` ... ``FLOOR`` [cell].
        terrain_colour: Colour of walls, floors and goal squares [cell].
        stumble: Probability of stumbling when leaving unsteady ground forward [cell].
        agent_colour: [agent].
        can_push_rocks: [agent].
        can_enter_magic: [agent].
        tramples: Whether the agent destroys bushes surely instead of entering them: it is
            grey, can push rocks or can enter magic walls [agent].
        action_mask: Which actions an agent has while it stands in a cell [agent cell action].
        item_kind: ``BLOCK`` ... ``BOX`` [item].
        item_colour: [item].
        item_content_kind: What a box holds, ``KEY`` or ``BALL``; ``NOTHING`` otherwise [item].
        item_content_colour: Colour of that; ``NOTHING`` otherwise [item].
        item_group: Items with equal numbers cannot be told apart and are adjacent [item].
        fixed_kind: ``DOOR`` ... ``CONTROL_BUTTON`` [fixed].
        fixed_cell: [fixed].
        fixed_at: The fixed object in each cell, ``NOTHING`` where there is none [cell].
        fixed_word: Position of the object's word in the row; ``NOTHING`` for disabling
            switches, which have no state [fixed].
        fixed_colour: Colour of a door; of who may toggle a kill button, pause switch or
            disabling switch; of who triggers a control button [fixed].
        fixed_target: Colour of whom a kill button kills, a pause switch pauses, or of who
            programs a control button; ``KILL_BUTTON``, ``PAUSE_SWITCH`` or ``CONTROL_BUTTON``
            for what a disabling switch disables; ``NOTHING`` otherwise [fixed].
        fixed_side: Side from which a magic wall can be entered (a direction seen from the
            wall, e.g. ``NORTH``: by an agent north of it), or ``ANY_SIDE`` [fixed].
        fixed_enter: Probability that an attempt to enter succeeds: magic walls, and bushes
            (for agents that do not trample) [fixed].
        fixed_solidify: Probability that a failed attempt makes a magic wall solid [fixed].
        goal_human: Agent index of each goal's human [goal].
        goal_cells: Whether a cell belongs to a goal [goal cell].
        reference: Whether the order-dependent shortcuts of the public implementation are
            reproduced (``simultaneity: reference``).
    """

    width: int
    height: int
    actions: Ints
    terrain: Ints
    terrain_colour: Ints
    stumble: Floats
    agent_colour: Ints
    can_push_rocks: Bools
    can_enter_magic: Bools
    tramples: Bools
    action_mask: Bools
    item_kind: Ints
    item_colour: Ints
    item_content_kind: Ints
    item_content_colour: Ints
    item_group: Ints
    fixed_kind: Ints
    fixed_cell: Ints
    fixed_at: Ints
    fixed_word: Ints
    fixed_colour: Ints
    fixed_target: Ints
    fixed_side: Ints
    fixed_enter: Floats
    fixed_solidify: Floats
    goal_human: Ints
    goal_cells: Bools
    reference: bool

    @property
    def num_cells(self) -> int:
        """Number of cells of the grid."""
        return self.width * self.height

    @property
    def num_agents(self) -> int:
        """Number of agents."""
        return len(self.agent_colour)

    @property
    def num_items(self) -> int:
        """Number of items, wherever they are."""
        return len(self.item_kind)

    @property
    def first_item_word(self) -> int:
        """Position of the first item's word."""
        return AGENT_WORDS * self.num_agents

    @property
    def opened(self) -> int:
        """Number added to the place of an opened box that held something."""
        return self.num_cells + self.num_agents

    @property
    def state_words(self) -> int:
        """Length of a state row."""
        return self.first_item_word + self.num_items + int((self.fixed_word >= 0).sum())
