"""Beliefs of each human about the other humans' joint action, as the kernels read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float64

from empo_core.errors import SolveError
from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_exact.game import Floats, Game
from empo_exact.graph import StateGraph
from empo_exact.plugin import PriorParams
from empo_worlds.contract import available_in, state_text
from empo_worlds.policy_checks import UNAVAILABLE_TOLERANCE

Profiles = Sequence[tuple[float, Sequence[int]]]
Believed = (
    Callable[[tuple[int, ...], int, int], Profiles] | Mapping[int, Mapping[tuple[int, ...], float]]
)
"""Beliefs of a human about the other humans' joint action.

Either a callable of (state row as a tuple, human, own action) that returns (probability,
profile) pairs, where a profile lists one action per agent and -1 at the human's own place and
at robots'; or, per human, a table from the other humans' actions in index order to
probabilities.
"""


FEW_STATES = 2000
"""Below this many states a belief is asked for in this process: workers cost more to start."""


def belief_table(params: PriorParams) -> Believed | None:
    """The params' table of beliefs, as a caller would give it."""
    if params.believed_others is None:
        return None
    table: dict[int, dict[tuple[int, ...], float]] = {}
    for line in params.believed_others:
        table.setdefault(line.human, {})[tuple(line.others)] = line.prob
    return table


def believe(graph: StateGraph, game: Game, believed: Believed, workers: int) -> Floats:
    """The belief about others as weights [1 or state, human, action, others].

    Raises:
        SolveError: if a profile is impossible, or probabilities do not sum to 1.
    """
    spec = graph.spec
    shape = (len(spec.humans), int(game.num_actions.max()), int(game.others.max()) + 1)
    if isinstance(believed, Mapping):
        table = believed

        def from_table(_state: tuple[int, ...], human: int, _action: int) -> Profiles:
            return [(p, _spread(spec, human, others)) for others, p in table[human].items()]

        for human, lines in table.items():
            for others in lines:
                if human not in spec.humans or len(others) != len(spec.humans) - 1:
                    raise SolveError(
                        f"believed_others gives agent {human} the others' actions {list(others)}; "
                        f"humans are {list(spec.humans)}, so a human's line lists "
                        f"{len(spec.humans) - 1} actions"
                    )
        missing = [human for human in spec.humans if human not in table]
        if missing:
            raise SolveError(f"believed_others says nothing about humans {missing}")
        return _believe_in_state(spec, shape, from_table, ())[None]

    def in_state(row: tuple[int, ...]) -> Floats:
        return _believe_in_state(spec, shape, believed, row)

    alive = np.flatnonzero(graph.alive)
    rows = [tuple(row) for row in graph.states[alive].tolist()]
    weights = np.zeros((graph.num_expanded, *shape))
    if workers == 1 or len(rows) < FEW_STATES:
        weights[alive] = np.stack([in_state(row) for row in rows])
        return weights
    blocks = [rows[i : i + FEW_STATES] for i in range(0, len(rows), FEW_STATES)]

    def in_block(block: list[tuple[int, ...]]) -> Floats:
        return np.stack([in_state(row) for row in block])

    # Imported here because most runs have no worker processes.
    from empo_executors.worker_pool import WorkerPool

    with WorkerPool(in_block, workers) as pool:
        weights[alive] = np.concatenate(list(pool.map(blocks)))
    return weights


def refuse_impossible_beliefs(
    world: WorldModel,
    graph: StateGraph,
    belief: Float64[np.ndarray, "state human action others"],
) -> None:
    """Refuse beliefs that others do what is not available to them where a human has a choice.

    Args:
        world: The world.
        graph: Its graph.
        belief: Weights, as ``believe`` returns them; the first axis is 1 where they hold anywhere.

    Raises:
        SolveError: if others are believed to do what is not available; the message says in which
            state, and of which human and action.
    """
    spec, alive = world.spec, np.flatnonzero(graph.alive)
    for first in range(0, len(alive), FEW_STATES):
        chosen = alive[first : first + FEW_STATES]
        states = torch.from_numpy(graph.states[chosen])
        may = available_in(world, states).numpy()
        believed = belief if len(belief) == 1 else belief[chosen]
        for h, human in enumerate(spec.humans):
            others = [other for other in spec.humans if other != human]
            together = np.ones((len(chosen), 1), np.bool_)
            for other in others:  # The first of them counts fastest.
                of_other = may[:, other, : spec.num_actions[other], None]
                together = (of_other & together[:, None]).reshape(len(chosen), -1)
            actions, count = spec.num_actions[human], together.shape[1]
            mass = believed[:, h, :actions, :count]
            wrong = (mass > UNAVAILABLE_TOLERANCE) & ~together[:, None]
            wrong &= may[:, human, :actions, None]
            if wrong.any():
                at, action, index = np.argwhere(wrong)[0].tolist()
                prob, names = float(mass[at if len(mass) > 1 else 0, action, index]), []
                for other in others:
                    number = spec.num_actions[other]
                    doing, index = index % number, index // number
                    if not may[at, other, doing]:
                        actor = spec.agents[other]
                        names.append(f"{actor.actions[doing]!r} of {actor.name} (agent {other})")
                raise SolveError(
                    f"believed_others: {spec.agents[human].name} (agent {human}), choosing "
                    f"{spec.agents[human].actions[action]!r}, gives probability "
                    f"{prob:g} to what is not available in a state of {spec.name!r}: "
                    f"{' and '.join(names)}. Leave it out of the beliefs there. "
                    f"{state_text(world, states[at])}"
                )


def _spread(spec: WorldSpec, human: int, others: Sequence[int]) -> list[int]:
    profile, remaining = [-1] * len(spec.agents), list(others)
    for other in spec.humans:
        if other != human and remaining:
            profile[other] = remaining.pop(0)
    return profile


def _believe_in_state(
    spec: WorldSpec,
    shape: tuple[int, int, int],
    believed: Callable[[tuple[int, ...], int, int], Profiles],
    row: tuple[int, ...],
) -> Floats:
    weights = np.zeros(shape)
    for h, human in enumerate(spec.humans):
        for action in range(spec.num_actions[human]):
            for prob, profile in believed(row, human, action):
                weights[h, action, _index(spec, human, profile)] += prob
            total = weights[h, action].sum()
            if (weights[h, action] < 0).any():
                raise SolveError(
                    "believed_others gives a negative probability for "
                    f"{spec.agents[human].name} choosing {spec.agents[human].actions[action]!r}"
                )
            if not abs(total - 1) <= 1e-9:
                raise SolveError(
                    f"believed_others gives probabilities that sum to {total}, not 1, for "
                    f"{spec.agents[human].name} choosing {spec.agents[human].actions[action]!r}"
                )
    return weights


def _index(spec: WorldSpec, human: int, profile: Sequence[int]) -> int:
    """The number of the other humans' joint action in a profile of all agents."""
    if len(profile) != len(spec.agents):
        raise SolveError(
            f"believed_others gives the profile {list(profile)}; a profile lists one action for "
            f"each of {len(spec.agents)} agents, -1 for robots and for {spec.agents[human].name}"
        )
    index, stride = 0, 1
    for other in spec.humans:
        if other == human:
            continue
        chosen = int(profile[other])
        if not 0 <= chosen < spec.num_actions[other]:
            raise SolveError(
                f"believed_others gives action {chosen} for {spec.agents[other].name}; "
                f"it has actions 0 to {spec.num_actions[other] - 1}"
            )
        index += chosen * stride
        stride *= spec.num_actions[other]
    return index
