"""Text that may come from any file, made fit for terminals and logs."""

from __future__ import annotations

import logging
from collections.abc import Callable


def printable(text: str, *, keep: str = "\n\t", escape: Callable[[str], str] = repr) -> str:
    """The text with every character spelt out that a terminal would obey instead of show.

    Args:
        text: Anything, e.g. the name of a world.
        keep: Characters that stay though they are not printable.
        escape: Spells one character, between quotation marks.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else escape(c)[1:-1] for c in text)


class PrintableFormatter(logging.Formatter):
    """A formatter whose lines are fit for terminals, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return printable(super().format(record))
