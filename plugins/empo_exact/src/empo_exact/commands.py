"""``empo diagnose``; imports nothing heavy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.arguments import RunDirectory
from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, stdout
from empo_exact.plugin import Diagnostic, StateSet

if TYPE_CHECKING:
    from pathlib import Path

    from empo_core.protocols import Tracker
    from empo_theory.diagnostics import PowerFindings


def diagnose(
    run_dir: RunDirectory,
    measure: Annotated[
        list[Diagnostic] | None,
        typer.Option(
            help="What to measure; repeatable. By default what the run says, or alone, "
            "vulnerability and domination.",
            show_default=False,
        ),
    ] = None,
    coalition_goal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A goal of coalitions: states that achieve a goal of this name of anybody; "
            "repeatable. By default goals that are the same states to all humans.",
            show_default=False,
        ),
    ] = None,
    reserve_goal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="The further goal of reserve: states that achieve a goal of this name of anybody; "
            "repeatable. By default the states in no goal of a human.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Who holds the power at the start of a solved run, who can take it, and what is left alone?"""
    with only_ours_on_stdout():
        from empo_core.cli.run import progress_shown
        from empo_exact.power_tables import power_tables

        with progress_shown(run_dir) as tracker:
            findings = _findings(run_dir, measure, coalition_goal, reserve_goal, tracker)
    if json:
        print_json(findings.data())
    else:
        stdout().print(power_tables(findings))


def _findings(
    run_dir: Path,
    measures: list[Diagnostic] | None,
    coalition_goals: list[str] | None,
    reserve_goals: list[str] | None,
    tracker: Tracker,
) -> PowerFindings:
    """The findings about a run."""
    from empo_core.errors import ConfigError
    from empo_core.experiment import Experiment
    from empo_core.threads import torch_threads
    from empo_exact.diagnostics.diagnose import BY_DEFAULT, diagnose
    from empo_exact.result import ExactResult

    run = Experiment.load(run_dir)
    if (name := run.config.algorithm.name) != "exact":
        raise ConfigError(
            f"{run_dir}: algorithm {name!r} has no exact solution to diagnose; solve its world "
            "with algorithm: exact"
        )
    for key, names, of in (
        ("--coalition-goal", coalition_goals, "coalitions"),
        ("--reserve-goal", reserve_goals, "reserve"),
    ):
        if names and of not in (measures or ()):
            raise ConfigError(f"{key} has no effect without --measure {of}; add it")
    run.context.tracker = tracker
    result = run.result
    assert isinstance(result, ExactResult)  # The algorithm is exact.
    if measures is None and not result.params.diagnostics:
        measures = [name for name in BY_DEFAULT if result.spec.robots or name == "vulnerability"]
    with torch_threads(1):
        return diagnose(
            result,
            measures,
            coalition_goals={name: StateSet(any_of=[name]) for name in coalition_goals or ()},
            reserve_states=StateSet(any_of=reserve_goals) if reserve_goals else None,
            tracker=tracker,
        )
