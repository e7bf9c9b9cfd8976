"""``empo run`` and ``empo resume``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from empo_core.cli.arguments import RunDirectory
from empo_core.cli.output import (
    Debug,
    Json,
    Quiet,
    kept_in,
    only_ours_on_stdout,
    print_json,
    reserved,
    show,
    stdout,
)
from empo_core.config import installed
from empo_core.documents import read_config_at

if TYPE_CHECKING:
    from empo_core.experiment import Experiment
    from empo_core.protocols import Tracker


@reserved()
def run(
    config: Annotated[
        Path,
        typer.Argument(help="The config file; or a world, and algorithm=NAME.", show_default=False),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY.PATH=VALUE", help="Changes to the config.", show_default=False),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Do what a config says, in a new run directory."""
    from empo_core.config.errors import located

    document, loaded = read_config_at(config, overrides or [])
    with only_ours_on_stdout(quiet=quiet), located(document, loaded):
        from empo_core.experiment import Experiment

        done = Experiment.start(loaded, terminal=not quiet)
    _present(done, json=json, quiet=quiet)


class ConfigCommand(TyperCommand):
    """A command that takes a config and overrides, and tells who writes one as an option."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":  # A class that is private to typer.
                key = getattr(error, "option_name", "").lstrip("-")
                hint = f"A change of the config has no dashes: {key}=VALUE"
                if key == "import":
                    hint = f"It goes before the command: empo --import PACKAGE {info_name} ..."
                error.message += f". {hint}"  # type: ignore[attr-defined]
            raise


@reserved()
def resume(
    run_dir: RunDirectory,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Params to go on with, e.g. total_steps=2000000, also of a finished run.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that was interrupted or failed, or train on: total_steps=2000000."""
    with only_ours_on_stdout(quiet=quiet):
        from empo_core.experiment import Experiment

        done = Experiment.resume(run_dir, overrides or [], terminal=not quiet)
    _present(done, json=json, quiet=quiet)


def terminal_trackers(quiet: bool) -> list[Tracker]:
    """The trackers that plugins offer for terminals, unless unwanted."""
    if quiet:
        return []
    from empo_core.components import build
    from empo_core.config import TrackerRef

    names = installed().default_trackers("terminal")
    return [build(TrackerRef.model_validate(name)) for name in names]


@contextlib.contextmanager
def progress_shown(directory: Path, *, quiet: bool = False) -> Iterator[Tracker]:
    """A tracker that shows on the terminal how far work on a run is."""
    from empo_core.tracker_group import TrackerGroup

    tracker = TrackerGroup(terminal_trackers(quiet))
    tracker.start(directory, {})
    try:
        yield tracker
    except BaseException:
        tracker.finish("failed")
        raise
    tracker.finish("finished")


def _present(done: Experiment, *, json: bool, quiet: bool) -> None:
    from empo_core.run_warnings import only_logged
    from empo_core.runs.launch import process_rank

    if process_rank() > 0:
        return
    with kept_in(done.directory):
        if json:
            print_json(done.summary())
            return
        try:
            if not quiet:
                stdout().print(done.result.report())
                for warning in only_logged(done.result.summary(), done.warnings):
                    show(f"warning: {warning}")
        finally:  # Whatever a report does, the run is there.
            show(str(done.directory))
