"""Explanations of decisions: of a result in RAM here, of runs on disk by commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_inspector.explanation import Explanation
    from empo_inspector.notebook_page import NotebookPage
    from empo_inspector.page_widget import PageWidget
    from empo_theory.inspection import InspectableResult


def explain(
    result: InspectableResult,
    state: Sequence[int] | int | None = None,
    time: int = 0,
    action: int | str | None = None,
    versus: int | str | None = None,
) -> Explanation:
    """Why the robots prefer one joint action to another.

    Args:
        result: A result of ``exact`` or ``phase2``.
        state: A state row, or its number in a result of ``exact``; the start by default.
        time: Steps of the episode so far.
        action: A joint robot action, by index or name; None means the most probable one.
        versus: Another one; None means the most probable one that is not equally good.

    Raises:
        ConfigError: if an action does not exist or is not available.
        WorldError: if the state cannot be reached by then, or the episode is over there.
        SolveError: if the values of later times were not kept.
    """
    import numpy as np

    from empo_inspector import explanation
    from empo_inspector.page import start_of
    from empo_theory.inspection import InspectionScope

    scope = InspectionScope(start=None if state is None else np.array(state), time=time)
    inspection = result.inspection(scope)
    position = start_of(inspection, scope)
    return explanation.explain(inspection, result.world, position, time, action, versus)


def inspect(result: InspectableResult, height: int = 760) -> NotebookPage:
    """The page that shows every decision, for a notebook or, by ``write``, for a browser.

    Args:
        result: A result of ``exact`` or ``phase2``.
        height: Its height in a notebook, in pixels.

    Raises:
        SolveError: if the values of later times were not kept.
    """
    from empo_inspector.notebook_page import notebook_page
    from empo_theory.inspection import PAGE_BYTES, InspectionScope

    inspection = result.inspection(InspectionScope(max_bytes=PAGE_BYTES))
    return notebook_page(inspection, result.world, height)


def widget(run: NotebookPage | Path | str) -> PageWidget:
    """The page of a run as a widget, whose trait ``selection`` is what the page shows.

    Args:
        run: What ``inspect(result)`` returned, or a run's directory.

    Raises:
        ConfigError: if the folder is no run directory, the run cannot be inspected, or anywidget is
            not installed.
        StorageError: if the run left nothing that can be loaded, or too little.
    """
    from empo_core.errors import ConfigError

    try:
        from empo_inspector.page_widget import PageWidget
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"a widget needs the package anywidget ({error}): "
            "pip install 'empo-inspector[notebook]'"
        ) from error
    from empo_inspector.notebook_page import NotebookPage, notebook_page
    from empo_inspector.saved_inspection import inspect_run

    if not isinstance(run, NotebookPage):
        directory = Path(run).resolve()
        run = notebook_page(*inspect_run(directory), directory=directory)
    return PageWidget(page=run.text, height=run.height)
