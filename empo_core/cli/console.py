"""A console for output with names from any file: it shows text as it is and obeys none of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
)
from rich.segment import Segment

from empo_core.printable import printable


class _Cleaned:
    """What is to be shown, without control characters of its own."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for text, style, control in console.render(self._content, options):
            yield Segment(text if control else printable(text), style, control)


class _Cleaner(RenderHook):
    """The hook of rich that sees all that is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Cleaned(content) for content in renderables]


def output_console(file: TextIO | None = None, width: int | None = None) -> Console:
    """A console without markup, so that brackets in names are brackets.

    Args:
        file: Where to write; None: to standard output.
        width: Of a line; None: that of the terminal.
    """
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    console.push_render_hook(_Cleaner())
    return console
