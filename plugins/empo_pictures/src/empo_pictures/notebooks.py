"""Results, worlds and states as notebooks show them: reports as text, and pictures."""

from __future__ import annotations

import base64
import html
import io
from pathlib import Path

from jaxtyping import Int
from rich.console import Console, RenderableType
from torch import Tensor

from empo_core.printable import printable
from empo_core.protocols import WorldModel
from empo_pictures.pictures import Frame, png_bytes

MOST_BYTES = 180_000
"""Bytes of HTML: a cell's output is saved in its notebook, so what makes it larger is left out."""
MOST_CHARACTERS = 5_000
"""Of the text beside it, in which each has up to four bytes."""
WIDTH = 100
_PRE = '<pre style="line-height:normal;font-family:monospace">{code}</pre>'


def as_html(content: RenderableType, frame: Frame | None = None) -> str:
    """Text and a picture as HTML of at most ``MOST_BYTES``; nothing in it is run or fetched."""
    console = _printed(content)
    text = console.export_html(inline_styles=True, code_format=_PRE, clear=False)
    if len(text.encode()) > MOST_BYTES:
        plain = console.export_text()[: MOST_BYTES // 8]
        text = _PRE.format(code=f"{html.escape(plain)}\n(and more)")
    if frame is None:
        return text
    picture = base64.b64encode(png_bytes(frame)).decode()
    image = f'<img alt="" src="data:image/png;base64,{picture}">'
    return text + image if len((text + image).encode()) <= MOST_BYTES else text


def _printed(content: RenderableType) -> Console:
    # In a kernel rich would also display it.
    console = Console(
        file=io.StringIO(), record=True, width=WIDTH, highlight=False, force_jupyter=False
    )
    console.print(content, markup=False, emoji=False)
    return console


class _NotebookView:
    """Base of objects that ``print`` and IPython show as text, and notebooks also as HTML."""

    def _content(self) -> tuple[RenderableType, Frame | None]:
        raise NotImplementedError

    def __str__(self) -> str:
        """The text, without the picture."""
        return printable(_printed(self._content()[0]).export_text().rstrip("\n"))

    def _repr_html_(self) -> str:
        return as_html(*self._content())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        text = str(self)
        if len(text) > MOST_CHARACTERS:
            text = f"{text[:MOST_CHARACTERS]}\n(and more)"
        return {"text/plain": text, "text/html": self._repr_html_()}


class NotebookReport(_NotebookView):
    """A result that notebooks show as its report, beside its picture where it has one."""

    def report(self) -> RenderableType:
        """The result for people."""
        raise NotImplementedError

    def picture(self) -> Frame | None:
        """The result as a picture."""
        return None

    def draw(self, directory: Path) -> None:
        """Write the pictures of the result, where it has some, into a folder.

        Raises:
            StorageError: if a file cannot be written.
        """

    def _content(self) -> tuple[RenderableType, Frame | None]:
        return self.report(), self.picture()


class NotebookState(_NotebookView):
    """A state of a world, for notebooks: its description, and its picture where it has one."""

    def __init__(self, world: WorldModel, state: Int[Tensor, " word"]) -> None:
        self.world = world
        self.state = state

    def _content(self) -> tuple[RenderableType, Frame | None]:
        return self.world.describe(self.state), self.world.render(self.state)


class NotebookWorld(_NotebookView, WorldModel):
    """A world that notebooks show as its title and initial state."""

    def _content(self) -> tuple[RenderableType, Frame | None]:
        text, frame = NotebookState(self, self.initial_states().states[0])._content()
        return f"{self.spec.name}\n{text}", frame
