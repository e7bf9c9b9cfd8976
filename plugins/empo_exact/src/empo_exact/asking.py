"""Asking a solved world about many states at once, by rows and remaining steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from empo_core.errors import SolveError, WorldError
from empo_exact.induction import Policies
from empo_exact.kernel_data import Floats

if TYPE_CHECKING:
    from empo_exact.result import ExactResult

AT_ONCE = 8192
"""States whose policies are worked out at the same time."""


def time_of(result: ExactResult, steps_left: int) -> int:
    """The time at which so many steps are left; 0 where the world has no horizon.

    Raises:
        WorldError: There is none.
    """
    last = 1 if result.horizon is None else result.horizon
    if not 1 <= steps_left <= last:
        name = repr(result.spec.name)
        limit = (
            f"{name} has no horizon, so it is 1"
            if result.horizon is None
            else (f"in {name} it goes from 1 to {last}")
        )
        raise WorldError(f"steps_left is {steps_left}; {limit}")
    return last - steps_left


def numbers_of(
    result: ExactResult, states: Int[Tensor, "state word"], steps_left: int
) -> NDArray[np.int64]:
    """The numbers of states from which an episode goes on with so many steps left.

    Raises:
        SolveError: A state is terminal, or cannot be reached by then.
    """
    time = time_of(result, steps_left)
    numbers = result.find_rows(states.cpu().numpy()).astype(np.int64)
    known = result.graph.num_states if result.horizon is None else result.graph.within(time)
    wrong = (numbers < 0) | (numbers >= known)
    wrong[~wrong] = ~result.graph.alive[numbers[~wrong]]
    if wrong.any():
        raise SolveError(
            f"{result.spec.name!r} is never in state {states[int(wrong.argmax())].tolist()} with "
            f"{steps_left} steps left, or is over there; so nothing is known about it"
        )
    return numbers


def policies_of(
    result: ExactResult,
    states: Int[Tensor, "state word"],
    steps_left: int,
    part: Callable[[Policies], Floats],
) -> Floats:
    """A part of the policies in states from which an episode goes on [state ...]."""
    numbers, time = numbers_of(result, states, steps_left), time_of(result, steps_left)
    pieces = range(0, max(1, len(numbers)), AT_ONCE)  # At least one, for the shape.
    return np.concatenate(
        [part(result.policies(time, numbers[first : first + AT_ONCE])) for first in pieces]
    )
