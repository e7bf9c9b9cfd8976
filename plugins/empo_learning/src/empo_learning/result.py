"""Results of learners: the record of the run, its time, and its learning curve."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.runs.atomic import make_folder, write_file
from empo_core.tables import report_table
from empo_learning.evaluation.returns import ReturnSummary
from empo_learning.loop import RunRecord, TrainingRow
from empo_learning.params import ScoredReporting
from empo_learning.report import csv_text, time_table
from empo_learning.saved_model import MODEL
from empo_pictures.figures import new_figure, write_figure
from empo_pictures.notebooks import NotebookReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE, TRAINING, PICTURE = "curve.csv", "training.csv", "curve.png"


@dataclass(frozen=True, kw_only=True)
class LearnedResult(NotebookReport):
    """What every learner returns.

    Attributes:
        record: The record of the run; ``load_agent(result.directory)`` acts.
        part_ms: Milliseconds per update by name of what took them; empty where not measured.
        warnings: What may have kept the run from learning well.
    """

    record: RunRecord
    part_ms: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()

    @property
    def directory(self) -> Path:
        """The directory of the run."""
        return self.record.directory

    def profile(self) -> dict[str, float]:
        """Mean milliseconds per update of each part of the work; parts of a part follow a slash.

        Raises:
            ValueError: if nothing was measured.
        """
        if not self.part_ms:
            raise ValueError(
                "nothing was measured; phase2 measures where "
                "algorithm.params.reporting.profile_batching_interval is not 0"
            )
        return dict(self.part_ms)

    def stop_reason(self) -> dict[str, str]:
        """Why a callback ended the run early, for the summary; empty where none did."""
        reason = self.record.stop_reason
        return {} if reason is None else {"stop_reason": reason}

    def warning_texts(self) -> list[Text]:
        """The warnings for people."""
        return [Text(f"warning: {warning}", style="yellow") for warning in self.warnings]


class EvaluationRow(NamedTuple):
    """Returns of one group of episodes in one evaluation.

    Attributes:
        steps: Steps of the run until then.
        group: The group by heading, e.g. ``{"task": "Pendulum-v1", "actor": "policy"}``; empty
            where all episodes are one group.
        returns: Statistics of its episodes.
    """

    steps: int
    group: Mapping[str, str]
    returns: ReturnSummary


@dataclass(frozen=True, kw_only=True)
class EpisodicResult(LearnedResult, ABC):
    """The result of a learner whose evaluations are returns of whole episodes.

    Abstract methods are what each learner has of its own.

    Attributes:
        evaluations: All groups of each evaluation, the newest evaluation last.
        reporting: When the run was to be evaluated, and to end.
        time_shares: Per cent of the time by name of what took it.
        action_repeat: Steps of environments per step, on average.
    """

    evaluations: Sequence[EvaluationRow]
    reporting: ScoredReporting
    time_shares: Mapping[str, float]
    action_repeat: float = 1.0

    @property
    def newest(self) -> list[EvaluationRow]:
        """All groups of the last evaluation."""
        return [row for row in self.evaluations if row.steps == self.evaluations[-1].steps]

    @property
    def solved(self) -> bool | None:
        """Whether the last evaluations were as good as asked for; None where nothing was asked."""
        if self.reporting.solved_at is None or not self.record.scores:
            return None
        return self.reporting.is_solved(self.record.scores)

    def summary(self) -> dict[str, Any]:
        """The result as JSON data."""
        record = self.record
        return {
            "steps": record.steps,
            "environment_steps": self._environment_steps(record.steps),
            "seconds": record.seconds,
            "steps_per_second": record.steps / record.seconds if record.seconds else None,
            "return_mean": record.history[-1].mean_return if record.history else None,
            "evaluation": self._evaluation(),
            "solved": self.solved,
            **self.stop_reason(),
            "warnings": list(self.warnings),
            **self._details(),
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        tables = [self._table()] if self.evaluations else []
        effort = f"{self._effort()}, {self._work()}" if self.record.steps else "nothing was done"
        if self.record.stop_reason is not None:
            effort += f"; stopped by {self.record.stop_reason}"
        return Group(*tables, *self.warning_texts(), time_table(self.time_shares), effort)

    def save(self, directory: Path) -> None:
        """Write the model, and the learning curves as tables."""
        make_folder(directory)
        self._save_model(directory / MODEL)
        write_file(directory / TRAINING, csv_text(TrainingRow._fields, self.record.history))
        headings = list(self.evaluations[0].group) if self.evaluations else []
        names = ["steps", "environment_steps", *headings]
        names += ["mean_return", "standard_error", "mean_length", "seconds", "seed"]
        write_file(directory / CURVE, csv_text(names, self._curve()))

    def draw(self, directory: Path) -> None:
        """Write the learning curves as a picture."""
        if self.record.history:
            write_figure(self.figure(), directory / PICTURE)

    def figure(self) -> Figure:
        """Mean returns over steps of environments, with a panel per first heading of groups."""
        panels = list(dict.fromkeys(map(_title, self.evaluations))) or [""]
        figure, all_axes = new_figure(rows=len(panels), height=1 + 2.6 * len(panels))
        for axes, title in zip(all_axes, panels, strict=True):
            rows = [row for row in self.evaluations if _title(row) == title]
            if len(panels) == 1:
                history = self.record.history
                steps = [self._environment_steps(row.steps) for row in history]
                means = [np.nan if row.mean_return is None else row.mean_return for row in history]
                axes.plot(steps, means, label="training")
            for label in dict.fromkeys(map(_label, rows)):
                line = [row for row in rows if _label(row) == label]
                returns = [row.returns for row in line]
                has_errors = any(r.episodes > 1 for r in returns)
                axes.errorbar(
                    [self._environment_steps(row.steps) for row in line],
                    [r.mean_return for r in returns],
                    # One episode has no error.
                    [r.standard_error if r.episodes > 1 else np.nan for r in returns],
                    marker="o",
                    markersize=3,
                    capsize=2,
                    label=label + " ± standard error" * has_errors,
                )
            axes.set(
                title=title or "Mean return of an episode",
                xlabel="environment steps",
                ylabel="mean return",
            )
            axes.set_xlim(left=0)
            axes.legend()
        return figure

    @abstractmethod
    def _save_model(self, path: Path) -> None:
        """Write what was learned into a file."""

    @abstractmethod
    def _details(self) -> dict[str, Any]:
        """Entries of the summary."""

    @abstractmethod
    def _work(self) -> str:
        """How much was learned, for people."""

    @abstractmethod
    def _cells(self, returns: Any) -> dict[str, str]:
        """Cells of the evaluation's table by heading."""

    def _effort(self) -> str:
        """What was done in which time."""
        record = self.record
        repeated = f" ({self._environment_steps(record.steps):,} of environments)"
        return (
            f"{record.steps:,} steps{repeated * (self.action_repeat != 1)} in {record.seconds:.1f} "
            f"s: {record.steps / max(record.seconds, 1e-9):,.0f} steps/s"
        )

    def _environment_steps(self, steps: int) -> int:
        return round(steps * self.action_repeat)

    def _evaluation(self) -> dict[str, Any] | None:
        """The last evaluation as JSON data, in a tree by group; the last heading comes first."""
        tree: dict[str, Any] = {}
        for row in self.newest:
            place = tree
            for name in [*row.group.values()][::-1]:
                place = place.setdefault(name, {})
            place |= {k: value for k, value in asdict(row.returns).items() if k != "group"}
        return tree or None

    def _curve(self) -> Iterator[list[Any]]:
        """The lines of ``curve.csv``."""
        marks = [(0, 0.0), *((row.steps, row.seconds) for row in self.record.history)]
        steps, seconds = zip(*marks, strict=True)
        for row in self.evaluations:
            returns = row.returns
            yield [
                row.steps,
                self._environment_steps(row.steps),
                *row.group.values(),
                returns.mean_return,
                returns.standard_error,
                returns.mean_length,
                round(float(np.interp(row.steps, steps, seconds)), 1),
                self.record.seed,
            ]

    def _table(self) -> Table:
        """Table of the last evaluation."""
        rows = self.newest
        extra = [self._cells(row.returns) for row in rows]
        names = list(dict.fromkeys(name for cells in extra for name in cells))
        table = report_table(
            f"Evaluation after {self._environment_steps(rows[0].steps):,} environment steps",
            *rows[0].group, "return", "least to greatest", "length", *names,
            texts=[*rows[0].group],
        )  # fmt: skip
        for row, cells in zip(rows, extra, strict=True):
            returns = row.returns
            table.add_row(
                *row.group.values(),
                f"{returns.mean_return:.6g} ± {returns.standard_error:.2g}",
                f"{returns.min_return:.6g} to {returns.max_return:.6g}",
                f"{returns.mean_length:.6g}",
                *(cells.get(name, "") for name in names),
            )
        if self.solved is not None:
            table.add_section()
            answer = "yes" if self.solved else "no"
            table.add_row(f"solved (at least {self.reporting.solved_at:g})", answer)
        return table


def _title(row: EvaluationRow) -> str:
    """The panel of a row."""
    return next(iter(row.group.values()), "")


def _label(row: EvaluationRow) -> str:
    """The line of a row in its panel."""
    return " ".join([*row.group.values()][1:]) or "evaluation"
