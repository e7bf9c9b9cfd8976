"""Find installed plugins and turn them into a registry.

Every failure of one plugin is recorded against that plugin and never stops a run that does
not use it. ``empo plugins`` shows the reasons.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeVar

import pluggy

from empo_core.errors import IncompatiblePluginError, PluginLoadError
from empo_core.exits import event
from empo_core.plugins import hookspecs, unfinished
from empo_core.plugins.hookspecs import API_VERSION, KINDS, Command, Component
from empo_core.plugins.registry import BLOCK, NO_PLUGINS, CommandOffer, Offer, Provider, Registry

DEADLINE = "EMPO_PLUGIN_DEADLINE_S"
"""Environment variable: seconds that a plugin may take to say what it offers; 10 by default."""

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""The names that components and commands may have."""

FLAG = re.compile(r"--[a-z][a-z0-9]*(-[a-z0-9]+)*")
TARGET = re.compile(r"[\w.]+:\w+")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Installed:
    """An entry point with its distribution, whose metadata is parsed at every look."""

    entry_point: EntryPoint
    distribution: str
    version: str

    def provider(self, problem: str = "") -> Provider:
        return Provider(self.distribution, self.version, self.entry_point.name, problem)


def discover() -> Registry:
    """Build the registry from every installed distribution with an ``empo`` entry point."""
    blocked = {_canonical(name) for name in os.environ.get(BLOCK, "").split(",")}
    only_built_in = os.environ.get(NO_PLUGINS) == "1"
    unfinished.tell(BLOCK)
    built_in = Path(__file__).with_name("built_in.txt").read_text(encoding="utf-8").split()
    points = entry_points(group=hookspecs.PROJECT)
    blocked_distributions = blocked - {_canonical(point.name) for point in points}
    by_name: dict[str, list[_Installed]] = defaultdict(list)
    offers: list[Offer] = []
    commands: list[CommandOffer] = []
    providers: list[Provider] = []
    for entry_point in points:
        found = _installed(entry_point)
        name, distribution = _canonical(entry_point.name), _canonical(found.distribution)
        if blocked & {name, f"{distribution}:{name}"} or distribution in blocked_distributions:
            providers.append(found.provider().blocked(BLOCK))
        elif only_built_in and distribution not in built_in:
            providers.append(found.provider().blocked(NO_PLUGINS))
        else:
            by_name[entry_point.name].append(found)

    for name in sorted(by_name):
        twins = sorted(by_name[name], key=lambda twin: (twin.distribution, twin.version))
        for found in twins:
            problem = ""
            components: list[Component] = []
            added: list[Command] = []
            try:
                _refuse_twins(twins)
                components, added = _load(found)
            except PluginLoadError as error:
                problem = " ".join(str(error).split())  # A reason is one line.
            provider = found.provider(problem)
            providers.append(provider)
            offers += [Offer(provider, component) for component in components]
            commands += [CommandOffer(provider, command) for command in added]
    providers.sort(key=lambda provider: (provider.entry_point, provider.distribution))
    present = {_canonical(provider.distribution) for provider in providers}
    return Registry(offers, providers, commands, set(built_in) - present)


def _canonical(name: str) -> str:
    """A name as packaging tools compare it: case, ``-``, ``_`` and ``.`` make no difference."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _installed(entry_point: EntryPoint) -> _Installed:
    if entry_point.dist is None:
        return _Installed(entry_point, entry_point.name, "unknown")
    metadata = entry_point.dist.metadata
    return _Installed(entry_point, metadata["Name"], metadata["Version"])


def _refuse_twins(twins: Sequence[_Installed]) -> None:
    """Refuse all of two equal names: pluggy would keep the first and say nothing."""
    if len(twins) > 1:
        names, point = [twin.distribution for twin in twins], twins[0].entry_point.name
        others = ",".join(f"{name}:{point}" for name in names[1:])
        raise PluginLoadError(
            f"{' and '.join(names)} both install an entry point called "
            f"{point!r}; uninstall all but one, or set {BLOCK}={others}"
        )


def _load(found: _Installed) -> tuple[list[Component], list[Command]]:
    """The components and commands of one plugin.

    Raises:
        PluginLoadError: With one line that says what is wrong with it.
    """
    with unfinished.noted(found.entry_point.value.split(":")[0], f"plugin {found.distribution!r}"):
        return _loaded(found)


def _loaded(found: _Installed) -> tuple[list[Component], list[Command]]:
    point = found.entry_point
    # What a plugin prints must not end up in the JSON that a command prints.
    with contextlib.redirect_stdout(sys.stderr):
        module = _bounded(lambda: _import(point), f"importing {point.value}")
        hooks = _hooks(module, point)
        components = _offered(hooks, "empo_components")
        commands = _offered(hooks, "empo_commands")
    return (_components(components, found.distribution), _commands(commands, found.distribution))


def _bounded(work: Callable[[], T], what: str) -> T:
    """The result of a plugin's own code, which may raise anything or not return in time.

    It runs in a thread: one that hangs can be left behind, and Ctrl-C, which reaches the main
    thread alone, is never mistaken for an exception of the plugin.

    Raises:
        PluginLoadError: It raised something, or took longer than the deadline.
    """
    results: list[T] = []
    raised: list[BaseException] = []

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=target, name="empo-plugin", daemon=True)
    deadline = _deadline_s()
    thread.start()
    thread.join(deadline)
    if results:
        return results[0]
    if raised and isinstance(raised[0], PluginLoadError):
        raise raised[0]
    if raised:
        raise PluginLoadError(f"{what} {event(raised[0])}") from raised[0]
    raise PluginLoadError(
        f"{what} did not end within {deadline:g} s; make it lighter, or set {DEADLINE} higher"
    )


def _deadline_s() -> float:
    """The deadline of one step of one plugin; nonsense in the variable counts as not set."""
    try:
        deadline = float(os.environ.get(DEADLINE, ""))
    except ValueError:
        return 10.0
    return deadline if 0 < deadline < threading.TIMEOUT_MAX else 10.0


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        raise PluginLoadError(
            f"importing {entry_point.value} needs the missing module {error.name!r}; install it"
        ) from error


def _hooks(module: object, entry_point: EntryPoint) -> pluggy.PluginManager:
    """The plugin's hooks; a manager of its own charges a bad hook to its own plugin."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module, name=entry_point.name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        meant = "empo_commands" if "empo_comm" in str(error) else "empo_components"
        raise PluginLoadError(f"{error}; the hook is called {meant}, without arguments") from error
    if not manager.get_hookcallers(module):
        raise PluginLoadError(
            f"{entry_point.value} implements no hook; decorate empo_components or empo_commands "
            "with @hookimpl"
        )
    return manager


def _offered(manager: pluggy.PluginManager, name: str) -> list[object]:
    """The values that the plugin's hook of this name returns; none where it has no such hook."""
    implementations = getattr(manager.hook, name).get_hookimpls()
    if not implementations:
        return []
    hook = implementations[0].function

    def values() -> list[object]:
        returned = hook()
        if not isinstance(returned, Iterable):
            what = name.removeprefix("empo_")
            raise PluginLoadError(f"its {name} returns {type(returned).__name__}, not {what}")
        return list(returned)

    return _bounded(values, f"its {name}")


def _components(offered: Iterable[object], distribution: str) -> list[Component]:
    """The offered values, once each of them has proved to be a usable component."""
    components: list[Component] = []
    for component in offered:
        if not isinstance(component, Component):
            raise PluginLoadError(f"its empo_components yields {component!r}, not a Component")
        what = f"{component.kind} {component.name!r}"
        _check_api(component.api, what, distribution)
        if component.kind not in KINDS:
            raise PluginLoadError(f"{what} has an unknown kind; kinds are {', '.join(KINDS)}")
        _check_name(component.name, what)
        if not (isinstance(component.params, str) and TARGET.fullmatch(component.params)):
            component.params_model()
        _check_target(component.target, what)
        _check_roles(component, what)
        if any((component.kind, component.name) == (c.kind, c.name) for c in components):
            raise PluginLoadError(f"its empo_components yields {what} twice")
        components.append(component)
    return components


def _check_roles(component: Component, what: str) -> None:
    """Refuse what only components of another kind can have, and options no command could have."""
    if component.regression is not None:
        if component.kind != "value_network":
            raise PluginLoadError(f"{what} cannot have a regression; only value networks can")
        _check_target(component.regression, f"the regression of {what}")
    if component.default is not None and component.kind != "tracker":
        raise PluginLoadError(f"{what} cannot be a default; only trackers can")
    if component.options and component.kind != "algorithm":
        raise PluginLoadError(f"{what} cannot have options; only algorithms can")
    for option in component.options:
        if not FLAG.fullmatch(option.flag):
            raise PluginLoadError(
                f"{what} has the option {option.flag!r}; write it as '--some-words'"
            )


def _commands(offered: Iterable[object], distribution: str) -> list[Command]:
    """The offered values, once each of them has proved to be a usable command."""
    commands: list[Command] = []
    for command in offered:
        if not isinstance(command, Command):
            raise PluginLoadError(f"its empo_commands yields {command!r}, not a Command")
        what = f"command {command.name!r}"
        _check_api(command.api, what, distribution)
        _check_name(command.name, what)
        _check_target(command.target, what)
        if any(command.name == known.name for known in commands):
            raise PluginLoadError(f"its empo_commands yields {what} twice")
        commands.append(command)
    return commands


def _check_target(target: object, what: str) -> None:
    if not (isinstance(target, str) and TARGET.fullmatch(target)):
        raise PluginLoadError(f"{what} has the target {target!r}; write 'package.module:name'")


def _check_name(name: object, what: str) -> None:
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise PluginLoadError(
            f"{what} is badly named; a name is lower-case words joined by hyphens"
        )


def _check_api(api: object, what: str, distribution: str) -> None:
    if api != API_VERSION:
        older = distribution
        if isinstance(api, int) and api > API_VERSION:
            older = "empo-core"
        raise IncompatiblePluginError(
            f"{what} is for plugin API {api!r}; "
            f"this empo-core speaks {API_VERSION}. Upgrade {older}."
        )
