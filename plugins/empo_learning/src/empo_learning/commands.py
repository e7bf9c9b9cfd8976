"""``empo evaluate``; imports nothing heavy before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.output import Debug, Json, only_ours_on_stdout, print_json, print_table

if TYPE_CHECKING:
    from empo_learning.evaluation import Attainment, Evaluated


def evaluate(
    run_dir: Annotated[
        Path, typer.Argument(metavar="RUN_DIR", help="A run's directory.", show_default=False)
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per human and goal.")] = 1000,
    gifs: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Episodes to animate; 3 where left out and the world can draw itself.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seeds the episodes.")] = 0,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Cut episodes after so many steps.", show_default=False),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Play what a run has computed or learned: how often does each human reach each goal?"""
    with only_ours_on_stdout(json, quiet=False):
        from empo_learning.evaluation import evaluate_run

        done = evaluate_run(run_dir, episodes=episodes, gifs=gifs, seed=seed, max_steps=max_steps)
    if json:
        print_json(done.summary())
    else:
        _present(done)


def _present(done: Evaluated) -> None:
    found = done.evaluation
    print_table(
        f"{done.algorithm} in {done.world}: {found.episodes} episodes per goal, seed {found.seed}",
        ("human", "goal", "weight", "reached", "after steps"),
        [_row(goal) for goal in found.goals],
    )
    print(
        f"Episodes take {_with_error(found.mean_length, found.mean_length_standard_error)} steps."
    )
    if found.cut:
        print(f"{found.cut:.1%} of them were cut before they had ended; see --max-steps.")
    for path in done.files:
        print(path)


def _row(goal: Attainment) -> tuple[str, ...]:
    time = "–"
    if goal.mean_time is not None:
        time = _with_error(goal.mean_time, goal.mean_time_standard_error)
    reached = f"{goal.reached:.4f} ± {goal.standard_error:.4f}"
    return goal.agent, goal.name, f"{goal.weight:.4g}", reached, time


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"
