"""Commits of a solve in parts, from which it can go on after a crash."""

from __future__ import annotations

import logging
import time as clock

import numpy as np

from empo_core.errors import StorageError
from empo_core.protocols import WorldModel
from empo_exact.expansion import Expand
from empo_exact.parts.builder import GRAPH, HALO
from empo_exact.parts.comparison import difference
from empo_exact.parts.peers import Peers
from empo_exact.parts.store import FileStore
from empo_exact.parts.sweeps import Parts, PartSweeps, values_kind
from empo_exact.ram import Sizes
from empo_exact.storage import problem_digest

log = logging.getLogger("empo_exact")

_STATE, _DONE = "state", "committed"


class Commits:
    """Commits of one process: the parts, then the values after some sweep.

    Attributes:
        done: Sweeps whose values are safe in all processes; 0: none.
    """

    def __init__(self, files: FileStore, peers: Peers, every_s: float) -> None:
        self.done = 0
        self._files = files
        self._peers = peers
        self._every_s = every_s
        self._last = clock.monotonic()
        self._digest: str | None = None

    def keep_parts(self, parts: Parts) -> None:
        """Make a graph that stands in the files safe."""
        state = {
            "numbers": np.array(parts.numbers),
            "ranks": parts.ranks,
            "codes": parts.codes,
            "layers": parts.sizes.layers,
            "layout": _text(parts.layout),
            "warning": _text(parts.warning),
            "starts": parts.starts,
            "totals": np.array([parts.sizes.expanded, parts.sizes.transitions]),
        }
        for kind in (GRAPH, HALO):
            self._files.sync(kind, parts.numbers)
        self._files.put(_STATE, self._peers.rank, state)
        self._files.sync(_STATE, [self._peers.rank])

    def recover_parts(self, world: WorldModel, expand: Expand) -> Parts | None:
        """The graph that an earlier run of the same problem made safe, if all processes have it.

        It is compared with the world, in all states.
        """
        parts = self._saved_parts(world)
        if parts is not None and (reason := difference(parts, expand)):
            log.warning("exploring again: %s", reason)
            parts = None
        return parts if all(self._peers.all(parts is not None)) else None

    def _saved_parts(self, world: WorldModel) -> Parts | None:
        try:
            state = self._files.get(_STATE, self._peers.rank)
            numbers = [int(part) for part in state["numbers"]]
            for part in numbers:
                self._files.check(GRAPH, part)
                self._files.check(HALO, part)
        except StorageError as error:
            log.warning("exploring again: %s", error)
            return None
        expanded, transitions = (int(number) for number in state["totals"])
        return Parts(
            world=world,
            numbers=numbers,
            ranks=state["ranks"],
            codes=state["codes"],
            store=self._files,
            peers=self._peers,
            starts=state["starts"],
            warning=state["warning"].tobytes().decode(),
            layout=state["layout"].tobytes().decode(),
            sizes=Sizes(world.spec, state["layers"], expanded, transitions),
        )

    def is_due(self) -> bool:
        """True if it is time to commit, by this process's clock."""
        return clock.monotonic() - self._last >= self._every_s

    def commit(self, sweeps: PartSweeps, done: int) -> None:
        """Make the values after so many sweeps safe."""
        parts, kind = sweeps.parts, values_kind(done)
        if parts.store is not self._files:
            for part in parts.numbers:
                self._files.put(kind, part, parts.store.get(kind, part))
        self._files.sync(kind, parts.numbers)
        # No process says so before all have their values, nor forgets before all have said so.
        self._peers.all(done)
        self._files.put(_DONE, self._peers.rank, self._done(sweeps, done))
        self._files.sync(_DONE, [self._peers.rank])
        self._peers.all(done)
        if parts.store is not self._files:  # Else they are dropped once no sweep needs them.
            self._files.drop(values_kind(self.done), parts.numbers)
        self.done, self._last = done, clock.monotonic()

    def recover(self, sweeps: PartSweeps) -> int:
        """Sweeps that an earlier run of the same problem made safe; they are in the store again.

        Args:
            sweeps: Has the graph and what is assumed; values of others are not used.
        """
        parts, done = sweeps.parts, self._recovered(sweeps)
        if sweeps.keeps_times and not all(self._has(sweep, parts) for sweep in range(1, done)):
            done = 0
        self.done = min(self._peers.all(done))
        kind = values_kind(self.done)
        for part in parts.numbers if self.done and parts.store is not self._files else ():
            parts.store.put(kind, part, self._files.get(kind, part))
        if self.done < done:
            sweeps.answers = sweeps.answered(self.done, self._files)
        return self.done

    def _recovered(self, sweeps: PartSweeps) -> int:
        parts = sweeps.parts
        try:
            saved = self._files.get(_DONE, self._peers.rank)
        except StorageError:
            return 0
        if saved["layout"].tobytes().decode() != parts.layout:
            log.warning("the checkpoint is of other parts, and is not used")
            return 0
        if saved["problem"].tobytes().decode() != self._problem(sweeps):
            log.warning("the checkpoint is of another world or other assumptions, and is not used")
            return 0
        done = int(saved["done"])
        if not self._has(done, parts):
            return 0
        sweeps.answers = sweeps.answered(done, self._files)
        if sweeps.answers != int(saved["answers"]):
            log.warning("the checkpoint is of a prior that answers otherwise, and is not used")
            sweeps.answers = 0
            return 0
        return done

    def _has(self, done: int, parts: Parts) -> bool:
        try:
            for part in parts.numbers:
                self._files.check(values_kind(done), part)
        except StorageError as error:
            log.warning("no use of a checkpoint: %s", error)
            return False
        return True

    def _done(self, sweeps: PartSweeps, done: int) -> dict[str, np.ndarray]:
        return {
            "done": np.array(done),
            "layout": _text(sweeps.parts.layout),
            "problem": _text(self._problem(sweeps)),
            "answers": np.array(sweeps.answers, np.uint64),
        }

    def _problem(self, sweeps: PartSweeps) -> str:
        """Identifies the graph of this process and what is assumed in its states."""
        if self._digest is None:
            problems = map(sweeps.problem, sweeps.parts.numbers)
            self._digest = problem_digest(sweeps.parts.world, problems, sweeps.params)
        return self._digest


def _text(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)
