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

from typing import Final

import torch
from jaxtyping import Float32, Int
from torch import Tensor

from empo_multigrid.codec import ASPECT_AT, COLOUR_AT, FIRST_FIXED
from empo_multigrid.layout import (
    BALL,
    BOX,
    CONTROL_BUTTON,
    DISABLING_SWITCH,
    KEY,
    KILL_BUTTON,
    PAUSE_SWITCH,
    PROGRAMMED_SHIFT,
    RECORDED_SHIFT,
    Longs,
)

CELL_MASK: Final = (1 << 15) - 1
DIRECTION_AT, FLAGS_AT, FORCED_AT, CARRIED_AT, MAGIC_AT, ROCKS_AT, STATE_AT = (
    15, 17, 19, 23, 29, 30, 15,
)  # fmt: skip
DESCRIBED: Final = (KILL_BUTTON, PAUSE_SWITCH, DISABLING_SWITCH, CONTROL_BUTTON)
"""The fixed objects that are described one by one, besides being in the picture."""
AGENT_FEATURES: Final = 13
OBJECT_FEATURES: Final = 14
FIRST_BALL: Final = 8
"""Content codes from here on are balls, see ``looks.content_code``."""


def carried_bits(kind: int, colour: int, content: int) -> int:
    """An item in its carrier's word; blocks and rocks, which nobody carries, have no bits."""
    number, shown = {KEY: 1, BALL: 2, BOX: 3}.get(kind, 0), colour
    if content:
        holds_ball = content >= FIRST_BALL
        number, shown = 4 + holds_ball, content - (FIRST_BALL if holds_ball else 1)
    return (number | 1 + shown << 3) << CARRIED_AT if number else 0


def able_bits(enters_magic: Longs, pushes_rocks: Longs) -> Longs:
    """What agents can do, in their words."""
    return enters_magic << MAGIC_AT | pushes_rocks << ROCKS_AT


def agent_features(
    words: Int[Tensor, "state agent"], width: int
) -> Float32[Tensor, "state agent agent_feature"]:
    """The 13 features of each agent.

    x, y; whether it faces east, south, west, north; whether it can enter magic walls, can push
    rocks; what it carries (0 key, 1 ball, 2 empty box, 3 box with key, 4 box with ball) and the
    colour of that; whether it is paused, is terminated; its forced action. -1 means none.
    """
    found = torch.empty((*words.shape, AGENT_FEATURES), device=words.device)
    cell = words & CELL_MASK
    directions = torch.arange(4, dtype=words.dtype, device=words.device)
    found[..., 0] = cell % width
    found[..., 1] = cell // width
    found[..., 2:6] = (words >> DIRECTION_AT & 3)[..., None] == directions
    found[..., 6] = words >> MAGIC_AT & 1
    found[..., 7] = words >> ROCKS_AT
    found[..., 8] = (words >> CARRIED_AT & 7) - 1
    found[..., 9] = (words >> CARRIED_AT + 3 & 7) - 1
    found[..., 10] = words >> FLAGS_AT + 1 & 1
    found[..., 11] = words >> FLAGS_AT & 1
    found[..., 12] = (words >> FORCED_AT & 15) - 1
    return found


def object_features(
    words: Int[Tensor, "state object"], ground: Int[Tensor, "state object"], width: int
) -> Float32[Tensor, "state object object_feature"]:
    """The 14 features of each button and switch.

    Whether it is a kill button, pause switch, disabling switch, control button; x, y; whether
    it is enabled, is on; colour of who may toggle it (of a control button: of who triggers it);
    colour of whom it affects (of a control button: of who programs it); what a disabling switch
    disables (0 kill buttons, 1 pause switches, 2 control buttons); the agent that a control
    button makes act, the action it makes it do, whether it waits for that action. -1 means none.

    Args:
        words: Words of the objects.
        ground: What the grid has in their cells.
        width: Columns of the grid.
    """
    found = torch.empty((*words.shape, OBJECT_FEATURES), device=words.device)
    cell, state = words & CELL_MASK, words >> STATE_AT
    kinds = torch.tensor(DESCRIBED, dtype=words.dtype, device=words.device) + FIRST_FIXED
    is_kind = (ground & 15)[..., None] == kinds
    _, is_pause, is_disabling, is_control = is_kind.unbind(-1)
    target = ground >> ASPECT_AT & 7
    switched = torch.where(is_pause, state >> 1, state)
    found[..., :4] = is_kind
    found[..., 4] = cell % width
    found[..., 5] = cell // width
    found[..., 6] = (switched & 1) | is_disabling
    found[..., 7] = state & is_pause
    found[..., 8] = ground >> COLOUR_AT & 7
    found[..., 9] = torch.where(is_disabling, -1, target)
    found[..., 10] = torch.where(is_disabling, _position(target), -1)
    found[..., 11] = torch.where(is_control, (state >> PROGRAMMED_SHIFT & 63) - 1, -1)
    found[..., 12] = torch.where(is_control, (state >> RECORDED_SHIFT) - 1, -1)
    found[..., 13] = (state >> 1) & is_control
    return found


def _position(target: Int[Tensor, "state object"]) -> Int[Tensor, "state object"]:
    """0 for kill buttons, 1 for pause switches, 2 for control buttons."""
    return target - KILL_BUTTON - (target == CONTROL_BUTTON).to(target.dtype)
