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
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from empo_core.errors import ConfigError, PluginLoadError, event
from empo_core.interrupts import process_exists

log = logging.getLogger("empo_core")

_imported: list[str] = []
_SIGNALS = tuple(signal.valid_signals())


class Setting(NamedTuple):
    """Something of the whole process that imports should not change.

    Attributes:
        read: Returns the value; None cannot be put back.
        write: Takes the value.
        default: The value that it has if there was nothing to read before, as of torch.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    default: Any = None


def extra_imports() -> tuple[str, ...]:
    """The packages named so far, in order.

    Whoever builds environments in another process hands these to it, which then calls
    ``import_extra`` with them.
    """
    return tuple(_imported)


def import_extra(names: Sequence[str]) -> None:
    """Import packages, and remember them for other processes.

    Raises:
        ConfigError: if a package is not installed or does not import.
    """
    for name in names:
        try:
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise ConfigError(f"--import {name}: importing it {event(error)}") from error
        if name not in _imported:
            _imported.append(name)


def load_target(owner: str, target: str) -> Callable[..., Any]:
    """Import ``"package.module:name"``, and warn of what the import changed elsewhere.

    Args:
        owner: Owner of the target, for errors, e.g. ``"tracker 'mine'"``.
        target: The place of a class or function.

    Raises:
        PluginLoadError: if the module does not import or lacks the name.
    """
    module_name, _, attribute = target.partition(":")
    try:
        with put_back() as changed, noted() as note:
            note(module_name, owner)
            module = importlib.import_module(module_name)
        loaded: Callable[..., Any] = getattr(module, attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise PluginLoadError(
            f"{owner} could not be loaded from {target!r}: "
            f"{type(error).__name__}: {error}. Reinstall the plugin that offers it."
        ) from error
    if changed:
        log.warning("importing %s for %s changed %s; that was put back",
                    module_name, owner, ", ".join(changed))  # fmt: skip
    return loaded


@contextlib.contextmanager
def put_back() -> Iterator[list[str]]:
    """Run a plugin's code: its prints go to standard error, and what it changes is put back.

    Yields:
        The names of what was put back, complete when the block has ended.
    """
    changed: list[str] = []
    with contextlib.redirect_stdout(sys.stderr):
        before = {name: setting.read() for name, setting in _settings().items()}
        try:
            yield changed
        finally:
            for name, setting in _settings().items():
                value = before.get(name, setting.default)
                if value is not None and setting.read() != value:
                    changed.append(name)
                    with contextlib.suppress(OSError, ValueError, locale.Error):
                        setting.write(value)


def _settings() -> dict[str, Setting]:
    settings = {
        "the working folder": Setting(_working_folder, os.chdir),
        "the umask": Setting(_umask, os.umask),
        "the locale": Setting(
            lambda: locale.setlocale(locale.LC_ALL),
            lambda value: locale.setlocale(locale.LC_ALL, value),
        ),
        "standard error": Setting(
            lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)
        ),
    }
    if threading.current_thread() is threading.main_thread():  # No other can change them.
        settings["signal handlers"] = Setting(_handlers, _handle)
    torch = sys.modules.get("torch")
    if torch is not None:
        settings |= {
            "torch's default dtype": Setting(
                torch.get_default_dtype, torch.set_default_dtype, torch.float32
            ),
            "torch's default device": Setting(
                torch.get_default_device, torch.set_default_device, torch.device("cpu")
            ),
            "torch's gradients": Setting(torch.is_grad_enabled, torch.set_grad_enabled, True),
            "torch's deterministic algorithms": Setting(
                torch.are_deterministic_algorithms_enabled,
                torch.use_deterministic_algorithms,
                False,
            ),
            "torch's number of threads": Setting(torch.get_num_threads, torch.set_num_threads),
        }
    return settings


def _working_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # It was removed.
        return None


def _umask() -> int:
    mask = os.umask(0o077)  # What another thread makes meanwhile is closed to others, not open.
    os.umask(mask)
    return mask


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _handle(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _notes() -> Path:
    """The file of this process's notes, in a folder of this user.

    Other hosts may have the same folder, and processes of the same numbers.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return folder / "empo" / f"importing-{platform.node()}-{os.getpid()}"


def _is_worker() -> bool:
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


@contextlib.contextmanager
def noted() -> Iterator[Callable[[str, str], None]]:
    """A function that notes what is imported next; the notes are removed at the end.

    Its arguments are the module, and what it belongs to, in words. A worker process notes nothing:
    whoever started it may kill it, and tells how it ended.
    """
    if _is_worker():
        yield lambda module, owner: None
        return
    try:
        path = _notes()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Lines of one open file, since opening a file takes milliseconds on some disks.
        notes = path.open("wb", buffering=0)
    except (OSError, RuntimeError):  # No home, or a disk that is full.
        yield lambda module, owner: None
        return

    def note(module: str, owner: str) -> None:
        line = json.dumps({"module": module, "owner": owner, "of": sys.prefix}) + "\n"
        with contextlib.suppress(OSError):
            notes.write(line.encode())

    with notes:
        try:
            yield note
        finally:
            path.unlink(missing_ok=True)


def warn_of_unfinished(block: str) -> None:
    """Name the plugins whose import ended an earlier command, and forget it.

    Args:
        block: The environment variable that leaves plugins out.
    """
    with contextlib.suppress(OSError, RuntimeError):
        prefix = _notes().name.rpartition("-")[0]
        for note in sorted(_notes().parent.glob(f"{prefix}-*")):
            if process_exists(note.name.rpartition("-")[2]):
                continue
            with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
                data = json.loads(note.read_bytes().splitlines()[-1])
                if data["of"] != sys.prefix:
                    continue
                log.warning(
                    "the last command ended without a word while it imported %s of %s (as after "
                    "os._exit or a crash in it); correct or uninstall it, or name it in %s",
                    data["module"], data["owner"], block,
                )  # fmt: skip
            note.unlink()
