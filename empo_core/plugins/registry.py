"""The table of what plugins offer: components by kind and name, commands by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from empo_core.errors import DuplicateComponentError, PluginLoadError, UnknownComponentError
from empo_core.plugins.hookspecs import Command, Component, Kind
from empo_core.plugins.imports import load_target
from empo_core.suggestions import nearest

BLOCK = "EMPO_BLOCK_PLUGINS"
"""Environment variable: plugins to leave out, comma-separated.

A name is an entry point's; or a distribution's, if no entry point is called so, for all plugins of
it; or both as ``distribution:entry-point``.
"""
NO_PLUGINS = "EMPO_NO_PLUGINS"
"""Environment variable: 1 leaves out all plugins; none is imported."""
_BLOCKED = "blocked by "


@dataclass(frozen=True, slots=True)
class Provider:
    """An installed plugin: the distribution that brought it and what became of it.

    A package whose metadata cannot be read is one without an entry point.

    Attributes:
        distribution: Name of the distribution, e.g. ``empo-gentle-robot``.
        version: Its version.
        entry_point: Name of its ``empo`` entry point.
        problem: One line saying why it offers nothing; empty when it works.
        import_s: Seconds that it took to say what it offers, imports included.
        imports_torch: Whether it was the first to import torch, which takes seconds.
        put_back: What of the process its import changed, which was put back.
    """

    distribution: str
    version: str
    entry_point: str
    problem: str = ""
    import_s: float = field(default=0.0, compare=False)
    imports_torch: bool = field(default=False, compare=False)
    put_back: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_broken(self) -> bool:
        """True if it offers nothing, and was not left out on purpose."""
        return bool(self.problem) and not self.problem.startswith(_BLOCKED)

    def blocked(self, variable: str) -> Provider:
        """The same, left out by an environment variable."""
        return replace(self, problem=_BLOCKED + variable)


CORE = Provider("empo-core", "", "empo-core")
"""The provider of what is not a plugin's."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A component and the plugin that offers it."""

    provider: Provider
    component: Component


@dataclass(frozen=True, slots=True)
class CommandOffer:
    """A command and the plugin that offers it."""

    provider: Provider
    command: Command


@dataclass(frozen=True, slots=True)
class RunHook:
    """A plugin, and its function ``empo_run_finished``, which takes an ``Experiment``."""

    provider: Provider
    call: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class KernelHook:
    """A plugin, and the place of the function that compiles its kernels."""

    provider: Provider
    target: str

    def load(self) -> Callable[..., object]:
        """The function, imported now.

        Raises:
            PluginLoadError: if it cannot be imported.
        """
        return load_target(f"the kernels of {self.provider.distribution}", self.target)


class Registry:
    """An immutable table of components and commands, built once and passed to whoever needs it.

    Attributes:
        providers: Every installed plugin.
        commands: The offers of commands by name; more than one where several plugins offer it.
        run_hooks: What follows finished runs.
        kernel_hooks: What compiles kernels before they are used.
    """

    def __init__(
        self,
        offers: Iterable[Offer],
        providers: Sequence[Provider] = (),
        commands: Iterable[CommandOffer] = (),
        run_hooks: Iterable[RunHook] = (),
        kernel_hooks: Iterable[KernelHook] = (),
    ) -> None:
        """Index the offers; two of one kind and name are kept and refused when asked for.

        Args:
            offers: Of components.
            providers: Every installed plugin.
            commands: Offers of commands.
            run_hooks: What follows finished runs, in this order.
            kernel_hooks: What compiles kernels before they are used, in this order.
        """
        self.providers = tuple(providers)
        self.run_hooks = tuple(run_hooks)
        self.kernel_hooks = tuple(kernel_hooks)
        self.commands: dict[str, list[CommandOffer]] = {}
        for entry in sorted(commands, key=lambda offer: offer.command.name):
            self.commands.setdefault(entry.command.name, []).append(entry)
        self._by_key: dict[tuple[str, str], list[Offer]] = {}
        for offer in offers:
            key = offer.component.kind, offer.component.name
            self._by_key.setdefault(key, []).append(offer)

    @property
    def offers(self) -> list[Offer]:
        """Every offer, by kind and name."""
        return [offer for key in sorted(self._by_key) for offer in self._by_key[key]]

    def names(self, kind: Kind) -> list[str]:
        """Every installed name for ``kind``, sorted."""
        return sorted(name for k, name in self._by_key if k == kind)

    def default_trackers(self, where: Literal["config", "terminal"]) -> list[str]:
        """Names of the trackers whose params model has this ``default_in``, sorted."""
        return [
            name
            for name in self.names("tracker")
            if self.trait("tracker", name, "default_in") == where
        ]

    def trait(self, kind: Kind, name: str, attribute: str) -> Any:
        """A class attribute of a component's params model; None where it has none.

        None as well of a component that cannot be used: whoever chooses it is told why.
        """
        try:
            return getattr(self.get(kind, name).params_model(), attribute, None)
        except (DuplicateComponentError, PluginLoadError):
            return None

    def get(self, kind: Kind, name: str) -> Component:
        """The component called ``name``.

        Raises:
            UnknownComponentError: if no installed plugin provides the component.
            DuplicateComponentError: if more than one plugin provides the component.
        """
        return self.offer(kind, name).component

    def offer(self, kind: Kind, name: str) -> Offer:
        """The component called ``name`` with its provider; raises what ``get`` raises."""
        offers = self._by_key.get((kind, name), [])
        if len(offers) > 1:
            raise DuplicateComponentError(_clash_of(offers))
        if offers:
            return offers[0]
        names = self.names(kind)
        lines = [f"No {kind} named {name!r}."]
        others = [other for other, of in self._by_key if of == name]
        if close := nearest(name, names):
            lines.append(f"Did you mean {close!r}?")
        elif others:
            lines.append(f"{name!r} is the name of another kind: {', '.join(others)}.")
        lines.append(f"Installed: {', '.join(names) or 'none'}.")
        if not (others or nearest(name, names, cutoff=0.75)):
            lines.append(
                "A component comes from an installed plugin, with an entry point of group 'empo' "
                f"('empo new-plugin NAME --kind {kind}' writes one; pip install -e NAME); "
                "--import brings none."
            )
        lines += [
            f"Plugin {provider.distribution} is unusable and may provide it: {provider.problem}"
            for provider in self.providers
            if provider.problem
        ]
        raise UnknownComponentError(" ".join(lines))

    def clashes(self, core_commands: Collection[str] = ()) -> list[str]:
        """One line per component or command that several distributions provide.

        Args:
            core_commands: Names of the commands that the core provides.
        """
        lines = [_clash_of(offers) for offers in self._by_key.values() if len(offers) > 1]
        for name, commands in self.commands.items():
            providers = [CORE] * (name in core_commands) + [offer.provider for offer in commands]
            if len(providers) > 1:
                lines.append(clash(commands[0].command.label, providers))
        return lines


def _clash_of(offers: Sequence[Offer]) -> str:
    return clash(offers[0].component.label, [offer.provider for offer in offers])


def clash(thing: str, providers: Sequence[Provider]) -> str:
    """The error about one thing that several distributions provide, with what to do."""
    names = [provider.distribution for provider in providers]
    others = ",".join(provider.entry_point for provider in providers[1:])
    return (
        f"{thing} is provided by both {' and '.join(names)}. "
        f"Uninstall all but one, or set {BLOCK}={others}. If one of them is yours, rename what it "
        "offers."
    )
