"""A base class of worlds on a grid, and the arithmetic of cells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Int64, UInt8
from torch import Tensor, stack

from empo_core.types import Overlay
from empo_worlds.base import BaseWorld

if TYPE_CHECKING:
    from empo_pictures.picture_sheet import PictureSheet


class GridWorld(BaseWorld):
    """A world whose states are drawn as a grid of tiles."""

    def render(
        self,
        state: Int[Tensor, " word"],
        overlay: Overlay | None = None,
        *,
        tile_size: int | None = None,
    ) -> UInt8[np.ndarray, "height width 3"]:
        """An RGB picture of a state.

        Args:
            state: The state row.
            overlay: What is drawn on top.
            tile_size: Pixels per cell and side, from 8 to 256; None means 96, or 48 with actions
                taken, and fewer in large worlds. Overlays of one kind give pictures of one size.

        Raises:
            WorldError: if the row is no state, or the overlay does not fit the world.
            ValueError: if the tile size is out of range.
        """
        return self._sheet(self._checked(state[None])[0], overlay, tile_size).pixels()

    def render_svg(self, state: Int[Tensor, " word"], overlay: Overlay | None = None) -> str:
        """The same picture as an SVG document."""
        return self._sheet(self._checked(state[None])[0], overlay, None).svg()

    @abstractmethod
    def _checked(self, states: Int[Tensor, "state word"]) -> Int[np.ndarray, "state word"]:
        """The rows, contiguous and as ``spec`` says; a WorldError if one is no state."""

    @abstractmethod
    def _sheet(
        self, row: Int[np.ndarray, " word"], overlay: Overlay | None, tile_size: int | None
    ) -> PictureSheet:
        """A picture of a state; see ``empo_worlds.grid.pictures``."""


def positions(cells: Int[Tensor, "state agent"], width: int) -> Int[Tensor, "state agent 2"]:
    """The (x, y) of each cell."""
    return stack([cells % width, cells // width], -1)


def neighbours(
    width: int, height: int, moves: Sequence[tuple[int, int]]
) -> Int64[np.ndarray, "cell direction"]:
    """The cell to which each change of (x, y) leads from a cell; -1 where that is off the grid."""
    y, x = np.divmod(np.arange(width * height)[:, None], width)
    dx, dy = np.array(moves).T
    x, y = x + dx, y + dy
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return np.where(inside, y * width + x, -1)


def text_rows(tokens: Sequence[str], width: int) -> list[str]:
    """The rows of a map of tokens, one per cell, in columns."""
    longest = max(map(len, tokens))
    return [
        " ".join(token.ljust(longest) for token in tokens[first : first + width]).rstrip()
        for first in range(0, len(tokens), width)
    ]
