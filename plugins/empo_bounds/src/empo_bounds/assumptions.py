"""Assumptions about what was not expanded, and the bounds that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int32

from empo_bounds.power import accrual_bounds, lack_bounds, power_bounds
from empo_bounds.question import Question
from empo_bounds.round_off import FUNCTION, Bounds, down, up
from empo_bounds.unrolled import Unrolled
from empo_core.errors import ConfigError, SolveError
from empo_worlds.contract import SUM_TOLERANCE

PowerSource = Literal["assumed", "proved", "run"]
EXCESS = 2 * SUM_TOLERANCE
"""More than probabilities of one step sum up to beyond 1."""
NEARLY = 1e-9
"""Share of the assumed power by which a proof may fail that is called near."""
ACCRUAL = 2 * FUNCTION + 8
"""Operations behind what accrues during a step and is discounted, at most."""


@dataclass(frozen=True)
class Assumptions:
    """Claims about every state in which an episode may go on; each is tested where one can.

    Attributes:
        min_power: Every human's X_h is at least this, as long as a step is left; None claims
            nothing. E.g. whoever is somewhere can stay there, which is a goal.
        never_ends_early: No episode ends before the horizon.
        power_source: Where ``min_power`` comes from: it is just assumed, it is proved (see
            ``least_power``), or it is the least X_h that the run's own solution has anywhere.
    """

    min_power: float | None = None
    never_ends_early: bool = False
    power_source: PowerSource = "assumed"

    def __post_init__(self) -> None:
        """Refuse a least power that is negative, or no number.

        Raises:
            ConfigError: if the least power is negative, or no number.
        """
        if self.min_power is not None and not 0 <= self.min_power < math.inf:
            raise ConfigError(f"min_power must be a number of at least 0, not {self.min_power!r}")

    def require_sense(self, question: Question) -> None:
        """Refuse what says nothing in a world.

        Raises:
            ConfigError: if the world has no horizon before which an episode could end.
        """
        if self.never_ends_early and question.spec.horizon is None:
            raise ConfigError(
                f"{question.spec.name!r} has no horizon (max_steps), so that no episode ends "
                "before it says nothing. Leave out --no-early-end."
            )


class Proved(NamedTuple):
    """Pairs in which all humans are proved to have the least power that is assumed.

    Attributes:
        exactly: In so many.
        nearly: In so many more but for a share of ``NEARLY``, e.g. by rounding.
    """

    exactly: int
    nearly: int

    @classmethod
    def of(cls, x_h: Float64[np.ndarray, "pair human"], min_power: float) -> Proved:
        """Numbers by what X_h is at least in some pairs."""
        exactly = int((x_h >= min_power).all(1).sum())
        return cls(exactly, int((x_h >= min_power * (1.0 - NEARLY)).all(1).sum()) - exactly)


@dataclass(frozen=True)
class FrontierBounds:
    """Bounds in pairs that were not expanded and from which episodes go on, by time.

    Attributes:
        v_e: Of V_h^e, of any goal [time].
        loss: Of -V_r [time].
    """

    v_e: Bounds
    loss: Bounds


def frontier_bounds(
    question: Question, assumed: Assumptions, times: int, *, is_timed: bool
) -> FrontierBounds:
    """Bounds at the times ``0 .. times - 1``, from what could be best and worst for everybody.

    Args:
        question: The world and the theory.
        assumed: Claims about the states there.
        times: How many times are asked about.
        is_timed: Transitions may take other durations than 1, of which nothing is known.

    Where the world has no horizon they hold at all times.
    """
    horizon = question.spec.horizon
    # Without a horizon the largest chance v is at most (1 + EXCESS) max(1, gamma_h v), and hence at
    # most 1 + EXCESS where gamma_h (1 + EXCESS) <= 1 in every step; elsewhere that is assumed.
    steps = np.ones(2) if horizon is None else np.arange(horizon + 1.0)
    chance = up((1.0 + EXCESS) ** steps, FUNCTION)
    max_chance = np.repeat(chance[:, None], len(question.order), 1)
    most_power = power_bounds(question, Bounds(max_chance, max_chance)).high
    best = lack_bounds(question, Bounds(most_power, most_power)).low
    loss = _losses(question, assumed, best, is_timed=is_timed)
    left = np.ones(times, np.int64) if horizon is None else horizon - np.arange(times)
    return FrontierBounds(
        Bounds(np.zeros(times), chance[left]), Bounds(loss.low[left], loss.high[left])
    )


def _losses(
    question: Question,
    assumed: Assumptions,
    best: Float64[np.ndarray, " left"],
    *,
    is_timed: bool,
) -> Bounds:
    """-V_r by steps left; ``best`` bounds -U_r from below."""
    theory, horizon = question.theory, question.spec.horizon
    end, gamma, worst = -theory.terminal_value, theory.gamma_r, worst_lack(question, assumed)
    low, high = np.zeros(len(best)), np.full(len(best), math.inf)
    counted = accrual_bounds(question, np.ones(1))
    min_accrual = float(down(counted, ACCRUAL)[0]) * (1.0 - EXCESS)
    max_accrual = float(up(counted, ACCRUAL)[0]) * (1.0 + EXCESS)
    if is_timed:  # Discounts may be anything from 0 to 1, and so may what accrues.
        min_accrual, max_accrual = (1.0, 1.0) if question.accrual == "discrete" else (0.0, math.inf)
    if horizon is None:
        discount = gamma * (1.0 + EXCESS)
        if discount < 1.0 and not is_timed:
            high[1] = up(np.array([max_accrual * worst / (1.0 - discount) + end]), ACCRUAL)[0]
        low[1] = down(min_accrual * best[1:2], 1)[0]
        return Bounds(low, high)
    low[0] = high[0] = end
    for left in range(1, len(best)):
        later_low, later_high = low[left - 1], high[left - 1]
        if not assumed.never_ends_early:
            later_low, later_high = min(later_low, end), max(later_high, end)
        kept_low, kept_high = (0.0, 1.0) if is_timed else (gamma, gamma)
        gain = min_accrual * best[left] + kept_low * (1.0 - EXCESS) * later_low
        low[left] = down(np.array([gain]), ACCRUAL)[0]
        pain = max_accrual * worst + kept_high * (1.0 + EXCESS) * later_high
        high[left] = up(np.array([pain]), ACCRUAL)[0]
    return Bounds(low, high)


def assumes_bounded_chances(question: Question, *, is_timed: bool) -> bool:
    """True if nothing but an assumption bounds the chance of a goal in unexpanded states by 1.

    Probabilities may sum to a little more than 1, in any number of steps that are hardly
    discounted, e.g. because they are short.
    """
    is_discounted = question.theory.gamma_h * (1.0 + EXCESS) <= 1.0 and not is_timed
    return question.spec.horizon is None and not is_discounted


def worst_lack(question: Question, assumed: Assumptions) -> float:
    """The largest -U_r where humans have the least power that is assumed; else infinity."""
    if assumed.min_power is None:
        return math.inf
    min_power = np.full((1, len(question.spec.humans)), assumed.min_power)
    return float(lack_bounds(question, Bounds(min_power, min_power)).high[0])


def refuse_early_ends(unrolled: Unrolled) -> None:
    """Refuse the claim that no episode ends early where a state is known in which one does.

    Raises:
        SolveError: if there is one; the message shows it.
    """
    for time in range(len(unrolled.layers)):
        if unrolled.is_end(time):
            continue
        state = unrolled.state(time)
        ended = ~unrolled.states.alive[state]
        if ended.any():
            number = int(state[ended][0])
            raise SolveError(
                f"it is assumed that no episode of {unrolled.question.spec.name!r} ends early, "
                f"but one may at time {time}. Leave out --no-early-end. The state is:\n"
                f"{_described(unrolled, number)}"
            )


def proved_pairs(
    unrolled: Unrolled,
    min_power: float,
    state: Int32[np.ndarray, " pair"],
    time: int,
    x_h: Bounds,
) -> Proved:
    """In how many pairs of a time all humans are proved to have the power that is assumed.

    Raises:
        SolveError: if a human has less in one of them; the message shows the state.
    """
    wrong = np.argwhere(x_h.high < min_power)
    if len(wrong):
        pair, human = wrong[0].tolist()
        spec = unrolled.question.spec
        raise SolveError(
            f"it is assumed that everybody's X_h is at least {min_power:g} (min_power), but that "
            f"of {spec.agents[spec.humans[human]].name} is at most {x_h.high[pair, human]:.6g} at "
            f"time {time} in a state of {spec.name!r}. Assume less. The state is:\n"
            f"{_described(unrolled, int(state[pair]))}"
        )
    return Proved.of(x_h.low, min_power)


def _described(unrolled: Unrolled, state: int) -> str:
    row = torch.from_numpy(np.ascontiguousarray(unrolled.states.rows[state]))
    return unrolled.question.world.describe(row)
