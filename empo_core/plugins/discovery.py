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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import Distribution, EntryPoint, EntryPoints, distributions
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from empo_core.errors import IncompatiblePluginError, PluginLoadError, event
from empo_core.plugins.hookspecs import API_VERSION, HOOKS, KINDS, PROJECT, Command, Component
from empo_core.plugins.imports import noted, put_back, warn_of_unfinished
from empo_core.plugins.registry import (
    BLOCK,
    NO_PLUGINS,
    CommandOffer,
    KernelHook,
    Offer,
    Provider,
    Registry,
    RunHook,
)

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
"""The names that components and commands may have."""

TARGET = re.compile(r"[\w.]+:\w+")
METADATA_FIELD = re.compile(r"^(Name|Version):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)

Value = TypeVar("Value", Component, Command)
Plugin = tuple[Provider, EntryPoint | None]
"""Without an entry point it is a package whose metadata cannot be read, and has that problem."""


def discover() -> Registry:
    """Build the registry from every installed distribution with an ``empo`` entry point."""
    warn_of_unfinished(BLOCK)
    plugins = _without_blocked(_installed())
    distributions_of: dict[str, list[str]] = defaultdict(list)
    for provider, _ in plugins:
        if not provider.problem:
            distributions_of[provider.entry_point].append(provider.distribution)
    offers: list[Offer] = []
    commands: list[CommandOffer] = []
    run_hooks: list[RunHook] = []
    kernel_hooks: list[KernelHook] = []
    providers: list[Provider] = []
    with noted() as note:
        for provider, point in plugins:
            problem = provider.problem or _twins(provider, distributions_of[provider.entry_point])
            if problem or point is None:
                providers.append(replace(provider, problem=problem))
                continue
            note(point.value.split(":")[0], f"plugin {provider.distribution!r}")
            provider, contents = _load(provider, point)
            providers.append(provider)
            offers += [Offer(provider, component) for component in contents.components]
            commands += [CommandOffer(provider, command) for command in contents.commands]
            if contents.run_finished is not None:
                run_hooks.append(RunHook(provider, contents.run_finished))
            if contents.kernels:
                kernel_hooks.append(KernelHook(provider, contents.kernels))
    return Registry(offers, providers, commands, run_hooks, kernel_hooks)


def _canonical(name: str) -> str:
    """A name as packaging tools compare it: case, ``-``, ``_`` and ``.`` make no difference."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _installed() -> list[Plugin]:
    """Every plugin, and every package whose metadata cannot be read, by entry point."""
    plugins: dict[tuple[str, str, str], Plugin] = {}
    first: dict[str, Distribution] = {}
    for distribution in distributions():
        try:
            points = _entry_points_of_plugins(distribution)
            if not points and _has_metadata(distribution):
                continue
            name, version = _name_and_version(distribution)
        except Exception as error:
            broken = _broken(distribution, error)
            plugins["", broken.distribution, broken.problem] = broken, None
            continue
        # As in imports, the first one on the path counts.
        if first.setdefault(_canonical(name), distribution) is not distribution:
            continue
        for point in points:
            # Some editable installs write one line twice.
            plugins[point.name, name, point.value] = Provider(name, version, point.name), point
    if not all(point for _, point in plugins.values()):
        _pass_over_broken_metadata()
    return [plugins[key] for key in sorted(plugins)]


def _without_blocked(plugins: Sequence[Plugin]) -> list[Plugin]:
    """The plugins; those that an environment variable leaves out have that as their problem."""
    blocked = {_canonical(name) for name in os.environ.get(BLOCK, "").split(",")} - {""}
    blocked_distributions = blocked - {_canonical(provider.entry_point) for provider, _ in plugins}
    remaining: list[Plugin] = []
    for provider, point in plugins:
        name, distribution = _canonical(provider.entry_point), _canonical(provider.distribution)
        if os.environ.get(NO_PLUGINS) == "1":
            provider = provider.blocked(NO_PLUGINS)
        elif blocked & {name, f"{distribution}:{name}"} or distribution in blocked_distributions:
            provider = provider.blocked(BLOCK)
        remaining.append((provider, point))
    return remaining


def _twins(provider: Provider, distributions: Sequence[str]) -> str:
    """Why all of several entry points of one name are refused: it is not clear which is meant."""
    point = provider.entry_point
    if len(distributions) == 1:
        return ""
    if len(set(distributions)) == 1:
        return f"it lists the entry point {point!r} with several values; its author corrects that"
    others = ",".join(f"{name}:{point}" for name in distributions[1:])
    return (
        f"{' and '.join(distributions)} both install an entry point called "
        f"{point!r}; uninstall all but one, or set {BLOCK}={others}"
    )


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


def _entry_points_of_plugins(distribution: Distribution) -> list[EntryPoint]:
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


def _has_metadata(distribution: Distribution) -> bool:
    """Whether the file is there; reading it in hundreds of packages would take long."""
    folder = getattr(distribution, "_path", None)
    if not (isinstance(folder, Path) and folder.is_dir()):
        return True
    return (folder / "METADATA").exists() or (folder / "PKG-INFO").exists()


def _name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Name and version; ``distribution.metadata`` would parse the whole README as well.

    Raises:
        PluginLoadError: if the metadata has none.
    """
    text = next(filter(None, map(distribution.read_text, ["METADATA", "PKG-INFO"])), "")
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


class _Contents(NamedTuple):
    components: Sequence[Component] = ()
    commands: Sequence[Command] = ()
    run_finished: Callable[..., Any] | None = None
    kernels: str = ""


def _load(provider: Provider, point: EntryPoint) -> tuple[Provider, _Contents]:
    """What a plugin offers, and its provider with what became of it."""
    contents, problem = _Contents(), ""
    had_torch, start = "torch" in sys.modules, time.perf_counter()
    with put_back() as changed:
        try:
            with _charged(f"importing {point.value}", provider):
                plugin = point.load()
                _check_hooks(plugin, point)
            with _charged("its empo_components", provider):
                components = _offered(plugin, "empo_components", Component, provider)
            with _charged("its empo_commands", provider):
                commands = _offered(plugin, "empo_commands", Command, provider)
            with _charged("its empo_kernels", provider):
                kernels = _kernels(plugin)
            after = _hook(plugin, "empo_run_finished")
            contents = _Contents(components, commands, after, kernels)
        except PluginLoadError as error:
            problem = " ".join(str(error).split())  # A reason is one line.
    provider = replace(
        provider,
        problem=problem,
        import_s=time.perf_counter() - start,
        imports_torch="torch" in sys.modules and not had_torch,
        put_back=tuple(changed),
    )
    return provider, contents


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


def _is_hook(function: object) -> bool:
    """True for what ``@hookimpl`` has marked."""
    return inspect.isroutine(function) and hasattr(function, f"{PROJECT}_impl")


def _check_hooks(plugin: object, point: EntryPoint) -> None:
    """Refuse a plugin without hooks, or with a hook that nobody calls.

    Raises:
        PluginLoadError: if there is none, or one is called otherwise than ``HOOKS``.
    """
    hooks = [name for name, _ in inspect.getmembers(plugin, _is_hook)]
    if not hooks or not set(hooks) <= set(HOOKS):
        raise PluginLoadError(
            f"{point.value} has {', '.join(hooks) or 'nothing'} with @hookimpl; the hooks of a "
            f"plugin are called {', '.join(HOOKS)}, and it has one of them at least"
        )


def _hook(plugin: object, name: str) -> Callable[..., Any] | None:
    """The hook of that name, if the plugin has it."""
    function: Callable[..., Any] | None = getattr(plugin, name, None)
    return function if _is_hook(function) else None


def _kernels(plugin: object) -> str:
    """The place of the function that compiles the kernels; empty without the hook."""
    function = _hook(plugin, "empo_kernels")
    target = "" if function is None else function()
    if function is not None and not (isinstance(target, str) and TARGET.fullmatch(target)):
        raise PluginLoadError(f"its empo_kernels returns {target!r}; write 'package.module:name'")
    return str(target)


def _offered(plugin: object, hook: str, kind: type[Value], provider: Provider) -> list[Value]:
    """The values of a hook, once each of them has proved to be usable; none without the hook."""
    function = _hook(plugin, hook)
    values: dict[str, Value] = {}
    for value in () if function is None else function():
        if not isinstance(value, kind):
            raise PluginLoadError(f"its {hook} yields {value!r}, not a {kind.__name__}")
        _check(value, provider.distribution)
        if value.label in values:
            raise PluginLoadError(f"its {hook} yields {value.label} twice")
        values[value.label] = value
    return list(values.values())


def _check(value: Component | Command, distribution: str) -> None:
    """Refuse a value that could not be chosen or built.

    Raises:
        PluginLoadError: if a field is wrong.
        IncompatiblePluginError: if it is for another version of the plugin API.
    """
    label, name, target, api = value.label, value.name, value.target, value.api
    if api != API_VERSION:
        is_newer = isinstance(api, int) and api > API_VERSION
        raise IncompatiblePluginError(
            f"{label} is for plugin API {api!r}; this empo-core speaks {API_VERSION}. "
            f"Upgrade {'empo-core' if is_newer else distribution}."
        )
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise PluginLoadError(
            f"{label} is badly named; a name is lower-case words joined by hyphens"
        )
    if not (isinstance(target, str) and TARGET.fullmatch(target)):
        raise PluginLoadError(f"{label} has the target {target!r}; write 'package.module:name'")
    if isinstance(value, Component):
        if value.kind not in KINDS:
            raise PluginLoadError(f"{label} has an unknown kind; kinds are {', '.join(KINDS)}")
        if not (isinstance(value.params, str) and TARGET.fullmatch(value.params)):
            value.params_model()
