"""Find installed plugins and turn them into a registry.

Every failure of one plugin is recorded against that plugin and never stops a run that does
not use it. ``empo plugins`` shows the reasons.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

import pluggy
from pydantic import BaseModel

from empo_core.errors import IncompatiblePluginError, PluginLoadError
from empo_core.plugins import hookspecs
from empo_core.plugins.hookspecs import API_VERSION, KINDS, Component
from empo_core.plugins.registry import BLOCK, Offer, Provider, Registry

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""What a component may be called."""


def discover() -> Registry:
    """Build the registry from every installed distribution with an ``empo`` entry point."""
    blocked = {_canonical(name) for name in os.environ.get(BLOCK, "").split(",")}
    by_name: dict[str, list[EntryPoint]] = defaultdict(list)
    offers: list[Offer] = []
    providers: list[Provider] = []
    for entry_point in entry_points(group=hookspecs.PROJECT):
        distribution = _distribution(entry_point)
        if blocked & {_canonical(entry_point.name), _canonical(distribution[0])}:
            providers.append(Provider(*distribution, entry_point.name, f"blocked by {BLOCK}"))
        else:
            by_name[entry_point.name].append(entry_point)

    for name in sorted(by_name):
        twins = sorted(by_name[name], key=_distribution)
        for entry_point in twins:
            problem, components = "", []
            try:
                _refuse_twins(twins)
                components = _load(entry_point)
            except PluginLoadError as error:
                problem = " ".join(str(error).split())  # A reason is one line.
            provider = Provider(*_distribution(entry_point), entry_point.name, problem)
            providers.append(provider)
            offers += [Offer(provider, component) for component in components]
    providers.sort(key=lambda provider: (provider.entry_point, provider.distribution))
    return Registry(offers, providers)


def _canonical(name: str) -> str:
    """A name as packaging tools compare it: case, ``-``, ``_`` and ``.`` make no difference."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _distribution(entry_point: EntryPoint) -> tuple[str, str]:
    if entry_point.dist is None:
        return entry_point.name, "unknown"
    return entry_point.dist.name, entry_point.dist.version


def _refuse_twins(twins: Sequence[EntryPoint]) -> None:
    """Refuse all of two equal names: pluggy would keep the first and say nothing."""
    if len(twins) > 1:
        names = [_distribution(twin)[0] for twin in twins]
        raise PluginLoadError(
            f"{' and '.join(names)} both install an entry point called {twins[0].name!r}; "
            f"uninstall one, or set {BLOCK}={names[-1]}"
        )


def _load(entry_point: EntryPoint) -> list[Component]:
    """The components of one plugin.

    Raises:
        PluginLoadError: With one line that says what is wrong with it.
    """
    # What a plugin prints must not end up in the JSON that a command prints.
    with contextlib.redirect_stdout(sys.stderr):
        module = _import(entry_point)
        hook = _hook(module, entry_point)
        try:
            offered = list(_iterable(hook()))
        except PluginLoadError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginLoadError(f"its empo_components {_event(error)}") from error
    return _validated(offered, _distribution(entry_point)[0])


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        raise PluginLoadError(
            f"importing {entry_point.value} needs the missing module {error.name!r}; install it"
        ) from error
    except (Exception, SystemExit) as error:
        raise PluginLoadError(f"importing {entry_point.value} {_event(error)}") from error


def _hook(module: object, entry_point: EntryPoint) -> Callable[[], object]:
    """The plugin's one hook; a manager of its own charges a bad hook to its own plugin."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=entry_point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise PluginLoadError(
            f"{error}; the hook is called empo_components, without arguments"
        ) from error
    implementations = manager.hook.empo_components.get_hookimpls()
    if not implementations:
        raise PluginLoadError(
            f"{entry_point.value} implements no hook; decorate empo_components with @hookimpl"
        )
    hook: Callable[[], object] = implementations[0].function
    return hook


def _iterable(returned: object) -> Iterable[object]:
    if not isinstance(returned, Iterable):
        raise PluginLoadError(
            f"its empo_components returns {type(returned).__name__}, not components"
        )
    return returned


def _validated(offered: Iterable[object], distribution: str) -> list[Component]:
    """What the hook returned, once every piece of it has proved to be a usable component."""
    components: list[Component] = []
    for component in offered:
        if not isinstance(component, Component):
            raise PluginLoadError(f"its empo_components yields {component!r}, not a Component")
        what = f"{component.kind} {component.name!r}"
        _check_api(component.api, what, distribution)
        if component.kind not in KINDS:
            raise PluginLoadError(f"{what} has an unknown kind; kinds are {', '.join(KINDS)}")
        if not (isinstance(component.name, str) and NAME.fullmatch(component.name)):
            raise PluginLoadError(
                f"{what} is badly named; a name is lower-case words joined by hyphens"
            )
        if not (isinstance(component.params, type) and issubclass(component.params, BaseModel)):
            raise PluginLoadError(
                f"the params of {what} are {component.params!r}, not a pydantic model"
            )
        if any((component.kind, component.name) == (c.kind, c.name) for c in components):
            raise PluginLoadError(f"its empo_components yields {what} twice")
        components.append(component)
    return components


def _check_api(api: object, what: str, distribution: str) -> None:
    if api != API_VERSION:
        older = distribution
        if isinstance(api, int) and api > API_VERSION:
            older = "empo-core"
        raise IncompatiblePluginError(
            f"{what} is for plugin API {api!r}; "
            f"this empo-core speaks {API_VERSION}. Upgrade {older}."
        )


def _event(error: BaseException) -> str:
    """What happened, e.g. ``raises ValueError: no such file``."""
    if isinstance(error, SystemExit):
        return f"calls sys.exit({error.code!r})"
    return f"raises {type(error).__name__}: {error}"
