"""What a run does not know: situations never entered, and those where X_h is at its floor.

A *situation* is a state with a number of remaining steps (``experience.TimedStates``). A situation
is *known* that was entered, or could have followed on what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.trees import StateDict
from empo_core.types import WorldSpec
from empo_learning.saved_state import tensor_like
from empo_phase2.experience import Block, TimedStates
from empo_phase2.quantities import Quantities
from empo_phase2.replay import Replay
from empo_phase2.targets import collect, encode
from empo_worlds.row_table import RowTable

MOST_ENTERED = 4_000_000
"""Further situations are not remembered: their fingerprints would take too much memory."""
MOST_ITEMS = 4_000_000
"""About so many recorded successors are looked at."""
MOST_VALUED = 20_000
"""X_h is computed in at most so many situations."""
AT_ONCE = 4096
"""Transitions that are read at the same time."""
TOLERATED = 0.01
"""Share of situations that may never have been entered without a warning."""


class EnteredSituations:
    """Fingerprints of the situations that episodes were in."""

    def __init__(self) -> None:
        self._table = RowTable(1, np.dtype(np.int64))
        self._factors = np.zeros(0, np.int64)

    def __len__(self) -> int:
        """Number of situations."""
        return self._table.count

    def add(self, block: Block) -> None:
        """Remember where a block's transitions start."""
        if self._table.count < MOST_ENTERED:
            moves, states = block.transitions, block.states
            rows, layout = states.rows[moves.state], states.layout[moves.state]
            self._table.number(self._fingerprints(rows, layout, moves.steps_left))

    def include(self, situations: TimedStates) -> Bool[Tensor, " situation"]:
        """True where a situation was entered."""
        keys = self._fingerprints(situations.rows, situations.layout, situations.steps_left)
        return torch.from_numpy(self._table.find(keys) >= 0)

    def state_dict(self) -> StateDict:
        """The fingerprints."""
        return {"fingerprints": torch.from_numpy(self._table.rows.copy())}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what ``state_dict`` returned."""
        rows = state_dict["fingerprints"]
        like = torch.zeros(len(rows), 1, dtype=torch.int64)
        self._table = RowTable.of(tensor_like(rows, like).numpy())

    def _fingerprints(self, rows: Tensor, layout: Tensor, steps_left: Tensor) -> NDArray[np.int64]:
        """Sums of random multiples of words; two situations are confused once in 2**64 pairs."""
        words = torch.cat([rows.long(), layout[:, None], steps_left[:, None]], 1)
        if len(self._factors) != words.shape[1]:
            chance, bounds = np.random.default_rng(0), np.iinfo(np.int64)
            self._factors = chance.integers(bounds.min, bounds.max, words.shape[1])
        sums: NDArray[np.int64] = (words.numpy() * self._factors).sum(1, keepdims=True)
        return sums


@dataclass(frozen=True, slots=True)
class BlindSpots:
    """Shares of the known situations.

    Attributes:
        num_known: Number of known situations that were looked at, and of all that were entered.
        never_entered: How many of them were never entered.
        valued: Number of known situations in which X_h was computed.
        at_floor: In how many of them a human's X_h is at its floor or below.
        example: Row, remaining steps and position of the human of such a situation; None where
            there is none.
    """

    num_known: int
    never_entered: int
    valued: int
    at_floor: int
    example: tuple[Int[Tensor, " word"], int, int] | None

    def warning(self, spec: WorldSpec, describe: Callable[[Tensor], str]) -> str | None:
        """What there is to be said of them, if anything.

        Args:
            spec: The world.
            describe: Shows a state.
        """
        unseen = self.never_entered / max(self.num_known, 1)
        parts, after = [], ""
        if unseen > TOLERATED:
            parts.append(f"{unseen:.1%} of {self.num_known:,} known situations were never entered")
        if self.example is not None:
            row, left, human = self.example
            agent = spec.humans[human]
            parts.append(
                f"X_h is at its floor (theory.x_h_floor) in {self.at_floor / self.valued:.1%} of "
                f"{self.valued:,}"
            )
            after = (
                " X_h is 0, and U_r is not defined, where a human can attain none of its goals. "
                f"X_h of {spec.agents[agent].name} (agent {agent}) is at its floor with {left} "
                f"steps left in this state:\n{describe(row)}"
            )
        if not parts:
            return None
        return (
            f"{', and '.join(parts)}: values there are guesses, and so is what follows from them; "
            f"train longer (algorithm.params.total_steps), or explore more.{after}"
        )


@torch.no_grad()
def blind_spots(
    replay: Replay, entered: EnteredSituations, quantities: Quantities, device: torch.device | str
) -> BlindSpots:
    """What a run does not know, as far as the replay still shows it."""
    situations = _situations(replay, quantities.spec)
    was_entered = entered.include(situations)
    never = int((~was_entered).sum())
    # Of situations that were entered values were learned, so these make the better examples.
    order = (~was_entered).long().argsort(stable=True)
    chosen = order[:: -(-len(order) // MOST_VALUED) or 1]
    at_floor, example = 0, None
    with quantities.evaluating():
        for part in quantities.parts(situations.at(chosen).to(device)):
            x_h = quantities.x_h(part, quantities.v_h_e(part)).cpu()
            low = (x_h <= quantities.theory.x_h_floor).any(1).nonzero()[:, 0]
            at_floor += len(low)
            if len(low) and example is None:
                first = int(low[0])
                row = part.rows[first].cpu()
                example = row, int(part.steps_left[first]), int(x_h[first].argmin())
    num_known = max(len(entered), int(was_entered.sum())) + never
    return BlindSpots(num_known, never, len(chosen), at_floor, example)


def _situations(replay: Replay, spec: WorldSpec) -> TimedStates:
    """The known situations of a replay in which an episode goes on, each once."""
    key, places = torch.empty(0, dtype=torch.int64), replay.spread(MOST_ITEMS)
    for first in range(0, len(places), AT_ONCE):
        batch = replay.transitions(places[first : first + AT_ONCE])
        key = torch.unique(torch.cat([key, collect(batch, spec).key.cpu()]))
    timed = encode(key, spec, lambda ids: replay.states(ids).to("cpu"))
    return timed.at(timed.alive.nonzero()[:, 0])
