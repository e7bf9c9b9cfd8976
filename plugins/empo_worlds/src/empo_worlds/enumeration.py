"""World models enumerated from ``transition_probabilities`` on hashable states.

A model author writes one small class (see ``EnumerableModel``); ``enumerate_world`` visits
every state it can reach, checks what the class says, and returns an ``EnumeratedWorld``: the
same game as flat arrays, whose methods are array operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.types import Goal, InitialStates, Segments, Successors, WorldSpec
from empo_core.world_structure import Symmetry
from empo_worlds import queries
from empo_worlds.base import BaseWorld
from empo_worlds.batches import BATCH, BatchExpander
from empo_worlds.contract import possible_pairs
from empo_worlds.expansion import (
    SUM_TOLERANCE,
    BatchModel,
    EnumerableModel,
    Expander,
    Expansion,
    Predicate,
)
from empo_worlds.rows import state_rows

_CHUNK = 64
"""States per task of a worker; fixed, so that the worker count changes nothing."""
_Task: TypeAlias = tuple[Sequence[Hashable], bool]
_Answer: TypeAlias = Expansion | WorldError
ParallelMap: TypeAlias = Callable[
    [Callable[[_Task], _Answer]],
    AbstractContextManager[Callable[[Iterable[_Task]], Iterator[_Answer]]],
]
"""Opens a function for being applied to many items, whose order is kept; e.g. in processes, see
``empo_executors.worker_pool.worker_processes``."""


class EnumeratedWorld(BaseWorld):
    """A world model made of arrays over numbered states; a state's row is its number.

    Conforms to ``empo_core.protocols.WorldModel``.

    Attributes:
        labels: What each state stands for.
        successors: Those of every state under every joint action, in that order.
    """

    def __init__(
        self,
        spec: WorldSpec,
        labels: Sequence[Hashable],
        successors: Successors,
        available: Bool[Tensor, "state agent action"],
        achieved: Bool[Tensor, "state goal"],
        initial: int | Mapping[int, float] = 0,
        symmetries: Sequence[Symmetry] = (),
    ) -> None:
        """Check the arrays and keep them.

        Args:
            spec: Its rows must be a single ``int32``.
            labels: What each state stands for, distinct.
            successors: Those of every state under every joint action, in that order.
            available: Which actions each agent has in each state.
            achieved: Whether each goal is achieved in each state.
            initial: Number of the state that episodes start from, or the probability of each.
            symmetries: Symmetries that it is known to have.

        Raises:
            WorldError: if the arrays contradict one another.
        """
        _check_arrays(spec, labels, successors, available, achieved, initial)
        self.spec = spec
        self.labels = labels
        self.successors = successors
        self._available = available
        self._achieved = achieved
        self._initial = {initial: 1.0} if isinstance(initial, int) else dict(initial)
        self._symmetries = tuple(symmetries)
        self._strides = torch.tensor(spec.strides)

    @property
    def num_states(self) -> int:
        """Number of states."""
        return len(self.labels)

    def symmetries(self) -> tuple[Symmetry, ...]:
        """Declared symmetries; see ``empo_core.protocols.WorldModel``."""
        return self._symmetries

    def content(self) -> Sequence[object]:
        """All arrays and the start; see ``empo_core.protocols.WorldModel``."""
        successors = self.successors
        arrays = successors.offsets, successors.states, successors.prob, successors.duration
        initial = next(iter(self._initial)) if len(self._initial) == 1 else self._initial
        return *arrays, self._available, self._achieved, initial

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from, if there is only one."""
        return self.initial_states().only(self.spec.name)

    def initial_states(self) -> InitialStates:
        """The states that episodes start from; see ``empo_core.protocols.WorldModel``."""
        return InitialStates(
            torch.tensor(list(self._initial), dtype=torch.int32)[:, None],
            torch.tensor(list(self._initial.values()), dtype=torch.float64),
        )

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """All successors; see ``WorldModel.transitions``."""
        joint = self.spec.num_joint_actions
        first = self._numbers(states) * joint
        if actions is None:
            pairs = (first[:, None] + torch.arange(joint)).flatten()
        else:
            chosen = torch.from_numpy(queries.checked_actions(self.spec, actions, len(states)))
            pairs = first + (chosen * self._strides).sum(1)
        start = self.successors.offsets[pairs]
        counts = self.successors.offsets[pairs + 1] - start
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        # Item i of the answer lies as far behind its pair's start here as it does there.
        items = torch.arange(int(offsets[-1])) + torch.repeat_interleave(
            start - offsets[:-1], counts
        )
        duration = self.successors.duration
        return Successors(
            offsets,
            self.successors.states[items],
            self.successors.prob[items],
            None if duration is None else duration[items],
        )

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; all False where it is terminal."""
        return self._available[self._numbers(states)]

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where each goal of ``spec.goals`` is achieved in each state."""
        return self._achieved[self._numbers(states)]

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The state as the model's author wrote it."""
        label = self.state_of(state)
        return label if isinstance(label, str) else repr(label)

    def state_of(self, row: Int[Tensor, " word"]) -> Hashable:
        """The hashable state behind a row."""
        return self.labels[int(self._numbers(row[None])[0])]

    def index_of(self, state: Hashable) -> int:
        """The number of a hashable state, which is the only word of its row.

        Raises:
            WorldError: if the world has no such state.
        """
        try:
            return self._index[state]
        except KeyError:
            raise WorldError(
                f"{self.spec.name} has no state {state!r}; its {self.num_states} states are "
                f"those that can be reached, from {self.labels[0]!r} to {self.labels[-1]!r}"
            ) from None

    @cached_property
    def _index(self) -> dict[Hashable, int]:
        return {label: index for index, label in enumerate(self.labels)}

    def _numbers(self, states: Int[Tensor, "state word"]) -> Int[Tensor, " state"]:
        numbers = torch.from_numpy(state_rows(self.spec, states))[:, 0].long()
        wrong = (numbers < 0) | (numbers >= self.num_states)
        if bool(wrong.any()):
            raise WorldError(
                f"there is no state number {int(numbers[wrong][0])}; {self.spec.name} has "
                f"{self.num_states} states, numbered from 0"
            )
        return numbers


def enumerate_world(
    model: EnumerableModel | BatchModel,
    *,
    max_steps: int | None = None,
    max_states: int = 1_000_000,
    parallel: ParallelMap | None = None,
) -> EnumeratedWorld:
    """Visit every state the model can reach, breadth first, and check it on the way.

    States are numbered in the order of their discovery, which depends on nothing but the
    model: not on where states are expanded, nor on the hash seed. States that are
    first met at the horizon are not asked for successors and look terminal.

    Args:
        model: The game as its author wrote it; one that has ``transitions_batch`` is asked by it.
        max_steps: Horizon; None means the model's own.
        max_states: Give up beyond so many states.
        parallel: Expands states elsewhere, e.g. in worker processes;
            the model must then be one that cloudpickle can send. None does it in this process.

    Raises:
        WorldError: if the model contradicts itself; the message names the state and the actions.
        WorkerError: if a worker process was lost.
    """
    goals, predicates = goals_of(model)
    horizon = getattr(model, "horizon", None) if max_steps is None else max_steps
    if horizon is not None and horizon < 1:
        raise WorldError(f"the horizon is {horizon}; an episode needs at least 1 step")
    spec = WorldSpec(
        name=getattr(model, "name", type(model).__name__),
        agents=tuple(model.agents),
        goals=goals,
        state_words=1,
        state_dtype=torch.int32,
        horizon=horizon,
        # A look-up is too cheap for processes to pay.
        releases_gil=True,
    )
    in_batches = isinstance(model, BatchModel)
    expander = (BatchExpander if in_batches else Expander)(model, spec, predicates)
    search = partial(_search, spec, expander.initial(), BATCH if in_batches else _CHUNK, max_states)
    if parallel is None:
        return search(partial(map, expander))
    with parallel(expander) as expand:
        return search(expand)


def _search(
    spec: WorldSpec,
    initial: Mapping[Hashable, float],
    chunk: int,
    max_states: int,
    expand: Callable[[Iterable[_Task]], Iterator[_Answer]],
) -> EnumeratedWorld:
    """Breadth-first search, one level of equal distance after the other."""
    order: list[Hashable] = list(initial)
    number: dict[Hashable, int] = {state: i for i, state in enumerate(order)}
    parts: list[tuple[Expansion, Int[np.ndarray, " _item"]]] = []
    frontier = list(order)
    depth = 0
    while frontier:
        goes_on = spec.horizon is None or depth < spec.horizon
        chunks = ((frontier[i : i + chunk], goes_on) for i in range(0, len(frontier), chunk))
        level_start = len(order)
        for part in expand(chunks):
            if isinstance(part, WorldError):
                raise part
            ids = [number.setdefault(state, len(number)) for state in part.distinct]
            order += (state for state, i in zip(part.distinct, ids, strict=True) if i == len(order))
            if len(order) > max_states:
                raise WorldError(
                    f"{spec.name} has more than {max_states} states (max_states) within "
                    f"{depth + 1} steps; shorten the horizon or raise max_states"
                )
            parts.append((part, np.array(ids, dtype=np.int32)[part.items]))
        frontier = order[level_start:]
        depth += 1
    return EnumeratedWorld(
        spec,
        order,
        _successors(parts),
        torch.from_numpy(np.concatenate([part.available for part, _ in parts])),
        torch.from_numpy(np.concatenate([part.achieved for part, _ in parts])),
        dict(enumerate(initial.values())),
    )


def _successors(parts: Sequence[tuple[Expansion, Int[np.ndarray, " _item"]]]) -> Successors:
    counts = np.concatenate([part.counts for part, _ in parts])
    durations = [part.duration for part, _ in parts if part.duration is not None]
    return Successors(
        torch.from_numpy(np.concatenate([[0], counts.cumsum()])),
        torch.from_numpy(np.concatenate([items for _, items in parts]))[:, None],
        torch.from_numpy(np.concatenate([part.prob for part, _ in parts])),
        torch.from_numpy(np.concatenate(durations)) if durations else None,
    )


def goals_of(model: Any) -> tuple[tuple[Goal, ...], list[Predicate]]:
    """A model's goals and the predicate of each.

    Raises:
        WorldError: if the goals are not as ``EnumerableModel`` says.
    """
    goals: list[Goal] = []
    predicates: list[Predicate] = []
    goals_by_human: Mapping[int, Sequence[tuple[Any, ...]]] = getattr(model, "goals", {})
    for human, entries in goals_by_human.items():
        if not 0 <= human < len(model.agents) or model.agents[human].role != "human":
            raise WorldError(f"goals are given for agent {human!r}, which is not a human")
        for entry in entries:
            if len(entry) not in (2, 3) or not callable(entry[1]):
                raise WorldError(
                    f"goal {entry!r} of agent {human} is not (name, predicate on states) or "
                    "(name, predicate on states, weight)"
                )
            weight = float(entry[2]) if len(entry) == 3 else 1 / len(entries)
            if not 0 <= weight < math.inf:
                raise WorldError(f"goal {entry[0]!r} of agent {human} has the weight {weight}")
            goals.append(Goal(human=human, name=str(entry[0]), weight=weight))
            predicates.append(entry[1])
    return tuple(goals), predicates


def _check_arrays(
    spec: WorldSpec,
    labels: Sequence[Hashable],
    successors: Successors,
    available: Bool[Tensor, "state agent action"],
    achieved: Bool[Tensor, "state goal"],
    initial: int | Mapping[int, float],
) -> None:
    states, items = len(labels), len(successors.prob)
    prob = {initial: 1.0} if isinstance(initial, int) else initial
    shape = (states, len(spec.agents), max(spec.num_actions))
    counts = successors.offsets.diff()
    total = Segments.from_offsets(successors.offsets)
    mass = torch.zeros(total.num_segments, dtype=torch.float64)
    if items:
        mass.index_add_(0, total.index, successors.prob.double())
    targets = successors.states
    is_shaped = tuple(available.shape) == shape and available.dtype == torch.bool
    possible = possible_pairs(spec, available).flatten() if is_shaped else None
    duration = successors.duration
    is_timed_well = duration is None or (
        duration.shape == (items,) and bool(((duration > 0) & duration.isfinite()).all())
    )
    problems = [
        (spec.state_words != 1 or spec.state_dtype != torch.int32, "rows must be one int32"),
        (
            not all(0 <= state < states for state in prob),
            f"an initial state of {list(prob)[:8]} is not one of {states} states",
        ),
        (
            not all(p > 0 for p in prob.values()) or abs(sum(prob.values()) - 1) > SUM_TOLERANCE,
            "the probabilities of the initial states do not sum to 1",
        ),
        (
            not isinstance(labels, range) and len(set(labels)) != states,
            "two states have the same label",
        ),
        (possible is None, f"available must be booleans of the shape {shape}"),
        (
            tuple(achieved.shape) != (states, len(spec.goals)) or achieved.dtype != torch.bool,
            "achieved must be booleans [state, goal]",
        ),
        (len(counts) != states * spec.num_joint_actions, "offsets must be [state * joint + 1]"),
        (tuple(targets.shape) != (items, 1), "there must be one successor row per probability"),
        (
            items > 0 and not 0 <= int(targets.min()) <= int(targets.max()) < states,
            "a successor is no state",
        ),
        (not bool((successors.prob > 0).all()), "a probability is not positive"),
        (not is_timed_well, "durations must be one positive number per successor"),
        (
            not bool(((mass - 1).abs() <= SUM_TOLERANCE)[counts > 0].all()),
            "probabilities do not sum to 1",
        ),
        (
            possible is not None and not torch.equal(possible, counts > 0),
            "available and offsets disagree",
        ),
    ]
    for wrong, problem in problems:
        if wrong:
            raise WorldError(f"the arrays of world {spec.name!r} are wrong: {problem}")
