"""The hooks a plugin implements, and the values they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pluggy import HookimplMarker
from pydantic import BaseModel

from empo_core.errors import PluginLoadError
from empo_core.plugins.imports import load_target

PROJECT = "empo"
API_VERSION = 1
Kind = Literal[
    "world_model",
    "value_network",
    "policy_loss",
    "aggregator",
    "tracker",
    "human_prior",
    "explorer",
    "collector",
    "environment",
    "executor",
    "callback",
    "schedule",
    "policy_network",
    "algorithm",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

HOOKS = ("empo_components", "empo_commands", "empo_run_finished")
"""The functions a plugin may have.

``empo_components()`` returns the components that the distribution provides, ``empo_commands()`` the
commands that it adds to ``empo``; neither may import torch.

``empo_run_finished(run)`` follows each run once its results are saved. ``run`` is the run's
``empo_core.experiment.Experiment``, whose ``config``, ``directory``, ``result`` and ``context``
(world, seed, tracker) can be used. An error in the function is a warning of the run and ends
nothing.
"""

hookimpl = HookimplMarker(PROJECT)
"""Marks a function of a plugin as one of ``HOOKS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One named implementation a plugin offers.

    What only components of one kind declare are members of the kind's base class, or class
    attributes of ``params`` (table in ``docs/explanation/architecture.md``).

    Attributes:
        kind: Kind of what the ``target`` builds; ``empo_core.protocols`` lists their classes.
        name: What a config writes to choose it, in kebab-case.
        params: Model that validates the config's ``params`` block; a large one by its place,
            ``"package.module:Model"``, imported only when it is needed.
        target: ``"package.module:callable"``, imported only when chosen.
        api: The plugin API version it was written for, as a literal number.
        summary: One line for people.
    """

    kind: Kind
    name: str
    params: type[BaseModel] | str
    target: str
    api: int
    summary: str = ""

    @property
    def label(self) -> str:
        """Kind and name, for messages."""
        return f"{self.kind} {self.name!r}"

    @property
    def package(self) -> str:
        """The top package of its code."""
        return self.target.partition(":")[0].partition(".")[0]

    def load(self) -> Callable[..., Any]:
        """Import and return the factory behind ``target``.

        Raises:
            PluginLoadError: if the module does not import or lacks the name.
        """
        return load_target(self.label, self.target)

    def params_model(self) -> type[BaseModel]:
        """The model in ``params``, imported where only its place is given.

        Raises:
            PluginLoadError: if the module does not import, or has no such model.
        """
        owner = f"the params of {self.label}"
        model: object = (
            load_target(owner, self.params) if isinstance(self.params, str) else self.params
        )
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            raise PluginLoadError(f"{owner} are {model!r}, not a pydantic model")
        return model


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One sub-command that a plugin adds to ``empo``.

    Attributes:
        name: What one types after ``empo``, in kebab-case.
        help: One line for ``empo --help``.
        target: ``"package.module:function"``, imported only when the command is used; typer
            reads arguments and options from the function's annotations.
        api: The plugin API version it was written for, as a literal number.
    """

    name: str
    help: str
    target: str
    api: int

    @property
    def label(self) -> str:
        """The word command and the name, for messages."""
        return f"command {self.name!r}"

    def load(self) -> Callable[..., None]:
        """Import and return the function behind ``target``.

        Raises:
            PluginLoadError: if the module does not import or lacks the name.
        """
        return load_target(self.label, self.target)
