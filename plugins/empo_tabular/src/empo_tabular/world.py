"""World models of explicit games, built as arrays when the game is loaded."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int

from empo_core.config.files import joined, located_error, read_yaml, validate_document
from empo_core.config.yaml import Limits
from empo_core.errors import WorldError
from empo_core.suggestions import few_suggestions
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec
from empo_tabular.arrays import read_npz, world_of_arrays
from empo_tabular.checks import problems_with_names
from empo_tabular.explicit import read_explicit
from empo_tabular.features import OneHotFeatures
from empo_tabular.plugin import TableParams
from empo_tabular.symmetries import Problem, symmetries_of
from empo_tabular.table import ANY, Table, TableRule
from empo_worlds.enumeration import EnumeratedWorld

LIMITS = Limits(
    bytes=2**22, values=200_000, remedy="write it as arrays, see docs/how-to/large_tables.md"
)
"""Of a file that names each state and transition; parsing one takes up to 20 seconds."""

log = logging.getLogger(__name__)


def load_world(params: TableParams) -> EnumeratedWorld:
    """The world of a file.

    Raises:
        ConfigError: if the file cannot be used; one located line per problem.
    """
    if params.file.suffix == ".npz":
        return world_of_arrays(read_npz(params.file), str(params.file), params.max_steps)
    if params.file.suffix == ".tra":
        arrays = read_explicit(params.file, params.labels, params.durations)
        return world_of_arrays(arrays, str(params.file), params.max_steps)
    return world_of(read_table(params.file), params.max_steps)


@few_suggestions()
def read_table(path: str | Path) -> Table:
    """The game in a file, checked.

    Raises:
        ConfigError: if the file cannot be used; one located line per problem.
    """
    document = read_yaml(path, LIMITS)
    table = validate_document(Table, document)
    if problems := find_problems(table):
        raise joined(located_error(document, loc, reason) for loc, reason in problems)
    for role in ("human", "robot"):
        if all(agent.role != role for agent in table.agents):
            place = document.place(("agents",))
            log.warning("%s: agents: has no %s; add an agent with 'role: %s'", place, role, role)
    return table


def find_problems(table: Table) -> list[Problem]:
    """All contradictions in a game."""
    return problems_with_names(table) or _problems_with_coverage(table)


def world_of(table: Table, max_steps: int | None = None) -> EnumeratedWorld:
    """The world of a game that was read from a file or made in Python.

    Args:
        table: The game; its states are numbered in the order in which they are listed.
        max_steps: Steps after which an episode ends; None keeps the game's horizon.

    Raises:
        WorldError: if the game contradicts itself.
    """
    if problems := find_problems(table):
        lines = [f"{'.'.join(map(str, loc))}: {reason}" for loc, reason in problems]
        raise WorldError(f"{table.name!r} is not a game:\n" + "\n".join(lines))
    goals = [
        (
            Goal(
                human=i,
                name=goal.name,
                weight=_weight(goal.weight, agent_goals),
                features=_indicator(table.states, goal.states),
            ),
            goal.states,
        )
        for i, agent in enumerate(table.agents)
        for agent_goals in [table.goals.get(agent.name, [])]
        for goal in agent_goals
    ]
    spec = WorldSpec(
        name=table.name,
        agents=tuple(
            AgentSpec(name=agent.name, role=agent.role, actions=tuple(agent.actions))
            for agent in table.agents
        ),
        goals=tuple(goal for goal, _ in goals),
        state_words=1,
        state_dtype=torch.int32,
        horizon=table.horizon if max_steps is None else max_steps,
        releases_gil=True,
        features=OneHotFeatures(len(table.states)),
    )
    number = {state: i for i, state in enumerate(table.states)}
    achieved = torch.zeros(len(table.states), len(goals), dtype=torch.bool)
    for column, (_, states) in enumerate(goals):
        achieved[[number[state] for state in states], column] = True
    return EnumeratedWorld(
        spec,
        table.states,
        _successors(table),
        torch.from_numpy(_available(table)),
        achieved,
        {number[state]: p for state, p in _normalised(table.initial)},
        symmetries=symmetries_of(table),
    )


def _indicator(states: Sequence[str], reached: Sequence[str]) -> tuple[float, ...]:
    """1 for each state that is reached, 0 for the others: a goal, as states are described."""
    members = set(reached)
    return tuple(float(state in members) for state in states)


def _normalised(prob: Mapping[str, float]) -> list[tuple[str, float]]:
    """The states that are possible, and their probabilities, which sum to 1."""
    total = sum(p for p in prob.values() if p > 0)
    return [(state, p / total) for state, p in prob.items() if p > 0]


def _weight(weight: float | None, goals: Sequence[object]) -> float:
    return 1 / len(goals) if weight is None else weight


def _available(table: Table) -> Bool[np.ndarray, "state agent action"]:
    """Which actions each agent has in each state."""
    width = max(len(agent.actions) for agent in table.agents)
    available = np.zeros((len(table.states), len(table.agents), width), dtype=bool)
    for k, agent in enumerate(table.agents):
        available[:, k, : len(agent.actions)] = True
    number = {state: i for i, state in enumerate(table.states)}
    # Narrow everywhere first, then what single states say for themselves.
    for state, by_agent in sorted(table.available.items(), key=lambda item: item[0] != ANY):
        rows = slice(None) if state == ANY else number[state]
        for k, agent in enumerate(table.agents):
            if agent.name in by_agent:
                available[rows, k] = False
                for action in by_agent[agent.name]:
                    available[rows, k, agent.actions.index(action)] = True
    available[[number[state] for state in table.terminal]] = False
    return available


def _digits(table: Table) -> Int[np.ndarray, "agent joint"]:
    """Each agent's action in every joint action; agent 0 counts fastest."""
    sizes = [len(agent.actions) for agent in table.agents]
    return np.indices(sizes[::-1]).reshape(len(sizes), -1)[::-1]


def _rules(table: Table) -> Int[np.ndarray, "state joint"]:
    """The rule that applies to each pair; -1 where none does or the pair is not possible."""
    number = {state: i for i, state in enumerate(table.states)}
    rules = np.full(
        (len(table.states), math.prod(len(agent.actions) for agent in table.agents)), -1
    )
    # The first rule that fits counts, so it is written last.
    for i, rule in reversed(list(enumerate(table.transitions))):
        if ANY in rule.state:
            rules[:, _fitting(table, rule)] = i
        else:
            states = np.array([number[state] for state in rule.state])
            rules[np.ix_(states, _fitting(table, rule))] = i
    rules[~_possible(table, _digits(table))] = -1
    return rules


def _fitting(table: Table, rule: TableRule) -> Int[np.ndarray, " fitting"]:
    """The joint actions that a rule speaks about."""
    joint, stride = np.zeros(1, np.int64), 1
    for k, agent in enumerate(table.agents):
        actions = [ANY] if rule.actions is None else rule.actions[k]
        chosen = range(len(agent.actions)) if ANY in actions else map(agent.actions.index, actions)
        joint = np.add.outer(stride * np.array(list(chosen)), joint).ravel()
        stride *= len(agent.actions)
    return joint


def _possible(
    table: Table, digits: Int[np.ndarray, "agent joint"]
) -> Bool[np.ndarray, "state joint"]:
    available = _available(table)
    possible = np.ones((len(table.states), digits.shape[1]), dtype=bool)
    for k, digit in enumerate(digits):
        possible &= available[:, k, digit]
    return possible


def _problems_with_coverage(table: Table) -> list[Problem]:
    rules, digits = _rules(table), _digits(table)
    missing = _possible(table, digits) & (rules < 0)
    problems: list[Problem] = []
    for row in np.flatnonzero(missing.any(1)):
        joint = int(missing[row].argmax())
        actions = ", ".join(
            agent.actions[digit[joint]] for agent, digit in zip(table.agents, digits, strict=True)
        )
        problems.append(
            (
                ("transitions",),
                f"no rule says what follows state {table.states[row]!r} under ({actions}); "
                "add one, or list the state under 'terminal' or its actions under 'available'",
            )
        )
    used = set(np.unique(rules).tolist())
    problems += [
        (("transitions", i), "never applies: earlier rules or 'available' leave nothing to it")
        for i in range(len(table.transitions))
        if i not in used
    ]
    return problems


def _successors(table: Table) -> Successors:
    number = {state: i for i, state in enumerate(table.states)}
    lotteries = [_normalised(rule.to) for rule in table.transitions]
    target = np.array([number[state] for lottery in lotteries for state, _ in lottery], np.int32)
    prob = np.array([p for lottery in lotteries for _, p in lottery])
    size = np.array([len(lottery) for lottery in lotteries], dtype=np.int64)
    start = size.cumsum() - size
    rules = _rules(table).ravel()
    counts = np.where(rules < 0, 0, size[rules])
    offsets = np.concatenate([[0], counts.cumsum()])
    # Item i of a pair is item i of its rule.
    items = np.arange(offsets[-1]) + np.repeat(start[rules] - offsets[:-1], counts)
    duration = np.array([rule.duration for rule in table.transitions])
    times = np.repeat(duration[rules], counts)
    return Successors(
        torch.from_numpy(offsets),
        torch.from_numpy(target[items])[:, None],
        torch.from_numpy(prob[items]),
        None if bool((duration == 1).all()) else torch.from_numpy(times),
    )
