"""Result of algorithm ``phase2``: report of the start state, and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from empo_core.protocols import Weights, WorldModel
from empo_core.runs.atomic import make_folder, strict_json, write_file
from empo_core.tables import report_table
from empo_core.types import WorldSpec
from empo_learning.report import csv_text
from empo_learning.result import LearnedResult
from empo_learning.saved_model import MODEL
from empo_phase2.compare import Comparison
from empo_phase2.estimates import ValueEstimates
from empo_phase2.params import Phase2Params
from empo_phase2.pictures import Curve, draw
from empo_phase2.policyfile import save_policy
from empo_theory.inspection import Inspection, InspectionScope, or_achieved, q_r_words
from empo_worlds.ensemble import members_of

MAX_ROBOT_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Phase2Result(LearnedResult):
    """The learned values or policy, and the record of the run.

    Attributes:
        params: The parameters of the run.
        spec: The run's world.
        played: What was learned in: the run's world, or an ensemble that starts with it.
        env_steps: Steps of single environments.
        root: What is thought of the start (one row), in expectation over initial states.
        losses: The loss of each quantity, now and then.
        weights: Those of all networks, named ``<quantity>.<parameter>``.
        comparison: How far values were from the right ones; None where that was not asked.
        assessed: What is thought of all situations of ``comparison``.
        inspection: What is thought of states; see ``empo_theory.inspection.InspectableResult``.
    """

    params: Phase2Params
    spec: WorldSpec
    played: WorldModel
    env_steps: int
    root: ValueEstimates
    losses: Curve
    weights: Weights
    inspection: Callable[[InspectionScope], Inspection]
    comparison: Comparison | None = None
    assessed: ValueEstimates | None = None

    @property
    def gap(self) -> dict[str, float]:
        """The last comparison; empty where there was none."""
        if self.comparison is None or not self.comparison.history:
            return {}
        return dict(self.comparison.history[-1][1])

    def summary(self) -> dict[str, Any]:
        """The result as JSON data."""
        return {
            "algorithm": "phase2",
            "world": self.spec.name,
            "steps": self.record.steps,
            "env_steps": self.env_steps,
            "root": self._root(),
            "gap": self.gap or None,
            "losses": dict(self.losses[-1][1]) if self.losses else {},
            "seconds": self.record.seconds,
            **self.stop_reason(),
            "warnings": list(self.warnings),
        }

    def report(self) -> RenderableType:
        """Tables for people."""
        tables: list[RenderableType] = [self._values(), self._robot(), self._goals()]
        gap = [self._gap_table()] if self.gap else []
        return Group(*tables, *self.warning_texts(), *gap, self._effort())

    @property
    def world(self) -> WorldModel:
        """The run's world."""
        return members_of(self.played)[0]

    @property
    def wants_page(self) -> bool:
        """Whether the run is to have a page."""
        return self.params.inspector

    def save(self, directory: Path) -> None:
        """Write values, the policy, and curves as tables."""
        make_folder(directory)
        write_file(directory / "values.json", strict_json(self._root()) + "\n")
        save_policy(directory / MODEL, self.params, self.played, self.weights)
        if self.losses:
            write_file(directory / "losses.csv", as_csv(self.losses))
        if self.comparison is not None and self.comparison.history:
            write_file(directory / "gap.csv", as_csv(self.comparison.history))

    def draw(self, directory: Path) -> None:
        """Write the curves as pictures."""
        draw(self.losses, self.comparison, self.assessed, directory)

    def _root(self) -> dict[str, Any]:
        root, achieved = self.root, self._achieved()
        return {
            "humans": {str(human): self.spec.agents[human].name for human in self.spec.humans},
            "V_r": float(root.v_r[0]),
            "U_r": float(root.u_r[0]),
            "Q_r": [None if math.isnan(q) else q for q in root.q_r[0].tolist()],
            "robot_policy": root.pi_r[0].tolist(),
            "X_h": {
                str(human): float(x) for human, x in zip(self.spec.humans, root.x_h[0], strict=True)
            },
            "goals": [
                {
                    "human": goal.human,
                    "goal": goal.name,
                    "weight": goal.weight,
                    "V_e": float(root.v_h_e[0, position]),
                    "achieved": achieved[position],
                }
                for position, goal in enumerate(self.spec.goals)
            ],
        }

    def _values(self) -> Table:
        number = len(self.played.initial_states().prob)
        where = "start state" if number == 1 else f"expectation over {number} initial states"
        table = report_table(f"{self.spec.name}: {where}", "quantity", *self._columns())
        right = self.comparison.right if self.comparison is not None else None
        exact = [f"{float(right.v_r[0]):.6g}"] if right is not None else []
        table.add_row("V_r  robot's value", f"{float(self.root.v_r[0]):.6g}", *exact)
        table.add_row("U_r  intrinsic reward", f"{float(self.root.u_r[0]):.6g}")
        for human, power in zip(self.spec.humans, self.root.x_h[0].tolist(), strict=True):
            name = self.spec.agents[human].name
            table.add_row(f"X_h  power of {name}", f"{power:.6g}  ({math.log2(power):+.3f} bits)")
        return table

    def _robot(self) -> Table:
        title = "Robot's policy at the start"
        table = report_table(title, "action", *self._columns("probability"), "Q_r")
        right = self.comparison.right.pi_r[0].tolist() if self.comparison is not None else None
        policy, q_r = self.root.pi_r[0].tolist(), self.root.q_r[0].tolist()
        names = self.spec.robot_action_names
        order: Sequence[int] = range(len(names))
        if len(names) > MAX_ROBOT_ROWS:
            order = sorted(order, key=lambda action: -policy[action])[:MAX_ROBOT_ROWS]
        for action in order:
            exact = [] if right is None else [f"{right[action]:.6f}"]
            q = q_r_words(q_r[action], policy[action])
            table.add_row(names[action], f"{policy[action]:.6f}", *exact, q)
        if len(names) > MAX_ROBOT_ROWS:
            table.add_row(f"... and {len(names) - MAX_ROBOT_ROWS} less likely ones")
        return table

    def _goals(self) -> Table:
        title = "Goals at the start"
        columns = ("human", "goal", "weight", *self._columns("attainable V_e"))
        table = report_table(title, *columns, texts=("goal",))
        right = self.comparison.right.v_h_e[0].tolist() if self.comparison is not None else None
        achieved = self._achieved()
        for position, goal in enumerate(self.spec.goals):
            learned = f"{float(self.root.v_h_e[0, position]):.6f}"
            table.add_row(
                self.spec.agents[goal.human].name,
                goal.name,
                f"{goal.weight:.4g}",
                or_achieved(learned, is_achieved=achieved[position]),
                *([] if right is None else [f"{right[position]:.6f}"]),
            )
        return table

    def _achieved(self) -> list[bool]:
        """Whether each goal is achieved in every initial state."""
        states = self.played.initial_states().states
        achieved: list[bool] = self.played.achieved(states).all(0).tolist()
        return achieved

    def _gap_table(self) -> Table:
        """The gap to the right values at the start, on average, and at worst."""
        gap = self.gap
        title = f"Gap to {self.params.reporting.compare} ({gap['Compare/coverage']:.1%} seen)"
        table = report_table(title, "quantity", "start", "mean", "worst")
        for name, unit, label in (
            ("V_r", "rel", "V_r, relative"),
            ("V_r", "abs", "V_r, absolute"),
            ("pi_r", "tv", "policy, total variation"),
            ("V_h_e", "abs", "V_h^e, absolute"),
        ):
            numbers = [gap[f"Compare/{name}_{part}_{unit}"] for part in ("root", "mean", "max")]
            table.add_row(label, *(f"{number:.4g}" for number in numbers))
        return table

    def _effort(self) -> str:
        reason = self.record.stop_reason
        return (
            f"{self.record.steps:,} training steps and {self.env_steps:,} environment steps in "
            f"{self.record.seconds:.1f} s{'' if reason is None else f'; stopped by {reason}'}"
        )

    def _columns(self, heading: str = "value") -> tuple[str, ...]:
        """A column for what was learned, and one for what is right where that is known."""
        return (heading, "right") if self.comparison is not None else (heading,)


def as_csv(curve: Curve) -> str:
    """A table with a line per step, and a column for every name that occurs."""
    names = dict.fromkeys(name for _, numbers in curve for name in numbers)
    rows = ([step, *(numbers.get(name, "") for name in names)] for step, numbers in curve)
    return csv_text(["step", *names], rows)
