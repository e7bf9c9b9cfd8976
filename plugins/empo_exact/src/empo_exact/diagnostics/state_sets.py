"""Sets of states that parameters name."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from empo_core.errors import ConfigError, SolveError
from empo_core.types import WorldSpec
from empo_exact.diagnostics.sweep import achieved_in
from empo_exact.plugin import StateSet
from empo_exact.solution import Solution
from empo_worlds.rows import integer_rows


def goal_named(spec: WorldSpec, human: int, name: str, key: str) -> int:
    """The goal of a human that has this name, as a position in ``spec.goals``.

    Raises:
        ConfigError: if it has no such goal; the message begins with ``key``.
    """
    names = {spec.goals[goal].name: goal for goal in spec.goals_of(human)}
    if name not in names:
        raise ConfigError(
            f"{key}: {spec.agents[human].name} has no goal {name!r} to pursue; it has "
            f"{', '.join(map(repr, names))}"
        )
    return names[name]


def refuse_unknown_goals(spec: WorldSpec, states: StateSet, key: str) -> None:
    """Refuse a set of states that names goals which nobody has.

    Raises:
        ConfigError: if it does; the message begins with ``key``.
    """
    names = sorted({goal.name for goal in spec.goals})
    for name in [*(states.any_of or ()), *(states.all_of or ())]:
        if name not in names:
            raise ConfigError(
                f"{key}: nobody has a goal {name!r}; goals are {', '.join(map(repr, names))}"
            )


def states_in(solution: Solution, states: StateSet, key: str) -> Bool[np.ndarray, " state"]:
    """The states of a set [state].

    Raises:
        WorldError: if rows are no state rows of the world.
        SolveError: if a row cannot be reached.
    """
    spec, achieved = solution.spec, achieved_in(solution.problem)
    if states.rows is not None:
        rows = integer_rows(spec.name, spec.state_words, np.array(states.rows))
        numbers = solution.find_rows(rows)
        if (numbers < 0).any():
            row = states.rows[int((numbers < 0).argmax())]
            raise SolveError(f"{key}: {spec.name!r} cannot reach the state {row}")
        is_in = np.zeros(len(achieved), np.bool_)
        is_in[numbers] = True
        return is_in
    names = states.any_of or states.all_of or []
    columns = achieved[:, [goal.name in names for goal in spec.goals]]
    reduced = np.logical_or if states.any_of else np.logical_and
    chosen: Bool[np.ndarray, " state"] = reduced.reduce(columns, axis=1)
    return chosen
