"""What all commands share: standard output, exit codes, errors without tracebacks, JSON, tables.

Standard output is the command's own; it may be closed, full or unread without loss. Descriptor 1
leads to standard error, so that what plugins, libraries in C and child processes write there cannot
get into the output of a command. ``sys.stdout`` writes to a duplicate of the original.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json as jsonlib
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from typing_extensions import Buffer

from empo_core.errors import EXITS, REFUSALS, EmpoError, OutputError, exit_error
from empo_core.interrupts import Termination
from empo_core.printable import PrintableFormatter, printable

if TYPE_CHECKING:
    from rich.console import Console

USAGE, FAULT, INTERRUPTED, UNREAD = 2, 3, 130, 1
MANY_ROWS = 200
TRACEBACK = "Traceback (most recent call last):"
"""The first line of a traceback, which messages of worker processes carry."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only warnings and the result.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
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


def _text(number: int, stream: TextIO | None) -> TextIO:
    raw = _Output(number, is_lenient=number == 2)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors="backslashreplace",
        line_buffering=raw.isatty() or number == 2,
        write_through=number == 2,
    )


_LONG_PATH = 200
"""Characters beyond which a path is not shown whole."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with errors as messages on standard error, and the exit codes we promise."""

    @functools.wraps(command)
    def wrapper(*args: object, **kwargs: object) -> None:
        with reported(debug=bool(kwargs.get("debug"))), Termination():
            command(*args, **kwargs)

    return wrapper


@contextlib.contextmanager
def reported(*, debug: bool = False) -> Iterator[None]:
    """Turn exceptions into messages on standard error, and into the exit codes we promise.

    0 ok, 1 the output was not read to its end, 2 usage or config, 3 a fault in the run,
    130 interrupted. With ``debug`` the message is a traceback.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        say(str(error) or "interrupted")
        raise typer.Exit(INTERRUPTED) from error
    except UnreadOutputError as error:
        raise typer.Exit(UNREAD) from error
    except EXITS as error:
        # Of a component; a command of ours that ends early raises what typer knows.
        say(str(exit_error(error, "a component")))
        raise typer.Exit(FAULT) from error
    except Exception as error:
        # Click's own exceptions are usage errors and exits, which it handles itself.
        if type(error).__module__.split(".")[0] in ("click", "typer"):
            raise
        notes = getattr(error, "__notes__", [])
        named = _path_refused(error)
        if debug:
            lines = ["".join(traceback.format_exception(error)).rstrip()]
        elif isinstance(error, EmpoError):
            lines = [_without_traceback(str(error)), *notes]
            lines += [f"See docs/{error.page}"] if error.page else []
        elif named:
            lines = [named, *notes]
        elif isinstance(error, OSError) and error.filename is not None:
            lines = [f"{error.filename}: {error.strerror} (errno {error.errno})", *notes]
        else:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            hint = "This should not happen; '--debug' shows where it did."
            lines = [reason, hint, *notes]
        say("\n".join(lines))
        is_refusal = isinstance(error, REFUSALS) or bool(named)
        raise typer.Exit(USAGE if is_refusal else FAULT) from error


def _path_refused(error: Exception) -> str:
    """What is wrong with a path that the system refuses to look at; empty: it is another error.

    ``Path.exists`` and its like raise where a path is too long, or in a closed folder.
    """
    if not isinstance(error, OSError) or error.errno not in (errno.ENAMETOOLONG, errno.EACCES):
        return ""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return ""
    path = os.fsdecode(error.filename)
    label = path if len(path) < _LONG_PATH else f"{path[:40]}... ({len(path)} characters)"
    return f"{label}: {(error.strerror or '').lower()}; name another path"


def _without_traceback(text: str) -> str:
    """A message without the traceback at its end, but for its last line where that says more."""
    head, mark, trace = text.partition(TRACEBACK)
    if not mark:
        return text
    head, last = head.rstrip(), trace.rstrip().rpartition("\n")[2].strip()
    reason = last.partition(": ")[2] or last
    shorter = head if head and reason in head else f"{head} {last}".strip()
    return f"{shorter}\n'--debug' shows where, and so does the log of a run."


def say(text: str) -> None:
    """Tell the user something that is not the command's output."""
    print(printable(text), file=sys.stderr, flush=True)


@contextlib.contextmanager
def kept_in(path: object) -> Iterator[None]:
    """Say on standard error where results are that standard output cannot tell of.

    Whoever closed standard output wants no more than that; one that is full, or is no longer read,
    remains an error, though nothing is lost.
    """
    try:
        yield
    except OutputError as error:
        error.add_note(f"Nothing that was computed is lost: {path}")
        raise
    except UnreadOutputError:
        say(str(path))
        raise
    if _is_stdout_closed:
        say(str(path))


def show(text: str) -> None:
    """Print a line of the command's output."""
    print(printable(text), file=output(), flush=True)


def print_json(data: Mapping[str, object]) -> None:
    """Print strict JSON; infinities and NaN, which it lacks, become strings."""
    from empo_core.runs.atomic import strict_json

    text = strict_json(data)
    try:
        text.encode(output().encoding or "utf-8")
    except UnicodeEncodeError:
        text = jsonlib.dumps(jsonlib.loads(text), indent=2)  # In ASCII.
    show(text)


def stdout(width: int | None = None, *, piped: int = 10_000) -> Console:
    """A console for the command's output: no markup, and text that is fit for terminals.

    Args:
        width: Of a line; None: that of the terminal, and in a pipe ``piped``.
        piped: Of a line in a pipe; lines are never folded there by default.
    """
    from rich.console import Console, RenderHook
    from rich.segment import Segment, Segments

    class PrintableHook(RenderHook):
        def process_renderables(self, renderables: list[Any]) -> list[Any]:
            return [Segments(map(printable_segment, console.render(r))) for r in renderables]

    def printable_segment(segment: Segment) -> Segment:
        text, style, control = segment
        return Segment(text if control else printable(text), style, control)

    file = output()
    if width is None and not file.isatty():
        width = piped
    console = Console(file=file, width=width, highlight=False, markup=False, emoji=False)
    console.push_render_hook(PrintableHook())
    return console


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, piped: int = 10_000
) -> None:
    """Print rows under headings; cells are text, never markup.

    Args:
        title: Above the table; may be empty.
        columns: Headings.
        rows: Cells by row.
        piped: As for ``stdout``.
    """
    from rich import box
    from rich.text import Text

    from empo_core.tables import FittingTable, table_lines

    if not rows:  # An empty table would be as wide as a pipe.
        show(f"{title or columns[0]}: none")
        return
    if len(rows) > MANY_ROWS and not output().isatty():
        cells = [[printable(cell) for cell in row] for row in rows]
        show("\n".join(([title] if title else []) + list(table_lines(columns, cells))))
        return
    table = FittingTable(
        title=Text(printable(title)) if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(columns),
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    stdout(piped=piped).print(table)


@contextlib.contextmanager
def only_ours_on_stdout(*, quiet: bool = False) -> Iterator[None]:
    """Send what components print, and warnings, to standard error."""
    from empo_core.runs.launch import process_rank

    handler = logging.StreamHandler(sys.stderr)
    # Of several processes that do the same run, the first says everything.
    handler.setLevel(
        logging.ERROR if process_rank() else logging.WARNING if quiet else logging.INFO
    )
    handler.addFilter(_concerns_people)
    handler.setFormatter(PrintableFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    with reserved():
        yield


def _concerns_people(record: logging.LogRecord) -> bool:
    """Warnings do, and what an algorithm has to say; other libraries' chatter does not."""
    if record.name == "empo_core" and record.exc_info:
        return False  # Why a run failed is said at its end; the traceback is in its log.
    ours = record.name.startswith("empo_") and record.name != "empo_core"
    return ours or record.levelno >= logging.WARNING
