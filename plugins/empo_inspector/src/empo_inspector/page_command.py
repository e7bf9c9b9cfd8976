"""``empo inspect``; imports nothing heavy before it runs."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from empo_core.cli.arguments import RunDirectory
from empo_core.cli.output import Debug, kept_in, only_ours_on_stdout, show

if TYPE_CHECKING:
    from empo_theory.inspection import InspectionScope

Precision = Literal["exact", "compact"]


def inspect(
    run_dir: RunDirectory,
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
    times: Annotated[
        str | None,
        typer.Option(
            help="Times whose decisions are kept: '0,4,8'; all of them.", show_default=False
        ),
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Numbers of 64 bits, or of 32, which take half the room.")
    ] = "exact",
    exact: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN_DIR",
            help="A solved run to compare a learned one with.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the data to a file as well.", show_default=False),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Write a page that shows every decision of a run, and why: one file, for any browser."""
    with only_ours_on_stdout():
        from empo_core.cli.run import progress_shown
        from empo_core.errors import ConfigError
        from empo_core.runs.atomic import write_file
        from empo_core.stages import stage
        from empo_core.world_content import world_digest
        from empo_inspector.page import PAGE, write_page
        from empo_inspector.right_values import compared
        from empo_inspector.saved_inspection import inspect_run

        directory = run_dir.resolve()
        scope = _scope(start, max_mb, times, precision)
        file = directory / PAGE if output is None else output
        with progress_shown(directory) as tracker:
            inspection, world = inspect_run(directory, scope, tracker)
            if exact is not None:
                right, other = inspect_run(exact, tracker=tracker)
                if world_digest(other) != world_digest(world):
                    raise ConfigError(
                        f"--exact {exact}: was made in another world than {run_dir}: layout, "
                        "chances, goals or start differ; solve this world for right values"
                    )
                inspection = compared(inspection, right)
            with stage(tracker.progress, "writing the page"):
                packed = write_page(inspection, world, directory, file, scope)
        if data is not None:
            write_file(data, packed)
    size = file.stat().st_size / 1e6
    num_states, total = inspection.num_states, inspection.total
    part = (
        f"{num_states:,} states, those of episodes"
        if total is None
        else f"{num_states:,} of {total:,} states"
    )
    left = "all states" if num_states == total else f"{part}, see --max-mb"
    left += ", values rounded to 6e-8" if precision == "compact" else ""
    with kept_in(file):
        show(f"{file} ({size:.2f} MB, {left})")
        if data is not None:
            show(str(data))
    if open_page:
        webbrowser.open(file.resolve().as_uri())


def _scope(
    start: str | None, max_mb: float, times: str | None, precision: Precision
) -> InspectionScope:
    import numpy as np

    from empo_theory.inspection import InspectionScope

    row = None if start is None else np.array(_whole_numbers("--start", start))
    return InspectionScope(
        start=row,
        max_bytes=int(max_mb * 1e6),
        times=None if times is None else tuple(_whole_numbers("--times", times)),
        compact=precision == "compact",
    )


def _whole_numbers(option: str, text: str) -> list[int]:
    from empo_core.errors import ConfigError

    try:
        return [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: write whole numbers with commas: 3,0,0") from error
