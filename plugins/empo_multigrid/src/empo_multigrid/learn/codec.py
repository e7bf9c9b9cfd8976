"""A cell of the grid as one int32, and grids of them as pictures; knows no world.

Bits of a cell's word, from the lowest; an empty cell is 0.

=======  ==========  =====================================================================
bits     field       values
=======  ==========  =====================================================================
0 - 3    ground      terrain ``EMPTY`` ... ``FLOOR``, or 7 + ``DOOR`` ... ``CONTROL_BUTTON``
4 - 6    colour      of walls, floors, goal squares, doors; of who may toggle a button
7 - 8    condition   the lowest two bits of the word that a fixed object has in a state row
9 - 11   aspect      side of a magic wall, or ``fixed_target`` of a button or switch
12 - 14  item        0 none, else 1 + ``BLOCK`` ... ``BOX``
15 - 17  colour      of the item
18 - 21  content     of a box: 0 none, 1 + colour of a key, 8 + colour of a ball
22 - 24  agent       0 none, else 1 + colour
=======  ==========  =====================================================================

Ground, item and agent have bits of their own, so that none hides another. Bits 25 to 31 are 0.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from empo_multigrid import layout as codes
from empo_multigrid.learn.channels import (
    CHANNELS,
    CONDITION,
    DISABLES,
    FIRST_AGENT,
    IMMOBILE,
    INVISIBLE,
    MOBILE,
    OVERLAPPABLE,
    Appearance,
    fixed_appearance,
    item_appearance,
    terrain_appearance,
)

FIRST_FIXED: Final = codes.FLOOR + 1
COLOUR_AT, CONDITION_AT, ASPECT_AT, ITEM_AT, ITEM_COLOUR_AT, CONTENT_AT, AGENT_AT = (
    4, 7, 9, 12, 15, 18, 22,
)  # fmt: skip
GROUND_MASK: Final = (1 << ITEM_AT) - 1
ITEM_MASK: Final = (1 << AGENT_AT - ITEM_AT) - 1


def ground_bits(ground: int, colour: int, aspect: int) -> int:
    """Terrain or a fixed object in condition 0."""
    return ground | colour << COLOUR_AT | aspect << ASPECT_AT


def item_bits(kind: int, colour: int, content: int) -> int:
    """An item."""
    return 1 + kind << ITEM_AT | colour << ITEM_COLOUR_AT | content << CONTENT_AT


def decompress_grid_batch_to_tensor(
    grids: Int32[Tensor, "state height width"], device: torch.device | str | None = None
) -> Float[Tensor, "state channel height width"]:
    """The pictures of compressed grids.

    Args:
        grids: Words of cells, of one world or of many.
        device: Where the pictures shall be; None leaves them where the grids are.
    """
    words = grids.flatten(1).to(grids.device if device is None else device)
    appearances = _appearances(words.device)
    ground = appearances.ground[words & GROUND_MASK]
    item = appearances.item[words >> ITEM_AT & ITEM_MASK]
    pictures = torch.zeros((len(words), CHANNELS, words.shape[1]), device=words.device)
    layers = torch.stack([ground, item], 1)
    # No channel is of ground and item alike, and what is invisible writes 0 to channels that
    # are filled below: no two things write to one place.
    pictures.scatter_(1, (layers & 63).long(), (layers >> 6 & 15).float())
    pictures[:, OVERLAPPABLE] = (ground >> 10 & 1).float()
    pictures[:, IMMOBILE] = (ground >> 11).float()
    pictures[:, MOBILE] = (item >> 6 > 0).float()
    agent = (words >> AGENT_AT)[:, None]
    pictures[:, FIRST_AGENT:] = (agent == appearances.agent[:, None]).float()
    return pictures.view(len(words), CHANNELS, *grids.shape[1:])


def decompress_grid_to_tensor(
    grid: Int32[Tensor, "height width"], device: torch.device | str | None = None
) -> Float[Tensor, "1 channel height width"]:
    """The picture of one compressed grid, as a batch of one."""
    return decompress_grid_batch_to_tensor(grid[None], device)


class _Appearances(NamedTuple):
    """Channels of every value that a word of ground, item or agent can have.

    An appearance is channel | value << 6 | overlappable << 10 | immobile << 11.
    """

    ground: Int32[Tensor, " appearance"]
    item: Int32[Tensor, " appearance"]
    agent: Int32[Tensor, " appearance"]


@cache
def _appearances(device: torch.device) -> _Appearances:
    ground = [_packed(_ground_appearance(word)) for word in range(GROUND_MASK + 1)]
    item = [_packed(_item_appearance(word)) for word in range(ITEM_MASK + 1)]
    agent = range(1, 1 + len(codes.COLOURS))
    return _Appearances(
        *(torch.tensor(part, dtype=torch.int32, device=device) for part in (ground, item, agent))
    )


def _packed(appearance: Appearance) -> int:
    sorts = (appearance.sort == OVERLAPPABLE) << 10 | (appearance.sort == IMMOBILE) << 11
    return appearance.channel | appearance.value << 6 | sorts


def _ground_appearance(word: int) -> Appearance:
    ground, colour = word & 15, word >> COLOUR_AT & 7
    condition, aspect = word >> CONDITION_AT & CONDITION, word >> ASPECT_AT
    kind = ground - FIRST_FIXED
    if kind < 0:
        return terrain_appearance(ground)
    means_nothing = kind > codes.CONTROL_BUTTON or colour == len(codes.COLOURS)
    if means_nothing or (kind == codes.DISABLING_SWITCH and aspect not in DISABLES):
        return INVISIBLE
    return fixed_appearance(kind, colour, aspect, condition)


def _item_appearance(word: int) -> Appearance:
    number, colour, content = word & 7, word >> 3 & 7, word >> 6
    if number == 0 or number > codes.BOX + 1 or colour == len(codes.COLOURS):
        return Appearance(MOBILE, 0, MOBILE)
    return item_appearance(number - 1, colour, content)
