"""Symmetries of explicit games, as files list them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from empo_core.world_structure import Symmetry
from empo_tabular.table import Table, TableAgent, TableSymmetry

Problem = tuple[tuple[str | int, ...], str]
"""Keys and list positions that lead to the culprit, and what is wrong with it."""


def symmetries_of(table: Table) -> list[Symmetry]:
    """The symmetries of a game without problems."""
    return [_symmetry(table, symmetry) for symmetry in table.symmetries]


def problems_with_symmetries(table: Table) -> Iterator[Problem]:
    """Problems of symmetries: unknown or repeated names, and goals and actions without an image."""
    agents = [agent.name for agent in table.agents]
    for i, symmetry in enumerate(table.symmetries):
        loc = ("symmetries", i)
        yield from _renaming((*loc, "states"), symmetry.states, table.states, table.states)
        yield from _renaming((*loc, "agents"), symmetry.agents, agents, agents)
        if not set(symmetry.agents.values()) <= set(agents):
            continue
        for key, by_agent in (("actions", symmetry.actions), ("goals", symmetry.goals)):
            for name in sorted(by_agent.keys() - set(agents)):
                yield (*loc, key, name), f"there is no agent {name!r}; agents: {', '.join(agents)}"
        for agent in table.agents:
            other = _agent(table, symmetry.agents.get(agent.name, agent.name))
            if agent.role != other.role:
                yield (*loc, "agents"), f"{agent.name} and {other.name} differ in their role"
            renamed = symmetry.actions.get(agent.name, {})
            place = (*loc, "actions", agent.name)
            yield from _renaming(place, renamed, agent.actions, other.actions)
            goals = symmetry.goals.get(agent.name, {})
            ours, theirs = _goal_names(table, agent), _goal_names(table, other)
            yield from _renaming((*loc, "goals", agent.name), goals, ours, theirs)


def _renaming(
    loc: tuple[str | int, ...],
    renamed: Mapping[str, str],
    names: Sequence[str],
    targets: Collection[str],
) -> Iterator[Problem]:
    """Problems of a renaming; names that are not listed stay the same."""
    for name, other in renamed.items():
        if name not in names:
            yield loc, f"there is no {name!r} to rename; there are {_listed(names)}"
        if other not in targets:
            yield loc, f"{name!r} becomes {other!r}; there are {_listed(targets)}"
    becomes = [renamed.get(name, name) for name in names]
    if sorted(becomes) != sorted(targets):
        missing = sorted(set(targets) - set(becomes)) or sorted(set(becomes) - set(targets))
        yield (
            loc,
            (
                f"must rename one to one: what is not listed keeps its name, and then "
                f"{missing[0]!r} is missing or there twice; list it, too"
            ),
        )


def _listed(names: Collection[str]) -> str:
    """Names joined by commas, or "none"."""
    return ", ".join(names) or "none"


def _symmetry(table: Table, symmetry: TableSymmetry) -> Symmetry:
    number = {state: i for i, state in enumerate(table.states)}
    images = [number[symmetry.states.get(state, state)] for state in table.states]
    names = [agent.name for agent in table.agents]
    agents = [names.index(symmetry.agents.get(name, name)) for name in names]
    width = max(len(agent.actions) for agent in table.agents)
    actions = torch.zeros((len(agents), width), dtype=torch.int64)
    goals = [
        (i, name) for i, agent in enumerate(table.agents) for name in _goal_names(table, agent)
    ]
    for i, agent in enumerate(table.agents):
        renamed = symmetry.actions.get(agent.name, {})
        theirs = table.agents[agents[i]].actions
        for action, name in enumerate(agent.actions):
            actions[i, action] = theirs.index(renamed.get(name, name))
    becomes = [
        goals.index((agents[i], symmetry.goals.get(names[i], {}).get(name, name)))
        for i, name in goals
    ]
    image = torch.tensor(images, dtype=torch.int32)

    def rows(states: Int[Tensor, "state word"]) -> Int[Tensor, "state word"]:
        return image[states.long()]

    def renamed_actions(states: Int[Tensor, "state word"]) -> Int[Tensor, "state agent action"]:
        return actions.expand(len(states), -1, -1)

    return Symmetry(
        name=symmetry.name,
        rows=rows,
        agents=tuple(agents),
        actions=renamed_actions,
        goals=tuple(becomes),
    )


def _agent(table: Table, name: str) -> TableAgent:
    return next(agent for agent in table.agents if agent.name == name)


def _goal_names(table: Table, agent: TableAgent) -> list[str]:
    return [goal.name for goal in table.goals.get(agent.name, [])]
