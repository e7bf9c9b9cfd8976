"""Result of algorithm ``latent``: report, files and learning curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from empo_core.best_effort import best_effort
from empo_core.runs.atomic import write_file
from empo_core.tables import FittingTable
from empo_latent.evaluation import Evaluation, ReturnStatistics, score_of
from empo_latent.modelfile import save_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import LatentParams
from empo_latent.types import MultiTaskSpec
from empo_latent.videos import save_videos
from empo_learning.report import csv_text, time_table
from empo_pictures.figures import new_figure, write_figure
from empo_pictures.notebooks import NotebookReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from empo_latent.run_components import ProgressMark

MODEL = "model.safetensors"
CURVE = "curve.csv"
TRAINING = "training.csv"
PICTURE = "curve.png"
VIDEOS = "videos"


class CurveRow(NamedTuple):
    """Return of an actor in a task after some steps: a line of ``curve.csv``.

    Attributes:
        step: Steps of all environments.
        environment_step: The same, each repetition of an action counted.
        task: Name of the task.
        actor: Who acted.
        return_mean: Mean sum of rewards.
        standard_error: Of that mean.
        length: Mean number of steps.
        seconds: How long training took until then, evaluations left out.
        seed: Of the run.
    """

    step: int
    environment_step: int
    task: str
    actor: str
    return_mean: float
    standard_error: float
    length: float
    seconds: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class LatentResult(NotebookReport):
    """The learned world model, values and policies, and the record of the run.

    Attributes:
        model: The networks.
        params: Everything about the run.
        spec: What they see and do.
        seed: Of the run.
        action_repeat: Environment steps per step, on average over environments.
        history: How the run stood, again and again.
        evaluations: Steps and outcomes of each evaluation, by who acted.
        time_shares: Per cent of the time by name of what it was spent on.
    """

    model: LatentModel
    params: LatentParams
    spec: MultiTaskSpec
    seed: int
    action_repeat: float
    history: Sequence[ProgressMark]
    evaluations: Sequence[tuple[int, Mapping[str, Evaluation]]]
    time_shares: Mapping[str, float]

    def summary(self) -> dict[str, Any]:
        """The result as JSON data."""
        last = self.history[-1] if self.history else None
        steps = last.steps if last else 0
        return {
            "steps": steps,
            "environment_steps": self._environment_steps(steps),
            "updates": last.updates if last else 0,
            "seconds": last.seconds if last else 0.0,
            "steps_per_second": steps / last.seconds if last and last.seconds else None,
            "return_mean": last.mean_return
            if last and last.mean_return == last.mean_return
            else None,
            "parameters": self._num_parameters,
            "evaluation": {
                actor: {task: evaluation.statistics(task).to_dict() for task in evaluation.tasks}
                for actor, evaluation in self._newest.items()
            },
            "solved": self._is_solved,
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        parts: list[RenderableType] = []
        if self._newest:
            parts.append(self._evaluation())
        parts += [time_table(self.time_shares), self._effort()]
        return Group(*parts)

    def save(self, directory: Path) -> None:
        """Write the model and the learning curve."""
        directory.mkdir(parents=True, exist_ok=True)
        save_model(directory / MODEL, self.model, self.params, self.spec)
        write_file(directory / CURVE, csv_text(CurveRow._fields, self.curve()))
        if self.history:
            names = [field.name for field in fields(self.history[0])]
            write_file(directory / TRAINING, csv_text(names, map(astuple, self.history)))

    def draw(self, directory: Path) -> None:
        """Write the learning curve as a picture, and the videos."""
        if rows := list(self.curve()):
            with best_effort(f"drawing {PICTURE}"):
                write_figure(self._figure(rows), directory / PICTURE)
        videos = [videos for evaluation in self._newest.values() for videos in evaluation.videos]
        with best_effort("writing the videos"):
            save_videos(videos, directory / VIDEOS)

    def curve(self) -> Iterator[CurveRow]:
        """The lines of ``curve.csv``."""
        marks = [(mark.steps, mark.seconds) for mark in self.history] or [(0, 0.0)]
        marked_steps, seconds = zip(*[(0, 0.0), *marks], strict=True)
        for steps, evaluations in self.evaluations:
            for actor, evaluation in evaluations.items():
                for task in evaluation.tasks:
                    statistics = evaluation.statistics(task)
                    yield CurveRow(
                        step=steps,
                        environment_step=self._environment_steps(steps),
                        task=task,
                        actor=actor,
                        return_mean=statistics.mean_return,
                        standard_error=statistics.standard_error,
                        length=statistics.mean_length,
                        seconds=round(float(np.interp(steps, marked_steps, seconds)), 1),
                        seed=self.seed,
                    )

    @property
    def _newest(self) -> Mapping[str, Evaluation]:
        """The last evaluation, by who acted."""
        return self.evaluations[-1][1] if self.evaluations else {}

    @property
    def _num_parameters(self) -> int:
        return sum(
            parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad
        )

    @property
    def _is_solved(self) -> bool | None:
        """True if the last evaluations were as good as asked for; None where nothing was."""
        reporting = self.params.reporting
        if reporting.solved_at is None or not self.evaluations:
            return None
        return reporting.is_solved([score_of(by_actor) for _, by_actor in self.evaluations])

    def _environment_steps(self, steps: int) -> int:
        return round(steps * self.action_repeat)

    def _evaluation(self) -> Table:
        """Table of the last evaluation."""
        steps = self._environment_steps(self.evaluations[-1][0])
        table = FittingTable(
            title=f"Evaluation after {steps:,} environment steps",
            title_justify="left",
            title_style="bold",
            box=box.ROUNDED,
        )
        table.add_column("task", overflow="fold")
        headings = ["actor", "return", "least to greatest", "length"]
        headings += ["success"] * self._says_success
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        for task in self.spec.tasks:
            for actor, evaluation in self._newest.items():
                cells = _cells(evaluation.statistics(task), with_success=self._says_success)
                table.add_row(task, actor, *cells)
        goal = self.params.reporting.solved_at
        if goal is not None:
            table.add_section()
            table.add_row(f"solved (at least {goal:g})", "yes" if self._is_solved else "no")
        return table

    @property
    def _says_success(self) -> bool:
        return any(
            evaluation.statistics().success is not None for evaluation in self._newest.values()
        )

    def _effort(self) -> str:
        if not self.history:
            return "nothing was done"
        last = self.history[-1]
        return (
            f"{last.steps:,} steps ({self._environment_steps(last.steps):,} of the environments) "
            f"and {last.updates:,} updates of {self._num_parameters:,} parameters in "
            f"{last.seconds:.1f} s"
        )

    def _figure(self, rows: Sequence[CurveRow]) -> Figure:
        """Mean returns over environment steps, a panel per task."""
        tasks = self.spec.tasks
        figure, panels = new_figure(rows=len(tasks), height=1 + 2.6 * len(tasks))
        for axes, task in zip(panels, tasks, strict=True):
            for actor in self._newest:
                chosen = [row for row in rows if (row.task, row.actor) == (task, actor)]
                _draw(axes, chosen, actor)
            axes.set(title=task, xlabel="environment steps", ylabel="mean return")
            axes.set_xlim(left=0)
            axes.legend()
        return figure


def _draw(axes: Axes, rows: Sequence[CurveRow], label: str) -> None:
    axes.errorbar(
        [row.environment_step for row in rows],
        [row.return_mean for row in rows],
        [row.standard_error for row in rows],
        marker="o",
        markersize=3,
        capsize=2,
        label=f"{label} ± standard error",
    )


def _cells(statistics: ReturnStatistics, *, with_success: bool) -> list[str]:
    cells = [
        f"{statistics.mean_return:.6g} ± {statistics.standard_error:.2g}",
        f"{statistics.min_return:.6g} to {statistics.max_return:.6g}",
        f"{statistics.mean_length:.6g}",
    ]
    if with_success:
        cells.append("" if statistics.success is None else f"{statistics.success:.0%}")
    return cells
