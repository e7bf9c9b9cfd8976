"""``empo run`` and ``empo resume``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, Json, Quiet, only_ours_on_stdout, print_json, stdout

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
    count_unrolled: Annotated[
        bool,
        typer.Option(
            "--count-unrolled",
            help="Short for algorithm.params.count_unrolled=true, where the algorithm has it.",
        ),
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Do what a config says, in a new run directory."""
    from empo_core.config.loading import load_config

    changes = list(overrides or [])
    if count_unrolled:
        changes.append("algorithm.params.count_unrolled=true")
    loaded = load_config(config, changes)
    with only_ours_on_stdout(json, quiet):
        from empo_core.experiment import execute

        done = execute(loaded, watchers=_watchers(loaded, quiet))
    _present(done, json=json, quiet=quiet)


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
    """The ``progress`` tracker, unless it is unwanted, not installed, or the config has one."""
    if quiet or (config and any(tracker.name == "progress" for tracker in config.trackers)):
        return []
    from empo_core.config import TrackerRef, installed
    from empo_core.experiment import build

    if "progress" not in installed().names("tracker"):
        return []
    return [build(TrackerRef.model_validate("progress"))]


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
