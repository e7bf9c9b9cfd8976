"""Every error the framework raises on purpose, and components that try to end the process.

A component that calls ``sys.exit`` is an error of the run, never the exit code of a command.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import ClassVar


class EmpoError(Exception):
    """Base of all framework errors; catch this to catch ours and only ours.

    Attributes:
        page: Of the documentation, relative to ``docs``, where the message alone may not do.
    """

    page: ClassVar[str] = ""


class ConfigError(EmpoError, ValueError):
    """A config, world file or command-line override cannot be used as written.

    The message has one line per problem, ``file:line:column: key.path: reason``.
    """


class UnknownComponentError(EmpoError, ValueError):
    """The config names a component that no installed plugin provides."""


class DuplicateComponentError(EmpoError):
    """Two plugins provide the same name for the same kind."""


class PluginLoadError(EmpoError):
    """An installed plugin, or a component of it, could not be loaded."""

    page = "reference/errors.md#plugins"


class IncompatiblePluginError(PluginLoadError):
    """A plugin was written for another version of the plugin API."""


class WorldError(EmpoError, ValueError):
    """A world model was asked for, or returned, something that makes no sense."""


class SolveError(EmpoError):
    """The problem cannot be solved as posed (cycles, no goals, unreachable goals, no memory)."""

    page = "how-to/solve_large_worlds.md"


class UnsuitableWorldError(SolveError):
    """The world lacks what every algorithm in it needs: a human, goals, roles of all agents."""

    page = "how-to/write_a_world_file.md"


class BrokenWorldError(SolveError, WorldError):
    """A world model breaks its contract; the message names the world, its plugin and the state."""

    page = "how-to/world_in_python.md#what-is-checked"


class StorageError(EmpoError):
    """A file on disk is missing, damaged, foreign, or could not be written."""

    page = "reference/errors.md#run-directories"


class OutputError(EmpoError):
    """Standard output cannot be written, e.g. because its disk is full."""


class WorkerError(EmpoError):
    """A worker process failed; the message carries its traceback."""


class LostError(WorkerError):
    """A worker process ended before it answered; the message says how."""


class ComponentExitError(EmpoError):
    """A component tried to end the whole process, as by ``sys.exit``; the message names it."""


class CollectError(WorkerError):
    """No actor can collect experience any more; the message carries the last traceback."""

    page = "how-to/collect_with_actor_processes.md"


class TrackerError(EmpoError):
    """A tracker raised something; the message names it, its hook and the error."""


class CallbackError(EmpoError):
    """A callback raised something; the message names it, its hook, file and line, and the error."""


class NonFiniteError(EmpoError, ArithmeticError):
    """A loss, gradient, target or weight is infinite or NaN; the message names it."""

    page = "how-to/learn_a_policy.md#when-it-does-not-learn"


REFUSALS = (ConfigError, UnknownComponentError, DuplicateComponentError, UnsuitableWorldError)
"""Errors of what was asked for: exit code 2, and where nothing was run, no run directory."""

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


def place_in(error: BaseException, component: object) -> str:
    """The package of a component, and the line of its module in which it raised an error."""
    module = getattr(component, "__module__", type(component).__module__)
    file = getattr(sys.modules.get(module), "__file__", None)
    frames = [*traceback.extract_tb(error.__traceback__)]
    frames = [frame for frame in frames if frame.filename == file] or frames[-1:]
    return f"{module.partition('.')[0]}, {frames[-1].filename}:{frames[-1].lineno}"


def written_at(component: object) -> str:
    """File and line of a function, or of an object's class: `` (file:line)``; empty: not known."""
    if isinstance(component, partial):
        component = component.func
    elif not inspect.isroutine(component):
        component = vars(type(component)).get("__call__", type(component))
    try:
        if isinstance(component, type):
            return f" ({inspect.getsourcefile(component)}:{inspect.getsourcelines(component)[1]})"
        code = inspect.unwrap(component).__code__  # type: ignore[arg-type]
    except (AttributeError, TypeError, OSError, ValueError):
        return ""
    return f" ({code.co_filename}:{code.co_firstlineno})"


def failure(error: BaseException, component: object, hook: str) -> str:
    """Sentence about what a component raised in a hook, with its package, file and line."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        reason = event(error)
    name = getattr(component, "__qualname__", type(component).__name__)
    return f"{name} failed in {hook}: {reason} ({place_in(error, component)})"


def exit_error(error: BaseException, component: str) -> ComponentExitError:
    """The error of a component that tried to end the process."""
    return ComponentExitError(
        f"{component} {event(error)} ({place(error)}), which would end the whole process; let it "
        "raise an error, or return"
    )


@contextmanager
def exits_are_errors(component: str) -> Iterator[None]:
    """Raise what would end the process as an error that names the component."""
    try:
        yield
    except EXITS as error:
        raise exit_error(error, component) from error
