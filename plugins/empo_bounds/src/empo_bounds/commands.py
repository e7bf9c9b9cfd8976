"""``empo certify``; imports nothing heavy before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_bounds.effort import Effort
from empo_core.cli.arguments import HumanPrior, RunDirectory, human_prior_of
from empo_core.cli.output import (
    Debug,
    Json,
    Quiet,
    kept_in,
    only_ours_on_stdout,
    print_json,
    print_table,
    show,
)
from empo_core.errors import ConfigError

if TYPE_CHECKING:
    from empo_bounds.certificate import Certificate
    from empo_core.protocols import Tracker

MAKING = ("eps", "minutes", "memory", "human_prior", "min_power", "no_early_end")
"""Options that make a certificate."""


def certify(
    context: typer.Context,
    run_dir: RunDirectory,
    eps: Annotated[
        float,
        typer.Option(min=0, max=1, help="Expand pairs of state and time visited this often."),
    ] = Effort.epsilon,
    minutes: Annotated[
        float, typer.Option(min=0, help="Expand for so long at most.")
    ] = Effort.minutes,
    memory: Annotated[
        float, typer.Option(min=0, help="RAM (GiB) that the process may hold.")
    ] = Effort.memory_gb,
    human_prior: HumanPrior = None,
    min_power: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Assume that everybody's X_h is at least this, also where nothing is expanded.",
            show_default=False,
        ),
    ] = None,
    no_early_end: Annotated[
        bool, typer.Option("--no-early-end", help="Assume that episodes end at the horizon only.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Work out a certificate that is there again.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Prove intervals for the values of a run's policy: of every goal, of power, and of V_r."""
    with only_ours_on_stdout(quiet=quiet):
        from empo_bounds.assumptions import Assumptions
        from empo_bounds.certificate import bits
        from empo_bounds.certified_run import certify_run
        from empo_core.cli.run import progress_shown, terminal_trackers
        from empo_core.tracker_group import TrackerGroup

        if verify:
            _refuse_beside_verify(context)
            with progress_shown(run_dir, quiet=quiet) as tracker:
                confirmed = _confirmed(run_dir, tracker)
        else:
            tracker = TrackerGroup(terminal_trackers(quiet))
            done = certify_run(
                run_dir,
                Assumptions(min_power, no_early_end),
                Effort(eps, minutes, memory),
                tracker,
                human_prior_of(human_prior),
            )
    if verify:
        (print_json if json else _present_confirmed)(confirmed)
        return
    with kept_in(done.directory):
        if json:
            in_bits = bits(done.certificate).data(done.certificate)
            more = {"bits": in_bits, "folder": str(done.directory)}
            print_json(done.certificate.model_dump(mode="json") | more)
        elif not quiet:
            _present(done.certificate)
        if not json:
            for path in sorted(done.directory.iterdir()):
                show(str(path))


def _refuse_beside_verify(context: typer.Context) -> None:
    """Refuse options that make a certificate."""
    for option in MAKING:
        source = context.get_parameter_source(option)
        if source is not None and source.name != "DEFAULT":
            name = f"--{option.replace('_', '-')}"
            raise ConfigError(
                f"{name} means nothing beside --verify, which works out again what a certificate "
                f"says. Leave out {name}, or --verify."
            )


def _confirmed(run_dir: Path, tracker: Tracker) -> dict[str, object]:
    from empo_bounds.verification import NOT_CHECKED, verify_run

    done = verify_run(run_dir, tracker)
    return {
        "confirmed": True,
        "pairs": done.pairs,
        "bounds": done.numbers,
        "has_values": done.has_values,
        "not_checked": list(NOT_CHECKED),
    }


def _present_confirmed(summary: dict[str, object]) -> None:
    from empo_bounds.verification import NOT_CHECKED

    show(
        f"confirmed: {summary['bounds']:,} bounds of {summary['pairs']:,} expanded pairs follow "
        "from the run's world and policies"
    )
    if not summary["has_values"]:
        show("Bounds of single pairs were not kept, for they are large; those at the start agree.")
    show(f"Not confirmed, since it cannot be worked out again: {'; '.join(NOT_CHECKED)}.")


def _present(certificate: Certificate) -> None:
    from empo_bounds import report

    for line in report.statement(certificate):
        show(line)
    print_table("", *report.goal_rows(certificate))
    print_table("", *report.round_rows(certificate))
    show(f"Expansion ended: {certificate.limits.ended}.")
