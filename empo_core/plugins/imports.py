"""Packages that the person at the keyboard names to be imported: ``empo --import PACKAGE ...``.

Some packages make things available by being imported, e.g. environments of Gymnasium. Only a
command line or a Python program may name them, never a file: a config is data.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Sequence

from empo_core.errors import ConfigError
from empo_core.exits import event

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_imported: list[str] = []


def extra_imports() -> tuple[str, ...]:
    """The packages named so far, in order.

    Whoever builds environments in another process hands these to it, which then calls
    ``import_extra`` with them.
    """
    return tuple(_imported)


def import_extra(names: Sequence[str]) -> None:
    """Import packages, and remember them for other processes.

    Raises:
        ConfigError: One is no name of a package, is not installed, or does not import.
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
