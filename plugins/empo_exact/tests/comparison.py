"""Comparing the exact solver with the reference, state by state and time by time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from empo_core.protocols import WorldModel
from empo_core.types import WorldSpec
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference, State, Values

TINY = 1e-290
"""Probabilities below this leave the range of normal floats; they only have to be tiny."""

Moment = tuple[int, State]
"""A time and a state; the time stays 0 where there is no horizon."""


def exact_params(theory: CompleteTheory | None = None, **more: Any) -> ExactParams:
    """Parameters of a solve in this process, which counts the unrolled graph."""
    return ExactParams(
        theory=theory or CompleteTheory(),
        **{"compute": Compute(workers=1), "count_unrolled": True, **more},
    )


def theories() -> st.SearchStrategy[CompleteTheory]:
    """Symbols over their whole range, extremes included."""
    return st.builds(
        CompleteTheory,
        beta_h=st.sampled_from([0.0, 0.3, 3.0, 10.0, 100.0, "inf"]),
        gamma_h=st.sampled_from([1.0, 0.95, 0.5]),
        gamma_r=st.sampled_from([1.0, 0.99, 0.6]),
        beta_r=st.sampled_from([0.0, 1.0, 5.0, 100.0, 1e4]),
        zeta=st.sampled_from([1.0, 1.7, 2.0, 3.0]),
        xi=st.sampled_from([1.0, 1.3, 2.0]),
        eta=st.sampled_from([1.0, 1.1, 2.0]),
        terminal_value=st.sampled_from([-1e-10, -1e-3, -1.0]),
        x_agg=st.sampled_from(["weighted", "sum"]),
        u_agg=st.sampled_from(["mean", "sum"]),
        accrual=st.sampled_from(["discrete", "continuous"]),
        robot_model=st.sampled_from(["pessimistic", "optimistic"]),
    )


def fair_theories() -> st.SearchStrategy[CompleteTheory]:
    """Symbols of the objective in which presence counts, or risk, or both."""

    def complete(symbols: dict[str, Any]) -> CompleteTheory:
        if symbols["counting"] == "arrival":
            symbols["early_end"] = "stop"
        return CompleteTheory(**symbols)

    return st.fixed_dictionaries(
        {
            "counting": st.sampled_from(["presence", "presence", "arrival"]),
            "rho": st.sampled_from([1, 1, 2, 3, 4, 7, 16]),
            "early_end": st.sampled_from(["stop", "absorb"]),
            "robot_model": st.sampled_from(["pessimistic", "optimistic", "even"]),
            "beta_h": st.sampled_from([0.0, 3.0, 10.0, "inf"]),
            "gamma_h": st.sampled_from([1.0, 0.95, 0.5]),
            "gamma_r": st.sampled_from([0.99, 0.6]),
            "beta_r": st.sampled_from([0.0, 1.0, 5.0, 100.0]),
            "zeta": st.sampled_from([1.0, 1.7, 2.0]),
            "xi": st.sampled_from([1.0, 1.3, 2.0]),
            "eta": st.sampled_from([1.0, 1.1]),
            "x_agg": st.sampled_from(["weighted", "sum"]),
            "u_agg": st.sampled_from(["mean", "sum"]),
            "accrual": st.sampled_from(["discrete", "continuous"]),
        }
    ).map(complete)


def unrolled(world: WorldModel) -> dict[Moment, set[Moment]]:
    """Every moment that can occur, and those that can follow it."""
    horizon = world.spec.horizon
    following: dict[Moment, set[Moment]] = {}
    waiting: list[Moment] = [(0, tuple(world.initial_state().tolist()))]
    while waiting:
        time, state = moment = waiting.pop()
        if moment in following:
            continue
        row = torch.tensor([state], dtype=world.spec.state_dtype)
        rows = world.transitions(row).states.tolist() if time != horizon else []
        later = 0 if horizon is None else time + 1
        following[moment] = {(later, tuple(words)) for words in rows}
        waiting += following[moment]
    return following


def sizes(world: WorldModel) -> tuple[int, int, int]:
    """States, terminal states and distinct state-to-state edges of the unrolled graph."""
    following = unrolled(world)
    ends = sum(not moments for moments in following.values())
    return len(following), ends, sum(map(len, following.values()))


def steps_left(world: WorldModel, time: int) -> int | None:
    """Steps until the end; None without a horizon."""
    return None if world.spec.horizon is None else world.spec.horizon - time


def robot_shares(spec: WorldSpec) -> list[int]:
    """What each joint robot action adds to the number of a joint action, robot 0 fastest."""
    digits = itertools.product(*(range(spec.num_actions[r]) for r in reversed(spec.robots)))
    strides = [spec.strides[r] for r in reversed(spec.robots)]
    return [sum(a * s for a, s in zip(choice, strides, strict=True)) for choice in digits]


def largest_error(actual: Sequence[float] | np.ndarray, expected: Sequence[float | None]) -> float:
    """Largest relative error; tiny expected numbers must be found tiny, zeros exactly zero."""
    largest = 0.0
    for mine, given in zip(np.asarray(actual, dtype=float).tolist(), expected, strict=True):
        if given is None:
            continue
        if given == 0 or abs(given) < TINY:
            error = 0.0 if abs(mine) <= abs(given) or (given and abs(mine) < 2 * TINY) else math.inf
        else:
            error = float(abs((mine - given) / given))
        largest = max(largest, error if not math.isnan(mine) else math.inf)
    return largest


def errors_at(actual: Any, expected: Values, spec: WorldSpec) -> dict[str, float]:
    """Largest relative error of each quantity at one moment."""
    assert bool(actual.terminal) == (not expected.pi_r)
    errors = {
        "V_r": largest_error([actual.V_r], [expected.v_r]),
        "norms": largest_error(
            actual.norms[1:],
            [moment ** (1 / (order + 2)) for order, moment in enumerate(expected.moments)],
        ),
        "V_m": largest_error(actual.V_m, by_goal(expected.v_m)),
        "V_e": largest_error(actual.V_e, by_goal(expected.v_e)),
    }
    if actual.terminal:
        return errors
    shares = robot_shares(spec)
    errors["U_r"] = largest_error([actual.U_r], [expected.u_r])
    errors["X_h"] = largest_error(list(actual.X_h.values()), list(expected.x_h.values()))
    errors["Q_r"] = largest_error(actual.Q_r, [expected.q_r.get(share) for share in shares])
    errors["pi_r"] = largest_error(actual.pi_r, [expected.pi_r.get(share, 0.0) for share in shares])
    for goal, mine in enumerate(actual.pi_h):
        policy = [expected.pi_h[goal].get(action, 0.0) for action in range(len(mine))]
        errors["pi_h"] = max(errors.get("pi_h", 0.0), largest_error(mine, policy))
    return errors


def by_goal(values: Mapping[int, float]) -> list[float]:
    """The values in the order of goals."""
    return [values[goal] for goal in range(len(values))]


def largest_errors(result: ExactResult, reference: Reference) -> dict[str, float]:
    """Largest relative error of each quantity over all moments; sizes must agree exactly."""
    world = result.problem.world
    moments, total = unrolled(world), dict[str, float]()
    assert tuple(result.unrolled) == sizes(world)
    for time, state in moments:
        expected = reference.at(state, steps_left(world, time))
        for name, error in errors_at(result.at(state, time), expected, result.spec).items():
            total[name] = max(total.get(name, 0.0), error)
    return total
