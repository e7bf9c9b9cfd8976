"""The multigrid world model: rows in, all successors with exact probabilities out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Int, Int32
from torch import Tensor

from empo_core.config.files import parse_yaml, validate_document
from empo_core.config.yaml import Document
from empo_core.errors import ConfigError
from empo_core.types import Expansion, Overlay, Successors, WorldSpec
from empo_core.world_structure import Symmetry
from empo_multigrid.file.compiler import compile_world
from empo_multigrid.file.worldfile import WorldFile, read_world_file
from empo_multigrid.law import kernel
from empo_multigrid.law.rows import RowCheck
from empo_multigrid.layout import AGENT_WORDS, CELL, DIRECTION, Ints, Layout
from empo_multigrid.learn.compact import CompactFeatures, Compactor
from empo_multigrid.learn.feature_layout import StateLayout
from empo_multigrid.plugin import MultigridParams, Simultaneity
from empo_multigrid.show.text import describe
from empo_theory.inspection import Sketch
from empo_worlds.grid.world import GridWorld, positions
from empo_worlds.queries import checked_actions

if find_spec("gymnasium"):  # The extra ``gym``: gymnasium.make has to know the environment.
    import empo_multigrid.registration  # noqa: F401

if TYPE_CHECKING:
    from empo_pictures.picture_sheet import PictureSheet


class MultigridWorld(GridWorld):
    """A gridworld, built from a compiled layout; every method is pure.

    Attributes:
        layout: The immutable part of the world.
        spec: Agents, goals, row format, horizon.
    """

    def __init__(self, spec: WorldSpec, layout: Layout, initial: Ints) -> None:
        self.spec = spec
        self.layout = layout
        self._initial = initial
        self._tables = kernel.pack(layout)
        self._row_check = RowCheck(layout, spec.name)
        self._compactor = Compactor(StateLayout(layout))

    def content(self) -> tuple[Layout, Ints]:
        """The layout and the start; see ``empo_core.protocols.WorldModel``."""
        return self.layout, self._initial

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from."""
        return torch.from_numpy(self._initial.copy())

    def transitions(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"] | None = None,
    ) -> Successors:
        """All successors with their probabilities; see ``empo_core.protocols.WorldModel``."""
        rows = self._checked(states)
        chosen = None if actions is None else checked_actions(self.spec, actions, len(rows))
        offsets, successors, prob = kernel.transitions(self._tables, rows, chosen)
        return Successors(
            torch.from_numpy(offsets), torch.from_numpy(successors), torch.from_numpy(prob)
        )

    def expand(self, states: Int[Tensor, "state word"]) -> Expansion:
        """All successors of every joint action; see ``empo_core.protocols.WorldModel``."""
        arrays = kernel.expansion(self._tables, self._checked(states), None)
        return Expansion(*map(torch.from_numpy, arrays))

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has; set by the world file's ``action_rules``."""
        cells = self._cells(self._checked(states))
        return torch.from_numpy(self.layout.action_mask[np.arange(cells.shape[1]), cells])

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True if each goal's human stands in one of the goal's cells."""
        cells = self._cells(self._checked(states))[:, self.layout.goal_human]
        return torch.from_numpy(self.layout.goal_cells[np.arange(cells.shape[1]), cells])

    def step(
        self,
        states: Int[Tensor, "state word"],
        actions: Int[Tensor, "state agent"],
        generator: torch.Generator,
    ) -> Int[Tensor, "state word"]:
        """One sampled successor per state; draws one uniform number per state."""
        rows = self._checked(states)
        uniform = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        chosen = checked_actions(self.spec, actions, len(rows))
        return torch.from_numpy(kernel.step(self._tables, rows, chosen, uniform.numpy()))

    def symmetries(self) -> list[Symmetry]:
        """Mirrors, rotations and exchanges of agents; see ``empo_multigrid.symmetries``."""
        from empo_multigrid.symmetries import find_symmetries

        return find_symmetries(self, self.layout)

    def single_step(self) -> kernel.SingleStep:
        """Steps one row at a time, which must be state rows and legal actions: unchecked."""
        return kernel.SingleStep(self._tables, self.layout.state_words)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The grid as text, and a line per agent."""
        return describe(self.layout, self.spec, self._checked(state[None])[0])

    def sketch(self, states: Int[Tensor, "state word"]) -> Sketch:
        """Pictures of many states for a page that draws them."""
        from empo_multigrid.show.sketch import sketch

        return sketch(self.layout, self.spec, self._checked(states))

    def positions(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent 2"]:
        """The (x, y) cell of each agent."""
        cells = torch.from_numpy(self._cells(self._checked(states)).astype(np.int64))
        return positions(cells, self.layout.width)

    def headings(self, states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent"]:
        """The direction of each agent: 0 east, 1 south, 2 west, 3 north."""
        rows = self._checked(states)
        words = rows[:, DIRECTION : AGENT_WORDS * self.layout.num_agents : AGENT_WORDS]
        return torch.from_numpy(words.astype(np.int64))

    @property
    def compact_features(self) -> CompactFeatures:
        """Reads compact rows as ``spec.features`` reads state rows."""
        return self._compactor.features

    def compact(self, states: Int[Tensor, "state word"]) -> Int32[Tensor, "state compact_word"]:
        """Rows that describe each state without the world; see ``empo_multigrid.learn.compact``."""
        return self._compactor(torch.from_numpy(self._checked(states)))

    def _checked(self, states: Int[Tensor, "state word"]) -> Ints:
        return self._row_check(states)

    def _sheet(self, row: Ints, overlay: Overlay | None, tile_size: int | None) -> PictureSheet:
        # Imported here because most uses of a world draw nothing.
        from empo_multigrid.show.render import sheet

        return sheet(self.layout, self.spec, row, overlay, tile_size)

    def _cells(self, rows: Ints) -> Ints:
        return rows[:, CELL : AGENT_WORDS * self.layout.num_agents : AGENT_WORDS]


def load_world(params: MultigridParams) -> MultigridWorld:
    """The world of a world file.

    Raises:
        ConfigError: if the file is missing or not a valid world.
    """
    file, document = read_world_file(params.file)
    return _world(file, document, params.max_steps, params.simultaneity)


def world_from_text(
    text: str,
    *,
    max_steps: int | None = None,
    simultaneity: Simultaneity = "exact",
    name: str = "world.yaml",
) -> MultigridWorld:
    """The world that the text of a world file describes.

    Args:
        text: YAML or JSON.
        max_steps: Horizon instead of the text's.
        simultaneity: As in ``MultigridParams``.
        name: What error messages call the text.

    Raises:
        ConfigError: if the text is not a valid world.
    """
    document = parse_yaml(text, name=name)
    file = validate_document(WorldFile, document)
    return _world(file, document, max_steps, simultaneity)


def world_from_dict(
    data: Mapping[str, object],
    *,
    max_steps: int | None = None,
    simultaneity: Simultaneity = "exact",
) -> MultigridWorld:
    """The world that a mapping with a world file's keys describes.

    Raises:
        ConfigError: if the data is not a valid world, or not made of plain data.
    """
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"world: is not plain data as in a JSON file: {error}") from error
    return world_from_text(text, max_steps=max_steps, simultaneity=simultaneity, name="world.json")


def _world(
    file: WorldFile, document: Document, max_steps: int | None, simultaneity: Simultaneity
) -> MultigridWorld:
    if max_steps is not None and max_steps < 1:
        raise ConfigError(f"max_steps must be at least 1 (got {max_steps})")
    reference = simultaneity == "reference"
    return MultigridWorld(*compile_world(file, document, max_steps=max_steps, reference=reference))
