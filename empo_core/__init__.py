"""A small core for model-based RL: protocols, plugins, configs and runs.

Importing this package imports nothing else: neither torch, so that listing plugins stays fast,
nor pydantic, so that the command ``empo`` can deal with Ctrl-C before anything takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from empo_core.config import Config, ConfigFile, ConfigOutput, ConfigPath
    from empo_core.config.files import load_config
    from empo_core.experiment import run
    from empo_core.plugins.hookspecs import Command, Component, hookimpl
    from empo_core.saved_run import open_run

__all__ = [
    "Command",
    "Component",
    "Config",
    "ConfigFile",
    "ConfigOutput",
    "ConfigPath",
    "hookimpl",
    "load_config",
    "open_run",
    "run",
]
__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(["Config", "ConfigFile", "ConfigOutput", "ConfigPath"], "empo_core.config"),
    **dict.fromkeys(["Command", "Component", "hookimpl"], "empo_core.plugins.hookspecs"),
    "load_config": "empo_core.config.files",
    "open_run": "empo_core.saved_run",
    "run": "empo_core.experiment",
}


def __dir__() -> list[str]:
    """The public names, for completion."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> object:
    """Import a name of this package when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
