"""Text that may come from any file, made fit for terminals and logs."""

from __future__ import annotations

import codecs
import io
import logging
from collections.abc import Callable
from typing import TextIO

# Drawings of tables by rich and of bars have substitutes of their own.
_PLAIN = {"–": "-", "—": "-", "─": "-", "…": ".", "×": "x", "±": "+-"}
_PLAIN |= {"→": "->", "█": "#", "▏": "|"}
_ERRORS = "empo_plain"


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


def encode_plainly(*streams: TextIO) -> None:
    """Let streams write what their encoding lacks in ASCII rather than raise."""
    codecs.register_error(_ERRORS, _plain)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    plain = (_PLAIN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking)
    return "".join(plain), error.end
