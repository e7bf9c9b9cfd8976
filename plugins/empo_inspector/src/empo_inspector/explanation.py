"""Explanations of decisions: for people as text and tables, for programs as JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Integer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.errors import WorldError
from empo_core.protocols import Tracker, WorldModel
from empo_core.tables import bar, report_table
from empo_core.threads import torch_threads
from empo_core.trees import JsonData
from empo_core.types import AgentSpec
from empo_inspector.costs import Costs
from empo_inspector.sentences import sentences
from empo_inspector.state_choice import state_name
from empo_inspector.why import TIE, Reasons, find_reasons
from empo_pictures.notebooks import NotebookReport
from empo_pictures.pictures import robot_policies
from empo_theory.bits import aggregate_power, long_term_power, robot_action_value
from empo_theory.inspection import ACHIEVED, Inspection, q_r_words

MOST_JOINT = 5
MOST_STEPS = 12


@dataclass(frozen=True)
class Explanation(NotebookReport):
    """Why the robots prefer one joint action to another.

    Attributes:
        reasons: The numbers.
        description: The state as text.
        initial: That it is one of several initial states, if it is; see ``initial_words``.
    """

    reasons: Reasons
    description: str
    initial: str = ""

    def sentences(self) -> list[str]:
        """The largest reasons in plain words."""
        return sentences(self.reasons)

    def report(self) -> RenderableType:
        """The state, the robots' policies, the parts of the difference, and sentences."""
        reasons = self.reasons
        head = f"state {reasons.state_name(reasons.number)} at time {reasons.time}"
        if reasons.steps_left is not None:
            head += f", {reasons.steps_left} steps left"
        head += self.initial and f", {self.initial}"
        text = Text(" ".join(self.sentences()))
        state = (Text(head, style="bold"), Text(self.description))
        parts = (
            (_goals(reasons), _steps(reasons))
            if reasons.costs is None
            else (_costs(reasons, reasons.costs),)
        )
        tables = (*_robots(reasons), *parts, _humans(reasons))
        return Group(*state, *tables, text)

    def summary(self) -> dict[str, JsonData]:
        """The same as JSON data; what ``empo explain --json`` prints."""
        reasons = self.reasons
        spec, names, values = reasons.spec, reasons.spec.robot_action_names, reasons.outcomes
        powers = zip(spec.humans, values.x_h[0].tolist(), strict=True)
        return {
            "world": spec.name,
            "state": reasons.number,
            "row": [int(word) for word in reasons.row],
            "description": self.description,
            "time": reasons.time,
            "steps_left": reasons.steps_left,
            "V_r": reasons.v_r,
            "U_r": float(values.u_r[0]),
            "X_h": {spec.agents[human].name: power for human, power in powers},
            "robot_policy": _numbers(names, reasons.policies.pi_r[0]),
            "Q_r": _numbers(names, reasons.policies.q_r[0]),
            "bits": self._bits(),
            "first": names[reasons.first],
            "second": names[reasons.second],
            "gap": reasons.gap,
            **(self._parts() if reasons.costs is None else self._costs(reasons.costs)),
            "sentences": list(self.sentences()),
        }

    def _parts(self) -> dict[str, JsonData]:
        """The parts of the difference of Q_r."""
        reasons = self.reasons
        return {
            "goals": [
                {
                    "human": reasons.spec.agents[goal.human].name,
                    "goal": goal.name,
                    "part": float(reasons.parts[:, i].sum()),
                    "V_e": float(reasons.outcomes.v_e[0, i]),
                    "V_e_first": float(reasons.chances[0, i]),
                    "V_e_second": float(reasons.chances[1, i]),
                    "achieved": reasons.achieved[i],
                    "step": reasons.origins[i].step,
                    "state": reasons.origins[i].state,
                    "V_e_first_there": reasons.origins[i].chances[0],
                    "V_e_second_there": reasons.origins[i].chances[1],
                }
                for i, goal in enumerate(reasons.spec.goals)
            ],
            "ends": float(reasons.ends.sum()),
            "remainder": reasons.remainder,
            "bellman_remainder": reasons.bellman_remainder,
            "steps": (reasons.parts.sum(1) + reasons.ends).tolist(),
        }

    def _costs(self, of: Costs) -> dict[str, JsonData]:
        """The costs of what follows either action; Q_r is no sum of parts."""
        kinds = {"expected": of.expected, "mean": of.mean, "quantile_90": of.high}
        return {
            "costs": {
                "trajectories": of.samples.shape[1],
                "first": {kind: float(values[0]) for kind, values in kinds.items()},
                "second": {kind: float(values[1]) for kind, values in kinds.items()},
            },
            "bellman_remainder": self.reasons.bellman_remainder,
        }

    def _bits(self) -> dict[str, JsonData]:
        """Powers, and what actions are worth, in bits."""
        reasons, theory = self.reasons, self.reasons.theory
        names = [reasons.spec.agents[human].name for human in reasons.spec.humans]
        now, *after = reasons.bits.tolist()
        u_r, q_r = float(reasons.outcomes.u_r[0]), reasons.policies.q_r[0].tolist()
        in_bits = [robot_action_value(q, theory.rho) for q in q_r]
        changes = [
            _numbers(names, (later - bits for later, bits in zip(of, now, strict=True)))
            for of in after
        ]
        return {
            "I_h": _numbers(names, now),
            "P": _finite(aggregate_power(u_r, theory.eta)),
            "L": _finite(long_term_power(reasons.norm, theory.rho)),
            "Q_r": _numbers(reasons.spec.robot_action_names, in_bits),
            "I_h_change_first": changes[0],
            "I_h_change_second": changes[1],
        }


@torch_threads(1)
def explain(
    inspection: Inspection,
    world: WorldModel,
    state: int = 0,
    time: int | None = None,
    action: int | str | None = None,
    versus: int | str | None = None,
    tracker: Tracker | None = None,
) -> Explanation:
    """An explanation of a decision; see ``why.find_reasons`` for arguments and errors."""
    try:
        reasons = find_reasons(inspection, state, time, action, versus, tracker)
    except WorldError as error:
        name = state_name(world, inspection.rows[state])
        raise WorldError(f"{error} (the state {name})" if name else str(error)) from error
    description = world.describe(torch.from_numpy(reasons.row.copy()))
    return Explanation(reasons, description, initial_words(world, reasons.row, reasons.time))


def initial_words(world: WorldModel, row: Integer[np.ndarray, " word"], time: int) -> str:
    """That a state at a time is one of several initial states, with its chance; else ""."""
    initial = world.initial_states()
    chance = float(initial.prob.numpy()[(initial.states.numpy() == row).all(1)].sum())
    if time or len(initial.prob) == 1 or not chance:
        return ""
    return f"one of {len(initial.prob)} initial states (chance {chance:.4g})"


def _numbers(names: Iterable[str], values: Iterable[float]) -> dict[str, JsonData]:
    """Numbers by name; null where unavailable, or infinite."""
    return {name: _finite(float(value)) for name, value in zip(names, values, strict=True)}


def _finite(value: float) -> float | None:
    """A number; None where JSON has none for it."""
    return value if math.isfinite(value) else None


def policy_table(agent: AgentSpec, chances: Iterable[float]) -> Table:
    """A table of the policy of one agent."""
    table = report_table(agent.name, "action", "probability", "", texts=("",))
    for action, chance in zip(agent.actions, chances, strict=True):
        table.add_row(action, f"{chance:.6f}", bar(chance, "cyan"))
    return table


def _robots(reasons: Reasons) -> list[Table]:
    """A table of each robot's own policy, and of joint actions where there are several robots."""
    spec, q_r, pi_r = (
        reasons.spec,
        reasons.policies.q_r[0].numpy(),
        reasons.policies.pi_r[0].numpy(),
    )
    tables = []
    if len(spec.robots) > 1:
        for robot, policy in robot_policies(spec, pi_r).items():
            tables.append(policy_table(spec.agents[robot], policy))
    order = np.argsort(np.where(np.isnan(q_r), 1.0, -pi_r), kind="stable")
    listed = order[:MOST_JOINT] if len(spec.robots) > 1 else np.arange(len(pi_r))
    title = "Robots' joint actions" if len(spec.robots) > 1 else "Robot's policy"
    table = report_table(title, "action", "probability", "", "Q_r", "bits", texts=("",))
    for action in listed.tolist():
        name, chance = spec.robot_action_names[action], float(pi_r[action])
        q, bits = float(q_r[action]), robot_action_value(float(q_r[action]), reasons.theory.rho)
        in_bits = "" if math.isnan(bits) else f"{bits:+.4f}"
        words = q_r_words(q, chance)
        table.add_row(name, f"{chance:.6f}", bar(chance, "cyan"), words, in_bits)
    if len(listed) < len(order):
        remainder = 1 - float(pi_r[listed].sum())
        table.add_row(
            f"{len(order) - len(listed)} others", f"{remainder:.6f}", bar(remainder, "cyan"), "", ""
        )
    return [*tables, table]


def _goals(reasons: Reasons) -> Table:
    """Contributions of goals, largest first."""
    spec, names = reasons.spec, reasons.spec.robot_action_names
    columns = ("human", "goal", "difference", "%", "step", "V_e first", "V_e second")
    title = f"{names[reasons.first]} - {names[reasons.second]}: Q_r differs by {reasons.gap:.6g}"
    table = report_table(title, *columns, texts=("goal",))
    parts = reasons.parts.sum(0)
    for goal in np.argsort(-np.abs(parts), kind="stable").tolist():
        origin = reasons.origins[goal]
        first, second = origin.chances
        name = spec.goals[goal].name
        table.add_row(
            spec.agents[spec.goals[goal].human].name,
            f"{name} ({ACHIEVED})" if reasons.achieved[goal] else name,
            *_part(reasons, float(parts[goal])),
            f"{origin.step}",
            f"{first:.4f}",
            f"{second:.4f}",
        )
    others = {"ends of episodes": float(reasons.ends.sum()), "Bellman remainder": reasons.remainder}
    for name, part in others.items():
        if _part(reasons, part)[0] != "0":
            table.add_row(name, "", *_part(reasons, part), "", "", "")
    return table


def _costs(reasons: Reasons, of: Costs) -> Table:
    """Discounted costs of what follows either action."""
    names, rho = reasons.spec.robot_action_names, reasons.theory.rho
    title = f"Discounted cost after an action; Q_r counts it to the power of {rho}"
    count = of.samples.shape[1]
    table = report_table(
        title, "action", "expected", f"mean of {count} samples", "90 % quantile of them"
    )
    for i, action in enumerate((reasons.first, reasons.second)):
        cells = (of.expected[i], of.mean[i], of.high[i])
        table.add_row(names[action], *(f"{cell:.6g}" for cell in cells))
    return table


def _humans(reasons: Reasons) -> Table:
    """Powers in bits, and how they change with the next state."""
    spec, (now, first, second) = reasons.spec, reasons.bits.tolist()
    names = [spec.robot_action_names[action] for action in (reasons.first, reasons.second)]
    columns = ("human", "I_h", *(f"change after {name}" for name in names))
    table = report_table("Powers in bits", *columns)
    for h, human in enumerate(spec.humans):
        changes = (first[h] - now[h], second[h] - now[h])
        cells = (f"{change:+.4f}" if math.isfinite(change) else "–" for change in changes)
        table.add_row(spec.agents[human].name, f"{now[h]:+.4f}", *cells)
    return table


def _steps(reasons: Reasons) -> Table:
    """Contributions of future steps, in equal stretches where there are many."""
    parts = reasons.parts.sum(1) + reasons.ends
    table = report_table("By steps from now", "steps", "difference", "%", "", texts=("",))
    length = -(-len(parts) // MOST_STEPS)
    begins = range(0, len(parts), length)
    sums = [float(parts[begin : begin + length].sum()) for begin in begins]
    # Without the rounding errors that two equally good actions differ by.
    largest = max(*map(abs, sums), TIE * abs(float(reasons.policies.q_r[0, reasons.first])))
    for begin, part in zip(begins, sums, strict=True):
        first, last = begin + 1, min(begin + length, len(parts))
        name = f"{first}" if first == last else f"{first} to {last}"
        colour = "red" if part < 0 else "green"
        table.add_row(name, *_part(reasons, part), bar(abs(part) / largest, colour))
    return table


def _part(reasons: Reasons, part: float) -> tuple[str, str]:
    """A part of the difference, and its share in per cent where there is a difference."""
    if abs(part) <= TIE * abs(float(reasons.policies.q_r[0, reasons.first])):
        return "0", "0.0"
    return f"{part:.4g}", f"{100 * part / reasons.gap:.1f}" if not reasons.is_tie else "–"
