"""The page of a run in a cell of a notebook."""

from __future__ import annotations

import hashlib
from pathlib import Path

from empo_core.protocols import WorldModel
from empo_core.runs.atomic import write_file
from empo_inspector.page import PAGE, whole_page
from empo_pictures.notebooks import MOST_BYTES
from empo_theory.inspection import Inspection, InspectionScope

HEIGHT = 760
"""Pixels; the page then has room for a board, the time and a table beside them."""


class NotebookPage:
    """A page that notebooks show in a frame, and that ``write`` puts into a file.

    A cell holds a page up to ``MOST_BYTES``. A larger one is written into the working directory,
    for Jupyter the notebook's, and shown from there.

    Attributes:
        text: The page.
        title: Name of the world.
        height: Height of the frame in pixels.
    """

    def __init__(self, text: str, title: str, height: int = HEIGHT) -> None:
        self.text = text
        self.title = title
        self.height = height

    def write(self, file: Path | str = PAGE) -> Path:
        """Write the page, and return its path.

        Raises:
            StorageError: if the disk refuses.
        """
        write_file(Path(file), self.text)
        return Path(file)

    def __repr__(self) -> str:
        """For whoever is not in a notebook."""
        return (
            f"<page of {self.title!r}: notebooks show it; elsewhere, .write({PAGE!r}) makes a file "
            "for a browser>"
        )

    def _repr_html_(self) -> str:
        escaped = self.text.replace("&", "&amp;").replace('"', "&quot;")
        whole = self._frame(f'srcdoc="{escaped}"')
        if len(whole.encode()) <= MOST_BYTES:
            return whole
        # Named by what is in it, so that each page of a notebook has a file of its own.
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        file = self.write(f"inspector-{digest[:8]}.html")
        link = f'<p><a href="{file}" target="_blank">{file}</a></p>'
        return self._frame(f'src="{file}"') + link

    def _frame(self, source: str) -> str:
        style = f"width:100%;height:{self.height}px;border:0"
        return f'<iframe title="inspector" style="{style}" {source}></iframe>'


def notebook_page(
    inspection: Inspection,
    world: WorldModel,
    height: int = HEIGHT,
    directory: Path | None = None,
) -> NotebookPage:
    """The page of an inspection, for a cell of a notebook.

    Args:
        inspection: What is known of states and values.
        world: Its world.
        height: Height of the frame in pixels.
        directory: The run's directory; None where there is none.
    """
    return NotebookPage(
        whole_page(inspection, world, InspectionScope(), directory)[1], world.spec.name, height
    )
