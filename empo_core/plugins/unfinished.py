"""Notes of plugins that are being imported, by which the next command names one that ended it.

What ``os._exit`` or a crash ends cannot say anything itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

log = logging.getLogger("empo_core")

_PREFIX = "importing-"


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


def tell(block: str) -> None:
    """Name the plugins whose import ended an earlier command, and forget it.

    Args:
        block: The environment variable that leaves plugins out.
    """
    with contextlib.suppress(OSError, RuntimeError):
        for note in sorted(_folder().glob(f"{_PREFIX}*")):
            pid = note.name.removeprefix(_PREFIX)
            if note.is_symlink() or not pid.isdecimal() or _exists(int(pid)):
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


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OverflowError, OSError):
        return False
    return True
