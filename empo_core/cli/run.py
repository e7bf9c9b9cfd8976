"""``empo run`` and ``empo resume``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from empo_core.cli.commands import click_command
from empo_core.cli.options import declared_flags, with_flags
from empo_core.cli.output import (
    Debug,
    Json,
    Quiet,
    only_ours_on_stdout,
    print_json,
    reported,
    stdout,
)
from empo_core.config import installed

if TYPE_CHECKING:
    from empo_core.config import RunConfig
    from empo_core.experiment import Run
    from empo_core.protocols import Tracker


def run(
    config: Annotated[Path, typer.Argument(help="The config file.", show_default=False)],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY.PATH=VALUE", help="Changes to the config.", show_default=False),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Do what a config says, in a new run directory."""
    from empo_core.config.files import load_config

    loaded = load_config(config, overrides)
    with only_ours_on_stdout(json, quiet):
        from empo_core.experiment import execute

        done = execute(loaded, watchers=_watchers(loaded, quiet))
    _present(done, json=json, quiet=quiet)


class RunCommand(TyperCommand):
    """``empo run`` with the flags that installed algorithms declare."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments as the command with those flags does."""
        with reported():
            real = click_command("run", with_flags(run, declared_flags(installed())))
        return real.make_context(info_name, args, parent, **extra)


def resume(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run's directory.", show_default=False)
    ],
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that was interrupted or failed."""
    with only_ours_on_stdout(json, quiet):
        from empo_core import experiment

        done = experiment.resume(run_dir, watchers=_watchers(None, quiet))
    _present(done, json=json, quiet=quiet)


def _watchers(config: RunConfig | None, quiet: bool) -> list[Tracker]:
    """The trackers that plugins offer for terminals, unless unwanted or in the config anyway."""
    if quiet:
        return []
    from empo_core.config import TrackerRef
    from empo_core.experiment import build

    registry = installed()
    present = {tracker.name for tracker in config.trackers} if config else set()
    names = [name for name in registry.default_trackers("terminal") if name not in present]
    return [build(TrackerRef.model_validate(name)) for name in names]


def _present(done: Run, *, json: bool, quiet: bool) -> None:
    from empo_core.storage.run_directory import process_rank

    if process_rank() > 0:
        return
    if json:
        print_json(done.summary())
        return
    if not quiet:
        stdout().print(done.result.report())
    print(done.directory, flush=True)
