"""``empo inspect``; imports nothing heavy before it runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, only_ours_on_stdout, show

if TYPE_CHECKING:
    from empo_core.inspection import Wanted


def inspect(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run's directory.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The page, RUN_DIR/inspector.html.", show_default=False
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(help="The state row to begin with: '3,0,0'.", show_default=False),
    ] = None,
    max_mb: Annotated[
        float, typer.Option(min=0.01, help="Megabytes of data beyond which states are left out.")
    ] = 20.0,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the data to a file as well.", show_default=False),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Write a page that shows every decision of a run, and why: one file, for any browser."""
    with only_ours_on_stdout(json=False, quiet=False):
        from empo_core.storage.atomic import write_file
        from empo_inspector.page import PAGE, write_page
        from empo_inspector.saved_inspection import inspect_run

        directory = run_dir.resolve()
        wanted = _wanted(start, max_mb)
        inspection, world = inspect_run(directory, wanted)
        file = directory / PAGE if output is None else output
        packed = write_page(inspection, world, directory, file, wanted)
        if data is not None:
            write_file(data, packed)
    size = file.stat().st_size / 1e6
    kept, total = inspection.num_states, inspection.total
    left = "all states" if kept == total else f"{kept:,} of {total:,} states, see --max-mb"
    show(f"{file} ({size:.2f} MB, {left})")
    if data is not None:
        show(str(data))
    if open_page:
        webbrowser.open(file.resolve().as_uri())


def _wanted(start: str | None, max_mb: float) -> Wanted:
    import numpy as np

    from empo_core.errors import ConfigError
    from empo_core.inspection import Wanted

    try:
        row = None if start is None else np.array([int(word) for word in start.split(",")])
    except ValueError as error:
        raise ConfigError(f"--start {start!r}: write whole numbers with commas: 3,0,0") from error
    return Wanted(start=row, max_bytes=int(max_mb * 1e6))
