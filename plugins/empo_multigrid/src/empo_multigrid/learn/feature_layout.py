"""Positions and conditions of all things in a batch of state rows, on any device."""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, Int32, Int64
from torch import Tensor

from empo_core.errors import WorldError
from empo_multigrid import layout as codes
from empo_multigrid.layout import Layout, Longs
from empo_multigrid.learn.channels import content_code
from empo_multigrid.learn.codec import AGENT_AT, FIRST_FIXED, ground_bits, item_bits
from empo_multigrid.learn.descriptions import AGENT_SHIFTS, DESCRIBED, able_bits, carried_bits

COLOURED: Final = (codes.WALL, codes.GOAL_SQUARE, codes.FLOOR)


class Tables(NamedTuple):
    """The tensors of a layout that compact rows are made from, on one device.

    Attributes:
        ground: Bits of each cell with its fixed object in condition 0.
        item: Bits in its cell's word of each item, then of each item opened.
        agent: Bits in its cell's word of each agent.
        carried: Bits in its carrier's word of each item, then of each item opened.
        able: Bits in its word of what each agent can do.
        agent_shifts: Where in an agent's word its words in the row go.
        changing: Word in the row of each fixed object that has one.
        changing_cell: Its cell.
        object_cell: Cell of each object that is described.
        object_word: Its word in the row; 0 where it has none.
        object_changes: Whether it has one.
        globals: Mean chances of stumbling, of entering a magic wall, of solidifying it, and of
            entering a bush; 0 where there is no such cell.
    """

    ground: Int32[Tensor, " cell"]
    item: Int32[Tensor, " appearance"]
    agent: Int32[Tensor, " agent"]
    carried: Int64[Tensor, " appearance"]
    able: Int64[Tensor, " agent"]
    agent_shifts: Int64[Tensor, " agent_word"]
    changing: Int64[Tensor, " thing"]
    changing_cell: Int64[Tensor, " thing"]
    object_cell: Int64[Tensor, " object"]
    object_word: Int64[Tensor, " object"]
    object_changes: Bool[Tensor, " object"]
    globals: Float32[Tensor, " feature"]


class ParsedStates(NamedTuple):
    """State rows, and where everybody and everything is.

    Attributes:
        rows: The rows.
        cells: Where the agents are.
        appearance: Position of each item in ``item_appearances``: itself, or number of items +
            itself where it was opened.
        lies: Whether it lies in a cell.
        spot: The cell where it lies; any cell where it lies in none.
        holder: The agent that carries it; number of agents where none does.
    """

    rows: Int64[Tensor, "state word"]
    cells: Int64[Tensor, "state agent"]
    appearance: Int64[Tensor, "state thing"]
    lies: Bool[Tensor, "state thing"]
    spot: Int64[Tensor, "state thing"]
    holder: Int64[Tensor, "state thing"]


class StateLayout:
    """The part of a layout that states are read with; equal where those parts are.

    Attributes:
        layout: The layout without what concerns neither picture nor objects.
    """

    def __init__(self, layout: Layout) -> None:
        nothing = np.zeros(0, np.bool_)
        self.layout = layout._replace(
            action_mask=nothing, goal_cells=nothing, goal_human=np.zeros(0, np.int16)
        )
        self._tables: dict[torch.device, Tables] = {}

    def __eq__(self, other: object) -> bool:
        """True if states are read alike."""
        if not isinstance(other, StateLayout):
            return NotImplemented
        mine, theirs = self.layout, other.layout
        return all(np.array_equal(getattr(mine, f), getattr(theirs, f)) for f in Layout._fields)

    def __hash__(self) -> int:
        """Equal layouts have equal hashes."""
        return hash((self.layout.width, self.layout.terrain.tobytes()))

    def __reduce__(self) -> tuple[type[StateLayout], tuple[Layout]]:
        """Leave out what is made when it is needed."""
        return StateLayout, (self.layout,)

    @cached_property
    def num_objects(self) -> int:
        """Number of objects that are described one by one."""
        return int(np.isin(self.layout.fixed_kind, DESCRIBED).sum())

    def parsed(self, states: Int[Tensor, "state word"]) -> ParsedStates:
        """Cells of all agents and objects.

        Raises:
            WorldError: if the rows have another length.
        """
        layout = self.layout
        words, first_item = layout.state_words, layout.first_item_word
        if states.ndim != 2 or states.shape[1] != words:
            raise WorldError(
                f"state rows of this layout have shape [state, {words}], not {list(states.shape)}"
            )
        rows = states.long()
        place = rows[:, first_item : first_item + layout.num_items]
        opened = place >= layout.opened
        place = place - opened * layout.opened
        cells = layout.num_cells
        holder = place - cells
        return ParsedStates(
            rows,
            rows[:, codes.CELL : first_item : codes.AGENT_WORDS],
            torch.arange(layout.num_items, device=rows.device) + opened * layout.num_items,
            (place >= 0) & (place < cells),
            place.clamp(0, cells - 1),
            torch.where(holder < 0, layout.num_agents, holder),
        )

    def on(self, device: torch.device) -> Tables:
        """The tables on a device; made once."""
        if device not in self._tables:
            self._tables[device] = Tables(
                *(torch.from_numpy(part).to(device) for part in _tables(self.layout))
            )
        return self._tables[device]


def item_appearances(layout: Layout) -> list[tuple[int, int, int]]:
    """Kind, colour and content code of each item, then of each item opened.

    An item that cannot be opened, or is gone then, looks as before.
    """
    kinds, colours = layout.item_kind.tolist(), layout.item_colour.tolist()
    inner, tints = layout.item_content_kind.tolist(), layout.item_content_colour.tolist()
    contents = list(map(content_code, inner, tints))
    closed = list(zip(kinds, colours, contents, strict=True))
    opened = zip(inner, tints, [0] * len(inner), strict=True)
    return closed + [
        after if after[0] != codes.NOTHING else before
        for before, after in zip(closed, opened, strict=True)
    ]


def aspects(layout: Layout) -> list[int]:
    """Side of each magic wall, target of each button and switch; 0 for other fixed objects."""
    entries = zip(layout.fixed_kind, layout.fixed_side, layout.fixed_target, strict=True)
    return [
        int(side if kind == codes.MAGIC_WALL else max(target, 0)) for kind, side, target in entries
    ]


def _tables(layout: Layout) -> list[np.ndarray]:
    ground = [
        ground_bits(kind, colour if kind in COLOURED else 0, 0)
        for kind, colour in zip(
            layout.terrain.tolist(), layout.terrain_colour.tolist(), strict=True
        )
    ]
    fixed = zip(
        layout.fixed_cell.tolist(), layout.fixed_kind.tolist(), layout.fixed_colour.tolist(),
        aspects(layout), strict=True,
    )  # fmt: skip
    for cell, kind, colour, aspect in fixed:
        ground[cell] = ground_bits(FIRST_FIXED + kind, max(colour, 0), aspect)
    changing, described = layout.fixed_word >= 0, np.isin(layout.fixed_kind, DESCRIBED)
    return [
        np.array(ground, np.int32),
        np.array([item_bits(*appearance) for appearance in item_appearances(layout)], np.int32),
        (1 + layout.agent_colour.astype(np.int32)) << AGENT_AT,
        np.array([carried_bits(*appearance) for appearance in item_appearances(layout)], np.int64),
        able_bits(_longs(layout.can_enter_magic), _longs(layout.can_push_rocks)),
        np.array(AGENT_SHIFTS, np.int64),
        _longs(layout.fixed_word[changing]),
        _longs(layout.fixed_cell[changing]),
        _longs(layout.fixed_cell[described]),
        _longs(np.maximum(layout.fixed_word[described], 0)),
        changing[described],
        _globals(layout),
    ]


def _globals(layout: Layout) -> np.ndarray:
    magic, bush = layout.fixed_kind == codes.MAGIC_WALL, layout.fixed_kind == codes.BUSH
    chances = (
        layout.stumble[layout.terrain == codes.UNSTEADY],
        layout.fixed_enter[magic],
        layout.fixed_solidify[magic],
        layout.fixed_enter[bush],
    )
    return np.array([chance.mean() if len(chance) else 0.0 for chance in chances], np.float32)


def _longs(values: np.ndarray) -> Longs:
    return values.astype(np.int64)
