"""The sub-commands of ``empo`` as one typer application; nothing heavy is imported for it."""

from __future__ import annotations

from typing import Annotated

import typer

from empo_core import __version__
from empo_core.cli.catalogue import describe, plugins, schema, worlds
from empo_core.cli.check import check
from empo_core.cli.commands import CommandGroup, check_plugins
from empo_core.cli.output import guarded, reported, show
from empo_core.cli.run import ConfigCommand, resume, run
from empo_core.plugins.imports import import_extra

__all__ = ["app"]

app = typer.Typer(
    name="empo",
    cls=CommandGroup,
    help="Model-based RL and human empowerment, made of plugins.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=ConfigCommand)(guarded(run))
app.command("check", cls=ConfigCommand)(guarded(check))
for command in (resume, plugins, worlds, describe, schema):
    app.command(command.__name__.replace("_", "-"))(guarded(command))


def _print_version(wanted: bool) -> None:
    if wanted:
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
