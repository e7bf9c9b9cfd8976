"""Agents, buttons and switches as one int32 each, and as features; knows no world.

Bits of an agent's word, from the lowest:

=======  ==============  =====================================================================
bits     field           values
=======  ==============  =====================================================================
0 - 14   cell            y * width + x
15 - 16  direction       0 east, 1 south, 2 west, 3 north
17       terminated
18       paused
19 - 22  forced action   0 none, else 1 + action
23 - 25  carried         0 nothing, 1 key, 2 ball, 3 empty box, 4 box with key, 5 box with ball
26 - 28  its colour      0 nothing, else 1 + colour; of a full box that of what is in it
29       can enter magic walls
30       can push rocks
=======  ==============  =====================================================================

The word of a button or switch has its cell in bits 0 to 14 and, from bit 15, its word in a state
row (0 for disabling switches, which have none). What stands in that cell, the grid says.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import torch
from jaxtyping import Float32, Int, Int64
from torch import Tensor

from empo_multigrid import layout as codes
from empo_multigrid.layout import Longs
from empo_multigrid.learn.codec import ASPECT_AT, COLOUR_AT, FIRST_FIXED, GROUND_MASK, ITEM_AT

CELL_MASK: Final = (1 << 15) - 1
DIRECTION_AT, FLAGS_AT, FORCED_AT, CARRIED_AT, MAGIC_AT, ROCKS_AT, STATE_AT = (
    15, 17, 19, 23, 29, 30, 15,
)  # fmt: skip
CARRIED_COLOUR_AT: Final = CARRIED_AT + 3
AGENT_SHIFTS: Final = (0, DIRECTION_AT, FLAGS_AT, FORCED_AT)
"""Destinations of the four words that an agent has in a state row."""
DESCRIBED: Final = (
    codes.KILL_BUTTON,
    codes.PAUSE_SWITCH,
    codes.DISABLING_SWITCH,
    codes.CONTROL_BUTTON,
)
"""The fixed objects that are described one by one, besides being in the picture."""
AGENT_FEATURES: Final = 13
OBJECT_FEATURES: Final = 14
FIRST_BALL: Final = 8
"""Content codes from here on are balls, see ``content_code``."""


def carried_bits(kind: int, colour: int, content: int) -> int:
    """An item in its carrier's word; blocks and rocks, which are never carried, have no bits."""
    number, carried_colour = {codes.KEY: 1, codes.BALL: 2, codes.BOX: 3}.get(kind, 0), colour
    if content:
        holds_ball = content >= FIRST_BALL
        number, carried_colour = 4 + holds_ball, content - (FIRST_BALL if holds_ball else 1)
    return (number | 1 + carried_colour << 3) << CARRIED_AT if number else 0


def able_bits(enters_magic: Longs, pushes_rocks: Longs) -> Longs:
    """Abilities of agents, as their words hold them."""
    return enters_magic << MAGIC_AT | pushes_rocks << ROCKS_AT


def agent_features(
    words: Int[Tensor, "state agent"], width: int
) -> Float32[Tensor, "state agent agent_feature"]:
    """The 13 features of each agent.

    x, y; whether it faces east, south, west, north; whether it can enter magic walls, can push
    rocks; what it carries (0 key, 1 ball, 2 empty box, 3 box with key, 4 box with ball) and the
    colour of that; whether it is paused, is terminated; its forced action. -1 means none.
    """
    fields = _fields(words.device)
    shifts, masks, bases = fields.agent.unbind(-1)
    faces = (words >> DIRECTION_AT & 3)[..., None] == fields.directions
    details = (words[..., None] >> shifts & masks) + bases
    return torch.cat([_place(words, width), faces, details], -1).float()


def object_features(
    words: Int[Tensor, "state object"], ground: Int[Tensor, "_state object"], width: int
) -> Float32[Tensor, "state object object_feature"]:
    """The 14 features of each button and switch.

    Whether it is a kill button, pause switch, disabling switch, control button; x, y; whether
    it is enabled, is on; colour of who may toggle it (of a control button: of who triggers it);
    colour of whom it affects (of a control button: of who programs it); what a disabling switch
    disables (0 kill buttons, 1 pause switches, 2 control buttons); the agent that a control
    button makes act, the action it makes it do, whether it waits for that action. -1 means none.

    Args:
        words: Words of the objects.
        ground: What the grid has in their cells; may be the same for all states.
        width: Columns of the grid.
    """
    fields = _fields(words.device)
    is_kind = (ground & 15)[..., None] == fields.kinds
    shifts, masks, bases = fields.object[(ground & 15).long()].unbind(-1)
    combined = (words >> STATE_AT << STATE_OVER_GROUND) + (ground & GROUND_MASK)
    details = (combined[..., None] >> shifts & masks) + bases
    return torch.cat([is_kind.expand(*words.shape, -1), _place(words, width), details], -1).float()


def object_fields(
    ground: Int[Tensor, " object"],
) -> Int64[Tensor, "object object_feature 3"]:
    """Shift, mask and base of the features of objects that follow from their words."""
    return _fields(ground.device).object[ground & 15]


def _place(words: Int[Tensor, "state thing"], width: int) -> Int[Tensor, "state thing 2"]:
    """Column and row of the cell in a word."""
    cell = words & CELL_MASK
    return torch.stack([cell % width, cell // width], -1)


class _Fields(NamedTuple):
    """Bit fields of features in words: shift, mask, and what is added."""

    agent: Int64[Tensor, "agent_feature 3"]
    object: Int64[Tensor, "ground object_feature 3"]
    directions: Int64[Tensor, " direction"]
    kinds: Int64[Tensor, " kind"]


Field = tuple[int, int, int]

_AGENT: Final[tuple[Field, ...]] = (
    (MAGIC_AT, 1, 0), (ROCKS_AT, 1, 0), (CARRIED_AT, 7, -1), (CARRIED_COLOUR_AT, 7, -1),
    (FLAGS_AT + 1, 1, 0), (FLAGS_AT, 1, 0), (FORCED_AT, 15, -1),
)  # fmt: skip

STATE_OVER_GROUND: Final = ITEM_AT
"""An object's word in the row is read from here on, above the bits of its ground."""
_NO, _YES, _NONE = (0, 0, 0), (0, 0, 1), (0, 0, -1)
_BIT_0, _BIT_1 = (STATE_OVER_GROUND, 1, 0), (STATE_OVER_GROUND + 1, 1, 0)
_WHO, _WHOM = (COLOUR_AT, 7, 0), (ASPECT_AT, 7, 0)
# KILL_BUTTON, PAUSE_SWITCH and CONTROL_BUTTON are 3, 4 and 6; halved, 1, 2 and 3.
_WHAT = (ASPECT_AT + 1, 3, -1)
_PROGRAMMED = (STATE_OVER_GROUND + codes.PROGRAMMED_SHIFT, 63, -1)
_RECORDED = (STATE_OVER_GROUND + codes.RECORDED_SHIFT, 15, -1)
# Enabled, on, who, whom, what it disables, programmed agent, recorded action, awaiting.
_OBJECT: Final[dict[int, tuple[Field, ...]]] = {
    codes.KILL_BUTTON: (_BIT_0, _NO, _WHO, _WHOM, _NONE, _NONE, _NONE, _NO),
    codes.PAUSE_SWITCH: (_BIT_1, _BIT_0, _WHO, _WHOM, _NONE, _NONE, _NONE, _NO),
    codes.DISABLING_SWITCH: (_YES, _NO, _WHO, _NONE, _WHAT, _NONE, _NONE, _NO),
    codes.CONTROL_BUTTON: (_BIT_0, _NO, _WHO, _WHOM, _NONE, _PROGRAMMED, _RECORDED, _BIT_1),
}


@cache
def _fields(device: torch.device) -> _Fields:
    no_object = (_NO,) * len(_OBJECT[codes.KILL_BUTTON])
    objects = [_OBJECT.get(ground - FIRST_FIXED, no_object) for ground in range(16)]
    kinds = [FIRST_FIXED + kind for kind in DESCRIBED]
    parts: tuple[object, ...] = (_AGENT, objects, list(range(4)), kinds)
    return _Fields(*(torch.tensor(part, device=device) for part in parts))
