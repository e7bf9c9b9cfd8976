"""Refusals of values that are not finite, and of states in which humans have no power."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool

from empo_core.errors import NonFiniteError, SolveError
from empo_exact.game import Floats, Values
from empo_exact.problem import Problem


def refuse_non_finite(problem: Problem, values: Values, when: str) -> None:
    """Raise if values of humans are not finite where V_r is: no world makes them so.

    Raises:
        NonFiniteError: if values are not finite; the message says which.
    """
    # A prior does not say what its humans hope for. A sum is one pass without memory of its own;
    # a number that is not finite makes it so.
    if problem.prior is None and not math.isfinite(float(values.v_m.sum())):
        raise _not_finite("V_h^m", values.v_m, when)
    if not math.isfinite(float(values.v_e.sum())):
        valued = values.v_e[np.isfinite(values.v_r)]
        if not np.isfinite(valued).all():
            raise _not_finite("V_h^e", valued, when)


def _not_finite(name: str, array: Floats, when: str) -> NonFiniteError:
    count = int((~np.isfinite(array)).sum())
    return NonFiniteError(
        f"{name} is not finite {when}: {count:,} of {array.size:,} numbers are infinite or NaN; "
        "does the world give chances that are no numbers?"
    )


def refuse_unknown(values: Values, time: int | None, has_gaps: bool, starts: int) -> None:
    """Raise if V_r is not finite where it should be.

    Args:
        values: The values of a level.
        time: When; None: in a world without a horizon.
        has_gaps: Whether states out of reach may have no value.
        starts: Number of states, the first ones, in which episodes start.

    Raises:
        NonFiniteError: if V_r is not finite.
    """
    checked = values.v_r if not has_gaps else values.v_r[: starts if time == 0 else 0]
    if not math.isfinite(float(checked.sum())):
        raise _not_finite("V_r", checked, "somewhere" if time is None else f"after {time} steps")


def refuse_powerless(
    problem: Problem, values: Values, time: int | None, reached: Bool[np.ndarray, " state"] | None
) -> None:
    """Raise if a state that can be reached leaves a human without power.

    Args:
        problem: The problem.
        values: The values of a level.
        time: When; None: in a world without a horizon.
        reached: States that can be reached then; None: all.

    Raises:
        SolveError: if a human is without power; the message shows the state.
        NonFiniteError: if there are numbers that no world makes.
    """
    is_last = time is not None and time == problem.horizon
    valued = values.v_r if is_last else values.v_r[: problem.graph.num_expanded]
    suspects = np.flatnonzero(np.isnan(valued))
    for state in suspects if reached is None else suspects[reached[suspects]]:
        if not np.isfinite(values.v_e[state]).all():
            raise _not_finite("V_h^e", values.v_e[state], "where it should be")
        text = problem.world.describe(torch.from_numpy(problem.graph.states[state].copy()))
        spec = problem.graph.spec
        helpless = []
        for h, human in enumerate(spec.humans):
            goals = slice(problem.game.first_goal[h], problem.game.last_goal[h])
            counts = problem.game.weight[goals] > 0 if problem.theory.is_weighted else True
            if problem.theory.is_counted[h] and not ((values.v_e[state, goals] > 0) & counts).any():
                helpless.append(f"{spec.agents[human].name} (agent {human})")
        if not helpless:
            helpless = ["some human (its X_h underflows: lower zeta, xi or eta)"]
        when = "" if time is None else f" after {time} steps"
        if problem.images is not None:
            when += " (or from its image under the reductions)"
        raise SolveError(
            f"{' and '.join(helpless)} can attain none of its goals (of positive weight, where "
            f"weights count) from a state reached{when}, so "
            "X_h is 0 and U_r is not finite. Add goals that cover every cell where the human can "
            f"be, or remove the dead end. The state is:\n{text}"
        )
