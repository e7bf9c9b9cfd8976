"""The one hook a plugin implements, and the value it returns."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pluggy
from pydantic import BaseModel

from empo_core.errors import PluginLoadError

PROJECT = "empo"
API_VERSION = 1
Kind = Literal[
    "world_model",
    "human_prior",
    "value_network",
    "policy_loss",
    "aggregator",
    "tracker",
    "collector",
    "explorer",
    "algorithm",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One named implementation a plugin offers.

    Attributes:
        kind: Which protocol of ``empo_core.protocols`` the ``target`` builds.
        name: What a config writes to choose it, in kebab-case.
        params: Model that validates the config's ``params`` block.
        target: ``"package.module:callable"``, imported only when chosen.
        api: The plugin API version it was written for, as a literal number.
        summary: One line for people.
        library: A folder of ready-made files for the component's ``file`` param; a config
            names them ``<component>/<file stem>`` and ``empo worlds`` lists them.
    """

    kind: Kind
    name: str
    params: type[BaseModel]
    target: str
    api: int
    summary: str = ""
    library: Path | None = None

    def load(self) -> Callable[..., Any]:
        """Import and return the factory behind ``target``.

        Raises:
            PluginLoadError: The module does not import or lacks the name.
        """
        module_name, _, attribute = self.target.partition(":")
        try:
            factory: Callable[..., Any] = getattr(importlib.import_module(module_name), attribute)
        except (Exception, SystemExit) as error:
            raise PluginLoadError(
                f"{self.kind} {self.name!r} could not be loaded from {self.target!r}: "
                f"{type(error).__name__}: {error}. Reinstall the plugin that offers it."
            ) from error
        return factory


@hookspec
def empo_components() -> Iterable[Component]:
    """Return the components this distribution provides; must not import torch."""
    return ()
