"""The command ``empo``: the core's own sub-commands and those that plugins offer.

Nothing heavy is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from empo_core import __version__
from empo_core.cli.catalogue import describe, plugins, schema, worlds
from empo_core.cli.check import check
from empo_core.cli.output import guarded, reported, show
from empo_core.cli.run import ConfigCommand, resume, run
from empo_core.config import installed
from empo_core.errors import DuplicateComponentError, PluginLoadError
from empo_core.plugins.imports import import_extra
from empo_core.plugins.registry import CORE, clash

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
            name: _command(name, offers, is_core=name in self.core)
            for name, offers in offers_by_name.items()
        }
        return {**self.core, **added}

    @commands.setter
    def commands(self, core: MutableMapping[str, Any]) -> None:
        self.core = dict(core)
        for command in core.values():  # Else click cuts the line at 45 characters.
            command.short_help = command.help.partition("\n")[0]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of some arguments; where there is none, the error lists all commands."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            message = getattr(error, "message", "")
            if args and message and not args[0].startswith("-"):
                hint = "" if "Did you mean" in message else " To train or solve: empo run CONFIG."
                names = ", ".join(sorted(self.commands))
                error.message = f"{message}{hint} Commands: {names}"  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; Ctrl-C before it begins ends as Ctrl-C within it does."""
        with reported():
            return super().invoke(ctx)


def _command(name: str, offers: list[CommandOffer], *, is_core: bool) -> LazyCommand:
    """The command of a plugin, or one that cannot be used, since it is not clear whose it is."""
    providers = [CORE] * is_core + [offer.provider for offer in offers]
    if len(providers) == 1:
        command = offers[0].command
        return LazyCommand(name, command.help, command.load)
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
    epilog="Begin with: empo run multigrid/trivial algorithm=exact\n\n"
    "Documentation: docs/README.md, commands: docs/reference/cli.md",
    no_args_is_help=True,
    rich_markup_mode=None,  # Importing rich takes a third of the time of ``empo --help``.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=ConfigCommand)(guarded(run))
app.command("check", cls=ConfigCommand)(guarded(check))
app.command("resume", cls=ConfigCommand)(guarded(resume))
for command in (plugins, worlds, describe, schema):
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
            help="Import this package first, e.g. one that registers environments; components come "
            "from installed plugins only. Repeatable.",
            show_default=False,
        ),
    ] = None,
    strict_plugins: Annotated[
        bool,
        typer.Option("--strict-plugins", help="Refuse to work beside a plugin that is broken."),
    ] = False,
) -> None:
    """Model-based RL and human empowerment, made of plugins."""
    if strict_plugins:
        # Plugins that were left out on purpose do not count.
        registry = installed()
        broken = [provider for provider in registry.providers if provider.is_broken]
        lines = [f"{p.distribution} {p.version}: {p.problem}" for p in broken]
        if lines := [*lines, *registry.clashes(context.command.core)]:  # type: ignore[attr-defined]
            raise PluginLoadError("\n".join(lines))
    import_extra(imports or [])
