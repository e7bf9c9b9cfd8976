"""What this distribution offers; imported to list plugins, so it must not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from empo_core import hookimpl

if TYPE_CHECKING:
    from empo_core.experiment import Experiment


@hookimpl
def empo_run_finished(run: Experiment) -> None:
    """Draw the pictures of a result that has some; a failure is a warning."""
    from empo_core.best_effort import best_effort
    from empo_core.runs.directory import RESULTS
    from empo_core.stages import stage
    from empo_pictures.notebooks import NotebookReport

    if isinstance(run.result, NotebookReport):
        with (
            best_effort("drawing the pictures"),
            stage(run.context.tracker.progress, "drawing pictures"),
        ):
            run.result.draw(run.directory / RESULTS)
