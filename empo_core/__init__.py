"""A small core for model-based RL: protocols, plugins, configs and runs.

Importing this package does not import torch, so listing plugins stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from empo_core.config import Config, ConfigFile, ConfigPath
from empo_core.plugins.hookspecs import Command, Component, Option, hookimpl

if TYPE_CHECKING:
    from empo_core.config import RunConfig
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


def load_config(
    path: str | Path, overrides: Sequence[str] | None = None, registry: Registry | None = None
) -> RunConfig:
    """Read and validate a config file; see ``empo_core.config.loading.load_config``."""
    from empo_core.config.loading import load_config as load

    return load(path, overrides, registry)


def run(config: RunConfig, *, registry: Registry | None = None) -> Result:
    """Build what ``config`` names and run it; see ``empo_core.experiment.run``."""
    from empo_core.experiment import run as run_experiment

    return run_experiment(config, registry=registry)
