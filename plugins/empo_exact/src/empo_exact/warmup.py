"""Kernels compiled before they are used."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from empo_core.errors import SolveError
from empo_exact.chain import SolvedLoop
from empo_exact.plugin import Compute, ExactParams
from empo_exact.solve import solve
from empo_worlds.warmup import small_worlds

ALSO = (
    ExactParams(compute=Compute(parts=2)),
    ExactParams(reduce=["lump"]),
    ExactParams(reduce=["symmetry"]),
)
"""Parameters by which further kernels run."""


def compile_kernels() -> None:
    """Solve a small world of each world model, in one piece, in parts and reduced."""
    for _, world in small_worlds():
        result = solve(world)
        result.summary()
        with TemporaryDirectory(prefix="empo-") as folder:
            result.save(Path(folder))
        for mass in (np.ones((2, 3)), np.ones((3, 2)).T):  # The inspector has both orders.
            SolvedLoop(result).follow(np.zeros(2, np.int64), 0, mass)
        for params in ALSO:
            try:
                solve(world, params)
            except SolveError:
                continue  # The world does not support that, and compiles nothing for it.
