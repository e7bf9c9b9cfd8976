"""``empo runs`` and ``empo compare``; imports nothing heavy before they run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, print_table, show

if TYPE_CHECKING:
    from empo_compare.run_table import Row
    from empo_core.saved_run import SavedRun

_LONGEST_REASON = 80


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of runs, or the directory of one.")
    ] = Path("runs"),
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only runs with this value of a column, a key of the config or of the summary; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Sort by a column or key; -KEY: downwards. By default by name.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List runs: how they went, what came of them, and what differs in their configs."""
    from empo_compare import run_table

    rows = run_table.where(run_table.read_rows(folder), where or ())
    if sort is not None:
        rows = run_table.ordered(rows, sort)
    if json:
        print_json({"runs": _as_data(rows)})
    else:
        sort_keys = [] if sort is None else [sort.removeprefix("-")]
        _print_rows(f"{folder}", rows, sort_keys)


def _as_data(rows: list[Row]) -> list[dict[str, object]]:
    from empo_compare import run_table

    return [
        {
            "path": str(row.run.path),
            **{name: row.facts.get(name) for name in run_table.COLUMNS},
            "reason": row.run.reason,
            "warnings": run_table.warnings_of(row.run),
            "results": run_table.key_results(row.run),
            "differs": differs,
        }
        for row, differs in zip(rows, run_table.differences(rows), strict=True)
    ]


def _print_rows(title: str, rows: list[Row], sort_keys: list[str]) -> None:
    from empo_compare import run_table

    different = run_table.differences(rows)
    results = [run_table.key_results(row.run) for row in rows]
    keys = [key for key in sort_keys if key not in run_table.COLUMNS]
    keys = list(dict.fromkeys([*keys, *(key for values in results for key in values)]))
    names = run_table.short_names([*keys, *(key for values in different for key in values)])
    further = {"warnings": _warning_lines, "reason": _shortened}
    further = {name: cell for name, cell in further.items() if any(cell(row.run) for row in rows)}
    table = []
    for row, differs in zip(rows, different, strict=True):
        texts = [row.run.path.name, row.run.task, row.run.algorithm, row.run.status]
        texts += [run_table.span(row.facts.get(name)) for name in ("age", "duration")]
        texts += [run_table.value_text(row.facts[key]) if key in row.facts else "" for key in keys]
        pairs = (f"{names[key]}={run_table.value_text(value)}" for key, value in differs.items())
        texts += [" ".join(pairs)]
        table.append([*texts, *(cell(row.run) for cell in further.values())])
    headings = [*run_table.COLUMNS, *(names[key] for key in keys), "differs", *further]
    print_table(title, headings, table)


def _warning_lines(run: SavedRun) -> str:
    """The run's warnings, each in one line."""
    from empo_compare import run_table

    return "\n".join(_line(warning) for warning in run_table.warnings_of(run))


def _shortened(run: SavedRun) -> str:
    """The run's reason in one line that begins with what matters."""
    return _line((run.reason or "").replace(f"{run.path}{os.sep}", ""))


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 4] + " ..."


def compare(
    run_dirs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", help="Runs' directories.", show_default=False),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A metric to show over steps; repeatable. By default those that say most.",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the curves: FILE with suffix .png, .svg and .pdf.",
            show_default=False,
        ),
    ] = None,
    states: Annotated[
        int, typer.Option(min=1, help="State-times to name in which exact policies differ.")
    ] = 5,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare runs: configs, results, curves, and where exact policies differ.

    Runs that differ in the seed alone are one group, with means and 95 % intervals.
    """
    from empo_core.errors import ConfigError

    with only_ours_on_stdout():
        from empo_compare import comparison, curves, report

        result = comparison.compare_runs(run_dirs, metric or ())
        if picture is not None and not result.bands:
            raise ConfigError("--picture: these runs have logged no metrics to draw")
        policies = comparison.compare_policies(result.groups, states)
        if picture is not None:
            from empo_pictures.figures import write_figure

            files = write_figure(curves.picture(result.bands, result.labels), picture)
    if json:
        print_json(report.as_data(result, policies))
        return
    for title, headings, rows in report.tables(result):
        if rows:
            show(title)  # In a title of its own a narrow table would break it.
        print_table("" if rows else title, headings, rows)
    for line in report.policy_lines(policies):
        show(line)
    if picture is not None:
        show("\n".join(map(str, files)))
