"""``empo run`` and ``empo resume``."""

from __future__ import annotations

import contextlib
import re
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
    reported,
    reserved,
    show,
    stdout,
)
from empo_core.config import installed
from empo_core.documents import read_config_at
from empo_core.errors import ConfigError, EmpoError

if TYPE_CHECKING:
    from empo_core.config import RunConfig
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

        done = Experiment.start(loaded, watchers=terminal_trackers(loaded, quiet), quiet=quiet)
    _present(done, json=json, quiet=quiet)


class ConfigCommand(TyperCommand):
    """A command that takes a config and overrides, and tells who writes one as an option."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Parse the arguments."""
        with _overrides_have_no_dashes(args):
            return super().make_context(info_name, list(args), parent, **extra)


@contextlib.contextmanager
def _overrides_have_no_dashes(args: list[str]) -> Iterator[None]:
    """Explain how a change of the config is written where it was written as an option."""
    try:
        yield
    except Exception as error:
        option = getattr(error, "option_name", "")
        argument = next((arg for arg in args if arg.partition("=")[0] == option), "")
        file = next((Path(arg) for arg in args if Path(arg).is_file()), None)
        if type(error).__name__ != "NoSuchOption" or not argument.startswith("--") or file is None:
            raise  # The class of the error is private to typer.
        value = [*args[args.index(argument) + 1 :], "VALUE"][0]
        override = argument.lstrip("-") if "=" in argument else f"{argument.lstrip('-')}={value}"
        try:
            read_config_at(file, [override])
        except EmpoError as wrong:
            suggestion = re.search(
                r"^command line: .*did you mean '(.+)'\?$", str(wrong), re.MULTILINE
            )
            if suggestion is None:
                raise error from None  # Most likely it was meant as an option.
            override = f"{suggestion[1]}={override.partition('=')[2]}"
        with reported():
            raise ConfigError(
                f"No such option: {argument}. A change of the config has no dashes: {override}"
            ) from error


@reserved()
def resume(
    run_dir: RunDirectory,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Go on with a run that was interrupted or failed."""
    with only_ours_on_stdout(quiet=quiet):
        from empo_core.experiment import Experiment

        watchers = terminal_trackers(None, quiet)
        done = Experiment.resume(run_dir, watchers=watchers, quiet=quiet)
    _present(done, json=json, quiet=quiet)


def terminal_trackers(config: RunConfig | None, quiet: bool) -> list[Tracker]:
    """The trackers that plugins offer for terminals, unless unwanted or in the config anyway."""
    if quiet:
        return []
    from empo_core.components import build
    from empo_core.config import TrackerRef

    registry = installed()
    present = {tracker.name for tracker in config.trackers} if config else set()
    names = [name for name in registry.default_trackers("terminal") if name not in present]
    return [build(TrackerRef.model_validate(name)) for name in names]


@contextlib.contextmanager
def progress_shown(directory: Path, *, quiet: bool = False) -> Iterator[Tracker]:
    """A tracker that shows on the terminal how far work on a run is."""
    from empo_core.tracker_group import TrackerGroup

    tracker = TrackerGroup(terminal_trackers(None, quiet))
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
