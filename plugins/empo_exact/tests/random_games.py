"""Small random games with everything the solver must cope with, as world models.

A :class:`Table` is the game in plain Python, easy to permute; :class:`TableWorld` serves it as
a world model. Every human has one goal that contains all states, so X_h > 0 everywhere.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from empo_core.protocols import WorldModel
from empo_core.types import AgentSpec, Goal, Successors, WorldSpec

Item = tuple[float, int, float]
"""Probability, successor, duration."""


@dataclass(frozen=True)
class Table:
    """A game as a table; states are 0, 1, ... and the game starts in ``start``.

    Attributes:
        roles: Role of each agent.
        num_actions: Number of actions of each agent.
        outcomes: Per state what each available joint action leads to; a terminal state has no
            entries. The available joint actions are a product over the agents.
        goals: Human, weight and member states of each goal.
        labels: The second word of each state's row, distinct.
        horizon: Steps, or None.
        start: The initial state.
        timed: Whether transitions report their durations.
    """

    roles: tuple[str, ...]
    num_actions: tuple[int, ...]
    outcomes: tuple[dict[tuple[int, ...], tuple[Item, ...]], ...]
    goals: tuple[tuple[int, float, frozenset[int]], ...]
    labels: tuple[int, ...]
    horizon: int | None
    start: int = 0
    timed: bool = False


class TableWorld(WorldModel):
    """A table as a world model; rows are ``(group, label)``, neither of them the state's index."""

    def __init__(self, table: Table) -> None:
        self.table = table
        agents = tuple(
            AgentSpec(name=f"{role} {i}", role=role, actions=tuple(f"a{k}" for k in range(number)))  # type: ignore[arg-type]
            for i, (role, number) in enumerate(zip(table.roles, table.num_actions, strict=True))
        )
        goals = tuple(
            Goal(human=human, name=f"goal {i}", weight=weight)
            for i, (human, weight, _) in enumerate(table.goals)
        )
        self.spec = WorldSpec(
            name="random game",
            agents=agents,
            goals=goals,
            state_words=2,
            state_dtype=torch.int16,
            horizon=table.horizon,
        )
        self._rows = torch.tensor([[x % 3 - 1, x] for x in table.labels], dtype=torch.int16)
        self._number = {tuple(row): i for i, row in enumerate(self._rows.tolist())}
        states, agents = len(table.labels), len(table.roles)
        self._available = torch.zeros(states, agents, max(table.num_actions), dtype=torch.bool)
        for state, outcomes in enumerate(table.outcomes):
            for agent, actions in enumerate(zip(*outcomes, strict=True)):
                self._available[state, agent, list(set(actions))] = True
        self._achieved = torch.zeros(states, len(goals), dtype=torch.bool)
        for goal, (_, _, members) in enumerate(table.goals):
            self._achieved[list(members), goal] = True

    def row(self, state: int) -> tuple[int, ...]:
        """The row of a state as a tuple."""
        return tuple(self._rows[state].tolist())

    def number(self, row: Sequence[int]) -> int:
        """The state of a row."""
        return self._number[tuple(int(word) for word in row)]

    def _numbers(self, states: Tensor) -> list[int]:
        return [self._number[tuple(row)] for row in states.tolist()]

    def initial_state(self) -> Tensor:
        return self._rows[self.table.start].clone()

    def transitions(self, states: Tensor, actions: Tensor | None = None) -> Successors:
        numbers = self._numbers(states)
        if actions is None:
            # Agent 0 is the fastest digit, so it is the last factor of the product.
            sizes = [range(number) for number in reversed(self.table.num_actions)]
            profiles = [digits[::-1] for digits in itertools.product(*sizes)]
            pairs = [(state, profile) for state in numbers for profile in profiles]
        else:
            pairs = list(zip(numbers, map(tuple, actions.tolist()), strict=True))
        found = [self.table.outcomes[state].get(profile, ()) for state, profile in pairs]
        items = [item for outcome in found for item in outcome]
        counts = torch.tensor([0] + [len(outcome) for outcome in found])
        return Successors(
            offsets=counts.cumsum(0),
            states=self._rows[torch.tensor([s for _, s, _ in items], dtype=torch.int64)],
            prob=torch.tensor([p for p, _, _ in items], dtype=torch.float64),
            duration=torch.tensor([d for _, _, d in items], dtype=torch.float64)
            if self.table.timed
            else None,
        )

    def available(self, states: Tensor) -> Tensor:
        return self._available[self._numbers(states)]

    def achieved(self, states: Tensor) -> Tensor:
        return self._achieved[self._numbers(states)]

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        found = self.transitions(states, actions)
        result = states.clone()
        for i in range(len(states)):
            start, end = int(found.offsets[i]), int(found.offsets[i + 1])
            if end > start:
                drawn = torch.multinomial(found.prob[start:end], 1, generator=generator)
                result[i] = found.states[start + int(drawn)]
        return result

    def describe(self, state: Tensor) -> str:
        return f"state {self.number(state.tolist())}"


@dataclass(frozen=True)
class Shape:
    """Sizes and options of a random game."""

    num_states: int
    roles: tuple[str, ...]
    num_actions: tuple[int, ...]
    horizon: int | None
    timed: bool
    masked: bool


def random_table(shape: Shape, seed: int) -> Table:
    """A game of the given shape; without a horizon it is acyclic."""
    rng = random.Random(seed)
    acyclic = shape.horizon is None
    outcomes = []
    for state in range(shape.num_states):
        later = list(range(state + 1, shape.num_states)) if acyclic else range(shape.num_states)
        ends = not later or (state > 0 and rng.random() < 0.2)
        outcomes.append({} if ends else _outcomes(shape, list(later), rng))
    return Table(
        roles=shape.roles,
        num_actions=shape.num_actions,
        outcomes=tuple(outcomes),
        goals=_goals(shape, rng),
        labels=tuple(rng.sample(range(-300, 300), shape.num_states)),
        horizon=shape.horizon,
        timed=shape.timed,
    )


def _outcomes(
    shape: Shape, later: list[int], rng: random.Random
) -> dict[tuple[int, ...], tuple[Item, ...]]:
    available = []
    for number in shape.num_actions:
        kept = [a for a in range(number) if not shape.masked or rng.random() < 0.7]
        available.append(kept or [rng.randrange(number)])
    found = {}
    for profile in itertools.product(*available):
        successors = rng.sample(later, min(len(later), rng.choice([1, 1, 2, 3])))
        weights = [rng.choice([1, 2, 3, 7, 3e-5]) for _ in successors]
        found[profile] = tuple(
            (w / sum(weights), s, rng.choice([0.25, 1.0, 2.0, 3.5]) if shape.timed else 1.0)
            for w, s in zip(weights, successors, strict=True)
        )
    return found


def _goals(shape: Shape, rng: random.Random) -> tuple[tuple[int, float, frozenset[int]], ...]:
    everything = frozenset(range(shape.num_states))
    goals = []
    for agent, role in enumerate(shape.roles):
        if role != "human":
            continue
        goals.append((agent, rng.choice([0.01, 0.5, 1.0]), everything))
        for _ in range(rng.randrange(4)):
            members = [s for s in everything if rng.random() < 0.4]
            goals.append((agent, rng.choice([0.0, 0.1, 0.25, 1.0, 3.0]), frozenset(members)))
    rng.shuffle(goals)
    return tuple(goals)


@st.composite
def tables(draw: st.DrawFn, *, acyclic: bool | None = None) -> Table:
    """Random games of one to three agents, at least one of them human."""
    num_agents = draw(st.integers(1, 3))
    human = draw(st.integers(0, num_agents - 1))
    roles = [draw(st.sampled_from(["human", "robot"])) for _ in range(num_agents)]
    roles[human] = "human"
    no_horizon = draw(st.booleans()) if acyclic is None else acyclic
    shape = Shape(
        num_states=draw(st.integers(2, 8)),
        roles=tuple(roles),
        num_actions=tuple(draw(st.integers(1, 3)) for _ in roles),
        horizon=None if no_horizon else draw(st.integers(1, 4)),
        timed=draw(st.booleans()),
        masked=draw(st.booleans()),
    )
    return random_table(shape, draw(st.integers(0, 2**32 - 1)))


def permute_agents(table: Table, order: Sequence[int]) -> Table:
    """The same game with agent ``order[i]`` renamed ``i``."""
    new_name = {old: new for new, old in enumerate(order)}

    def renamed(profile: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(profile[old] for old in order)

    return replace(
        table,
        roles=tuple(table.roles[old] for old in order),
        num_actions=tuple(table.num_actions[old] for old in order),
        outcomes=tuple({renamed(p): o for p, o in found.items()} for found in table.outcomes),
        goals=tuple((new_name[human], weight, states) for human, weight, states in table.goals),
    )


def permute_goals(table: Table, order: Sequence[int]) -> Table:
    """The same game with its goals listed in another order."""
    return replace(table, goals=tuple(table.goals[old] for old in order))


def permute_states(table: Table, order: Sequence[int]) -> Table:
    """The same game with state ``order[i]`` renamed ``i``; every state keeps its row."""
    new_name = {old: new for new, old in enumerate(order)}
    outcomes = [
        {
            profile: tuple((p, new_name[s], d) for p, s, d in reversed(items))
            for profile, items in table.outcomes[old].items()
        }
        for old in order
    ]
    return replace(
        table,
        outcomes=tuple(outcomes),
        goals=tuple((h, w, frozenset(new_name[s] for s in states)) for h, w, states in table.goals),
        labels=tuple(table.labels[old] for old in order),
        start=new_name[table.start],
    )


def scale_weights(table: Table, factor: float) -> Table:
    """The same game with every goal weight multiplied."""
    return replace(table, goals=tuple((h, factor * w, states) for h, w, states in table.goals))
