"""What a solve is asked for, in one value that its stages hand on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from empo_core.protocols import Tracker, WorldModel
from empo_exact.assumptions import Assumptions
from empo_exact.graph import Start
from empo_exact.plugin import ExactParams


@dataclass(frozen=True)
class Request:
    """The arguments of ``empo_exact.solve.solve``, with what None stands for.

    Attributes:
        world: The world.
        params: Theory and solver parameters.
        assumed: Assumptions about the humans beyond the parameters.
        start: State rows in which episodes start; None means the initial states.
        directory: Where files go; None: nowhere.
        tracker: Told about progress and values.
        resume: Go on from the files that an interrupted run left.
        seed: Seeds the rollouts that ``ExactResult.save`` draws.
    """

    world: WorldModel
    params: ExactParams
    assumed: Assumptions
    start: Start | None
    directory: Path | None
    tracker: Tracker
    resume: bool
    seed: int
