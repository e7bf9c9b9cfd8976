"""The command ``empo``: the core's own sub-commands and those that plugins offer.

Nothing heavy is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from empo_core import __version__
from empo_core.cli.catalogue import describe, plugins, schema, worlds
from empo_core.cli.check import check
from empo_core.cli.output import INTERRUPTED, address, guarded, reported, say, show
from empo_core.cli.run import ConfigCommand, resume, run
from empo_core.config import installed
from empo_core.errors import DuplicateComponentError, PluginLoadError
from empo_core.plugins.imports import import_extra
from empo_core.plugins.registry import CORE, Provider, clash

if TYPE_CHECKING:
    from empo_core.plugins.registry import CommandOffer

__all__ = ["app"]

Build = Callable[[], Callable[..., None]]
"""Returns the function of a command, which may import a lot."""


class LazyCommand(TyperCommand):
    """A command of which only the name and one line of help are known until it is used."""

    def __init__(self, name: str, help: str, build: Build) -> None:
        super().__init__(name, help=help, short_help=help)
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
            offers_by_name = installed().commands
        added = {
            name: _refused(name, [CORE, *(offer.provider for offer in offers)])
            if name in self.core
            else _offered(name, offers)
            for name, offers in offers_by_name.items()
        }
        return {**self.core, **added}

    @commands.setter
    def commands(self, core: MutableMapping[str, Any]) -> None:
        self.core = dict(core)
        for command in core.values():  # Else click cuts the line at 45 characters.
            command.short_help = command.help.partition("\n")[0]

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


def check_plugins(core: Collection[str]) -> None:
    """Refuse plugins that do not work, and names that several provide.

    Raises:
        PluginLoadError: if there are any, with a line for each; plugins that were left out on
            purpose do not count.
    """
    registry = installed()
    lines = [
        f"{provider.distribution} {provider.version}: {provider.problem}"
        for provider in registry.providers
        if provider.is_broken
    ]
    if lines := [*lines, *registry.clashes(core)]:
        raise PluginLoadError("\n".join(lines))


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


app = typer.Typer(
    name="empo",
    cls=CommandGroup,
    help="Model-based RL and human empowerment, made of plugins.",
    no_args_is_help=True,
    rich_markup_mode=None,  # Importing rich takes a third of the time of ``empo --help``.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=ConfigCommand)(guarded(run))
app.command("check", cls=ConfigCommand)(guarded(check))
for command in (resume, plugins, worlds, describe, schema):
    app.command(command.__name__.replace("_", "-"))(guarded(command))


def _print_version(is_given: bool) -> None:
    if is_given:
        show(__version__)
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and end."),
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="PACKAGE",
            help="Import this package first, e.g. one that registers environments; repeatable.",
            show_default=False,
        ),
    ] = None,
    strict_plugins: Annotated[
        bool,
        typer.Option("--strict-plugins", help="Refuse to work beside a plugin that is broken."),
    ] = False,
) -> None:
    """Model-based RL and human empowerment, made of plugins."""
    with reported():
        if strict_plugins:
            check_plugins(context.command.core)  # type: ignore[attr-defined]
        import_extra(imports or [])
