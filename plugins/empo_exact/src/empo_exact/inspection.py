"""The part of a solved world from which its decisions can be explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64, Shaped

from empo_core.errors import SolveError, WorldError
from empo_exact.chain import SolvedLoop, visits_over_time
from empo_exact.failing_inspection import joined
from empo_exact.game import Floats, Values
from empo_exact.graph import StateGraph, transitions_of
from empo_exact.reach import Mask, advance_mask
from empo_exact.solution import Solution, StatePolicies
from empo_theory.inspection import (
    NO_FAILURES,
    NOT_KEPT,
    Inspection,
    InspectionScope,
    not_split,
)
from empo_theory.parameters import CompleteTheory

Numbers = Int64[np.ndarray, " state"]


def inspect(solution: Solution, theory: CompleteTheory, scope: InspectionScope) -> Inspection:
    """Everything that can follow a state; see ``empo_theory.inspection.Inspectable``.

    Args:
        solution: The solved world.
        theory: The parameters it was solved with.
        scope: Where to begin.
    """
    times = _times(solution, scope.time)
    scope.kept_times(solution.horizon)  # Refuses times at which nobody acts.
    graph = solution.graph
    start = solution.start
    if scope.start is not None:
        start = (np.arange(graph.num_states) == _first(solution, scope.start)).astype(np.float64)
    if solution.horizon is not None and start.nonzero()[0][-1] >= graph.within(scope.time):
        raise WorldError(f"{solution.spec.name!r} cannot be in that state after {scope.time} steps")
    chosen = _closure(
        graph, np.flatnonzero(start), None if solution.horizon is None else len(times)
    )
    if scope.max_bytes is not None and _nbytes(solution, scope, chosen) > scope.max_bytes:
        chosen = _most_visited(solution, start, scope, chosen, scope.max_bytes)
    working = _inspection(solution, theory, times, chosen)
    if solution.failed is None:
        return replace(working, closed_loop=SolvedLoop(solution))
    failed = _inspection(solution.failed, theory, times, chosen)
    return joined(working, failed, 1.0 - solution.problem.working, graph.num_states)


def _first(solution: Solution, start: Shaped[np.ndarray, "*word"]) -> int:
    """The number of a state; where robots have failed, that of the same with working robots."""
    states = solution.graph.num_states
    has_failed = solution.failed is not None and not start.ndim and states <= start < 2 * states
    return solution.index(start - states if has_failed else start)


def _inspection(
    solution: Solution, theory: CompleteTheory, times: list[int], chosen: Numbers
) -> Inspection:
    """What a solution knows of some states."""
    graph = solution.graph
    offsets, items = transitions_of(graph, chosen)
    successor = graph.successor[items]
    if len(chosen) < graph.num_states:
        place = np.full(graph.num_states, NOT_KEPT, np.int32)
        place[chosen] = np.arange(len(chosen))
        successor = place[successor]
    places = solution.problem.places
    by_parameters = follows_parameters(solution)
    counted = solution.problem.theory.is_counted > 0

    def values(read: Callable[[Values, Numbers], Floats]) -> _ByTime:
        return _ByTime(solution, times, chosen, read)

    return Inspection(
        spec=solution.spec,
        theory=theory,
        rows=graph.states[chosen],
        number=chosen,
        total=graph.num_states,
        offsets=offsets,
        successor=successor,
        code=graph.code[items],
        prob=graph.prob,
        duration=graph.duration,
        achieved=solution.problem.game.achieved[chosen][:, places] > 0,
        first_time=times[0],
        v_r=values(lambda at, states: at.v_r[states]),
        v_e=values(lambda at, states: at.v_e[states[:, None], places]),
        v_m=values(lambda at, states: at.v_m[states[:, None], places]) if by_parameters else None,
        pi_h=None if by_parameters else _human_policies(solution, times, chosen),
        q_r=None if theory.rho == 1 else _robot_values(solution, times, chosen),
        norm=None if theory.rho == 1 else values(lambda at, states: at.norms[states, -1]),
        counts=None if counted.all() else tuple(counted.tolist()),
    )


def opaque(theory: CompleteTheory, solution: Solution) -> str | None:
    """Why a run can have no page; None: it can."""
    return not_split(theory) or (None if solution.failed is None else NO_FAILURES)


def nbytes(solution: Solution) -> int | None:
    """Bytes of the arrays of a whole inspection; None where too few values were kept for one."""
    times = list(range(1 if solution.horizon is None else solution.horizon))
    if not set(times) <= set(solution.times):
        return None
    return _nbytes(solution, InspectionScope(), np.arange(solution.graph.num_states))


def _times(solution: Solution, first: int) -> list[int]:
    """All times from one on at which somebody acts; their values must have been kept."""
    last = 1 if solution.horizon is None else solution.horizon
    if not 0 <= first < last:
        limit = "there is only 0" if solution.horizon is None else f"they go from 0 to {last - 1}"
        raise WorldError(f"there is no decision at time {first} in {solution.spec.name!r}: {limit}")
    times = list(range(first, last))
    if not set(times) <= set(solution.times):
        raise SolveError(
            f"the values at times {solution.times} were kept, and an explanation needs all later "
            "ones; solve again with algorithm.params.keep=all or disk"
        )
    return times


def _closure(
    graph: StateGraph, start: Int64[np.ndarray, " start"], steps: int | None
) -> Int64[np.ndarray, " state"]:
    """Numbers of all states that can follow some within so many steps, ascending."""
    newest = np.zeros(graph.num_states, np.bool_)
    newest[start] = True
    is_reached = newest.copy()
    while newest.any() and (steps is None or steps > 0):
        newest = _successors(graph, newest) & ~is_reached
        is_reached |= newest
        steps = None if steps is None else steps - 1
    return np.flatnonzero(is_reached)


def _successors(graph: StateGraph, states: Mask) -> Mask:
    """The states that follow some others directly."""
    after = np.zeros(graph.num_states, np.bool_)
    advance_mask(graph.bounds, graph.successor, states, after)
    return after


def _nbytes(solution: Solution, scope: InspectionScope, chosen: Numbers) -> int:
    """Bytes of the arrays in which a container keeps some states."""
    graph, spec = solution.graph, solution.spec
    items = int(np.diff(graph.bounds)[chosen[chosen < graph.num_expanded]].sum())
    values = scope.value_bytes(1 + 2 * len(spec.goals), solution.horizon)
    row = graph.states.dtype.itemsize * spec.state_words
    return int(len(chosen) * (values + row + 4 * spec.num_joint_actions) + 6 * items)


def _most_visited(
    solution: Solution, start: Floats, scope: InspectionScope, chosen: Numbers, max_bytes: int
) -> Int64[np.ndarray, " reached"]:
    """As many whole decisions as fit: the start, and states that episodes visit most.

    Each state comes with all its successors. Episodes are those of the closed loop, from the start;
    states come in the order of their chance, summed over times.
    """
    graph, visits = solution.graph, np.zeros(solution.graph.num_states)
    for _, here, chance in visits_over_time(solution, start, scope.time):
        visits[here] += chance
    visits[np.flatnonzero(start)] = np.inf
    order = chosen[np.lexsort((chosen, -visits[chosen]))]

    def first(number: int) -> Int64[np.ndarray, " reached"]:
        """The first states of the order, and their successors."""
        states = np.zeros(graph.num_states, np.bool_)
        states[order[:number]] = True
        return np.flatnonzero(states | _successors(graph, states))

    low, high = 1, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _nbytes(solution, scope, first(middle)) <= max_bytes
        low, high = (middle, high) if fits else (low, middle - 1)
    return first(low)


def follows_parameters(solution: Solution) -> bool:
    """True where the scalar parameters alone say how humans act, without any habit."""
    problem, humans = solution.problem, solution.problem.humans
    return (
        problem.prior is None
        and problem.habit is None
        and humans.belief.shape[3] == 0
        and len(humans.beta) == 1
        and len(humans.nu) == 1
        and not humans.has_habit
    )


@dataclass(frozen=True)
class _ByTime:
    """Values of some states at each time, read when asked for.

    Attributes:
        solution: The solved world.
        times: The times.
        chosen: Numbers of the states, ascending.
        read: The values of states, by number, from all values at a time.
    """

    solution: Solution
    times: list[int]
    chosen: Numbers
    read: Callable[[Values, Numbers], Floats]

    def __len__(self) -> int:
        return len(self.times)

    def __getitem__(self, position: int) -> Floats:
        """The values at a time; NaN where a state cannot be reached by then [state ...]."""
        values = self.solution.store.at(self.times[position])
        within = int(np.searchsorted(self.chosen, len(values.v_r)))
        reached = self.read(values, self.chosen[:within])
        if within == len(self.chosen):
            return reached
        padding = np.full((len(self.chosen) - within, *reached.shape[1:]), np.nan)
        return np.concatenate([reached, padding])


def _human_policies(solution: Solution, times: list[int], chosen: Numbers) -> Floats:
    """The humans' policies [time state goal action]; NaN where a state cannot be reached."""
    actions = int(solution.problem.game.num_actions.max())
    policies = np.full((len(times), len(chosen), len(solution.spec.goals), actions), np.nan)
    for place, solved in _policies(solution, times, chosen):
        policies[place] = solved.pi_h
    return policies


def _robot_values(solution: Solution, times: list[int], chosen: Numbers) -> Floats:
    """Q_r [time state robot_action]; NaN where unavailable, or a state cannot be reached."""
    q_r = np.full((len(times), len(chosen), solution.spec.num_robot_actions), np.nan)
    for place, solved in _policies(solution, times, chosen):
        q_r[place] = solved.q_r
    return q_r


def _policies(
    solution: Solution, times: list[int], chosen: Numbers
) -> Iterator[tuple[tuple[int, Numbers], StatePolicies]]:
    """Positions of time and states in which somebody acts, and the policies there."""
    for i, time in enumerate(times):
        within = len(solution.store.at(time).v_r)
        positions = np.flatnonzero(solution.alive(chosen, time) & (chosen < within))
        yield (i, positions), solution.policies(time, chosen[positions])
