"""Find installed plugins and turn them into a registry.

Every failure of one plugin is recorded against that plugin and never stops a run that does
not use it; so is metadata that cannot be read, of whichever package. ``empo plugins`` shows the
reasons.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import Distribution, EntryPoint, EntryPoints, distributions
from pathlib import Path

from empo_core.errors import IncompatiblePluginError, PluginLoadError, event
from empo_core.plugins.hookspecs import API_VERSION, HOOKS, KINDS, PROJECT, Command, Component
from empo_core.plugins.imports import noted, put_back, warn_of_unfinished
from empo_core.plugins.registry import BLOCK, NO_PLUGINS, CommandOffer, Offer, Provider, Registry

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""The names that components and commands may have."""

TARGET = re.compile(r"[\w.]+:\w+")
METADATA_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Installed:
    """An entry point with its distribution; None where the metadata cannot be read."""

    provider: Provider
    entry_point: EntryPoint | None = None


def discover() -> Registry:
    """Build the registry from every installed distribution with an ``empo`` entry point."""
    blocked = {_canonical(name) for name in os.environ.get(BLOCK, "").split(",")} - {""}
    warn_of_unfinished(BLOCK)
    plugins = _installed()
    blocked_distributions = blocked - {
        _canonical(plugin.provider.entry_point) for plugin in plugins
    }
    by_name: dict[str, list[_Installed]] = defaultdict(list)
    offers: list[Offer] = []
    commands: list[CommandOffer] = []
    providers: list[Provider] = []
    for plugin in plugins:
        provider = plugin.provider
        name, distribution = _canonical(provider.entry_point), _canonical(provider.distribution)
        if os.environ.get(NO_PLUGINS) == "1":
            providers.append(provider.blocked(NO_PLUGINS))
        elif blocked & {name, f"{distribution}:{name}"} or distribution in blocked_distributions:
            providers.append(provider.blocked(BLOCK))
        elif plugin.entry_point is None:
            providers.append(provider)
        else:
            by_name[provider.entry_point].append(plugin)

    with noted() as note:
        for name in sorted(by_name):
            problem = _twins([plugin.provider for plugin in by_name[name]])
            for plugin in by_name[name]:
                if problem or plugin.entry_point is None:
                    providers.append(replace(plugin.provider, problem=problem))
                    continue
                module = plugin.entry_point.value.split(":")[0]
                note(module, f"plugin {plugin.provider.distribution!r}")
                provider, components, sub_commands = _load(plugin.provider, plugin.entry_point)
                providers.append(provider)
                offers += [Offer(provider, component) for component in components]
                commands += [CommandOffer(provider, command) for command in sub_commands]
    providers.sort(key=lambda provider: (provider.entry_point, provider.distribution))
    return Registry(offers, providers, commands)


def _canonical(name: str) -> str:
    """A name as packaging tools compare it: case, ``-``, ``_`` and ``.`` make no difference."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _installed() -> list[_Installed]:
    """Every plugin, and every package whose metadata cannot be read, by distribution."""
    plugins: dict[tuple[str, str, str], _Installed] = {}
    folders: dict[str, Distribution] = {}
    for distribution in distributions():
        try:
            points = _plugins(distribution)
            if not points and _has_metadata(distribution):
                continue
            name, version = _name_and_version(distribution)
        except Exception as error:
            broken = _broken(distribution, error)
            plugins[broken.distribution, "", broken.problem] = _Installed(broken)
            continue
        # As in imports, the first one on the path counts.
        if folders.setdefault(_canonical(name), distribution) is not distribution:
            continue
        for point in points:
            # Some editable installs write one line twice.
            provider = Provider(name, version, point.name)
            plugins[_canonical(name), point.name, point.value] = _Installed(provider, point)
    if not all(plugin.entry_point for plugin in plugins.values()):
        _pass_over_broken_metadata()
    return [plugins[key] for key in sorted(plugins)]


_entry_points = Distribution.entry_points.fget  # type: ignore[attr-defined]


def _pass_over_broken_metadata() -> None:
    """Let libraries that read all entry points when they are imported do without broken ones.

    Torch and numba are such libraries; one bad line of any package makes them impossible to import.
    """

    def entry_points(distribution: Distribution) -> EntryPoints:
        try:
            return _entry_points(distribution)  # type: ignore[no-any-return]
        except Exception:
            return EntryPoints()

    Distribution.entry_points = property(entry_points)  # type: ignore[assignment, method-assign]


def _plugins(distribution: Distribution) -> list[EntryPoint]:
    """The entry points of plugins.

    Raises:
        PluginLoadError: if those of the distribution cannot be read.
    """
    try:
        return [point for point in _entry_points(distribution) if point.group == PROJECT]
    except Exception as error:
        raise PluginLoadError(
            "entry_points.txt is not a text of lines 'NAME = VALUE' in sections"
        ) from error


def _folder(distribution: Distribution) -> Path | None:
    """The folder of the metadata, where it is one."""
    path = getattr(distribution, "_path", None)
    return path if isinstance(path, Path) and path.is_dir() else None


def _has_metadata(distribution: Distribution) -> bool:
    """Whether the file is there; reading it in hundreds of packages would take long."""
    folder = _folder(distribution)
    return folder is None or any(
        os.path.exists(os.path.join(folder, name)) for name in ("METADATA", "PKG-INFO")
    )


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Name and version; ``distribution.metadata`` would parse the whole README as well.

    Raises:
        PluginLoadError: if the metadata has none.
    """
    text = next(filter(None, map(distribution.read_text, ["METADATA", "PKG-INFO", ""])), "")
    fields = dict(METADATA_FIELD.findall(text.partition("\n\n")[0]))
    if len(fields) < 2:
        raise PluginLoadError("METADATA is missing, or has no name and version")
    return fields["Name"], fields["Version"]


def _broken(distribution: Distribution, error: Exception) -> Provider:
    """The row of a package whose metadata cannot be read; its name is that of the folder."""
    folder = getattr(distribution, "_path", None) or distribution.locate_file("")
    reason = (
        str(error) if isinstance(error, PluginLoadError) else f"reading METADATA {event(error)}"
    )
    name, _, version = Path(str(folder)).name.partition("-")
    version = re.sub(r"(\.dist-info|\.egg-info|\.egg)$", "", version)
    problem = f"its metadata is broken: {reason}; reinstall it, or delete {folder}"
    return Provider(name.replace("_", "-"), version, "", " ".join(problem.split()))


def _twins(providers: Sequence[Provider]) -> str:
    """Why all of several entry points of one name are refused: it is not clear which is meant."""
    if len(providers) == 1:
        return ""
    point, names = providers[0].entry_point, [provider.distribution for provider in providers]
    if len(set(names)) == 1:
        return f"it lists the entry point {point!r} with several values; its author corrects that"
    others = ",".join(f"{name}:{point}" for name in names[1:])
    return (
        f"{' and '.join(names)} both install an entry point called "
        f"{point!r}; uninstall all but one, or set {BLOCK}={others}"
    )


def _load(provider: Provider, point: EntryPoint) -> tuple[Provider, list[Component], list[Command]]:
    """What a plugin offers, and its provider with what became of it."""
    components: list[Component] = []
    commands: list[Command] = []
    problem = ""
    had_torch, start = "torch" in sys.modules, time.perf_counter()
    with put_back() as changed:
        try:
            with _charged(f"importing {point.value}", provider):
                hooks = _hooks(_import(point), point)
            with _charged("its empo_components", provider):
                components = _components(_offered(hooks, "empo_components"), provider.distribution)
            with _charged("its empo_commands", provider):
                commands = _commands(_offered(hooks, "empo_commands"), provider.distribution)
        except PluginLoadError as error:
            problem = " ".join(str(error).split())  # A reason is one line.
            components = []
    provider = replace(
        provider,
        problem=problem,
        import_s=time.perf_counter() - start,
        imports_torch="torch" in sys.modules and not had_torch,
        put_back=tuple(changed),
    )
    return provider, components, commands


@contextlib.contextmanager
def _charged(activity: str, provider: Provider) -> Iterator[None]:
    """Charge whatever a plugin's own code raises to the plugin.

    Raises:
        PluginLoadError: if the code raises anything.
        KeyboardInterrupt: if Ctrl-C ends the code; the message names a plugin that hangs.
    """
    try:
        yield
    except PluginLoadError:
        raise
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"interrupted: {provider.distribution}, {activity}") from error
    except BaseException as error:
        raise PluginLoadError(f"{activity} {event(error)}") from error


def _import(entry_point: EntryPoint) -> object:
    try:
        return entry_point.load()
    except ModuleNotFoundError as error:
        raise PluginLoadError(
            f"importing {entry_point.value} needs the missing module {error.name!r}; install it"
        ) from error


def _hooks(module: object, entry_point: EntryPoint) -> dict[str, Callable[[], object]]:
    """The functions of a plugin that ``@hookimpl`` has marked."""
    hooks: dict[str, Callable[[], object]] = {}
    for name in dir(module):
        function = getattr(module, name)
        if not (inspect.isroutine(function) and hasattr(function, f"{PROJECT}_impl")):
            continue
        if name not in HOOKS:
            correct = "empo_commands" if "comm" in name else "empo_components"
            raise PluginLoadError(
                f"unknown hook {name!r} in {entry_point.value}; the hook is called {correct}, "
                "without arguments"
            )
        signature = inspect.signature(function)
        try:
            signature.bind()
        except TypeError as error:
            raise PluginLoadError(
                f"{entry_point.value} has {name}{signature}; the hook is called {name}, "
                "without arguments"
            ) from error
        hooks[name] = function
    if not hooks:
        raise PluginLoadError(
            f"{entry_point.value} implements no hook; decorate empo_components or empo_commands "
            "with @hookimpl"
        )
    return hooks


def _offered(hooks: dict[str, Callable[[], object]], name: str) -> list[object]:
    """The values that the plugin's hook of this name returns; none where it has no such hook."""
    returned = hooks.get(name, tuple)()
    if not isinstance(returned, Iterable):
        plural = name.removeprefix("empo_")
        raise PluginLoadError(f"its {name} returns {type(returned).__name__}, not {plural}")
    return list(returned)


def _components(values: Iterable[object], distribution: str) -> list[Component]:
    """The values of the hook, once each of them has proved to be a usable component."""
    components: dict[tuple[str, str], Component] = {}
    for component in values:
        if not isinstance(component, Component):
            raise PluginLoadError(f"its empo_components yields {component!r}, not a Component")
        label = f"{component.kind} {component.name!r}"
        _check_api(component.api, label, distribution)
        if component.kind not in KINDS:
            raise PluginLoadError(f"{label} has an unknown kind; kinds are {', '.join(KINDS)}")
        _check_name_and_target(component, label)
        if not (isinstance(component.params, str) and TARGET.fullmatch(component.params)):
            component.params_model()
        if (component.kind, component.name) in components:
            raise PluginLoadError(f"its empo_components yields {label} twice")
        components[component.kind, component.name] = component
    return list(components.values())


def _commands(values: Iterable[object], distribution: str) -> list[Command]:
    """The values of the hook, once each of them has proved to be a usable command."""
    commands: dict[str, Command] = {}
    for command in values:
        if not isinstance(command, Command):
            raise PluginLoadError(f"its empo_commands yields {command!r}, not a Command")
        label = f"command {command.name!r}"
        _check_api(command.api, label, distribution)
        _check_name_and_target(command, label)
        if command.name in commands:
            raise PluginLoadError(f"its empo_commands yields {label} twice")
        commands[command.name] = command
    return list(commands.values())


def _check_name_and_target(offer: Component | Command, label: str) -> None:
    name, target = offer.name, offer.target
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise PluginLoadError(
            f"{label} is badly named; a name is lower-case words joined by hyphens"
        )
    if not (isinstance(target, str) and TARGET.fullmatch(target)):
        raise PluginLoadError(f"{label} has the target {target!r}; write 'package.module:name'")


def _check_api(api: object, label: str, distribution: str) -> None:
    if api != API_VERSION:
        older = distribution
        if isinstance(api, int) and api > API_VERSION:
            older = "empo-core"
        raise IncompatiblePluginError(
            f"{label} is for plugin API {api!r}; "
            f"this empo-core speaks {API_VERSION}. Upgrade {older}."
        )
