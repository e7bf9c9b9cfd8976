"""Standard output is the command's own; it may be closed, full or unread without loss.

Descriptor 1 leads to standard error, so that what plugins, libraries in C and child processes write
there cannot get into the output of a command. ``sys.stdout`` writes to a duplicate of the original.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from typing_extensions import Buffer

from empo_core.errors import OutputError

_is_stdout_closed = False
_reserved: TextIO | None = None


class UnreadOutputError(Exception):
    """Nobody reads standard output any more, e.g. ``head``, which has seen enough.

    No BrokenPipeError, which a component may raise for a pipe of its own, and which rich and click
    would take for one of standard output.
    """


class _Output(io.FileIO):
    """A standard stream; a write that fails is one error of ours, and later ones are left out."""

    def __init__(self, descriptor: int, *, is_lenient: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_over = is_lenient

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        """Write some bytes.

        Raises:
            UnreadOutputError: if nobody reads any more.
            OutputError: if the system refuses for another reason.
        """
        try:
            return super().write(data)
        except OSError as error:
            if self._is_over:
                return memoryview(data).nbytes
            self._is_over = True  # Python writes what is left again when it ends.
            if isinstance(error, BrokenPipeError):
                raise UnreadOutputError from error
            reason = error.strerror or type(error).__name__
            raise OutputError(f"standard output cannot be written: {reason}") from error


def take_over() -> None:
    """Make standard output the command's own, and open what is closed of the standard streams.

    What files are opened later would else get the numbers of closed ones, and be written to by
    whoever prints. Standard error is where failures are told, so its own go untold.
    """
    global _is_stdout_closed
    if os.name != "posix":
        return
    _is_stdout_closed = sys.stdout is None
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is this one.
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        duplicate = os.dup(1)  # Not inherited by child processes.
        os.dup2(2, 1)
        sys.stdout = _text(duplicate, sys.stdout)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text(2, sys.stderr)


def give_up() -> None:
    """Send what is printed after the command, e.g. at exit, to standard error."""
    stdout, sys.stdout = sys.stdout, sys.stderr
    if stdout is not None:
        stdout.flush()


@contextlib.contextmanager
def reserved() -> Iterator[None]:
    """Send what is printed to standard error, unless it is printed to ``output()``."""
    global _reserved
    before, _reserved = _reserved, output()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _reserved = before


def output() -> TextIO:
    """Standard output for what a command has to say."""
    return sys.stdout if _reserved is None else _reserved


def stdout_is_closed() -> bool:
    """Whether this process was started without a standard output."""
    return _is_stdout_closed


def _text(number: int, stream: TextIO | None) -> TextIO:
    raw = _Output(number, is_lenient=number == 2)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors=getattr(stream, "errors", None) or ("strict", "backslashreplace")[number == 2],
        line_buffering=raw.isatty() or number == 2,
        write_through=number == 2,
    )
