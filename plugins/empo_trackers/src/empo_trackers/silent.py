"""What a tracker is that has nothing to write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from empo_core.protocols import RunStatus
from empo_core.types import Histogram


class Silent:
    """Writes nothing: what was found is logged by the run's other trackers."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        """Nothing: episodes begin with ``follow``."""

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Nothing: other trackers log."""

    def progress(self, task: str, done: float, total: float) -> None:
        """Nothing: other trackers show progress."""

    def finish(self, status: RunStatus) -> None:
        """Nothing: no file is open."""
