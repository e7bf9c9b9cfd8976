"""Expansion of hashable states by a model's ``transition_probabilities``, with checks.

Part of ``empo_worlds.enumeration``; runs in worker processes, so what comes back is compact.
"""

from __future__ import annotations

import enum
import itertools
import math
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from empo_core.errors import WorldError
from empo_core.types import AgentSpec, WorldSpec

Predicate = Callable[[Any], object]
P = ParamSpec("P")
T = TypeVar("T")

SUM_TOLERANCE = 1e-9
"""Tolerance of the sum of one pair's probabilities around 1; they are then rescaled."""


@runtime_checkable
class EnumerableModel(Protocol):
    """A world as ``enumerate_world`` takes it; states are any hashable values.

    A model may also have these attributes:

    * ``name: str`` (default: the class name);
    * ``horizon: int``, steps after which an episode ends (default: the world ends by itself);
    * ``goals: {human index: [(name, predicate on states, weight)]}``; without weights each
      of a human's ``n`` goals weighs ``1 / n``;
    * ``available_actions(state, agent) -> iterable of action indices`` (default: all
      actions); where no agent has any, the state is terminal;
    * ``transition_durations(state, actions, transitions) -> [duration per transition]``,
      positive (default: 1 each).
    """

    @property
    def agents(self) -> Sequence[AgentSpec]:
        """The agents, their roles, and the names of their actions."""

    def initial_state(self) -> Hashable | Mapping[Hashable, float]:
        """The initial state of every episode, or a dict of several and the chance of each."""

    def transition_probabilities(
        self, state: Hashable, actions: tuple[int, ...]
    ) -> Sequence[tuple[float, Hashable]] | None:
        """Successors of a state under a joint action; None where the state is terminal."""


@runtime_checkable
class BatchModel(Protocol):
    """A world that answers for many states at once; see ``EnumerableModel`` for the rest."""

    @property
    def agents(self) -> Sequence[AgentSpec]:
        """The agents, their roles, and the names of their actions."""

    def initial_state(self) -> Hashable | Mapping[Hashable, float]:
        """The initial state of every episode, a tuple of integers, or the chance of several."""

    def transitions_batch(self, states: Int[np.ndarray, "state word"]) -> tuple[Any, ...]:
        """Successors of each state under every joint action.

        Args:
            states: ``int64``, one row per state.

        Returns:
            ``(counts, successors, prob)``, or with the durations of the transitions as a fourth:
            ``counts[state, joint action]`` is how many successors a pair has, none where an
            action is not available or the state is terminal; agent 0 counts fastest.
            ``successors[item, word]`` and ``prob[item]`` list them pair by pair.
        """


@dataclass(frozen=True, slots=True)
class Expansion:
    """The successors of some states under every joint action.

    Attributes:
        distinct: The distinct successors, in the order in which they were met.
        items: Position in ``distinct`` of each successor of each pair.
        counts: Number of successors per (state, joint action) pair.
        prob: Probability of each successor.
        duration: Duration of each transition; None where the model has none.
        available: Which actions each agent has in each state.
        achieved: Whether each goal is achieved in each state.
    """

    distinct: list[Hashable]
    items: Int[np.ndarray, " item"]
    counts: Int[np.ndarray, " pair"]
    prob: Float[np.ndarray, " item"]
    duration: Float[np.ndarray, " item"] | None
    available: Bool[np.ndarray, "state agent action"]
    achieved: Bool[np.ndarray, "state goal"]


class Expander:
    """Expands lists of states; one object serves a whole search."""

    def __init__(
        self,
        model: EnumerableModel | BatchModel,
        spec: WorldSpec,
        predicates: Sequence[Predicate],
    ) -> None:
        """Keep what every expansion needs.

        Args:
            model: Who is asked.
            spec: Agents and goals of the model.
            predicates: The predicate of each goal of ``spec.goals``.
        """
        self._model = model
        self._transitions = getattr(model, "transition_probabilities", None)
        self._batch = getattr(model, "transitions_batch", None)
        self._spec = spec
        self._predicates = predicates
        self._available = getattr(model, "available_actions", None)
        self._durations = getattr(model, "transition_durations", None)
        all_actions = [range(number) for number in spec.num_actions]
        self._all_joint_actions = list(_index_joint_actions(all_actions, spec.strides))

    def __call__(self, task: tuple[Sequence[Hashable], bool]) -> Expansion | WorldError:
        """Expand some states, or only look at them where the flag is False.

        A complaint about the model is returned, not raised, so that it is the same
        exception whether this runs here or in a worker.
        """
        states, goes_on = task
        try:
            return self._expand(states, goes_on)
        except WorldError as error:
            return error

    def initial(self) -> dict[Hashable, float]:
        """The model's initial states, and the chance of each.

        Raises:
            WorldError: if a state is not hashable or compares by identity, chances do not sum to
                1, or the model raises.
        """
        answer: Any = self._answer(lambda: "initial_state()", self._model.initial_state)
        if not isinstance(answer, dict):
            _check_state(answer, lambda: "initial_state() returned")
            answer = {answer: 1.0}
        for state in answer:
            _check_state(state, lambda: "initial_state() returned")
        return checked_chances(answer)

    def _expand(self, states: Sequence[Hashable], goes_on: bool) -> Expansion:
        spec = self._spec
        counts = np.zeros((len(states), spec.num_joint_actions), dtype=np.int64)
        available = np.zeros((len(states), len(spec.agents), max(spec.num_actions)), dtype=bool)
        items = _Items(self._durations is not None)
        for row, state in enumerate(states if goes_on else ()):
            choices = self._choices(state)
            if self._list_successors(state, choices, counts[row], items):
                for agent, chosen in enumerate(choices):
                    available[row, agent, chosen] = True
        return Expansion(
            list(items.number),
            np.array(items.items, dtype=np.int64),
            counts.ravel(),
            np.array(items.prob),
            np.array(items.duration) if self._durations is not None else None,
            available,
            self._achieved(states),
        )

    def _choices(self, state: Hashable) -> list[list[int]]:
        """The available actions of each agent, ascending; no lists where it is terminal."""
        if self._available is None:
            return [list(range(number)) for number in self._spec.num_actions]
        choices = []
        for agent, agent_spec in enumerate(self._spec.agents):
            describe_call = partial("available_actions({!r}, {})".format, state, agent)
            answer = self._answer(describe_call, _listing(self._available), state, agent)
            if any(not _is_index(action, len(agent_spec.actions)) for action in answer):
                last = len(agent_spec.actions) - 1
                raise WorldError(
                    f"{describe_call()} returned {answer!r}; {agent_spec.name} has actions 0 to "
                    f"{last}"
                )
            choices.append(sorted(set(answer)))
        empty = [agent for agent, actions in enumerate(choices) if not actions]
        if 0 < len(empty) < len(choices):
            agent_spec = self._spec.agents[empty[0]]
            raise WorldError(
                f"state {state!r}: {agent_spec.name} has no available action but others do; give "
                "it one that does nothing, or give no agent any where the state is terminal"
            )
        return [] if empty else choices

    def _list_successors(
        self,
        state: Hashable,
        choices: Sequence[Sequence[int]],
        counts: Int[np.ndarray, " pair"],
        items: _Items,
    ) -> bool:
        """Add every joint action's successors, agent 0 fastest; False if the state is terminal."""
        ask: Any = self._transitions
        first: tuple[int, ...] | None = None
        none_at_first = False
        for index, actions in self._joint_actions(choices):
            try:
                answer = ask(state, actions)
            except Exception as error:
                raise _raised(self._call(state, actions), error) from error
            if first is None:
                first, none_at_first = actions, answer is None
            if (answer is None) != none_at_first:
                none_actions, some_actions = (
                    (actions, first) if answer is None else (first, actions)
                )
                raise WorldError(
                    f"{self._call(state, none_actions)} returned None, which means that the state "
                    f"is terminal, but {self._call(state, some_actions)} returned successors; use "
                    "available_actions to say that an action is not available"
                )
            if answer is not None:
                counts[index] = self._add(state, actions, answer, items)
        return first is not None and not none_at_first

    def _joint_actions(
        self, choices: Sequence[Sequence[int]]
    ) -> Iterable[tuple[int, tuple[int, ...]]]:
        """Index and actions of each joint action that is available."""
        if self._available is None:
            return self._all_joint_actions
        return _index_joint_actions(choices, self._spec.strides)

    def _add(self, state: Hashable, actions: tuple[int, ...], answer: Any, items: _Items) -> int:
        """Add one pair's distinct successors; returns their number."""
        if self._durations is None and type(answer) is list and len(answer) == 1:
            transition = answer[0]
            # Most worlds are certain nearly everywhere, and nearly all successors known.
            if (
                type(transition) is tuple
                and len(transition) == 2
                and transition[0] == 1
                and items.add_known(transition[1])
            ):
                return 1
        merged = self._merged(state, actions, answer)
        for successor, (p, time) in merged.items():
            items.add(successor, p, time)
        return len(merged)

    def _merged(
        self, state: Hashable, actions: tuple[int, ...], answer: Any
    ) -> dict[Hashable, tuple[float, float]]:
        """Probability and duration per distinct successor, checked and rescaled to sum to 1."""
        try:
            transitions = [(float(p), successor) for p, successor in answer]
        except (TypeError, ValueError) as error:
            raise WorldError(
                f"{self._call(state, actions)} returned {answer!r}, which is not a list of "
                "(probability, state)"
            ) from error
        durations = self._checked_durations(state, actions, transitions)
        merged: dict[Hashable, tuple[float, float]] = {}
        for (p, successor), time in zip(transitions, durations, strict=True):
            if not (0 <= p < math.inf):
                call = self._call(state, actions)
                raise WorldError(f"{call} gives {successor!r} the probability {p}")
            _check_state(successor, lambda: f"{self._call(state, actions)} returned")
            if p == 0:
                continue
            mass, other_time = merged.get(successor, (0.0, time))
            if other_time != time:
                raise WorldError(
                    f"{self._call(state, actions)} reaches {successor!r} with two durations, "
                    f"{other_time} and {time}; make them two states"
                )
            merged[successor] = mass + p, time
        total = precise_sum(p for p, _ in merged.values())
        if abs(total - 1) > SUM_TOLERANCE:
            call = self._call(state, actions)
            raise WorldError(f"{call}: the probabilities sum to {total!r}, not to 1")
        return {successor: (p / total, time) for successor, (p, time) in merged.items()}

    def _checked_durations(
        self, state: Hashable, actions: tuple[int, ...], answer: list[tuple[float, object]]
    ) -> list[float]:
        if self._durations is None:
            return [1.0] * len(answer)
        describe_call = partial("transition_durations({!r}, {}, ...)".format, state, actions)
        durations = self._answer(describe_call, _listing(self._durations), state, actions, answer)
        if len(durations) != len(answer) or not all(map(_is_duration, durations)):
            raise WorldError(
                f"{describe_call()} returned {durations!r} for {len(answer)} transitions; each "
                "needs one positive duration"
            )
        return [float(time) for time in durations]

    def _achieved(self, states: Sequence[Hashable]) -> Bool[np.ndarray, "state goal"]:
        achieved = np.zeros((len(states), len(self._predicates)), dtype=bool)
        for column, predicate in enumerate(self._predicates):
            row = 0
            try:
                for row, state in enumerate(states):
                    achieved[row, column] = bool(predicate(state))
            except Exception as error:
                goal = self._spec.goals[column].name
                description = f"the predicate of goal {goal!r} at state {states[row]!r}"
                raise _raised(description, error) from error
        return achieved

    def _call(
        self, state: Hashable, actions: tuple[int, ...], method: str = "transition_probabilities"
    ) -> str:
        names = ", ".join(
            agent.actions[action] for agent, action in zip(self._spec.agents, actions, strict=True)
        )
        return f"{method}({state!r}, {actions}) [{names}]"

    @staticmethod
    def _answer(
        describe_call: Callable[[], str],
        question: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call the model's code; an exception becomes a ``WorldError`` that names the call."""
        try:
            return question(*args, **kwargs)
        except Exception as error:
            raise _raised(describe_call(), error) from error


class _Items:
    """The successors of a list of states while they are collected.

    Attributes:
        number: Position of each distinct successor.
        items: Position of every successor.
        prob: Probability of each.
        duration: Duration of each transition; empty where all take one step.
    """

    def __init__(self, timed: bool) -> None:
        self.number: dict[Hashable, int] = {}
        self.items: list[int] = []
        self.prob: list[float] = []
        self.duration: list[float] = []
        self._timed = timed

    def add(self, successor: Hashable, p: float, time: float) -> None:
        """Add a checked successor."""
        self.items.append(self.number.setdefault(successor, len(self.number)))
        self.prob.append(p)
        if self._timed:
            self.duration.append(time)

    def add_known(self, successor: Any) -> bool:
        """Add a certain successor if it was added before; False if not."""
        try:
            position = self.number.get(successor)
        except TypeError:  # It cannot be a state, as its check will say.
            return False
        if position is None:
            return False
        self.items.append(position)
        self.prob.append(1.0)
        return True


def _index_joint_actions(
    choices: Sequence[Sequence[int]], strides: Sequence[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Index and actions of each joint action of some choices, agent 0 fastest."""
    for reverse in itertools.product(*reversed(choices)) if choices else ():
        actions = reverse[::-1]
        yield sum(a * stride for a, stride in zip(actions, strides, strict=True)), actions


def precise_sum(values: Iterable[float]) -> float:
    """The sum of some numbers with the rounding errors of all additions (Knuth's TwoSum).

    Unlike ``math.fsum``, arrays and compiled functions can do the same, to the last bit.
    """
    total = lost = 0.0
    for value in values:
        after = total + value
        part = after - total
        lost += (total - (after - part)) + (value - part)
        total = after
    return total + lost


def _raised(call: str, error: Exception) -> WorldError:
    complaint = WorldError(f"{call} raised {type(error).__name__}: {error}")
    # The traceback reaches the author even from a worker process.
    complaint.add_note(traceback.format_exc())
    return complaint


def _listing(function: Callable[P, Iterable[T]]) -> Callable[P, list[T]]:
    return lambda *args, **kwargs: list(function(*args, **kwargs))


def _is_duration(value: object) -> bool:
    return isinstance(value, int | float | np.number) and 0 < float(value) < math.inf


def _is_index(value: object, size: int) -> bool:
    return isinstance(value, int | np.integer) and 0 <= int(value) < size


def checked_chances(prob: dict[Any, float]) -> dict[Any, float]:
    """Initial states and their chances.

    Raises:
        WorldError: if the chances are not positive numbers that sum to 1.
    """
    numbers = {
        state: float(p)
        for state, p in prob.items()
        if isinstance(p, int | float | np.integer | np.floating) and p > 0
    }
    total = math.fsum(numbers.values())
    if not prob or len(numbers) < len(prob) or abs(total - 1) > SUM_TOLERANCE:
        raise WorldError(
            f"a dict of initial states has the chance of each, positive and 1 in sum; got {prob!r},"
            f" whose positive numbers sum to {total:.12g} (states are tuples and frozen "
            "dataclasses, not dicts)"
        )
    return numbers


def _check_state(state: object, describe_source: Callable[[], str]) -> None:
    try:
        hash(state)
    except TypeError as error:
        raise WorldError(
            f"{describe_source()} the state {state!r}, which is not hashable ({error}); use tuples "
            "and frozensets in place of lists, dicts and sets"
        ) from error
    if type(state).__eq__ is object.__eq__ and not isinstance(state, enum.Enum):
        raise WorldError(
            f"{describe_source()} the state {state!r}, whose type {type(state).__name__} compares "
            "by identity, so that no two states would ever be equal; use a tuple or a frozen "
            "dataclass"
        )
