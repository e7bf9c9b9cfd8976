"""Builders of the toy games' tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias

from empo_tabular.table import Table

Probability = Fraction | float | int
Data: TypeAlias = "str | float | Sequence[Data] | Mapping[str, Data]"
"""Plain data, as in a file."""


def lottery(chances: Mapping[str, Probability]) -> dict[str, str | float]:
    """Probabilities as a file writes them: exact where they are fractions, no zeros."""
    return {
        state: str(chance) if isinstance(chance, Fraction) and chance != 1 else float(chance)
        for state, chance in chances.items()
        if chance > 0
    }


def one_and_one(
    *,
    name: str,
    human: Sequence[str],
    robot: Sequence[str],
    goals: Mapping[str, Sequence[str]],
    **entries: Data,
) -> Table:
    """A game of one human and one robot that begins in state ``start``."""
    return Table.model_validate(
        {
            "name": name,
            "agents": [
                {"name": "human", "role": "human", "actions": list(human)},
                {"name": "robot", "role": "robot", "actions": list(robot)},
            ],
            "initial": "start",
            "goals": {
                "human": [
                    {"name": goal, "states": list(states), "weight": 1}
                    for goal, states in goals.items()
                ]
            },
            **entries,
        }
    )
