"""``empo csv-last``; imported only when somebody types it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer

from empo_core.cli.output import Debug, Json, print_json, print_table
from empo_core.errors import ConfigError


def csv_last(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run's directory.")],
    separator: Annotated[str, typer.Option(help="What stands between cells.")] = ",",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the last value of every column that the tracker csv wrote."""
    path = run_dir / "metrics.csv"
    if not path.is_file():
        raise ConfigError(f"{run_dir} has no metrics.csv; add 'csv' to the trackers of its config")
    last: dict[str, str] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter=separator):
            last |= {column: cell for column, cell in row.items() if cell}
    if json:
        print_json(last)
    else:
        print_table(str(path), ["column", "last value"], [list(pair) for pair in last.items()])
