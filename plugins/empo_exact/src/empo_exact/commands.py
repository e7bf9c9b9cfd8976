"""``empo diagnose``; imports nothing heavy before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

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
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help=f"What to measure, of {', '.join(get_args(Diagnostic))}; repeatable. By default "
            "what the run says, or the first three.",
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
    penalty: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            help="Units of capability that a bit of deviation costs adversaries; repeatable. By "
            "default 0.1 and 0.",
            show_default=False,
        ),
    ] = None,
    state: Annotated[
        int | None,
        typer.Option(min=0, help="A state by its number; the start.", show_default=False),
    ] = None,
    time: Annotated[
        int | None,
        typer.Option(min=0, help="Steps of the episode so far (0).", show_default=False),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Who holds the power in a solved run, and who can take it away?"""
    with only_ours_on_stdout():
        from empo_core.cli.run import progress_shown
        from empo_core.errors import ConfigError
        from empo_exact.power_tables import power_tables

        for key, names, of in (
            ("--coalition-goal", coalition_goal, "coalitions"),
            ("--reserve-goal", reserve_goal, "reserve"),
        ):
            if names and of not in (measure or ()):
                raise ConfigError(f"{key} has no effect without --measure {of}; add it")
        for name in measure or ():
            if name not in get_args(Diagnostic):
                raise ConfigError(
                    f"--measure {name}: there is no such diagnostic; there is "
                    f"{', '.join(get_args(Diagnostic))}"
                )
        if time is not None and state is None:
            raise ConfigError("--time has no effect without --state; add it")
        options = {
            "coalition_goals": {name: StateSet(any_of=[name]) for name in coalition_goal or ()},
            "reserve_states": StateSet(any_of=reserve_goal) if reserve_goal else None,
            "state": state,
            "time": time or 0,
            **({"penalties": penalty} if penalty else {}),
        }
        with progress_shown(run_dir) as tracker:
            findings = _findings(run_dir, measure, tracker, options)
    if json:
        print_json(findings.data())
    else:
        sentences = (f"- {sentence}" for sentence in findings.in_words())
        stdout().print(*power_tables(findings), *sentences, sep="\n")


def _findings(
    run_dir: Path,
    measures: list[str] | None,
    tracker: Tracker,
    options: dict[str, Any],
) -> PowerFindings:
    """The findings about a run."""
    from empo_core.errors import ConfigError
    from empo_core.experiment import Experiment
    from empo_core.threads import torch_threads
    from empo_exact.diagnostics.diagnose import BY_DEFAULT, diagnose
    from empo_exact.diagnostics.state_sets import refuse_unknown_goals
    from empo_exact.result import ExactResult

    run = Experiment.load(run_dir)
    if (name := run.config.algorithm.name) != "exact":
        raise ConfigError(
            f"{run_dir}: algorithm {name!r} has no exact solution to diagnose; solve its world "
            "with algorithm: exact"
        )
    run.context.tracker = tracker
    result = run.result
    assert isinstance(result, ExactResult)  # The algorithm is exact.
    if measures is None and not result.params.diagnostics:
        measures = [name for name in BY_DEFAULT if result.spec.robots or name == "vulnerability"]
    for option in ("coalition_goals", "reserve_states"):
        sets = options[option] or {}
        for states in sets.values() if isinstance(sets, dict) else [sets]:
            key = "--coalition-goal" if option == "coalition_goals" else "--reserve-goal"
            refuse_unknown_goals(result.spec, states, f"{key} {', '.join(states.any_of or ())}")
    names = cast("list[Diagnostic] | None", measures)
    with torch_threads(1):
        return diagnose(result, names, tracker=tracker, **options)
