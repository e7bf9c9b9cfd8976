"""Replay of experience: rings of rows, from which sequences are drawn uniformly.

Row ``i`` of an episode holds what was seen at moment ``i`` and the step that led there: the
action, its reward, and whether it ended the episode. The first row of an episode has no such
step (NaN, which shows up wherever it is used by mistake). So ``T + 1`` rows in sequence, none but
the first of which begins an episode, are a sequence of ``T`` steps.

An episode that terminates has ``T - 1`` more rows, in which nothing happens. Its last step is so
drawn at every place of a sequence, as others are: were it only ever the last, a model that predicts
step after step would learn that nothing ends after one or two.

An episode that is cut off after fewer than ``T`` steps is padded to ``T``: so it is one sequence,
in whose padding (``SequenceBatch.valid``) nothing is learned.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from empo_core.errors import ConfigError, StorageError
from empo_core.trees import StateDict
from empo_latent.row_rings import RowRings
from empo_latent.sequence_queue import SequenceQueue
from empo_latent.types import MultiTaskSpec, SequenceBatch

PADDING = -1.0
"""Termination of a row in which nothing happened."""


class Replay:
    """A ring of rows per environment, and the places in it where sequences end.

    Environments have rings of their own, so an episode's rows lie in sequence, and episodes that
    are still going on can be learned from, or not (``running``). Where sequences end is kept in a
    ``SequenceQueue``.
    """

    def __init__(
        self,
        spec: MultiTaskSpec,
        *,
        envs: int,
        capacity: int,
        horizon: int,
        running: bool = True,
        expert: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Remember nothing yet.

        Args:
            spec: Of the tasks; environment ``e`` plays task ``e % len(tasks)``.
            envs: How many environments there are.
            capacity: Rows of all environments together; the oldest are overwritten.
            horizon: Steps of a sequence.
            running: Whether episodes that have not ended have sequences, too.
            expert: Whether rows also hold how the planner would have acted.
            device: Where sequences are needed; they are kept in the memory of the CPU.

        Raises:
            ConfigError: if the capacity is too small for a sequence of each environment.
        """
        self._max_rows = capacity // envs
        if self._max_rows <= horizon:
            raise ConfigError(
                f"algorithm.params.replay.capacity: {capacity} rows of {envs} environments are "
                f"{self._max_rows} each, and a sequence of {horizon} steps has {horizon + 1}; set "
                f"it to at least {envs * (horizon + 1)}"
            )
        self._horizon, self._running, self._expert = horizon, running, expert
        self._actions, self._device = spec.actions, torch.device(device)
        several = len(spec.tasks) > 1
        self._task = torch.arange(envs) % len(spec.tasks) if several else None
        self._rings = RowRings(
            envs,
            self._max_rows,
            words=spec.words,
            numbers=spec.actions * (3 if expert else 1) + 2,
            pictures=spec.pictures,
        )
        self._queue = SequenceQueue(
            envs, self._rings.rows, max_rows=self._max_rows, horizon=horizon, running=running
        )
        # Per environment: rows ever written, and steps of the episode.
        self._written = np.zeros(envs, np.int64)
        self._age = np.full(envs, -1)

    @property
    def num_sequences(self) -> int:
        """Number of different sequences that can be drawn."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """True once a sequence can be drawn."""
        return self.num_sequences > 0

    def begin(
        self, observation: Shaped[np.ndarray, "env word"], rows: Bool[np.ndarray, " env"]
    ) -> None:
        """Begin episodes in some environments (``rows``), by what is seen first."""
        envs = np.flatnonzero(rows)
        self._pad(envs)
        self._queue.end(envs)
        self._age[envs] = 0
        self._write(envs, observation[envs], np.nan, first=True)

    def add(
        self,
        action: Float[Tensor, "env action"],
        reward: Shaped[np.ndarray, " env"],
        terminated: Bool[np.ndarray, " env"],
        observation: Shaped[np.ndarray, "env word"],
        *,
        expert: Float[Tensor, "env 2 action"] | None = None,
    ) -> None:
        """Add a step of all environments, each to its episode; an observation may be its last.

        ``expert`` is mean and log standard deviation of the planner's action; None is kept as NaN
        where rows have it.

        Raises:
            ValueError: if an environment has no episode that could go on.
        """
        if (self._age < 0).any():
            raise ValueError(
                f"environment {int((self._age < 0).argmax())} has no episode to add a step to; "
                "call begin first"
            )
        if expert is not None:
            self._require_room_for_expert()
        envs = np.arange(len(self._age))
        self._age += 1
        steps, actions = np.empty((len(envs), self._rings.widths[1]), np.float32), self._actions
        steps[:, :actions] = action.cpu().numpy()
        steps[:, actions], steps[:, actions + 1] = reward, terminated
        if self._expert:
            steps[:, actions + 2 :] = np.nan if expert is None else expert.cpu().flatten(1).numpy()
        self._write(envs, observation, steps)
        if terminated.any():
            self._terminate(np.flatnonzero(terminated), observation)

    def sample(self, batch_size: int, generator: torch.Generator) -> SequenceBatch:
        """Sequences, drawn with replacement, each with the same chance, by a generator on the CPU.

        The copy to the device may still be going on.

        Raises:
            ValueError: if there is nothing to draw from; see ``ready``.
        """
        if not self.ready:
            condition = "has" if self._running else "has ended and has"
            raise ValueError(
                f"no episode {condition} {self._horizon} steps yet, so there is no sequence to "
                "learn from; see ready"
            )
        return self.gather(torch.randint(self.num_sequences, (batch_size,), generator=generator))

    def gather(self, number: Int64[Tensor, " sequence"]) -> SequenceBatch:
        """The sequences of these indices, below ``num_sequences``; adding steps moves them."""
        rows, env = self._places_of(number.numpy())
        steps = self._rings.gathered("steps", rows[1:], self._device)
        actions = self._actions
        expert = None
        if self._expert:
            expert = steps[..., actions + 2 :].view(*steps.shape[:2], 2, actions)
        terminated = steps[..., actions + 1 : actions + 2]
        return SequenceBatch(
            observation=self._rings.gathered("observations", rows, self._device),
            action=steps[..., :actions],
            reward=steps[..., actions : actions + 1],
            terminated=terminated.clamp(min=0),
            valid=(terminated != PADDING).to(terminated.dtype),
            task=None
            if self._task is None
            else self._task[env].to(self._device, non_blocking=True),
            expert=expert,
        )

    def revise(
        self,
        number: Int64[Tensor, " sequence"],
        expert: Float[Tensor, "time sequence 2 action"],
    ) -> None:
        """Replace how the planner would have acted in each step of the sequences of these indices.

        Raises:
            ValueError: if rows have no room for it.
        """
        self._require_room_for_expert()
        rows, _ = self._places_of(number.numpy())
        self._rings.replace(rows[1:], self._actions + 2, expert.flatten(2))

    def state_dict(self) -> StateDict:
        """All that is remembered, as a tree for checkpoints; tensors are not copied."""
        used = np.minimum(self._written, self._max_rows).tolist()
        return {
            "capacity": self._max_rows,
            "horizon": self._horizon,
            "written": torch.from_numpy(self._written.copy()),
            "age": torch.from_numpy(self._age.copy()),
            "rows": self._rings.saved(used),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Remember what was remembered; the same draws then give the same sequences.

        Raises:
            StorageError: if the state is one of other tasks or sizes.
        """
        rows = state["rows"]
        mine = (len(self._age), self._max_rows, self._horizon, *self._rings.widths)
        saved = (len(rows), state["capacity"], state["horizon"], *_widths(rows))
        if mine != saved:
            raise StorageError(
                f"the checkpoint remembers something else: (environments, rows of each, steps of a "
                f"sequence, numbers per observation, numbers per step) are {saved}, and should be "
                f"{mine}; go on with the params that the run began with"
            )
        self._written = state["written"].numpy().copy()
        self._age = state["age"].numpy().copy()
        self._grow(min(self._max_rows, int(self._written.max(initial=1))))
        self._rings.restore(rows)
        for env, row in enumerate(rows):
            written = int(self._written[env])
            held = np.arange(written - len(row["first"]), written)
            ended = written - 1 - int(self._age[env])  # An age of -1 is of no episode.
            self._queue.refill(env, held, self._rings.first[env, held % self._max_rows], ended)

    def _terminate(
        self, envs: Int64[np.ndarray, " row"], observation: Shaped[np.ndarray, "env word"]
    ) -> None:
        """Add the rows in which nothing happens any more, and let episodes end with them."""
        nothing = np.zeros(self._rings.widths[1], np.float32)
        nothing[self._actions + 1] = 1
        for _ in range(self._horizon - 1):
            self._age[envs] += 1
            self._write(envs, observation[envs], nothing)
        self._age[envs] = -1
        self._queue.end(envs)

    def _pad(self, envs: Int64[np.ndarray, " row"]) -> None:
        """Add rows to episodes that are cut off before they are as long as a sequence."""
        nothing = np.zeros(self._rings.widths[1], np.float32)
        nothing[self._actions + 1] = PADDING
        nothing[self._actions + 2 :] = np.nan
        while len(envs := envs[(self._age[envs] > 0) & (self._age[envs] < self._horizon)]):
            last = self._rings.observations[envs, (self._written[envs] - 1) % self._max_rows]
            self._age[envs] += 1
            self._write(envs, last, nothing)

    def _require_room_for_expert(self) -> None:
        if not self._expert:
            raise ValueError("rows have no room for the planner's actions: set expert")

    def _grow(self, rows: int) -> None:
        """Take memory for so many rows per environment."""
        self._queue.grow(rows)
        self._rings.grow(rows)

    def _write(
        self,
        envs: Int64[np.ndarray, " row"],
        observation: Shaped[np.ndarray, "row word"],
        steps: Shaped[np.ndarray, "... number"] | float,
        *,
        first: bool = False,
    ) -> None:
        """Add a row to each environment, queue sequences that end there, drop overwritten ones."""
        row = self._written[envs]
        num_rows, room = int(row.max(initial=0)) + 1, self._rings.rows
        if room < min(num_rows, self._max_rows):
            self._grow(min(self._max_rows, max(num_rows, 2 * room)))
        places = row % self._max_rows
        self._rings.observations[envs, places] = observation
        self._rings.steps[envs, places] = steps
        self._rings.first[envs, places] = first
        self._written[envs] += 1
        self._queue.advance(envs, row, self._age[envs] >= self._horizon)

    def _places_of(
        self, number: Int64[np.ndarray, " sequence"]
    ) -> tuple[Int64[Tensor, "moment sequence"], Int64[Tensor, " sequence"]]:
        """Rows of sequences, counted through all rings, and the environment of each."""
        ends, env = self._queue.find(number)
        rows = (ends + np.arange(-self._horizon, 1)[:, None]) % self._max_rows
        rows += env * self._rings.rows
        return torch.from_numpy(rows), torch.from_numpy(env)


def _widths(rows: list[Mapping[str, Tensor]]) -> tuple[int, int]:
    if not rows:
        return 0, 0
    return rows[0]["seen"].shape[1], rows[0]["steps"].shape[1]
