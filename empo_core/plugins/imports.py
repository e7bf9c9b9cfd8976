"""Imports of code that is not ours: what they change is put back, what they end is noted.

Plugins are imported within ``put_back`` and ``noted``. By the notes the next command names a plugin
whose import ended the process, as by ``os._exit`` or a crash, which cannot say anything itself.

Some packages make things available by being imported, e.g. environments of Gymnasium:
``empo --import PACKAGE ...``. Only a command line or a Python program may name them, never a file:
a config is data.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import locale
import logging
import os
import platform
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from empo_core.errors import ConfigError, event
from empo_core.interrupts import process_exists

log = logging.getLogger("empo_core")

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_imported: list[str] = []
_PREFIX = f"importing-{platform.node()}-"
"""Begin of the names of notes: processes of other hosts with the same home are not known here."""
_SIGNALS = tuple(signal.valid_signals())

Read = Callable[[], Any]
Write = Callable[[Any], object]


def extra_imports() -> tuple[str, ...]:
    """The packages named so far, in order.

    Whoever builds environments in another process hands these to it, which then calls
    ``import_extra`` with them.
    """
    return tuple(_imported)


def import_extra(names: Sequence[str]) -> None:
    """Import packages, and remember them for other processes.

    Raises:
        ConfigError: if a name is none of a package, or the package is not installed or does not
            import.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--import {name}: write the name of a package, e.g. 'minigrid'")
        try:
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--import {name}: there is no module {error.name!r}; install it, or correct it"
            ) from error
        except BaseException as error:
            raise ConfigError(f"--import {name}: importing it {event(error)}") from error
        if name not in _imported:
            _imported.append(name)


@contextlib.contextmanager
def put_back() -> Iterator[list[str]]:
    """Run a plugin's code: its prints go to standard error, and what it changes is put back.

    Yields:
        The names of what was put back, complete when the block has ended.
    """
    changed: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):
        before = {name: read() for name, (read, _) in _settings().items()}
        try:
            yield changed
        finally:
            for name, (read, write) in _settings().items():
                # What torch has by itself, where the plugin imports it.
                value = before[name] if name in before else _TORCH_DEFAULTS.get(name)
                if value is not None and read() != value:
                    changed.append(name)
                    with contextlib.suppress(OSError, ValueError, locale.Error):
                        write(value)


def _settings() -> dict[str, tuple[Read, Write]]:
    """How each setting is read and written; None is what cannot be put back."""
    settings: dict[str, tuple[Read, Write]] = {
        "the working folder": (_working_folder, os.chdir),
        "the umask": (_umask, os.umask),
        "the locale": (_locale, lambda value: locale.setlocale(locale.LC_ALL, value)),
        "standard error": (lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)),
    }
    if threading.current_thread() is threading.main_thread():  # No other can change them.
        settings["signal handlers"] = (_handlers, _handle)
    torch = sys.modules.get("torch")
    if torch is not None:
        settings |= {
            "torch's default dtype": (
                lambda: str(torch.get_default_dtype()).removeprefix("torch."),
                lambda name: torch.set_default_dtype(getattr(torch, name)),
            ),
            "torch's default device": (
                lambda: str(torch.get_default_device()),
                lambda name: torch.set_default_device(None if name == "cpu" else name),
            ),
            "torch's gradients": (torch.is_grad_enabled, torch.set_grad_enabled),
            "torch's deterministic algorithms": (
                torch.are_deterministic_algorithms_enabled,
                torch.use_deterministic_algorithms,
            ),
            "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        }
    return settings


_TORCH_DEFAULTS: dict[str, object] = {
    "torch's default dtype": "float32",
    "torch's default device": "cpu",
    "torch's gradients": True,
    "torch's deterministic algorithms": False,
}


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # It was removed.
        return None


def _umask() -> int:
    mask = os.umask(0o077)  # What another thread makes meanwhile is closed to others, not open.
    os.umask(mask)
    return mask


def _locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _handle(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _folder() -> Path:
    """The folder of notes, of this user."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "empo"


@contextlib.contextmanager
def noted() -> Iterator[Callable[[str, str], None]]:
    """A function that notes what is imported next; the notes are removed at the end.

    Its arguments are the module, and what it belongs to, in words.
    """
    with contextlib.ExitStack() as stack:
        notes: FileIO | None = None
        with contextlib.suppress(OSError, RuntimeError):  # No home, or a disk that is full.
            _folder().mkdir(parents=True, exist_ok=True)
            path = _folder() / f"{_PREFIX}{os.getpid()}"
            # Lines of one open file, since opening a file takes milliseconds on some disks.
            notes = stack.enter_context(path.open("wb", buffering=0))
            stack.callback(_remove, path)

        def note(module: str, owner: str) -> None:
            if notes is not None:
                line = json.dumps({"module": module, "owner": owner, "of": sys.prefix}) + "\n"
                with contextlib.suppress(OSError):
                    notes.write(line.encode())

        yield note


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def warn_of_unfinished(block: str) -> None:
    """Name the plugins whose import ended an earlier command, and forget it.

    Args:
        block: The environment variable that leaves plugins out.
    """
    with contextlib.suppress(OSError, RuntimeError):
        for note in sorted(_folder().glob(f"{_PREFIX}*")):
            pid = note.name.removeprefix(_PREFIX)
            if note.is_symlink() or not pid.isdecimal() or process_exists(pid):
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
                data = json.loads(note.read_bytes()[-4096:].splitlines()[-1])
                if data["of"] != sys.prefix:
                    continue
                log.warning(
                    "the last command ended without a word while it imported %s of %s (as after "
                    "os._exit or a crash in it); correct or uninstall it, or name it in %s",
                    data["module"], data["owner"], block,
                )  # fmt: skip
            note.unlink()
