"""Everything an algorithm is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empo_core.protocols.trackers import Tracker
from empo_core.protocols.worlds import WorldModel


@dataclass(slots=True, kw_only=True)
class RunContext:
    """Everything an algorithm is given besides its params.

    Attributes:
        world: The config's world, or None where it names none.
        seed: Seeds every random generator of the run.
        directory: Where the run's files go.
        tracker: Takes numbers, progress and words.
        resume: Whether ``directory`` holds what an interrupted run of this config left.
        world_model: The config's reference to the world, from which other processes build it
            anew; None where the world did not come from a config.
        environment: Makes an environment, where a caller from Python passed one.
    """

    world: WorldModel | None
    seed: int
    directory: Path
    tracker: Tracker
    resume: bool
    world_model: Any = None
    environment: Callable[[], object] | None = None
