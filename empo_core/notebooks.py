"""Results, worlds and states as notebooks show them: reports as text, and pictures."""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING

from jaxtyping import Int
from rich.console import Console, RenderableType
from torch import Tensor

from empo_core.pictures import Frame, png_bytes
from empo_core.protocols import Drawable

if TYPE_CHECKING:
    from empo_core.protocols import WorldModel

MOST_BYTES = 200_000
"""A cell's output is saved in its notebook: what makes it larger is left out."""
WIDTH = 100
_PRE = '<pre style="line-height:normal;font-family:monospace">{code}</pre>'


def as_html(shown: RenderableType, frame: Frame | None = None) -> str:
    """Text and a picture as HTML of at most ``MOST_BYTES``; nothing in it is run or fetched."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, highlight=False)
    console.print(shown, markup=False, emoji=False)
    text = console.export_html(inline_styles=True, code_format=_PRE, clear=False)
    if len(text) > MOST_BYTES:
        plain = console.export_text()[: MOST_BYTES // 8]
        text = _PRE.format(code=f"{html.escape(plain)}\n(and more)")
    if frame is None:
        return text
    picture = base64.b64encode(png_bytes(frame)).decode()
    image = f'<img alt="" src="data:image/png;base64,{picture}">'
    return text + image if len(text) + len(image) <= MOST_BYTES else text


class NotebookReport:
    """A result that notebooks show as its report, beside its picture where it has one."""

    def report(self) -> RenderableType:
        """The result for people."""
        raise NotImplementedError

    def picture(self) -> Frame | None:
        """The result as a picture."""
        return None

    def _repr_html_(self) -> str:
        return as_html(self.report(), self.picture())


class NotebookState:
    """A state of a world, for notebooks: its picture, or else its description."""

    def __init__(self, world: WorldModel, state: Int[Tensor, " word"]) -> None:
        self.world = world
        self.state = state

    def _repr_html_(self) -> str:
        frame = self.world.render(self.state) if isinstance(self.world, Drawable) else None
        return as_html(self.world.describe(self.state), frame)


class NotebookWorld:
    """A world that notebooks show as its title and initial state."""

    def _repr_html_(self: WorldModel) -> str:
        start = NotebookState(self, self.initial_state())
        return as_html(self.spec.name) + start._repr_html_()
