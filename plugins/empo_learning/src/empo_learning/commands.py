"""``empo evaluate`` and ``empo export``; they import nothing heavy before they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from empo_core.cli.arguments import HumanPrior, RunDirectory, human_prior_of
from empo_core.cli.output import (
    Debug,
    Json,
    kept_in,
    only_ours_on_stdout,
    print_json,
    print_table,
    show,
)

if TYPE_CHECKING:
    from empo_learning.evaluation import Attainment, Evaluated, Evaluation


def evaluate(
    run_dir: RunDirectory,
    episodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Episodes per human and goal (1000), or per agent or task (100).",
            show_default=False,
        ),
    ] = None,
    gifs: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Episodes to animate (3), or of each task and actor (1).",
            show_default=False,
        ),
    ] = None,
    is_filmed: Annotated[
        bool,
        typer.Option("--film", help="Animate episodes, or say why they cannot be drawn."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seeds the episodes.")] = 0,
    max_steps: Annotated[
        int | None,
        typer.Option(min=1, help="Cut episodes after so many steps.", show_default=False),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Play the checkpoint with the best evaluation.")
    ] = False,
    human_prior: HumanPrior = None,
    starts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file that lists where episodes begin.", show_default=False
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Play what a run has computed or learned: which returns, or how many goals, does it attain?"""
    with only_ours_on_stdout():
        from empo_learning.evaluation import evaluate_run

        done = evaluate_run(
            run_dir,
            episodes=episodes,
            gifs=gifs,
            is_filmed=is_filmed,
            seed=seed,
            max_steps=max_steps,
            checkpoint="best" if best else "newest",
            human_prior=human_prior_of(human_prior),
            starts=starts,
        )
    with kept_in(done.files[0].parent):
        if json:
            print_json(done.summary())
        else:
            _present(done)


def export(
    run_dir: RunDirectory,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The file; RUN_DIR/policy.onnx.",
            show_default=False,
        ),
    ] = None,
    member: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Agent or task, where there are several; the first.",
            show_default=False,
        ),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Take the checkpoint with the best evaluation.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the policy that a run has learned as an ONNX file, for programs without torch."""
    with only_ours_on_stdout():
        from empo_learning.export import export_run
        from empo_learning.onnx_file import signature

        path = export_run(run_dir, output, member=member, checkpoint="best" if best else "newest")
        parts = signature(path)
    if json:
        print_json({"file": str(path), **parts})
        return
    for part, names in parts.items():
        print_table(part, ["", ""], list(names.items()))
    show(str(path))


def _present(done: Evaluated) -> None:
    from empo_learning.evaluation import Evaluation
    from empo_learning.evaluation.returns import rows

    evaluation = done.evaluation
    title = f"{done.algorithm} in {done.place}: "
    if isinstance(evaluation, Evaluation):
        _present_goals(title, evaluation)
    else:
        counts = sorted({group.episodes for group in evaluation.groups})
        number = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        print_table(f"{title}{number} episodes each, seed {evaluation.seed}", *rows(evaluation))
    for path in done.files:
        show(str(path))


def _present_goals(title: str, evaluation: Evaluation) -> None:
    print_table(
        f"{title}{evaluation.episodes} episodes per goal, seed {evaluation.seed}",
        ("human", "goal", "weight", "reached", "after steps"),
        [_row(goal) for goal in evaluation.goals],
    )
    show(
        "Episodes take "
        f"{_with_error(evaluation.mean_length, evaluation.mean_length_standard_error)} steps."
    )
    if evaluation.cut:
        show(f"{evaluation.cut:.1%} of them were cut before they had ended; see --max-steps.")


def _row(goal: Attainment) -> tuple[str, ...]:
    time = "–"
    if goal.mean_time is not None:
        time = _with_error(goal.mean_time, goal.mean_time_standard_error)
    reached = f"{goal.reached:.4f} ± {goal.standard_error:.4f}"
    return goal.agent, goal.name, f"{goal.weight:.4g}", reached, time


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"
