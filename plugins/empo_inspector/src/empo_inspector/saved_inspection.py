"""Inspections of runs, by their directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from empo_core.errors import ConfigError
from empo_core.experiment import Experiment
from empo_core.protocols import Tracker, WorldModel
from empo_core.stages import stage
from empo_theory.inspection import Inspectable, Inspection, InspectionScope


def inspect_run(
    path: Path, scope: InspectionScope | None = None, tracker: Tracker | None = None
) -> tuple[Inspection, WorldModel]:
    """What a run knows, and its world.

    Args:
        path: The run's directory.
        scope: Where to begin; None means the start.
        tracker: Is told how far it is.

    Raises:
        ConfigError: if ``path`` is no run directory, or its algorithm cannot be inspected.
        StorageError: if the run left nothing that can be loaded, or too little.
    """
    run = Experiment.load(path)
    algorithm, context = run.algorithm, run.context
    if tracker is not None:
        context = replace(context, tracker=tracker)
    if not isinstance(algorithm, Inspectable):
        raise ConfigError(
            f"{path}: runs of algorithm {run.config.algorithm.name!r} cannot be explained; it has "
            "no method 'inspection', see Inspectable in docs/reference/protocols/algorithm.md"
        )
    with stage(context.tracker.progress, "reading the run"):
        inspection = algorithm.inspection(context, InspectionScope() if scope is None else scope)
    if context.world is None:
        raise ConfigError(f"{path}: this run has no world")
    return inspection, context.world
