"""Behaviour that all commands share: exit codes, errors without tracebacks, JSON, tables."""

from __future__ import annotations

import contextlib
import functools
import json as jsonlib
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.manual import address
from empo_core.cli.streams import UnreadOutputError, output, reserved, stdout_is_closed
from empo_core.errors import REFUSALS, EmpoError, OutputError
from empo_core.exits import EXITS, exit_error
from empo_core.interrupts import Termination
from empo_core.printable import PrintableFormatter, printable

if TYPE_CHECKING:
    from rich.console import Console

USAGE, FAULT, INTERRUPTED, UNREAD = 2, 3, 130, 1
MANY_ROWS = 200

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no report.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


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
        if debug:
            lines = ["".join(traceback.format_exception(error)).rstrip()]
        elif isinstance(error, EmpoError):
            lines = [str(error), *_notes(error)]
            lines += [f"See {address(error.page)}"] if error.page else []
        else:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            hint = "This should not happen; '--debug' shows where it did."
            lines = [reason, hint, *_notes(error)]
        say("\n".join(lines))
        raise typer.Exit(USAGE if isinstance(error, REFUSALS) else FAULT) from error


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


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
    if stdout_is_closed():
        say(str(path))


def show(text: str) -> None:
    """Print a line of the command's output."""
    print(printable(text), file=output(), flush=True)


def print_json(data: Mapping[str, object]) -> None:
    """Print strict JSON; infinities and NaN, which it lacks, become strings."""
    from empo_core.runs.directory import strict_json

    text = strict_json(data)
    try:
        text.encode(output().encoding or "utf-8")
    except UnicodeEncodeError:
        text = jsonlib.dumps(jsonlib.loads(text), indent=2)  # In ASCII.
    show(text)


def stdout() -> Console:
    """A console for the command's output; a pipe gets lines that are never folded."""
    from empo_core.cli.console import output_console

    return output_console(output(), width=None if output().isatty() else 10_000)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; cells are text, never markup."""
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
    stdout().print(table)


@contextlib.contextmanager
def only_ours_on_stdout(*, quiet: bool = False) -> Iterator[None]:
    """Send what components print, and warnings, to standard error."""
    from empo_core.runs.directory import process_rank

    handler = logging.StreamHandler(sys.stderr)
    # Of several processes that do the same run, the first says everything.
    silent = quiet or process_rank() > 0
    handler.setLevel(logging.ERROR if silent else logging.INFO)
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
