"""A solved world as tables for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from pydantic import JsonValue
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from empo_core.tables import bar, report_table
from empo_exact.power_tables import power_tables
from empo_exact.ram import Sizes
from empo_exact.solution import Solution, StateValues
from empo_exact.sweep import Seconds
from empo_theory.bits import robot_action_value
from empo_theory.diagnostics import PowerFindings
from empo_theory.inspection import ACHIEVED, or_achieved, q_r_words

MAX_ROBOT_ROWS = 20


def tables(
    solution: Solution,
    sizes: Sizes,
    seconds: Seconds,
    warnings: Sequence[str],
    reductions: Sequence[str],
    kind: str = "states",
    power: PowerFindings | None = None,
) -> RenderableType:
    """Root values, the robot's policy there, every goal's values, who holds the power, the rest.

    The rest are warnings, reductions and sizes.

    Args:
        solution: The solution.
        sizes: Of its graph.
        seconds: Wall-clock time of the parts of the solve.
        warnings: Advice.
        reductions: What was reduced.
        kind: Which states are counted, in words.
        power: Who holds the power, if that was measured.
    """
    root = solution.at_start()
    return Group(
        _values(solution, root),
        _robot(solution, root),
        _goals(solution, root),
        *([] if power is None else [*power_tables(power), *map(Text, power.left_out)]),
        *(Text(f"warning: {line}", style="yellow") for line in warnings),
        *(Text(f"reduced: {line}", style="dim") for line in reductions),
        _sizes(sizes, seconds, kind),
    )


def root_data(solution: Solution) -> dict[str, JsonValue]:
    """Values and policies at the start as JSON data, in expectation over the initial states."""
    root, achieved = solution.at_start(), _achieved(solution)
    bits, rho = solution.bits(root), solution.problem.rho
    return {
        "humans": {str(human): solution.spec.agents[human].name for human in root.X_h},
        "V_r": root.V_r,
        "U_r": root.U_r,
        "Q_r": [None if np.isnan(q) else float(q) for q in root.Q_r],
        "robot_policy": root.pi_r.tolist(),
        "X_h": {str(human): x for human, x in root.X_h.items()},
        "bits": {
            "I_h": _by_human(solution, bits.individual),
            "maximum": _by_human(solution, bits.maximum),
            "P": _finite(bits.aggregate),
            "equal_power": _finite(bits.equal),
            "L": _finite(bits.long_term),
            "L_per_rho": _finite(bits.long_term / rho),
            "Q_r": [_finite(robot_action_value(float(q), rho)) for q in root.Q_r],
        },
        "goals": [
            {
                "human": goal.human,
                "goal": goal.name,
                "weight": goal.weight,
                "V_m": None if np.isnan(root.V_m[i]) else float(root.V_m[i]),
                "V_e": float(root.V_e[i]),
                "achieved": achieved[i],
            }
            for i, goal in enumerate(solution.spec.goals)
        ],
    }


def _by_human(solution: Solution, bits: Sequence[float]) -> dict[str, JsonValue]:
    """Bits by agent index."""
    return {str(h): _finite(number) for h, number in zip(solution.spec.humans, bits, strict=True)}


def _finite(number: float) -> float | None:
    """The number; None where JSON has none for it."""
    return number if math.isfinite(number) else None


def _achieved(solution: Solution) -> list[bool]:
    """Whether each goal is achieved in every initial state."""
    start = torch.from_numpy(solution.graph.states[: len(solution.start)].copy())
    achieved: list[bool] = solution.problem.world.achieved(start).all(0).tolist()
    return achieved


def _values(solution: Solution, root: StateValues) -> Table:
    number = len(solution.start)
    where = "start state" if number == 1 else f"expectation over {number} initial states"
    table = report_table(f"{solution.spec.name}: {where}", "quantity", "value")
    table.add_row("V_r  robot's value", f"{root.V_r:.6g}")
    table.add_row("U_r  intrinsic reward", f"{root.U_r:.6g}")
    bits, rho = solution.bits(root), solution.problem.rho
    for (human, power), in_bits, limit in zip(
        root.X_h.items(), bits.individual, bits.maximum, strict=True
    ):
        name = solution.spec.agents[human].name
        mark = "" if _counts(solution, human) else ", not counted"
        of_most = f"({in_bits:+z.3f} of {limit:z.3f} bits{mark})"
        table.add_row(f"X_h  power of {name}", f"{power:.6g}  {of_most}")
    alike = f"  (as if each had {bits.equal:+z.3f})" if len(root.X_h) > 1 else ""
    table.add_row("P    power of all", f"{bits.aggregate:+z.3f} bits{alike}")
    share = f"  ({bits.long_term / rho:+.3f} per rho)" if rho > 1 else ""
    table.add_row("L    long-term power", f"{bits.long_term:+z.3f} bits{share}")
    return table


def _counts(solution: Solution, human: int) -> bool:
    """Whether U_r counts the power of a human, given by agent index."""
    return bool(solution.problem.theory.is_counted[solution.spec.humans.index(human)])


def _robot(solution: Solution, root: StateValues) -> Table:
    table = report_table(
        "Robot's policy at the start", "action", "probability", "", "Q_r", "bits", texts=("",)
    )
    names = solution.spec.robot_action_names
    listed = np.argsort(-root.pi_r, kind="stable")[:MAX_ROBOT_ROWS]
    for index in listed if len(names) > MAX_ROBOT_ROWS else range(len(names)):
        p = float(root.pi_r[index])
        q_r = float(root.Q_r[index])
        bits = robot_action_value(q_r, solution.problem.rho)
        in_bits = "" if np.isnan(bits) else f"{bits:+z.4f}"
        table.add_row(names[index], f"{p:.6f}", bar(p, "cyan"), q_r_words(q_r, p), in_bits)
    if len(names) > MAX_ROBOT_ROWS:
        table.add_row(f"... and {len(names) - MAX_ROBOT_ROWS} less likely ones", "", "", "", "")
    return table


def _goals(solution: Solution, root: StateValues) -> Table:
    columns = ("human", "goal", "weight", "hoped V_m", "attainable V_e", "")
    table = report_table("Goals at the start", *columns, texts=("",))
    achieved = _achieved(solution)
    for index, goal in enumerate(solution.spec.goals):
        attainable = float(root.V_e[index])
        hoped = "–" if np.isnan(root.V_m[index]) else f"{root.V_m[index]:.6f}"
        table.add_row(
            solution.spec.agents[goal.human].name,
            goal.name,
            f"{goal.weight:.4g}",
            ACHIEVED if achieved[index] else hoped,
            or_achieved(f"{attainable:.6f}", is_achieved=achieved[index]),
            bar(attainable, "green"),
        )
    return table


def _sizes(sizes: Sizes, seconds: Seconds, kind: str) -> Text:
    return Text(
        f"{sizes.states:,} {kind}, {sizes.transitions:,} transitions; kernels "
        f"{seconds.kernels:.3f} s, graph {seconds.graph:.3f} s, phase 1 {seconds.phase1:.3f} s, "
        f"phase 2 {seconds.phase2:.3f} s, total {seconds.total:.3f} s",
        style="dim",
    )
