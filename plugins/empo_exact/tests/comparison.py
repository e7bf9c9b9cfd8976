"""Comparing the exact solver with the reference solver, moment by moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from reference_solver import Game, Moment, Parameters, Values

from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_theory.parameters import CompleteTheory

TINY = 1e-290
"""Probabilities below this leave the range of normal floats; they only have to be tiny."""


def exact_params(params: Parameters, nu: float = 0.0, **more: Any) -> ExactParams:
    """The fast solver's form of those parameters that are plain numbers."""
    beta_h = 0.0 if callable(params.beta_h) else params.beta_h
    return ExactParams(
        theory=CompleteTheory(
            beta_h="inf" if math.isinf(beta_h) else beta_h,
            nu=nu,
            gamma_h=params.gamma_h,
            gamma_r=params.gamma_r,
            beta_r=params.beta_r,
            zeta=params.zeta,
            xi=params.xi,
            eta=params.eta,
            terminal_value=params.terminal_value,
            x_agg=params.x_agg,
            u_agg=params.u_agg,
            accrual=params.accrual,
            robot_model="optimistic" if params.optimistic else "pessimistic",
        ),
        **{"compute": Compute(workers=1), "count_unrolled": True, **more},
    )


def parameters() -> st.SearchStrategy[Parameters]:
    """Symbols over their whole range, extremes included."""
    return st.builds(
        Parameters,
        beta_h=st.sampled_from([0.0, 0.3, 3.0, 10.0, 100.0, math.inf]),
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
        optimistic=st.booleans(),
    )


def largest_error(actual: Sequence[float] | np.ndarray, expected: Sequence[Any]) -> float:
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


def errors_at(actual: Any, expected: Values, humans: Sequence[int]) -> dict[str, float]:
    """Largest relative error of each quantity at one moment."""
    assert bool(actual.terminal) == expected.terminal
    errors = {
        "V_r": largest_error([actual.V_r], [expected.V_r]),
        "V_m": largest_error(actual.V_m, expected.V_m),
        "V_e": largest_error(actual.V_e, expected.V_e),
    }
    if expected.terminal:
        return errors
    errors["U_r"] = largest_error([actual.U_r], [expected.U_r])
    errors["X_h"] = largest_error(
        [actual.X_h[h] for h in humans], [expected.X_h[h] for h in humans]
    )
    errors["Q_r"] = largest_error(actual.Q_r, expected.Q_r)
    errors["pi_r"] = largest_error(actual.pi_r, expected.pi_r)
    for mine, given in zip(actual.pi_h, expected.pi_h, strict=True):
        padded = list(given) + [0.0] * (len(mine) - len(given))
        errors["pi_h"] = max(errors.get("pi_h", 0.0), largest_error(mine, padded))
    return errors


def largest_errors(
    result: ExactResult, game: Game, values: dict[Moment, Values]
) -> dict[str, float]:
    """Largest relative error of each quantity over all moments; sizes must agree exactly."""
    assert tuple(result.unrolled) == game.sizes()
    total: dict[str, float] = {}
    for (time, state), expected in values.items():
        for name, error in errors_at(result.at(state, time), expected, game.spec.humans).items():
            total[name] = max(total.get(name, 0.0), error)
    return total
