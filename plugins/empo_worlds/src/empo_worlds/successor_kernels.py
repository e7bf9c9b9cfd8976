"""The loops around a world author's compiled function; see ``empo_worlds.compiled``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from empo_core.errors import WorldError
from empo_worlds.compilation import compiled_closure

Ints = NDArray[np.int64]
Rows = NDArray[np.int16] | NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DONE, FULL, MANY, NO_STATE, NO_PROBABILITY, SOMETIMES, NO_DURATION = range(7)
"""Why ``list_successors`` returned."""

MISTAKES = {
    MANY: "returned {}; it may write at most {} successors (max_successors)",
    NO_STATE: "wrote successor {}, which is no state: a word is beyond its values",
    NO_PROBABILITY: "wrote successor {} with something that is no probability, or only zeros",
    NO_DURATION: "wrote successor {}, for which 'duration' gives no positive, finite number",
    SOMETIMES: "wrote successors, or none, unlike it did for other actions in this state; a state "
    "is terminal under all actions or none, and 'available' says which actions there are",
}


@dataclass(frozen=True)
class Kernels:
    """The compiled kernels of an author's function.

    Attributes:
        list_successors: ``(states, choices, per_state, first pair, counts, successors, prob,
            duration)``: fills the last four (durations only where there is room for them) from a
            pair on until they are full, and returns why it ended, the pair at which, and the
            number of successors (or what was wrong).
        list_available: ``(states, available)``: fills the second; returns the first state in
            which only some agents have an action, or the number of states.
    """

    list_successors: Callable[..., tuple[int, int, int]]
    list_available: Callable[..., int]


def compile_kernels(
    write: Callable[..., int],
    available: Callable[..., bool] | None,
    duration: Callable[..., float] | None,
    max_successors: int,
    values: Sequence[int],
    num_actions: Sequence[int],
) -> Kernels:
    """The kernels of a world; each is compiled when it is first called.

    Args:
        write: The author's function.
        available: The author's function for what is available; None means everything.
        duration: The author's function for durations; None means 1.
        max_successors: The most successors that ``write`` may write.
        values: How many values each word has.
        num_actions: How many actions each agent has.

    Raises:
        WorldError: if numba is not installed.
    """
    try:
        write_one, may_do = compiled_closure(write), compiled_closure(available or _always)
        time_of = compiled_closure(duration or _one)
    except ImportError as error:
        raise WorldError(
            "compiled worlds need numba, which is not installed: "
            "pip install 'empo-worlds[compiling]'"
        ) from error
    sizes, limits = np.array(num_actions), np.array(values)

    @compiled_closure
    def are_available(state: Ints, actions: Ints) -> bool:
        ready = True
        for agent in range(len(sizes)):
            ready &= may_do(state, agent, actions[agent])
        return ready

    @compiled_closure
    def fill(state: Ints, actions: Ints, written: Ints, chance: Floats) -> int:
        for successor in range(max_successors):
            chance[successor] = successor == 0
            for word in range(len(state)):
                written[successor, word] = state[word]
        return write_one(state, actions, written, chance)

    @compiled_closure
    def keep(
        state: Ints,
        actions: Ints,
        written: Ints,
        chance: Floats,
        number: int,
        successors: Rows,
        prob: Floats,
        times: Floats,
        used: int,
    ) -> tuple[int, int]:
        num_distinct = 0
        for item in range(number):
            if not 0 <= chance[item] < math.inf:
                return NO_PROBABILITY, item
            if chance[item] == 0:
                continue
            for word in range(len(limits)):
                if not 0 <= written[item, word] < limits[word]:
                    return NO_STATE, item
            place = used
            while place < used + num_distinct and (successors[place] != written[item]).any():
                place += 1
            if place < used + num_distinct:
                prob[place] += chance[item]
                continue
            for word in range(len(limits)):
                successors[place, word] = written[item, word]
            prob[place] = chance[item]
            if len(times):
                times[place] = time_of(state, actions, written[item])
                if not 0 < times[place] < math.inf:
                    return NO_DURATION, item
            num_distinct += 1
        return (DONE, num_distinct) if num_distinct or not number else (NO_PROBABILITY, 0)

    @compiled_closure
    def list_successors(
        states: Ints,
        choices: Ints,
        per_state: int,
        first: int,
        counts: Ints,
        successors: Rows,
        prob: Floats,
        times: Floats,
    ) -> tuple[int, int, int]:
        written, chance = (
            np.empty((max_successors, len(limits)), np.int64),
            np.empty(max_successors),
        )
        state, used, last_state, lives = np.empty(len(limits), np.int64), 0, -1, False
        for pair in range(first, len(counts)):
            index, actions = pair // per_state, choices[pair % len(choices)]
            state[:] = states[index]
            if not are_available(state, actions):
                continue
            if used + max_successors > len(prob):
                return FULL, pair, used
            number = fill(state, actions, written, chance)
            if not 0 <= number <= max_successors:
                return MANY, pair, number
            code, num_distinct = keep(
                state, actions, written, chance, number, successors, prob, times, used
            )
            if code != DONE:
                return code, pair, num_distinct
            if last_state == index and lives != (number > 0):
                return SOMETIMES, pair, 0
            last_state, lives = index, number > 0
            counts[pair] = num_distinct
            used += num_distinct
        return DONE, len(counts), used

    @compiled_closure
    def list_available(states: Ints, out: Bools) -> int:
        written, chance = (
            np.empty((max_successors, len(limits)), np.int64),
            np.empty(max_successors),
        )
        state, actions = np.empty(len(limits), np.int64), np.empty(len(sizes), np.int64)
        for index in range(len(states)):
            state[:] = states[index]
            idle = 0
            for agent in range(len(sizes)):
                actions[agent] = -1
                for action in range(sizes[agent] - 1, -1, -1):
                    out[index, agent, action] = may_do(state, agent, action)
                    if out[index, agent, action]:
                        actions[agent] = action
                idle += actions[agent] < 0
            if 0 < idle < len(sizes):
                return index
            if idle == 0 and fill(state, actions, written, chance) == 0:
                out[index] = False
        return len(states)

    return Kernels(list_successors, list_available)


def _one(state: Ints, actions: Ints, successor: Ints) -> float:
    return 1.0


def _always(state: Ints, agent: int, action: int) -> bool:
    return True
