"""The sub-commands of ``empo``: the core's own, and those that plugins offer."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from empo_core.cli.manual import address
from empo_core.cli.output import INTERRUPTED, guarded, reported, say
from empo_core.config import installed
from empo_core.errors import DuplicateComponentError, PluginLoadError
from empo_core.plugins.registry import CORE, Provider, clash

if TYPE_CHECKING:
    from empo_core.plugins.registry import CommandOffer, Registry

Build = Callable[[], Callable[..., None]]
"""Returns the function of a command, which may import a lot."""


class LazyCommand(TyperCommand):
    """A command of which only the name and one line of help are known until it is used."""

    def __init__(self, name: str, help: str, build: Build) -> None:
        super().__init__(name, help=help)
        self._build = build

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments as the real command does, which takes over from here."""
        with reported():
            real = click_command(self.name or "", self._build())
        return real.make_context(info_name, args, parent, **extra)


class CommandGroup(TyperGroup):
    """The core's commands, and those of the plugins that are installed when it is asked."""

    @property  # Typer reads the commands as an attribute, for listing, finding and suggesting.
    def commands(self) -> MutableMapping[str, Any]:
        """Every command by name; of a name that several provide, one that raises the error."""
        with reported():
            offered = _by_name(installed())
        added = {
            name: _refused(name, [CORE, *(offer.provider for offer in offers)])
            if name in self.core
            else _offered(name, offers)
            for name, offers in offered.items()
        }
        return {**self.core, **added}

    @commands.setter
    def commands(self, core: MutableMapping[str, Any]) -> None:
        self.core = dict(core)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Say how to begin, and which pages tell more; where they are is only looked up here."""
        pages = f"Documentation: {address('README.md')}, commands: {address('reference/cli.md')}"
        self.epilog = f"Begin with: empo run multigrid/trivial algorithm=exact\n\n{pages}"
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C before it begins ends as Ctrl-C within it does."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            say(str(error) or "interrupted")
            raise typer.Exit(INTERRUPTED) from error


def command_clashes(registry: Registry, core: Collection[str]) -> list[str]:
    """One line per command that several distributions provide, the core among them."""
    lines = []
    for name, offers in _by_name(registry).items():
        providers = [offer.provider for offer in offers]
        if name in core:
            providers.insert(0, CORE)
        if len(providers) > 1:
            lines.append(clash(f"command {name!r}", providers))
    return lines


def check_plugins(core: Collection[str]) -> None:
    """Refuse plugins that do not work, and names that several provide.

    Raises:
        PluginLoadError: With a line for each; those that were left out on purpose do not count.
    """
    registry = installed()
    lines = [
        f"{provider.distribution} {provider.version}: {provider.problem}"
        for provider in registry.providers
        if provider.is_broken
    ]
    if lines := [*lines, *registry.clashes(), *command_clashes(registry, core)]:
        raise PluginLoadError("\n".join(lines))


def _by_name(registry: Registry) -> dict[str, list[CommandOffer]]:
    offered: dict[str, list[CommandOffer]] = {}
    for offer in registry.commands:
        offered.setdefault(offer.command.name, []).append(offer)
    return offered


def _offered(name: str, offers: list[CommandOffer]) -> LazyCommand:
    if len(offers) > 1:
        return _refused(name, [offer.provider for offer in offers])
    command = offers[0].command
    return LazyCommand(name, command.help, command.load)


def _refused(name: str, providers: list[Provider]) -> LazyCommand:
    """A command that cannot be used, since it is not clear whose it is."""
    reason = clash(f"command {name!r}", providers)

    def refuse() -> Callable[..., None]:
        raise DuplicateComponentError(reason)

    return LazyCommand(name, reason, refuse)


def click_command(name: str, function: Callable[..., None]) -> Any:
    """A function as a command: typer reads its parameters, and its errors are messages."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name)(guarded(function))
    return typer.main.get_command(app)
