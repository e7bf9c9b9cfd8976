"""Identity of a world, so that what was learned in one is not used in another."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import asdict

from pydantic import JsonValue

from empo_core.protocols import WorldModel
from empo_core.worlds.content import world_digest


def identity(world: WorldModel) -> dict[str, JsonValue]:
    """Identity of a world as JSON data; the order of the keys says what to name first.

    Two worlds that agree have the same agents, goals, horizon and observations, and the same
    ``world_digest``.
    """
    spec = world.spec
    return {
        "name": spec.name,
        "horizon": spec.horizon,
        "agents": [[agent.name, agent.role, list(agent.actions)] for agent in spec.agents],
        "goals": [[goal.human, goal.name, float(goal.weight)] for goal in spec.goals],
        "features": asdict(spec.featurizer.shape),
        "content": world_digest(world),
    }


def difference(known: Mapping[str, JsonValue], here: Mapping[str, JsonValue]) -> str | None:
    """The first thing in which two identities differ, in words; None where they agree."""
    for key, value in here.items():
        if known.get(key) == value:
            continue
        if key == "content":
            return (
                "it starts in another state, or its first step leads elsewhere, or a later one does"
            )
        return f"its {key} {_was(known.get(key))}, not {reprlib.repr(value)}"
    return None


def _was(value: JsonValue) -> str:
    return f"{'were' if isinstance(value, list | dict) else 'was'} {reprlib.repr(value)}"
