"""Result of algorithm ``rollout``: report, files and learning curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.protocols import WorldModel
from empo_core.protocols.environments import EnvSpec
from empo_core.runs.atomic import write_file
from empo_core.tables import report_table
from empo_core.world_content import identity
from empo_learning.report import csv_text, time_table
from empo_pictures.figures import new_figure, write_figure
from empo_pictures.notebooks import NotebookReport
from empo_rollout.evaluation import Evaluation
from empo_rollout.params import PolicyParams, ReportingParams
from empo_rollout.policy import Networks
from empo_rollout.policyfile import POLICY, save_policy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = "curve.csv"


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a run at a line of its log.

    Attributes:
        steps: Steps of all agents so far.
        seconds: How long they took.
        mean_return: Of the newest episodes; NaN before any.
        mean_length: Likewise.
    """

    steps: int
    seconds: float
    mean_return: float
    mean_length: float


@dataclass(frozen=True, kw_only=True)
class RolloutResult(NotebookReport):
    """The learned values or policy, and the record of the run.

    Attributes:
        policy: The trained networks.
        params: What they were built from.
        env_spec: What they see and do.
        iterations: Rollouts learned from.
        history: How the run stood at each line of its log.
        evaluations: Iteration, steps and outcome of each evaluation.
        reasons: How many episodes of the training ended for each reason.
        time_shares: Per cent of the time by name of what it was spent on.
        reporting: When the run was to be evaluated, and to end.
        humans_of: The world in which humans learned, if they did: they can be a human prior.
        warnings: Of what may have kept the policy from learning, or drew robots elsewhere.
    """

    policy: Networks
    params: PolicyParams
    env_spec: EnvSpec
    iterations: int
    history: Sequence[Mark]
    evaluations: Sequence[tuple[int, int, Evaluation]]
    reasons: Mapping[str, int]
    time_shares: Mapping[str, float]
    reporting: ReportingParams
    humans_of: WorldModel | None = None
    warnings: Sequence[str] = ()

    def summary(self) -> dict[str, Any]:
        """The result as JSON data."""
        last = self.history[-1] if self.history else None
        return {
            "steps": last.steps if last else 0,
            "iterations": self.iterations,
            "seconds": last.seconds if last else 0.0,
            "steps_per_second": last.steps / last.seconds if last else None,
            "return_mean": last.mean_return
            if last and last.mean_return == last.mean_return
            else None,
            "episodes_ended": dict(self.reasons),
            "evaluation": asdict(self.evaluations[-1][2]) if self.evaluations else None,
            "solved": self._is_solved,
            "warnings": list(self.warnings),
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        parts: list[RenderableType] = []
        if self.evaluations:
            parts.append(self._evaluation(self.evaluations[-1][2]))
        parts += [Text(f"warning: {warning}", style="yellow") for warning in self.warnings]
        parts += [time_table(self.time_shares), self._effort()]
        return Group(*parts)

    def save(self, directory: Path) -> None:
        """Write the policy and the learning curve."""
        directory.mkdir(parents=True, exist_ok=True)
        world = None if self.humans_of is None else identity(self.humans_of)
        save_policy(directory / POLICY, self.policy, self.params, self.env_spec, world=world)
        names = [field.name for field in fields(Mark)]
        write_file(directory / CURVE, csv_text(names, map(astuple, self.history)))

    def draw(self, directory: Path) -> None:
        """Write the learning curve as a picture."""
        if self.history:
            write_figure(self._figure(), directory / "curve.png")

    @property
    def _is_solved(self) -> bool | None:
        """True if the last evaluations were as good as asked for; None where nothing was."""
        if self.reporting.solved_at is None or not self.evaluations:
            return None
        return self.reporting.is_solved(
            [evaluation.mean_return for _, _, evaluation in self.evaluations]
        )

    def _evaluation(self, evaluation: Evaluation) -> Table:
        table = report_table(f"Evaluation: {evaluation.episodes:,} episodes", "quantity", "value")
        table.add_row(
            "mean return", f"{evaluation.mean_return:.6g} ± {evaluation.standard_error:.2g}"
        )
        table.add_row(
            "least to greatest", f"{evaluation.min_return:.6g} to {evaluation.max_return:.6g}"
        )
        table.add_row("mean length", f"{evaluation.mean_length:.6g}")
        for name, share in evaluation.reasons.items():
            table.add_row(f"ended: {name}", f"{share:.1%}")
        if self._is_solved is not None:
            answer = "yes" if self._is_solved else "no"
            table.add_row(f"solved (at least {self.reporting.solved_at:g})", answer)
        return table

    def _effort(self) -> str:
        if not self.history:
            return "nothing was done"
        last = self.history[-1]
        return (
            f"{last.steps:,} steps in {self.iterations:,} iterations and {last.seconds:.1f} s: "
            f"{last.steps / last.seconds:,.0f} steps/s"
        )

    def _figure(self) -> Figure:
        """Mean return over steps, of training and of evaluations."""
        figure, (axes,) = new_figure()
        steps = [mark.steps for mark in self.history]
        axes.plot(steps, [mark.mean_return for mark in self.history], label="training")
        if self.evaluations:
            axes.errorbar(
                [steps for _, steps, _ in self.evaluations],
                [evaluation.mean_return for _, _, evaluation in self.evaluations],
                [evaluation.standard_error for _, _, evaluation in self.evaluations],
                fmt="o",
                capsize=2,
                label="evaluation ± standard error",
            )
        axes.set(title="Mean return of an episode", xlabel="steps", ylabel="mean return")
        axes.legend()
        return figure
