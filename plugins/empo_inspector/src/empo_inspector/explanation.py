"""Explanations of decisions: for people as text and tables, for programs as JSON data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.protocols import WorldModel
from empo_core.tables import ACHIEVED, bar, report_table
from empo_core.threads import torch_threads
from empo_core.trees import JsonData
from empo_core.types import AgentSpec
from empo_inspector.sentences import sentences
from empo_inspector.why import TIE, Reasons, find_reasons
from empo_pictures.notebooks import NotebookReport
from empo_pictures.pictures import robot_policies
from empo_theory.inspection import Inspection

MOST_JOINT = 5
MOST_STEPS = 12


@dataclass(frozen=True)
class Explanation(NotebookReport):
    """Why the robots prefer one joint action to another.

    Attributes:
        reasons: The numbers.
        description: The state as text.
    """

    reasons: Reasons
    description: str

    def sentences(self) -> list[str]:
        """The largest reasons in plain words."""
        return sentences(self.reasons)

    def report(self) -> RenderableType:
        """The state, the robots' policies, the parts of the difference, and sentences."""
        found = self.reasons
        head = f"state {found.number} at time {found.time}"
        if found.steps_left is not None:
            head += f", {found.steps_left} steps left"
        said = Text(" ".join(self.sentences()))
        state = (Text(head, style="bold"), Text(self.description))
        return Group(*state, *_robots(found), _goals(found), _steps(found), said)

    def summary(self) -> dict[str, JsonData]:
        """The same as JSON data; what ``empo explain --json`` prints."""
        found = self.reasons
        spec, names, values = found.spec, found.spec.robot_action_names, found.outcomes
        powers = zip(spec.humans, values.x_h[0].tolist(), strict=True)
        return {
            "world": spec.name,
            "state": found.number,
            "row": [int(word) for word in found.row],
            "description": self.description,
            "time": found.time,
            "steps_left": found.steps_left,
            "V_r": found.v_r,
            "U_r": float(values.u_r[0]),
            "X_h": {spec.agents[human].name: power for human, power in powers},
            "robot_policy": _numbers(names, found.policies.pi_r[0]),
            "Q_r": _numbers(names, found.policies.q_r[0]),
            "first": names[found.first],
            "second": names[found.second],
            "gap": found.gap,
            "goals": [
                {
                    "human": spec.agents[goal.human].name,
                    "goal": goal.name,
                    "part": float(found.parts[:, i].sum()),
                    "V_e": float(values.v_e[0, i]),
                    "V_e_first": float(found.chances[0, i]),
                    "V_e_second": float(found.chances[1, i]),
                    "achieved": found.achieved[i],
                    "step": found.origins[i].step,
                    "state": found.origins[i].state,
                    "V_e_first_there": found.origins[i].chances[0],
                    "V_e_second_there": found.origins[i].chances[1],
                }
                for i, goal in enumerate(spec.goals)
            ],
            "ends": float(found.ends.sum()),
            "remainder": found.remainder,
            "bellman_remainder": found.bellman_remainder,
            "steps": (found.parts.sum(1) + found.ends).tolist(),
            "sentences": list(self.sentences()),
        }


@torch_threads(1)
def explain(
    inspection: Inspection,
    world: WorldModel,
    state: int = 0,
    time: int | None = None,
    action: int | str | None = None,
    versus: int | str | None = None,
) -> Explanation:
    """An explanation of a decision; see ``why.find_reasons`` for arguments and errors."""
    found = find_reasons(inspection, state, time, action, versus)
    return Explanation(found, world.describe(torch.from_numpy(found.row.copy())))


def _numbers(names: Iterable[str], values: Iterable[float]) -> dict[str, JsonData]:
    """Numbers by name; null where unavailable."""
    pairs = zip(names, map(float, values), strict=True)
    return {name: None if np.isnan(value) else value for name, value in pairs}


def policy_table(agent: AgentSpec, chances: Iterable[float]) -> Table:
    """A table of the policy of one agent."""
    table = report_table(agent.name, "action", "probability", "", texts=("",))
    for action, chance in zip(agent.actions, chances, strict=True):
        table.add_row(action, f"{chance:.6f}", bar(chance, "cyan"))
    return table


def _robots(found: Reasons) -> list[Table]:
    """A table of each robot's own policy, and of joint actions where there are several robots."""
    spec, q_r, pi_r = found.spec, found.policies.q_r[0].numpy(), found.policies.pi_r[0].numpy()
    tables = []
    if len(spec.robots) > 1:
        for robot, policy in robot_policies(spec, pi_r).items():
            tables.append(policy_table(spec.agents[robot], policy))
    order = np.argsort(np.where(np.isnan(q_r), 1.0, -pi_r), kind="stable")
    shown = order[:MOST_JOINT] if len(spec.robots) > 1 else np.arange(len(pi_r))
    title = "Robots' joint actions" if len(spec.robots) > 1 else "Robot's policy"
    table = report_table(title, "action", "probability", "", "Q_r", texts=("",))
    for action in shown.tolist():
        name, chance, value = spec.robot_action_names[action], float(pi_r[action]), q_r[action]
        told = "unavailable" if np.isnan(value) else f"{value:.6g}"
        table.add_row(name, f"{chance:.6f}", bar(chance, "cyan"), told)
    if len(shown) < len(order):
        rest = 1 - float(pi_r[shown].sum())
        table.add_row(f"{len(order) - len(shown)} others", f"{rest:.6f}", bar(rest, "cyan"), "")
    return [*tables, table]


def _goals(found: Reasons) -> Table:
    """Contributions of goals, largest first."""
    spec, names = found.spec, found.spec.robot_action_names
    columns = ("human", "goal", "difference", "%", "step", "V_e first", "V_e second")
    title = f"{names[found.first]} - {names[found.second]}: Q_r differs by {found.gap:.6g}"
    table = report_table(title, *columns, texts=("goal",))
    parts = found.parts.sum(0)
    for goal in np.argsort(-np.abs(parts), kind="stable").tolist():
        origin = found.origins[goal]
        first, second = origin.chances
        name = spec.goals[goal].name
        table.add_row(
            spec.agents[spec.goals[goal].human].name,
            f"{name} ({ACHIEVED})" if found.achieved[goal] else name,
            *_part(found, float(parts[goal])),
            f"{origin.step}",
            f"{first:.4f}",
            f"{second:.4f}",
        )
    rest = {"ends of episodes": float(found.ends.sum()), "Bellman remainder": found.remainder}
    for name, part in rest.items():
        if _part(found, part)[0] != "0":
            table.add_row(name, "", *_part(found, part), "", "", "")
    return table


def _steps(found: Reasons) -> Table:
    """Contributions of future steps, in equal stretches where there are many."""
    parts = found.parts.sum(1) + found.ends
    table = report_table("By steps from now", "steps", "difference", "%", "", texts=("",))
    length = -(-len(parts) // MOST_STEPS)
    begins = range(0, len(parts), length)
    sums = [float(parts[begin : begin + length].sum()) for begin in begins]
    # Without the rounding errors that two equally good actions differ by.
    largest = max(*map(abs, sums), TIE * abs(float(found.policies.q_r[0, found.first])))
    for begin, part in zip(begins, sums, strict=True):
        first, last = begin + 1, min(begin + length, len(parts))
        name = f"{first}" if first == last else f"{first} to {last}"
        colour = "red" if part < 0 else "green"
        table.add_row(name, *_part(found, part), bar(abs(part) / largest, colour))
    return table


def _part(found: Reasons, part: float) -> tuple[str, str]:
    """A part of the difference, and its share in per cent where there is a difference."""
    if abs(part) <= TIE * abs(float(found.policies.q_r[0, found.first])):
        return "0", "0.0"
    return f"{part:.4g}", f"{100 * part / found.gap:.1f}" if not found.is_tie else "–"
