"""The places in a replay's rings where sequences end, oldest first."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int64, Shaped


class SequenceQueue:
    """Per environment, a queue of the rows that are the last of a sequence.

    Rows are counted from the first that was ever written; a ring holds the newest of them. A row
    is added when its episode is long enough, and dropped when the first row of its sequence is
    overwritten, so that a sequence is found by its number among all, without a search.
    """

    def __init__(
        self, envs: int, rows: int, *, max_rows: int, horizon: int, running: bool = True
    ) -> None:
        """Begin with empty queues for rings of so many rows at first, and ``max_rows`` at last.

        Where ``running`` is False, sequences are found once their episode has ended.
        """
        self._max_rows, self._horizon, self._running = max_rows, horizon, running
        self._ends = np.empty((envs, rows), np.int64)
        # Sequences ever added, those of them whose episode has ended, and those ever dropped.
        self._queued, self._ended, self._dropped = np.zeros((3, envs), np.int64)

    def __len__(self) -> int:
        """Number of sequences that can be found."""
        return int(self._counts().sum())

    def grow(self, rows: int) -> None:
        """Take memory for so many rows per environment."""
        before = self._ends.shape[1]
        if rows > before:
            ends = np.empty((len(self._ends), rows), np.int64)
            ends[:, :before] = self._ends
            self._ends = ends

    def advance(
        self,
        envs: Int64[np.ndarray, " row"],
        row: Int64[np.ndarray, " row"],
        is_end: Bool[np.ndarray, " row"],
    ) -> None:
        """Add newly written rows that end sequences, and drop sequences that were overwritten.

        Each environment has one new row, of this number.
        """
        waits = self._queued[envs] > self._dropped[envs]
        waiting = envs[waits]
        oldest = self._ends[waiting, self._dropped[waiting] % self._max_rows]
        is_dropped = oldest - self._horizon <= row[waits] - self._max_rows
        self._dropped[waiting[is_dropped]] += 1
        new = envs[is_end]
        self._ends[new, self._queued[new] % self._max_rows] = row[is_end]
        self._queued[new] += 1

    def end(self, envs: Int64[np.ndarray, " row"]) -> None:
        """Let the episodes of environments end with their newest row."""
        self._ended[envs] = self._queued[envs]

    def refill(
        self,
        env: int,
        rows: Int64[np.ndarray, " row"],
        first: Shaped[np.ndarray, " row"],
        ended: int,
    ) -> None:
        """Queue the sequences in the rows that a ring holds, of ascending numbers.

        ``first`` is True at rows that begin an episode; rows below ``ended`` are of episodes that
        have ended.
        """
        # The newest row before each, itself included, that nothing in the ring leads to.
        begins = np.where(first, rows, rows[0] if len(rows) else 0)
        begins = np.maximum.accumulate(begins)
        ends = rows[rows - begins >= self._horizon]
        self._dropped[env], self._queued[env] = 0, len(ends)
        self._ended[env] = ends.searchsorted(ended)
        self._ends[env, : len(ends)] = ends

    def find(
        self, number: Int64[np.ndarray, " sequence"]
    ) -> tuple[Int64[np.ndarray, " sequence"], Int64[np.ndarray, " sequence"]]:
        """The last row of each sequence, and its environment, by its number among all."""
        counts = self._counts()
        total = counts.cumsum()
        env = total.searchsorted(number, side="right")
        place = number + (self._dropped - total + counts)[env]
        return self._ends[env, place % self._max_rows], env

    def _counts(self) -> Int64[np.ndarray, " env"]:
        """Number of sequences of each environment that can be found."""
        # More may be dropped than have ended, where an episode is longer than a ring.
        last = self._queued if self._running else np.maximum(self._ended, self._dropped)
        counts: np.ndarray = last - self._dropped
        return counts
