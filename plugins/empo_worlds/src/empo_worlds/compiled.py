"""World models made of one compiled function that writes the successors of a state.

For worlds that are too large to be enumerated in Python: a state is a row of small integers, and
the function is compiled by numba (the extra ``compiling``), so that a million successors take a
part of a second. The world is never listed; whoever needs states, such as a solver, finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from empo_core.errors import WorldError
from empo_core.features import Featurizer
from empo_core.types import AgentSpec, InitialStates, Successors, WorldSpec
from empo_core.world_structure import Symmetry
from empo_worlds import queries
from empo_worlds.base import BaseWorld
from empo_worlds.batches import PairItems, rescale
from empo_worlds.enumeration import goals_of
from empo_worlds.expansion import checked_chances
from empo_worlds.rows import state_rows
from empo_worlds.successor_kernels import DONE, FULL, MISTAKES, Kernels, compile_kernels

WriteSuccessors = Callable[..., int]
"""``(state, actions, successors, prob) -> number``; see ``compiled_world``."""


@dataclass(frozen=True)
class CompiledModel:
    """The description of a compiled world; see ``compiled_world``."""

    name: str
    agents: Sequence[AgentSpec]
    values: Sequence[int]
    start: Mapping[tuple[int, ...], float]
    goals: Mapping[int, Sequence[tuple[Any, ...]]]
    horizon: int | None
    max_successors: int
    features: Featurizer | None
    available: Callable[..., bool] | None
    write: WriteSuccessors
    duration: Callable[..., float] | None = None
    symmetries: Sequence[Symmetry] = ()


def compiled_world(
    *,
    agents: Sequence[AgentSpec],
    values: Sequence[int],
    initial_state: Sequence[int] | Mapping[tuple[int, ...], float],
    goals: Mapping[int, Sequence[tuple[Any, ...]]],
    horizon: int | None = None,
    max_successors: int = 1,
    available: Callable[..., bool] | None = None,
    duration: Callable[..., float] | None = None,
    symmetries: Sequence[Symmetry] = (),
    features: Featurizer | None = None,
    name: str | None = None,
) -> Callable[[WriteSuccessors], CompiledWorld]:
    """Decorate a function that writes the successors of a state; the result is a world.

    The function is called as ``function(state, actions, successors, prob)``: it reads the words of
    ``state`` and one action per agent, writes successors to ``successors[0]``, ``successors[1]``
    and so on with their probabilities to ``prob``, and returns their number; 0 where the state is
    terminal. Successors start as copies of the state, and ``prob[0]`` as 1. The function must be
    such that numba can compile it in its nopython mode, and so must be all that it calls; what it
    reads from outside becomes constant.

    Args:
        agents: The agents, their roles, and the names of their actions.
        values: How many values each word of a state has: word ``k`` is in ``0 .. values[k] - 1``.
        initial_state: The words of the state every episode starts from, or the chance of each of
            several.
        goals: ``{human index: [(name, predicate, weight)]}``; a predicate takes many states at
            once, as integers ``[state, word]``, and returns booleans ``[state]``. Without weights
            each of a human's ``n`` goals weighs ``1 / n``.
        horizon: Steps after which an episode ends; None where the world ends by itself.
        max_successors: The most successors that the function ever writes.
        available: ``available(state, agent, action) -> bool``, compiled too; None means that all
            actions always are.
        duration: ``duration(state, actions, successor) -> float``, compiled too: how long the
            transition takes, positive; None means that each takes 1.
        symmetries: Symmetries by which solvers may save states, which check them first.
        features: Reads states as numbers for networks; None leaves the words as they are.
        name: Title of the world; None means the function's name.

    Raises:
        WorldError: if the description contradicts itself.
    """

    def decorate(function: WriteSuccessors) -> CompiledWorld:
        return CompiledWorld(
            CompiledModel(
                name or function.__name__,
                tuple(agents),
                tuple(values),
                checked_chances(dict(initial_state))
                if isinstance(initial_state, Mapping)
                else {tuple(initial_state): 1.0},
                goals,
                horizon,
                max_successors,
                features,
                available,
                function,
                duration,
                tuple(symmetries),
            )
        )

    return decorate


class CompiledWorld(BaseWorld):
    """A world whose successors a compiled function writes; see ``compiled_world``.

    Conforms to ``empo_core.protocols.WorldModel``.
    """

    def __init__(self, model: CompiledModel) -> None:
        """Check the description.

        Raises:
            WorldError: if the model contradicts itself.
        """
        _check(model)
        goals, self._predicates = goals_of(model)
        small = max(model.values) <= torch.iinfo(torch.int16).max + 1
        self.model = model
        self.spec = WorldSpec(
            name=model.name,
            agents=tuple(model.agents),
            goals=goals,
            state_words=len(model.values),
            state_dtype=torch.int16 if small else torch.int32,
            horizon=model.horizon,
            releases_gil=True,
            features=model.features,
        )
        joint = np.arange(self.spec.num_joint_actions)[:, None]
        self._joint = joint // np.array(self.spec.strides) % np.array(self.spec.num_actions)
        self._values = torch.tensor(model.values)
        self._shape = len(self.spec.agents), max(self.spec.num_actions)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the description only; another process compiles the world again."""
        return CompiledWorld, (self.model,)

    def initial_state(self) -> Int[Tensor, " word"]:
        """The row every episode starts from, if there is only one."""
        return self.initial_states().only(self.spec.name)

    def initial_states(self) -> InitialStates:
        """The states that episodes start from; see ``empo_core.protocols.WorldModel``."""
        start = self.model.start
        return InitialStates(
            torch.tensor(list(start), dtype=self.spec.state_dtype),
            torch.tensor(list(start.values()), dtype=torch.float64),
        )

    def symmetries(self) -> Sequence[Symmetry]:
        """Declared symmetries; see ``empo_core.protocols.WorldModel``."""
        return self.model.symmetries

    def transitions(
        self, states: Int[Tensor, "state word"], actions: Int[Tensor, "state agent"] | None = None
    ) -> Successors:
        """All successors; see ``WorldModel.transitions``."""
        rows = self._checked(states)
        if actions is None:
            chosen = self._joint
        else:
            chosen = queries.checked_actions(self.spec, actions, len(states))
        per_state = len(chosen) if actions is None else 1
        counts, successors, prob, duration = self._list_successors(rows, chosen, per_state)
        pair_items = PairItems(counts, np.arange(len(prob)), prob, duration)
        if (prob != 1).any():
            pair_items = rescale(pair_items, partial(self._call, rows, chosen, per_state))
        offsets = np.concatenate([[0], pair_items.counts.cumsum()])
        return Successors(
            torch.from_numpy(offsets),
            torch.from_numpy(successors),
            torch.from_numpy(pair_items.prob),
            None if duration is None else torch.from_numpy(duration),
        )

    def available(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state agent action"]:
        """Which actions each agent has in each state; all False where it is terminal."""
        rows = self._checked(states)
        available = np.zeros((len(rows), *self._shape), dtype=bool)
        wrong = self._kernels.list_available(rows, available)
        if wrong < len(rows):
            raise WorldError(
                f"in state {tuple(rows[wrong].tolist())} of {self.spec.name} some agents have an "
                "available action and others do not; give those one that does nothing"
            )
        return torch.from_numpy(available)

    def achieved(self, states: Int[Tensor, "state word"]) -> Bool[Tensor, "state goal"]:
        """True where each goal of ``spec.goals`` is achieved in each state."""
        rows = self._checked(states)
        achieved = np.zeros((len(rows), len(self._predicates)), dtype=bool)
        for column, predicate in enumerate(self._predicates):
            answer = np.asarray(predicate(rows))
            if answer.dtype != bool or answer.shape != (len(rows),):
                raise WorldError(
                    f"the predicate of goal {self.spec.goals[column].name!r} returned "
                    f"{answer.dtype} of shape {answer.shape} for {len(rows)} states; it takes "
                    "integers [state, word] and returns booleans [state]"
                )
            achieved[:, column] = answer
        return torch.from_numpy(achieved)

    def describe(self, state: Int[Tensor, " word"]) -> str:
        """The words of a state."""
        return repr(tuple(self._checked(state[None])[0].tolist()))

    @cached_property
    def _kernels(self) -> Kernels:
        model = self.model
        return compile_kernels(
            model.write,
            model.available,
            model.duration,
            model.max_successors,
            model.values,
            self.spec.num_actions,
        )

    def _checked(self, states: Int[Tensor, "state word"]) -> Int[np.ndarray, "state word"]:
        states = torch.from_numpy(state_rows(self.spec, states))
        wrong = ((states < 0) | (states >= self._values)).any(1)
        if bool(wrong.any()):
            raise WorldError(
                f"{tuple(states[wrong][0].tolist())} is no state of {self.spec.name}, whose words "
                f"have {tuple(self.model.values)} values"
            )
        return states.long().numpy()

    def _list_successors(
        self,
        rows: Int[np.ndarray, "state word"],
        chosen: Int[np.ndarray, "choice agent"],
        per_state: int,
    ) -> tuple[
        Int[np.ndarray, " pair"],
        Int[np.ndarray, "item word"],
        Float[np.ndarray, " item"],
        Float[np.ndarray, " item"] | None,
    ]:
        """Counts, successors, probabilities and durations, as the function writes them."""
        counts = np.zeros(len(rows) * per_state, dtype=np.int64)
        dtype = np.int16 if self.spec.state_dtype == torch.int16 else np.int32
        is_timed = self.model.duration is not None
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        pair, code = 0, FULL
        while code == FULL:
            room = len(counts) - pair + self.model.max_successors
            successors, prob = np.empty((room, rows.shape[1]), dtype), np.empty(room)
            duration = np.empty(room if is_timed else 0)
            code, pair, used = self._kernels.list_successors(
                rows, chosen, per_state, pair, counts, successors, prob, duration
            )
            parts.append((successors[:used], prob[:used], duration[:used]))
        if code != DONE:
            mistake = MISTAKES[code].format(used, self.model.max_successors)
            raise WorldError(f"{self._call(rows, chosen, per_state, pair)} {mistake}")
        successors, prob, duration = (np.concatenate(part) for part in zip(*parts, strict=True))
        return counts, successors, prob, duration if is_timed else None

    def _call(
        self,
        rows: Int[np.ndarray, "state word"],
        chosen: Int[np.ndarray, "choice agent"],
        per_state: int,
        pair: int,
    ) -> str:
        actions = chosen[pair % len(chosen)].tolist()
        names = ", ".join(
            agent.actions[action] for agent, action in zip(self.spec.agents, actions, strict=True)
        )
        state = tuple(rows[pair // per_state].tolist())
        return f"{self.model.write.__name__}({state}, {tuple(actions)}, ...) [{names}]"


def _check(model: CompiledModel) -> None:
    for state in model.start:
        if not isinstance(state, tuple) or not all(isinstance(w, int | np.integer) for w in state):
            raise WorldError(
                f"the world {model.name!r} cannot be compiled: the initial state {state!r} is no "
                "tuple of whole numbers"
            )
    problems = [
        (not model.values or min(model.values) < 1, "each word of a state has at least one value"),
        (
            any(len(state) != len(model.values) for state in model.start),
            "initial_state has another length than values",
        ),
        (
            not all(
                0 <= word < size
                for state in model.start
                for word, size in zip(state, model.values, strict=False)
            ),
            "a word of initial_state is beyond its values",
        ),
        (max(model.values, default=0) > 2**31, "a word has more than 2^31 values"),
        (model.max_successors < 1, "max_successors must be at least 1"),
        (model.horizon is not None and model.horizon < 1, "an episode needs at least 1 step"),
        (not model.agents, "there must be an agent"),
    ]
    for wrong, problem in problems:
        if wrong:
            raise WorldError(f"the world {model.name!r} cannot be compiled: {problem}")
