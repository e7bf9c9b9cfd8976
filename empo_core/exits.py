"""Components that try to end the process: an error of the run, never the exit code of a command."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from empo_core.errors import ComponentExitError

EXITS = (SystemExit, GeneratorExit)
"""What code raises to end a process or a generator, and ``except Exception`` lets pass."""


def is_exit(error: BaseException) -> bool:
    """True for what is neither an error nor Ctrl-C, and would end the process in silence."""
    return not isinstance(error, Exception | KeyboardInterrupt)


def event(error: BaseException) -> str:
    """Description of an error, e.g. ``raises ValueError: no such file``."""
    if isinstance(error, SystemExit):
        return f"calls sys.exit({error.code!r})"
    return f"raises {type(error).__name__}{f': {error}' if str(error) else ''}"


def place(error: BaseException) -> str:
    """File, line and function of the code that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "somewhere"
    return f"{frames[-1].filename}:{frames[-1].lineno}, in {frames[-1].name}"


def exit_error(error: BaseException, subject: str) -> ComponentExitError:
    """The error of a component that tried to end the process."""
    return ComponentExitError(
        f"{subject} {event(error)} ({place(error)}), which would end the whole process; let it "
        "raise an error, or return"
    )


@contextmanager
def exits_are_errors(subject: str) -> Iterator[None]:
    """Raise what would end the process as an error that names who did it."""
    try:
        yield
    except EXITS as error:
        raise exit_error(error, subject) from error
