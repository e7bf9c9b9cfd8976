"""The games of the reference numbers, read from ``fair_worlds.yaml`` into tables.

``*`` is any action or state; the first transition that fits counts.
"""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from random_games import Item, Table

from empo_core.config.yaml import parse_yaml

GOLDEN = Path(__file__).parents[3] / "tests/golden"


@cache
def reference_numbers() -> dict[str, Any]:
    """The numbers, computed with 40 digits: ``sets``, ``values`` and ``diagnostics``."""
    numbers: dict[str, Any] = json.loads((GOLDEN / "fair_reference.json").read_text())
    return numbers


@cache
def games() -> dict[str, dict[str, Any]]:
    """The games by name."""
    listed = parse_yaml((GOLDEN / "fair_worlds.yaml").read_text(), name="fair_worlds.yaml").data
    return {game["name"]: game for game in listed}


@cache
def fair_table(name: str) -> Table:
    """A game as a table; its states and actions have their places in the file."""
    game = games()[name]
    agents, states = game["agents"], game["states"]
    outcomes = []
    for state in states:
        if state in _listed(game.get("terminal", [])):
            outcomes.append({})
            continue
        limited = game.get("available", {}).get(state, {})
        allowed = [
            [
                i
                for i, action in enumerate(agent["actions"])
                if agent["name"] not in limited or action in _listed(limited[agent["name"]])
            ]
            for agent in agents
        ]
        outcomes.append(
            {profile: _outcome(game, state, profile) for profile in itertools.product(*allowed)}
        )
    goals = tuple(
        (number, float(goal["weight"]), frozenset(map(states.index, _listed(goal["states"]))))
        for number, agent in enumerate(agents)
        for goal in game["goals"].get(agent["name"], [])
    )
    return Table(
        roles=tuple(agent["role"] for agent in agents),
        num_actions=tuple(len(agent["actions"]) for agent in agents),
        outcomes=tuple(outcomes),
        goals=goals,
        labels=tuple(range(len(states))),
        horizon=game.get("horizon"),
        start=states.index(game["initial"]),
        timed=any("duration" in transition for transition in game["transitions"]),
    )


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _outcome(game: dict[str, Any], state: str, profile: tuple[int, ...]) -> tuple[Item, ...]:
    """What follows: of the first transition that fits."""
    actions = [agent["actions"][i] for agent, i in zip(game["agents"], profile, strict=True)]
    for transition in game["transitions"]:
        wanted = transition.get("actions", "*" * len(actions))
        if transition["state"] in ("*", state) and all(
            pattern in ("*", action) for pattern, action in zip(wanted, actions, strict=True)
        ):
            to = transition["to"]
            chances = {to: 1} if isinstance(to, str) else to
            duration = float(transition.get("duration", 1))
            return tuple(
                (float(Fraction(p)), game["states"].index(after), duration)
                for after, p in chances.items()
            )
    raise ValueError(f"{game['name']}: nothing says what follows {state} with {actions}")
