"""Find installed plugins and turn them into a registry.

Every failure of one plugin is recorded against that plugin and never stops a run that does
not use it. ``empo plugins`` shows the reasons.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

import pluggy
from pydantic import BaseModel

from empo_core import hookspecs
from empo_core.errors import IncompatiblePluginError, PluginLoadError
from empo_core.hookspecs import API_VERSION, KINDS, Component
from empo_core.registry import Offer, Provider, Registry


def discover() -> Registry:
    """Build the registry from every installed distribution with an ``empo`` entry point."""
    blocked = {name.strip() for name in os.environ.get("EMPO_BLOCK_PLUGINS", "").split(",")}
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry_point in entry_points(group=hookspecs.PROJECT):
        by_name[entry_point.name].append(entry_point)

    offers: list[Offer] = []
    providers: list[Provider] = []
    for name in sorted(by_name):
        twins = by_name[name]
        for entry_point in twins:
            problem = ""
            if name in blocked or _distribution(entry_point)[0] in blocked:
                problem = "blocked by EMPO_BLOCK_PLUGINS"
            elif len(twins) > 1:
                # pluggy keeps the first of two equal names and says nothing; we refuse both.
                both = " and ".join(sorted(_distribution(twin)[0] for twin in twins))
                problem = f"{both} both install an entry point called {name!r}; uninstall one"
            components: list[Component] = []
            if not problem:
                try:
                    components = _load(entry_point)
                except PluginLoadError as error:
                    problem = str(error)
            provider = Provider(*_distribution(entry_point), name, problem)
            providers.append(provider)
            offers += [Offer(provider, component) for component in components]
    return Registry(offers, providers)


def _distribution(entry_point: EntryPoint) -> tuple[str, str]:
    if entry_point.dist is None:
        return entry_point.name, "unknown"
    return entry_point.dist.name, entry_point.dist.version


def _load(entry_point: EntryPoint) -> list[Component]:
    """The components of one plugin.

    Raises:
        PluginLoadError: With one line that says what is wrong with it.
    """
    try:
        module = entry_point.load()
    except ModuleNotFoundError as error:
        raise PluginLoadError(
            f"importing {entry_point.value} needs the missing module {error.name!r}; install it"
        ) from error
    except SystemExit as error:
        raise PluginLoadError(f"importing {entry_point.value} calls sys.exit({error.code})") from error
    except Exception as error:
        raise PluginLoadError(
            f"importing {entry_point.value} raises {type(error).__name__}: {_one_line(error)}"
        ) from error

    # One manager per plugin, so that one bad hook is charged to its own plugin.
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=entry_point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginLoadError(f"{_one_line(error)}; the hook is called empo_components") from error
    implementations = manager.hook.empo_components.get_hookimpls()
    if not implementations:
        raise PluginLoadError(
            f"{entry_point.value} implements no hook; decorate empo_components with @hookimpl"
        )
    try:
        components = list(_iterable(implementations[0].function()))
    except PluginLoadError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginLoadError(
            f"its empo_components raises {type(error).__name__}: {_one_line(error)}"
        ) from error
    for component in components:
        _validate(component, entry_point)
    return components


def _iterable(returned: object) -> Iterable[object]:
    if not isinstance(returned, Iterable):
        raise PluginLoadError(
            f"its empo_components returns {type(returned).__name__}, not components"
        )
    return returned


def _validate(component: object, entry_point: EntryPoint) -> None:
    if not isinstance(component, Component):
        raise PluginLoadError(f"its empo_components yields {component!r}, not a Component")
    what = f"{component.kind} {component.name!r}"
    if component.api != API_VERSION:
        older = _distribution(entry_point)[0] if component.api < API_VERSION else "empo-core"
        raise IncompatiblePluginError(
            f"{what} is for plugin API {component.api}; this empo-core speaks {API_VERSION}. "
            f"Upgrade {older}."
        )
    if component.kind not in KINDS:
        raise PluginLoadError(f"{what} has an unknown kind; kinds are {', '.join(KINDS)}")
    if not (isinstance(component.params, type) and issubclass(component.params, BaseModel)):
        raise PluginLoadError(f"the params of {what} are {component.params!r}, not a pydantic model")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
