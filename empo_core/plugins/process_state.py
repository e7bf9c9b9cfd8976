"""State of the whole process that the import of a plugin may change, and how it is put back."""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

Read = Callable[[], Any]
Write = Callable[[Any], object]

_SIGNALS = tuple(signal.valid_signals())


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
