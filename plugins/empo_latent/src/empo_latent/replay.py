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

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from empo_core.errors import StorageError
from empo_core.trees import StateDict
from empo_latent.types import MultiTaskSpec, SequenceBatch

PADDING = -1.0
"""Termination of a row in which nothing happened."""
FEWEST_ROWS = 1024
"""Rows per environment that memory is taken for at once; more as they are needed."""
COLUMNS = ("observations", "steps", "is_end")
"""Arrays of rows, ``[env row ...]``."""


class Replay:
    """A ring of rows per environment: row ``i`` lies at place ``i`` modulo ``max_rows``.

    Environments have rings of their own, so an episode's rows lie in sequence, and episodes that
    are still going on can be learned from. Sequences are drawn by rejection: a row is drawn, and
    drawn again where no sequence ends with it.

    Attributes:
        observations: Observations.
        steps: Action, reward, termination and expert side by side.
        is_end: Whether the rows before it are enough for a sequence that ends with the row.
        num_sequences: Number of different sequences that can be drawn.
    """

    observations: Shaped[np.ndarray, "env row word"]
    steps: Float[np.ndarray, "env row number"]
    is_end: Bool[np.ndarray, "env row"]
    num_sequences: int

    def __init__(
        self,
        spec: MultiTaskSpec,
        *,
        envs: int,
        capacity: int,
        horizon: int,
        expert: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        """Remember nothing yet.

        Args:
            spec: Of the tasks; environment ``e`` plays task ``e % len(tasks)``.
            envs: How many environments there are.
            capacity: Rows of all environments together, at least a sequence of each; the oldest
                are overwritten.
            horizon: Steps of a sequence.
            expert: Whether rows also hold how the planner would have acted.
            device: Where sequences are needed; they are kept in the memory of the CPU.
        """
        self._max_rows = capacity // envs
        self._horizon, self._expert = horizon, expert
        self._actions, self._device = spec.actions, torch.device(device)
        several = len(spec.tasks) > 1
        self._task = torch.arange(envs) % len(spec.tasks) if several else None
        rows = min(self._max_rows, FEWEST_ROWS)
        kind = np.uint8 if spec.pictures else np.float32
        self.observations = np.empty((envs, rows, spec.words), kind)
        self.steps = np.empty((envs, rows, spec.actions * (3 if expert else 1) + 2), np.float32)
        self.is_end = np.zeros((envs, rows), bool)
        # Per environment: rows ever written, and steps of the episode.
        self._written = np.zeros(envs, np.int64)
        self._age = np.full(envs, -1)
        self.num_sequences = 0

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
        self._age[envs] = 0
        self._write(envs, observation[envs], np.nan)

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
        if expert is not None and not self._expert:
            raise ValueError("rows have no room for the planner's actions: set expert")
        envs = np.arange(len(self._age))
        self._age += 1
        steps, actions = np.empty((len(envs), self.steps.shape[2]), np.float32), self._actions
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
            raise ValueError(
                f"no episode has {self._horizon} steps yet, so there is no sequence to learn "
                "from; see ready"
            )
        held = np.minimum(self._written, self._max_rows)
        total = held.cumsum()
        env, end = np.empty((2, 0), np.int64)
        while len(env) < batch_size:
            missing = batch_size - len(env)
            row = torch.randint(int(total[-1]), (missing,), generator=generator).numpy()
            drawn = total.searchsorted(row, side="right")
            age = total[drawn] - 1 - row  # 0: the newest row of its environment.
            last = self._written[drawn] - 1 - age
            fits = self.is_end[drawn, last % self._max_rows] & (age < held[drawn] - self._horizon)
            env, end = np.append(env, drawn[fits]), np.append(end, last[fits])
        return self.gather(env, end)

    def places(self) -> tuple[Int64[np.ndarray, " sequence"], Int64[np.ndarray, " sequence"]]:
        """The environment and the last row of each sequence that can be drawn."""
        env, place = self.is_end.nonzero()
        newest = self._written[env] - 1
        end = newest - (newest - place) % self._max_rows
        held = np.minimum(self._written, self._max_rows)[env]
        fits = (end >= 0) & (newest - end < held - self._horizon)
        return env[fits], end[fits]

    def gather(
        self, env: Int64[np.ndarray, " sequence"], end: Int64[np.ndarray, " sequence"]
    ) -> SequenceBatch:
        """The sequences that end with these rows, as ``places`` names them."""
        rows = (end + np.arange(-self._horizon, 1)[:, None]) % self._max_rows
        rows += env * self.is_end.shape[1]
        steps, actions = self._rows_of(self.steps, rows[1:]), self._actions
        terminated = steps[..., actions + 1 : actions + 2]
        expert = steps[..., actions + 2 :].view(*steps.shape[:2], 2, -1) if self._expert else None
        task = None if self._task is None else self._task[torch.from_numpy(env)]
        return SequenceBatch(
            observation=self._rows_of(self.observations, rows),
            action=steps[..., :actions],
            reward=steps[..., actions : actions + 1],
            terminated=terminated.clamp(min=0),
            valid=(terminated != PADDING).to(terminated.dtype),
            task=None if task is None else task.to(self._device, non_blocking=True),
            expert=expert,
        )

    def state_dict(self) -> StateDict:
        """All that is remembered, as a tree for checkpoints; tensors are not copied."""
        used = np.minimum(self._written, self._max_rows).tolist()
        return {
            "capacity": self._max_rows,
            "horizon": self._horizon,
            "written": torch.from_numpy(self._written.copy()),
            "age": torch.from_numpy(self._age.copy()),
            "rows": [
                {name: torch.from_numpy(getattr(self, name)[env, :n]) for name in COLUMNS}
                for env, n in enumerate(used)
            ],
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Remember what was remembered; the same draws then give the same sequences.

        Raises:
            StorageError: if the state is one of other tasks or sizes.
        """
        rows, arrays = state["rows"], (self.observations, self.steps)
        mine = (len(self._age), self._max_rows, self._horizon, *(x.shape[2] for x in arrays))
        widths = [rows[0][name].shape[1] if rows else 0 for name in ("observations", "steps")]
        saved = (len(rows), state["capacity"], state["horizon"], *widths)
        if mine != saved:
            raise StorageError(
                f"the checkpoint remembers something else: (environments, rows of each, steps of a "
                f"sequence, numbers per observation, numbers per step) are {saved}, and should be "
                f"{mine}; go on with the params that the run began with"
            )
        for name, counts in (("written", self._written), ("age", self._age)):
            if state[name].shape != counts.shape:
                raise StorageError(
                    f"{name} has shape {tuple(state[name].shape)}, and should have {counts.shape}"
                )
            counts[:] = state[name].numpy()
        self._grow(min(self._max_rows, int(self._written.max(initial=1))))
        for env, row in enumerate(rows):
            for name in COLUMNS:
                getattr(self, name)[env, : len(row[name])] = row[name].numpy()
        self.num_sequences = len(self.places()[0])

    def _rows_of(
        self,
        array: Shaped[np.ndarray, "env row number"],
        rows: Int64[np.ndarray, "moment sequence"],
    ) -> Shaped[Tensor, "moment sequence number"]:
        """Rows of all rings, counted through, on the device; the copy may still be going on."""
        flat = torch.from_numpy(array).flatten(0, 1)
        # Memory that the device can read by itself while we go on; torch keeps it until then.
        pinned = self._device.type == "cuda"
        into = torch.empty(rows.size, flat.shape[1], dtype=flat.dtype, pin_memory=pinned)
        torch.index_select(flat, 0, torch.from_numpy(rows).flatten(), out=into)
        return into.view(*rows.shape, flat.shape[1]).to(self._device, non_blocking=True)

    def _terminate(
        self, envs: Int64[np.ndarray, " row"], observation: Shaped[np.ndarray, "env word"]
    ) -> None:
        """Add the rows in which nothing happens any more, and let episodes end with them."""
        nothing = np.zeros(self.steps.shape[2], np.float32)
        nothing[self._actions + 1] = 1
        for _ in range(self._horizon - 1):
            self._age[envs] += 1
            self._write(envs, observation[envs], nothing)
        self._age[envs] = -1

    def _pad(self, envs: Int64[np.ndarray, " row"]) -> None:
        """Add rows to episodes that are cut off before they are as long as a sequence."""
        nothing = np.zeros(self.steps.shape[2], np.float32)
        nothing[self._actions + 1] = PADDING
        nothing[self._actions + 2 :] = np.nan
        while len(envs := envs[(self._age[envs] > 0) & (self._age[envs] < self._horizon)]):
            last = self.observations[envs, (self._written[envs] - 1) % self._max_rows]
            self._age[envs] += 1
            self._write(envs, last, nothing)

    def _write(
        self,
        envs: Int64[np.ndarray, " row"],
        observation: Shaped[np.ndarray, "row word"],
        steps: Shaped[np.ndarray, "... number"] | float,
    ) -> None:
        """Add a row to each environment; it may end a sequence, and overwrite another's first."""
        row = self._written[envs]
        num_rows, room = int(row.max(initial=0)) + 1, self.is_end.shape[1]
        if room < min(num_rows, self._max_rows):
            self._grow(min(self._max_rows, max(num_rows, 2 * room)))
        full = row >= self._max_rows
        lost = (row[full] + self._horizon) % self._max_rows
        self.num_sequences -= int(self.is_end[envs[full], lost].sum())
        places, is_end = row % self._max_rows, self._age[envs] >= self._horizon
        self.observations[envs, places] = observation
        self.steps[envs, places] = steps
        self.is_end[envs, places] = is_end
        self.num_sequences += int(is_end.sum())
        self._written[envs] += 1

    def _grow(self, rows: int) -> None:
        """Take memory for so many rows per environment; nothing was overwritten before."""
        before = self.is_end.shape[1]
        for name in COLUMNS if rows > before else ():
            old = getattr(self, name)
            new = np.zeros((len(old), rows, *old.shape[2:]), old.dtype)
            new[:, :before] = old
            setattr(self, name, new)
