"""Encoding of a world's rows as stored states, each distinct state once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import ConfigError
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_phase2.experience import States
from empo_phase2.goal_index import GoalIndex
from empo_phase2.successors import JointActionOrder
from empo_worlds.contract import achieved_in, available_in
from empo_worlds.ensemble import EnsembleWorld, layouts_of
from empo_worlds.row_table import RowTable


def learner_spec(world: WorldModel, store: str) -> WorldSpec:
    """The spec of a world with rows as they are stored: ``"rows"`` or ``"compact"``.

    Raises:
        ConfigError: if the world has no compact rows, or its worlds have some of unequal size.
    """
    if store == "rows":
        return world.spec
    rows, features = world.compact(world.initial_states().states[:1]), world.compact_features
    if rows is None or features is None:
        why = "has no compact rows"
        if isinstance(world, EnsembleWorld):
            why = "has no compact rows, or of unequal size, in some of its worlds"
        raise ConfigError(
            f"replay.store: {world.spec.name!r} {why}, so it cannot be stored as 'compact'; "
            "store 'rows'"
        )
    if isinstance(world, EnsembleWorld):
        starts = world.compact(torch.cat([initial.states[:1] for initial in world.starts()]))
        assert starts is not None
        # Worlds whose goals are the same, too, have the same values.
        kinds = {
            (tuple(row), member.spec.goals)
            for row, member in zip(starts.tolist(), world.worlds, strict=True)
        }
        if len(torch.unique(starts, dim=0)) < len(kinds):
            raise ConfigError(
                f"replay.store: some worlds of {world.spec.name!r} start in states that look alike "
                "in compact rows (as where only their goals differ), so values could not tell them "
                "apart; store 'rows'"
            )
    return replace(
        world.spec,
        state_words=rows.shape[1],
        state_dtype=rows.dtype,
        features=features,
    )


class StateRecorder:
    """Numbers the distinct states of one step of all environments, and encodes each once."""

    def __init__(
        self, world: WorldModel, goals: GoalIndex, order: JointActionOrder, store: str
    ) -> None:
        self._world, self._goals, self._store = world, goals, store
        spec = world.spec
        self._words, self._robots = spec.state_words, torch.tensor(spec.robots)
        self._of_robots = order.of_robots[:, list(spec.robots)]
        self._dtype = torch.empty(0, dtype=spec.state_dtype).numpy().dtype
        self.start()

    def start(self) -> None:
        """Forget all states."""
        self._table = RowTable(self._words, self._dtype)
        self._recorded: list[States] = []
        self._available: list[Tensor] = []
        self._num_recorded = 0

    def number(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, " state"]:
        """The number of each state; equal states have equal ones."""
        return torch.from_numpy(self._table.number(rows.numpy()).astype(np.int64))

    def states(self) -> States:
        """All states that were numbered, in that order."""
        if self._table.count > self._num_recorded:
            self._look(torch.from_numpy(self._table.rows[self._num_recorded :].copy()))
            self._num_recorded = self._table.count
        if len(self._recorded) > 1:
            self._recorded = [_joined(self._recorded)]
        return self._recorded[0]

    def available(self) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each of these states."""
        self.states()
        return torch.cat(self._available)

    def stored(self, rows: Int[Tensor, "state word"]) -> Int[Tensor, "state stored_word"]:
        """Rows of the world as the learner gets them."""
        if self._store == "rows":
            return rows
        compact = self._world.compact(rows)
        assert compact is not None
        return compact

    def _look(self, rows: Tensor) -> None:
        world = self._world
        available = available_in(world, rows)
        layout = layouts_of(world, rows)
        robots = available[:, self._robots[:, None], self._of_robots.T].all(1)
        states = States(
            self.stored(rows),
            layout,
            # A state in which some agent has no action is terminal.
            ~available.any(2).all(1),
            self._goals.by_slot(achieved_in(world, rows), layout),
            robots,
        )
        # Only now, since the world may raise: both have the same states.
        self._available.append(available)
        self._recorded.append(states)


def _joined(parts: list[States]) -> States:
    names = ("rows", "layout", "terminal", "achieved", "available")
    return States(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})
