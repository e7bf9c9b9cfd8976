"""Explanations of decisions: a foundation of components."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_inspector.notebook_page import NotebookPage
    from empo_inspector.page_widget import PageWidget


def widget(run: NotebookPage | Path | str) -> PageWidget:
    """The page of a run as a widget, whose trait ``selection`` is what the page shows.

    Args:
        run: What ``result.inspect()`` returned, or a run's directory.

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
