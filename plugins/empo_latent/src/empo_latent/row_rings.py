"""Rings of the rows of a replay, one per environment, which take memory as they are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, Shaped
from torch import Tensor

FEWEST_ROWS = 1024
"""Rows per environment that memory is taken for at once; more as they are needed."""

Column = Literal["seen", "steps", "first"]
COLUMNS: dict[Column, str] = {"seen": "observations", "steps": "steps", "first": "first"}
"""Attribute of each column that is saved."""


class RowRings:
    """Rows of each environment; row ``i`` lies at place ``i`` modulo ``max_rows``.

    Arrays of numpy, which writes single rows faster than torch; torch draws from the same.

    Attributes:
        max_rows: Rows per environment that are kept.
        observations: Observations.
        steps: Action, reward, termination and expert side by side, to be found in one look.
        first: Whether an episode begins with the row.
    """

    def __init__(
        self, envs: int, max_rows: int, *, words: int, numbers: int, pictures: bool
    ) -> None:
        """Begin with memory for few rows of ``words`` of an observation, ``numbers`` of a step."""
        self.max_rows = max_rows
        rows = min(max_rows, FEWEST_ROWS)
        kind = np.uint8 if pictures else np.float32
        self.observations: Shaped[np.ndarray, "env row word"] = np.empty((envs, rows, words), kind)
        self.steps: Float32[np.ndarray, "env row number"]
        self.steps = np.empty((envs, rows, numbers), np.float32)
        self.first: Bool[np.ndarray, "env row"] = np.zeros((envs, rows), bool)

    @property
    def rows(self) -> int:
        """Rows per environment that there is memory for."""
        rows: int = self.first.shape[1]
        return rows

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of an observation and of a step."""
        return self.observations.shape[2], self.steps.shape[2]

    def grow(self, rows: int) -> None:
        """Take memory for so many rows per environment; nothing was overwritten before."""
        before = self.rows
        for name in COLUMNS.values() if rows > before else ():
            old = getattr(self, name)
            new = np.empty((len(old), rows, *old.shape[2:]), old.dtype)
            new[:, :before] = old
            setattr(self, name, new)

    def gathered(
        self,
        name: Literal["observations", "steps"],
        rows: Int64[Tensor, "moment sequence"],
        device: torch.device,
    ) -> Shaped[Tensor, "moment sequence number"]:
        """Rows of all rings, counted through, on a device; the copy there may still be going on."""
        flat = torch.from_numpy(getattr(self, name)).flatten(0, 1)
        # Memory that the device can read by itself while we go on; torch keeps it until then.
        pinned = device.type == "cuda"
        into = torch.empty(rows.numel(), flat.shape[1], dtype=flat.dtype, pin_memory=pinned)
        torch.index_select(flat, 0, rows.flatten(), out=into)
        return into.view(*rows.shape, flat.shape[1]).to(device, non_blocking=True)

    def replace(
        self,
        rows: Int64[Tensor, "moment sequence"],
        first: int,
        numbers: Float32[Tensor, "moment sequence some"],
    ) -> None:
        """Write the last numbers of steps over, from a column on; rows as in ``gathered``."""
        flat = self.steps.reshape(-1, self.steps.shape[2])  # A view, as rings are contiguous.
        flat[rows.numpy(), first:] = numbers.numpy()

    def saved(self, used: Sequence[int]) -> list[dict[Column, Tensor]]:
        """The first ``used`` rows of each environment, in tensors that share their memory."""
        return [
            {key: torch.from_numpy(getattr(self, name)[env, :n]) for key, name in COLUMNS.items()}
            for env, n in enumerate(used)
        ]

    def restore(self, rows: Sequence[Mapping[Column, Tensor]]) -> None:
        """Take over what ``saved`` returned; there must be memory for it."""
        for env, row in enumerate(rows):
            for key, name in COLUMNS.items():
                getattr(self, name)[env, : len(row[key])] = row[key].numpy()
