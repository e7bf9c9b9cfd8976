"""``empo explain``; imports nothing heavy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.arguments import RunDirectory
from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, stdout

if TYPE_CHECKING:
    from empo_core.protocols import WorldModel
    from empo_theory.inspection import Inspection


def explain(
    run_dir: RunDirectory,
    time: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of the episode so far (0).", show_default=False),
    ] = None,
    state: Annotated[
        int | None, typer.Option(min=0, help="A state by its number.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="A state by what stands where: 'human 1@(2,1)→E; robot 0@(1,1)'; or its name.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help="A state by robot actions that lead there: 'left,forward'.", show_default=False
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(help="An action, instead of the most probable.", show_default=False),
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="What it is compared with.", show_default=False)
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Why does the robot of a run prefer one action to another?"""
    with only_ours_on_stdout():
        from empo_core.cli.run import progress_shown
        from empo_inspector import explanation
        from empo_inspector.saved_inspection import inspect_run

        with progress_shown(run_dir) as tracker:
            inspection, world = inspect_run(run_dir, tracker=tracker)
            position, when = _decision(inspection, world, time, state, at, path)
            result = explanation.explain(inspection, world, position, when, action, versus, tracker)
    if json:
        print_json(result.summary())
    else:
        stdout().print(result.report())


def _decision(
    inspection: Inspection,
    world: WorldModel,
    time: int | None,
    state: int | None,
    at: str | None,
    path: str | None,
) -> tuple[int, int]:
    """Position and time of the state that was asked about."""
    from empo_core.errors import ConfigError
    from empo_inspector.state_choice import by_number, by_path, by_places, check_time

    if sum(option is not None for option in (state, at, path)) > 1:
        raise ConfigError("give one of --state, --at and --path")
    if path is not None:
        if time is not None:
            raise ConfigError("--path says the time as well; leave out --time")
        return by_path(inspection, path)
    when = 0 if time is None else time
    if at is not None:
        return by_places(inspection, world, at, when), when
    check_time(inspection, when)
    return by_number(inspection, 0 if state is None else state), when
