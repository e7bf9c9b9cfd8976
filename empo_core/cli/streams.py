"""Standard streams that may be closed, full or unread; no result is lost by that."""

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


class _Output(io.FileIO):
    """Standard output; a write that fails is one error of ours, and later ones are left out."""

    is_lenient = False
    """Whether writes that fail are left out, for what they say is not what was asked for."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_over = False

    def write(self, data: Buffer, /) -> int | None:  # type: ignore[override]
        """Write some bytes.

        Raises:
            BrokenPipeError: Nobody reads any more.
            OutputError: The system refuses for another reason.
        """
        try:
            return super().write(data)
        except OSError as error:
            if self.is_lenient or self._is_over:
                return memoryview(data).nbytes
            self._is_over = True  # Python writes what is left again when it ends.
            if isinstance(error, BrokenPipeError):
                raise
            reason = error.strerror or type(error).__name__
            raise OutputError(f"standard output cannot be written: {reason}") from error


def take_over() -> None:
    """Open what is closed of the standard streams, and be forgiving of what cannot be written.

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
        sys.stdout = _text(1, sys.stdout)
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        sys.stderr = _text(2, sys.stderr)
        _output_of(sys.stderr).is_lenient = True


def stdout_is_closed() -> bool:
    """Whether this process was started without a standard output."""
    return _is_stdout_closed


@contextlib.contextmanager
def lenient_output() -> Iterator[None]:
    """Let components print as they like: what cannot be written of it is left out."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, _Output):
        yield
        return
    before, raw.is_lenient = raw.is_lenient, True
    try:
        yield
    finally:
        sys.stdout.flush()
        raw.is_lenient = before


def _text(number: int, stream: TextIO | None) -> TextIO:
    raw = _Output(number)
    is_terminal = raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors=getattr(stream, "errors", None) or ("strict", "backslashreplace")[number == 2],
        line_buffering=is_terminal or number == 2,
        write_through=number == 2,
    )


def _output_of(stream: TextIO) -> _Output:
    raw = stream.buffer.raw  # type: ignore[attr-defined]
    assert isinstance(raw, _Output)
    return raw
