"""A small core for model-based RL: protocols, plugins, configs and runs.

Importing this package imports nothing else: neither torch, so that listing plugins stays fast,
nor pydantic, so that the command ``empo`` can deal with Ctrl-C before anything takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from empo_core.config import Config, ConfigFile, ConfigPath, RunConfig
    from empo_core.plugins.hookspecs import Command, Component, Option, hookimpl
    from empo_core.plugins.registry import Registry
    from empo_core.protocols import Result

__all__ = [
    "Command",
    "Component",
    "Config",
    "ConfigFile",
    "ConfigPath",
    "Option",
    "hookimpl",
    "load_config",
    "run",
]
__version__ = "0.1.0"

_HOMES = {
    **dict.fromkeys(["Config", "ConfigFile", "ConfigPath"], "empo_core.config"),
    **dict.fromkeys(["Command", "Component", "Option", "hookimpl"], "empo_core.plugins.hookspecs"),
}


def __getattr__(name: str) -> object:
    """Import a name of this package when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def load_config(
    path: str | Path, overrides: Sequence[str] | None = None, registry: Registry | None = None
) -> RunConfig:
    """Read and validate a config file; see ``empo_core.config.files.load_config``."""
    from empo_core.config.files import load_config as load

    return load(path, overrides, registry)


def run(
    config: RunConfig,
    *,
    registry: Registry | None = None,
    environment: Callable[[], object] | None = None,
) -> Result:
    """Build what ``config`` names and run it; see ``empo_core.experiment.run``."""
    from empo_core.experiment import run as run_experiment

    return run_experiment(config, registry=registry, environment=environment)
