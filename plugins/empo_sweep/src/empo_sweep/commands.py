"""``empo sweep``; imports nothing heavy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import (
    FAULT,
    Debug,
    Json,
    Quiet,
    kept_in,
    only_ours_on_stdout,
    print_json,
    print_table,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from empo_sweep.arms import Sweep, Trial
    from empo_sweep.results import Results
    from empo_sweep.trials import Trials


def sweep(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|CONFIG",
            help="The sweep's file; or a run's config, or a world, and values.",
            show_default=False,
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY.PATH=VALUE",
            help="Changes to the sweep; of a config, values of its keys: 1,10,100 or 0..4.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every trial and list them; run nothing.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run trials that failed once more.")
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Draw this metric over training, too.", show_default=False
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a config with many values and seeds, and compare what comes of it.

    Who runs the same sweep again goes on with it.
    """
    from empo_sweep.sweep_file import read_sweep

    with only_ours_on_stdout(quiet=quiet):
        definition = read_sweep(file, overrides or ())
        fixed = definition.trials()
        if dry_run:
            from empo_sweep.builds import check_builds

            check_builds(definition, fixed)
            _show_plan(definition, fixed, json=json)
            return
        from empo_sweep.runner import opened

        with opened(definition, fixed) as trials:
            command = " ".join(["empo sweep", file, *(overrides or ())])
            busy = _run(definition, trials, retry=retry_failed, quiet=quiet, command=command)
            results, paths = _results(definition, trials, metric)
            failed = [(state.trial, state.reason) for state in trials.in_state("failed")]
    with kept_in(definition.folder):
        if json:
            _print_data(definition, results, failed)
        elif not quiet:
            _print(definition, results)
        if not json:
            _print_ends(definition, failed, busy, paths)
    if failed or busy:
        raise typer.Exit(FAULT)


def _show_plan(definition: Sweep, trials: Sequence[Trial], *, json: bool) -> None:
    from empo_sweep import report

    search = definition.config.search
    total = len(trials) if trials or search is None else search.trials * len(definition.seeds)
    if json:
        print_json(report.plan_data(definition, trials, total))
        return
    if trials:
        print_table("", *report.planned_rows(trials))
    else:
        print_table("", ["key", "values"], report.search_rows(definition))
    show(f"{total} trials would be in {definition.folder}; nothing was run")


def _run(
    definition: Sweep, trials: Trials, *, retry: bool, quiet: bool, command: str
) -> list[Trial]:
    """Run the unfinished trials, and return those that other processes run."""
    from empo_core.cli.run import terminal_trackers
    from empo_core.tracker_group import TrackerGroup
    from empo_sweep.runner import Runner
    from empo_sweep.warnings import theory_warning

    if warning := theory_warning(definition.config):
        import logging

        logging.getLogger(__name__).warning(warning)
    tracker = TrackerGroup(terminal_trackers(quiet))
    try:
        return Runner(definition, trials, tracker, retry=retry).run()
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"interrupted; go on with: {command}") from error


def _results(
    definition: Sweep, trials: Trials, metric: str | None
) -> tuple[Results | None, list[Path]]:
    from empo_sweep.report import write_results
    from empo_sweep.results import results_of

    results = results_of(definition, trials)
    if results is None:
        return None, []
    paths = write_results(definition, results)
    if metric is not None:
        from empo_sweep.curves import write_curves

        paths += write_curves(definition, results, metric)
    return results, paths


def _print_data(
    definition: Sweep, results: Results | None, failed: Sequence[tuple[Trial, str | None]]
) -> None:
    from empo_sweep.results import as_data

    data = as_data(results) if results is not None else {"sweep": definition.name, "arms": []}
    reasons = {trial.run: reason for trial, reason in failed}
    print_json({**data, "folder": str(definition.folder), "failed": reasons})


def _print(definition: Sweep, results: Results | None) -> None:
    from empo_sweep import report

    if results is None:
        return
    print_table("", *report.headings_and_rows(results))
    for line in report.footers(results):
        show(line)


def _print_ends(
    definition: Sweep,
    failed: Sequence[tuple[Trial, str | None]],
    busy: Sequence[Trial],
    paths: Sequence[Path],
) -> None:
    from empo_sweep import report

    for line in report.failure_lines(definition, failed):
        show(line)
    if failed:
        show(f"{len(failed)} trials failed; run them again with --retry-failed")
    for trial in busy:
        show(
            f"{definition.folder / trial.run}: is being run by another process; it was left to that"
        )
    for path in paths:
        show(str(path))
    show(str(definition.folder))
