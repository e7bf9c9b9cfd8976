"""Errors in the names of an explicit game, and their places in the file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from empo_core.suggestions import nearest
from empo_tabular.symmetries import Problem, problems_with_symmetries
from empo_tabular.table import ANY, Table, TableRule

MAX_PAIRS = 4_000_000
"""More (state, joint action) pairs than this belong into code, not into a file."""

MAX_WORK = 25_000_000
"""Pairs that all rules and agents speak about."""


def problems_with_names(table: Table) -> list[Problem]:
    """Every duplicate or unknown name, and every lottery that does not sum to 1."""
    states, terminal = dict.fromkeys(table.states), frozenset(table.terminal)
    return [
        *_agents(table),
        *_states(table, states),
        *(
            problem
            for i, rule in enumerate(table.transitions)
            for problem in _rule(table, i, rule, states, terminal)
        ),
        *_available(table),
        *_goals(table),
        *problems_with_symmetries(table),
    ]


def _agents(table: Table) -> Iterator[Problem]:
    yield from _repeated(("agents",), "agent", [agent.name for agent in table.agents])
    pairs = len(table.states)
    for i, agent in enumerate(table.agents):
        yield from _repeated(("agents", i, "actions"), "action", agent.actions)
        pairs *= len(agent.actions)
    if pairs > MAX_PAIRS:
        yield (
            ("states",),
            f"the game has {pairs} pairs of a state and a joint action, more than {MAX_PAIRS}; "
            "write it as arrays, see docs/how-to/large_tables.md",
        )
    elif pairs * len(table.agents) + sum(_pairs(table, r) for r in table.transitions) > MAX_WORK:
        yield (
            ("transitions",),
            f"{len(table.transitions)} rules and {len(table.agents)} agents are too many for "
            f"{pairs} pairs of a state and a joint action; write the game as arrays, see "
            "docs/how-to/large_tables.md",
        )


def _pairs(table: Table, rule: TableRule) -> int:
    """How many pairs of a state and a joint action a rule speaks about."""
    actions = rule.actions if rule.actions is not None else [[ANY]] * len(table.agents)
    return math.prod(
        [len(table.states if ANY in rule.state else rule.state)]
        + [
            len(agent.actions if ANY in chosen else chosen)
            for agent, chosen in zip(table.agents, actions, strict=False)
        ]
    )


def _states(table: Table, states: Collection[str]) -> Iterator[Problem]:
    yield from _repeated(("states",), "state", table.states)
    yield from _unknown(("initial",), "state", table.initial, states)
    yield from _lottery(("initial",), table.initial)
    yield from _unknown(("terminal",), "state", table.terminal, states, listed=True)
    for state in table.initial:
        if state in table.terminal:
            yield ("initial", state), f"state {state!r} is terminal; episodes would end at once"


def _rule(
    table: Table, i: int, rule: TableRule, states: Collection[str], terminal: Collection[str]
) -> Iterator[Problem]:
    loc = ("transitions", i)
    state_names = [state for state in rule.state if state != ANY]
    yield from _unknown((*loc, "state"), "state", state_names, states)
    for state in rule.state:
        if state in terminal:
            yield (*loc, "state"), f"state {state!r} is terminal and cannot have transitions"
    if rule.actions is not None and len(rule.actions) != len(table.agents):
        yield (
            (*loc, "actions"),
            f"must have one entry per agent ({len(table.agents)}: "
            f"{', '.join(agent.name for agent in table.agents)}); got {len(rule.actions)}",
        )
    for k, (agent, actions) in enumerate(zip(table.agents, rule.actions or (), strict=False)):
        names = [*agent.actions, ANY]
        yield from _unknown((*loc, "actions", k), f"action of {agent.name}", actions, names)
    yield from _unknown((*loc, "to"), "state", rule.to, states)
    yield from _lottery((*loc, "to"), rule.to)


def _lottery(loc: tuple[str | int, ...], prob: Mapping[str, float]) -> Iterator[Problem]:
    total = math.fsum(prob.values())
    if abs(total - 1) > 1e-9:
        yield loc, f"the probabilities sum to {total:.12g}, not to 1"


def _available(table: Table) -> Iterator[Problem]:
    agents = {agent.name: agent for agent in table.agents}
    for state, by_agent in table.available.items():
        loc = ("available", state)
        yield from _unknown(loc, "state", [state], [*table.states, ANY])
        if state in table.terminal:
            yield loc, f"state {state!r} is terminal; no agent acts there"
        yield from _unknown(loc, "agent", by_agent, list(agents))
        for name, actions in by_agent.items():
            if name in agents:
                names = agents[name].actions
                yield from _unknown((*loc, name), f"action of {name}", actions, names)


def _goals(table: Table) -> Iterator[Problem]:
    humans = [agent.name for agent in table.agents if agent.role == "human"]
    yield from _unknown(("goals",), "human", table.goals, humans)
    for human, goals in table.goals.items():
        yield from _repeated(("goals", human), "goal", [goal.name for goal in goals])
        for i, goal in enumerate(goals):
            loc = ("goals", human, i, "states")
            yield from _unknown(loc, "state", goal.states, table.states)


def _repeated(loc: tuple[str | int, ...], kind: str, names: Sequence[str]) -> Iterator[Problem]:
    used: set[str] = set()
    for i, name in enumerate(names):
        if name in used:
            yield (*loc, i), f"there are two {kind}s named {name!r}; rename one"
        if name == ANY:
            yield (*loc, i), f"{ANY!r} stands for any {kind} and cannot be the name of one"
        used.add(name)


def _unknown(
    loc: tuple[str | int, ...],
    kind: str,
    names: Iterable[str],
    existing: Collection[str],
    *,
    listed: bool = False,
) -> Iterator[Problem]:
    for i, name in enumerate(names):
        if name not in existing:
            close = nearest(name, existing)
            hint = f"did you mean {close!r}?" if close else f"there are {_listed(existing)}"
            place = (*loc, i) if listed else (*loc, name) if isinstance(names, Mapping) else loc
            yield place, f"there is no {kind} {name!r}; {hint}"


def _listed(names: Collection[str]) -> str:
    text = ", ".join(itertools.islice(names, 8)) or "none"
    return text if len(names) <= 8 else f"{text}, ... ({len(names)} in all)"
