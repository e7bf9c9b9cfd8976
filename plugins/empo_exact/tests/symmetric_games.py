"""Small random games with a symmetry: raw random games, averaged over what it generates."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from random_games import Item, Shape, Table, TableWorld
from torch import Tensor

from empo_core.world_structure import Symmetry
from empo_worlds.queries import sample_successors

Profile = tuple[int, ...]


@dataclass(frozen=True)
class Renaming:
    """One symmetry of a table; axes are those of ``Symmetry``, ``states`` by number."""

    states: tuple[int, ...]
    agents: tuple[int, ...]
    actions: tuple[tuple[int, ...], ...]
    goals: tuple[int, ...]

    def profile(self, profile: Profile) -> Profile:
        """The joint action that a joint action becomes."""
        renamed = [0] * len(profile)
        for agent, action in enumerate(profile):
            renamed[self.agents[agent]] = self.actions[agent][action]
        return tuple(renamed)

    def after(self, other: Renaming) -> Renaming:
        """This one after another one."""
        return Renaming(
            tuple(self.states[s] for s in other.states),
            tuple(self.agents[a] for a in other.agents),
            tuple(
                tuple(self.actions[other.agents[agent]][x] for x in actions)
                for agent, actions in enumerate(other.actions)
            ),
            tuple(self.goals[g] for g in other.goals),
        )


class SymmetricWorld(TableWorld):
    """A table as a world that declares symmetries."""

    def __init__(self, table: Table, renamings: Sequence[Renaming]) -> None:
        super().__init__(table)
        self.renamings = tuple(renamings)
        self._available = super().available(self._rows)

    def available(self, states: Tensor) -> Tensor:
        return self._available[self._numbers(states)]

    def step(self, states: Tensor, actions: Tensor, generator: torch.Generator) -> Tensor:
        return sample_successors(self.transitions(states, actions), states, generator)

    def symmetries(self) -> list[Symmetry]:
        return [self._symmetry(i, renaming) for i, renaming in enumerate(self.renamings)]

    def _symmetry(self, number: int, renaming: Renaming) -> Symmetry:
        width = max(self.table.num_actions)
        padded = [list(a) + [0] * (width - len(a)) for a in renaming.actions]

        def rows(states: Tensor) -> Tensor:
            numbers = [renaming.states[n] for n in self._numbers(states)]
            return self._rows[torch.tensor(numbers, dtype=torch.int64)]

        return Symmetry(
            name=f"renaming {number}",
            rows=rows,
            agents=renaming.agents,
            actions=lambda states: torch.tensor(padded).expand(len(states), -1, -1),
            goals=renaming.goals,
        )


def symmetric_world(shape: Shape, seed: int) -> SymmetricWorld:
    """A random game of the given shape with a random symmetry of order 2 or 3."""
    rng = random.Random(seed)
    levels = [0] + [rng.randrange(1, 4) for _ in range(shape.num_states - 1)]
    order = rng.choice([2, 2, 3])
    humans = [i for i, role in enumerate(shape.roles) if role == "human"]
    counts = {human: rng.randrange(4) for human in humans}
    generator = _renaming(shape, levels, counts, order, rng)
    group = [generator]
    while group[-1].after(generator) != group[0]:
        group.append(group[-1].after(generator))
    return SymmetricWorld(_table(shape, levels, counts, group, rng), [generator])


def _cycles(items: Sequence[int], order: int, rng: random.Random) -> dict[int, int]:
    """A permutation of items whose cycles are of this length or 1."""
    left, found = list(items), {}
    rng.shuffle(left)
    while left:
        size = order if len(left) >= order and rng.random() < 0.8 else 1
        cycle, left = left[:size], left[size:]
        found |= dict(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return found


def _renaming(
    shape: Shape, levels: list[int], counts: dict[int, int], order: int, rng: random.Random
) -> Renaming:
    states: dict[int, int] = {}
    for level in set(levels):
        states |= _cycles([s for s, at in enumerate(levels) if at == level], order, rng)
    agents: dict[int, int] = {}
    kinds = list(zip(shape.roles, shape.num_actions, strict=True))
    for kind in set(kinds):
        agents |= _cycles([i for i, k in enumerate(kinds) if k == kind], order, rng)
    for human in counts:  # Humans that are exchanged have as many goals.
        other = agents[human]
        while other != human:
            counts[other] = counts[human]
            other = agents[other]
    actions, done = [()] * len(kinds), set[int]()
    for agent, (_, number) in enumerate(kinds):
        if agent in done:
            continue
        # The first action stays, since it is taken where a goal is achieved; what others are
        # renamed to is of this order once a cycle of agents is closed.
        other = agents[agent]
        actions[agent] = _renamed_rest(number, order if other == agent else 1, rng)
        done.add(agent)
        while other != agent:
            actions[other] = tuple(range(number))
            done.add(other)
            other = agents[other]
    first = dict(zip(counts, itertools.accumulate(counts.values(), initial=0), strict=False))
    goals = {}
    for human, number in counts.items():
        own = range(first[human], first[human] + number)
        if agents[human] == human:
            goals |= _cycles(own, order, rng)
        else:
            goals |= {goal: first[agents[human]] + i for i, goal in enumerate(own)}
    # One more goal for each human behind those: all states, so that nobody is without power.
    last = sum(counts.values())
    goals |= {last + i: last + list(counts).index(agents[human]) for i, human in enumerate(counts)}
    return Renaming(
        tuple(states[s] for s in range(len(levels))),
        tuple(agents[a] for a in range(len(kinds))),
        tuple(actions),
        tuple(goals[g] for g in range(len(goals))),
    )


def _renamed_rest(number: int, order: int, rng: random.Random) -> tuple[int, ...]:
    rest = _cycles(range(1, number), order, rng)
    return (0, *(rest[action] for action in range(1, number)))


def _table(
    shape: Shape,
    levels: list[int],
    counts: dict[int, int],
    group: list[Renaming],
    rng: random.Random,
) -> Table:
    states = range(shape.num_states)
    ends = {s for s in states if s > 0 and rng.random() < 0.15}

    def mask(number: int) -> set[int]:
        return {0, *(a for a in range(number) if not shape.masked or rng.random() < 0.5)}

    masks = [[mask(number) for number in shape.num_actions] for _ in states]
    available = [[set(actions) for actions in mask] for mask in masks]
    for e, s in itertools.product(group, states):
        for agent, actions in enumerate(masks[s]):
            available[e.states[s]][e.agents[agent]] |= {e.actions[agent][a] for a in actions}
    raw: dict[tuple[int, Profile], dict[int, float]] = {}
    duration: dict[tuple[int, Profile], float] = {}
    for s in states:
        later = [t for t in states if shape.horizon is not None or levels[t] > levels[s]]
        if not later or any(e.states[s] in ends for e in group):
            continue
        for profile in itertools.product(*available[s]):
            chosen = rng.sample(later, min(len(later), rng.choice([1, 1, 2])))
            weights = [rng.choice([1, 2, 3]) for _ in chosen]
            raw[s, profile] = {t: w / sum(weights) for t, w in zip(chosen, weights, strict=True)}
            images = [(e.states[s], e.profile(profile)) for e in group]
            lasts = rng.choice([0.5, 1.0, 2.0]) if shape.timed else 1.0
            known = [duration[image] for image in images if image in duration]
            duration[s, profile] = known[0] if known else lasts
    outcomes: list[dict[Profile, tuple[Item, ...]]] = [{} for _ in states]
    for (s, profile), lasts in duration.items():
        chances: dict[int, float] = {}
        for e in group:
            back = {image: t for t, image in enumerate(e.states)}
            for t, p in raw[e.states[s], e.profile(profile)].items():
                chances[back[t]] = chances.get(back[t], 0.0) + p / len(group)
        outcomes[s][profile] = tuple((p, t, lasts) for t, p in chances.items())
    return Table(
        roles=shape.roles,
        num_actions=shape.num_actions,
        outcomes=tuple(outcomes),
        goals=_goals(shape, counts, group, rng),
        labels=tuple(rng.sample(range(-300, 300), shape.num_states)),
        horizon=shape.horizon,
        timed=shape.timed,
    )


def _goals(
    shape: Shape, counts: dict[int, int], group: list[Renaming], rng: random.Random
) -> tuple[tuple[int, float, frozenset[int]], ...]:
    humans = [human for human, number in counts.items() for _ in range(number)]
    humans += list(counts)
    everything = frozenset(range(shape.num_states))
    goals: list[tuple[int, float, frozenset[int]] | None] = [None] * len(humans)
    for goal, human in enumerate(humans):
        if goals[goal] is not None:
            continue
        weight = rng.choice([0.1, 0.25, 1.0, 3.0])
        some = {s for s in everything if rng.random() < 0.4}
        if goal >= len(humans) - len(counts):
            some = set(everything)
        # What fixes the goal must fix its states.
        some |= {e.states[s] for e in group if e.goals[goal] == goal for s in some}
        for e in group:
            members = frozenset(e.states[s] for s in some)
            goals[e.goals[goal]] = (e.agents[human], weight, members)
    return tuple(goal for goal in goals if goal is not None)


@st.composite
def symmetric_worlds(draw: st.DrawFn) -> SymmetricWorld:
    """Random symmetric games of one to three agents, at least one of them human."""
    roles = draw(
        st.sampled_from(
            [
                ("human", "robot"),
                ("human", "human", "robot"),
                ("robot", "human", "robot"),
                ("human", "human"),
                ("human", "human", "human"),
            ]
        )
    )
    actions = draw(st.integers(2, 3)), draw(st.integers(2, 3))
    shape = Shape(
        num_states=draw(st.integers(3, 9)),
        roles=roles,
        num_actions=tuple(actions[role == "robot"] for role in roles),
        horizon=draw(st.sampled_from([None, 1, 2, 4])),
        timed=draw(st.booleans()),
        masked=draw(st.booleans()),
    )
    return symmetric_world(shape, draw(st.integers(0, 2**32 - 1)))
