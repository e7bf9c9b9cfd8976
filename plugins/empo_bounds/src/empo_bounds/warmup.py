"""Kernels compiled before they are used."""

from __future__ import annotations

import tempfile
from pathlib import Path

import empo_core
from empo_bounds.assumptions import Assumptions
from empo_bounds.certified_run import certify_run
from empo_bounds.effort import Effort
from empo_core.config import installed
from empo_core.protocols import Tracker
from empo_worlds.warmup import small_worlds


def compile_kernels() -> None:
    """Certify a run of ``exact`` in a small world, where there are such worlds and ``exact``."""
    names = [name for name, _ in small_worlds()]
    if not names or "exact" not in installed().names("algorithm"):
        return
    with tempfile.TemporaryDirectory(prefix="empo-") as folder:
        config = {"world_model": names[0], "algorithm": "exact", "trackers": []}
        empo_core.run(config | {"runs": folder})
        (run,) = Path(folder).iterdir()
        certify_run(run, Assumptions(), Effort(), Tracker())
