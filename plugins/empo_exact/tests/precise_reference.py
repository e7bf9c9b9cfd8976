"""The fair objective with 60 digits: the plain reference, in mpmath's numbers.

Its inputs are the doubles that the solver gets, each of them exactly.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fair_cases import as_config
from fair_reference import TIE, Fair, FairReference, Policy
from mpmath import mp, mpf
from random_games import Shape, Table, TableWorld, random_table

from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

DIGITS = 60
MOST = 1e-12
TINY = 1e-290
"""Below, doubles lose digits."""
NUMBERS = ("beta_h", "gamma_h", "nu", "beta_r", "gamma_r", "zeta", "xi", "eta", "delta")
ONE = mpf(1)
"""Makes what it is multiplied by such a number; exact at any precision."""


class PreciseReference(FairReference):
    """The reference in numbers of 60 digits."""

    def __init__(self, table: Table, params: Fair) -> None:
        mp.dps = DIGITS
        super().__init__(_precise_table(table), _precise_params(params))

    def capability(self, s: int, g: int, d: float, value: float) -> float:
        if self.params.counting == "arrival" and self.is_in(s, g):
            return ONE  # type: ignore[no-any-return]
        return self.params.gamma_h**d * value

    def _human_policy(self, q: Policy) -> Policy:
        params, best = self.params, max(q.values())
        if mp.isinf(params.beta_h):
            weight = {a: ONE * (v >= best - TIE * max(ONE, abs(best))) for a, v in q.items()}
        else:
            weight = {a: mp.exp(params.beta_h * (v - best)) for a, v in q.items()}
        total = sum(weight.values())
        return {a: params.nu / len(q) + (1 - params.nu) * w / total for a, w in weight.items()}

    def _evenly(self, actions: list[int]) -> Policy:
        return dict.fromkeys(actions, ONE / len(actions))

    def accrued(self, d: float) -> float:
        rate = -mp.log(self.params.gamma_r)
        if self.params.accrual == "discrete":
            return ONE  # type: ignore[no-any-return]
        return d if rate == 0 else -mp.expm1(-rate * d) / rate  # type: ignore[no-any-return]

    def powers(self, c: Mapping[int, float]) -> tuple[dict[int, float], float]:
        x = {h: self.power(h, c) for h in self.humans}
        counted = [x[h] for h in self.params.counts or self.humans]
        lack = sum(v**-self.params.xi if v else mp.inf for v in counted)
        if self.params.u_agg == "mean":
            lack /= len(counted)
        return x, lack**self.params.eta

    def power(self, h: int, c: Mapping[int, float]) -> float:
        return super().power(h, {g: ONE * v for g, v in c.items()}) * ONE


def _precise_params(params: Fair) -> Fair:
    numbers: dict[str, Any] = {name: mpf(getattr(params, name)) for name in NUMBERS}
    return replace(params, terminal_value=mpf(params.terminal_value), **numbers)


def _precise_table(table: Table) -> Table:
    return replace(
        table,
        outcomes=tuple(
            {
                profile: tuple((mpf(p), s, mpf(d)) for p, s, d in items)
                for profile, items in outcomes.items()
            }
            for outcomes in table.outcomes
        ),
        goals=tuple((human, mpf(weight), states) for human, weight, states in table.goals),
    )


def game(rng: random.Random) -> Table:
    """A game of one to three agents, up to six states and up to four steps."""
    roles = rng.choice(
        [("human", "robot"), ("robot", "human", "human"), ("human", "human"), ("human",),
         ("robot", "human", "robot"), ("human", "robot", "human")]
    )  # fmt: skip
    shape = Shape(
        num_states=rng.randint(2, 6),
        roles=roles,
        num_actions=tuple(rng.choice([1, 2, 2, 3]) if len(roles) < 3 else 2 for _ in roles),
        horizon=None if rng.random() < 0.3 else rng.randint(1, 5 - len(roles)),
        timed=rng.random() < 0.4,
        masked=False,
    )
    return random_table(shape, rng.randrange(2**32))


def params_for(rng: random.Random, table: Table) -> Fair:
    """Parameters that go together in a game, over wide ranges."""
    counting = rng.choice(["presence", "presence", "arrival"])
    humans = [agent for agent, role in enumerate(table.roles) if role == "human"]
    return Fair(
        beta_h=rng.choice([0.0, 0.3, 5.0, 10.0, 100.0, math.inf]),
        gamma_h=rng.choice([0.5, 0.9, 0.99, 1.0]),
        robot_model=rng.choice(["pessimistic", "optimistic", "even"]),
        nu=rng.choice([0.0, 0.0, 0.2]),
        beta_r=rng.choice([0.0, 1.0, 5.0, 20.0, 100.0]),
        gamma_r=rng.choice([0.6, 0.8, 0.99]),
        zeta=rng.choice([1.0, 1.5, 2.0, 3.0]),
        xi=rng.choice([0.5, 1.0, 1.3, 2.0]),
        eta=rng.choice([1.0, 1.1, 1.3, 2.0]),
        x_agg=rng.choice(["sum", "weighted"]),
        u_agg=rng.choice(["sum", "mean"]),
        accrual=rng.choice(["discrete", "continuous"]),
        rho=rng.choice([1, 1, 2, 3, 4, 7, 16]),
        counting=counting,
        early_end=rng.choice(["stop", "absorb"]) if counting == "presence" else "stop",
        delta=rng.choice([0.0, 0.125, 0.001]) if "robot" in table.roles else 0.0,
        counts=(rng.choice(humans),) if rng.random() < 0.3 else (),
    )


def relative(actual: Sequence[float], expected: Sequence[Any]) -> float:
    """The largest relative error; where zero is expected, or what no double holds, the absolute."""
    with mp.workdps(DIGITS):
        errors = [
            abs(mpf(mine) - right) / (abs(right) if abs(right) > TINY else 1)
            for mine, right in zip(actual, expected, strict=True)
        ]
        return float(max(errors, default=0.0))


def errors(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """The largest relative errors of the solver at the start of a game, and those allowed.

    Robots turn a relative error e of what follows an action into ``beta_r * rho * e`` of their
    policy, in every state: the last digits are not there to be had, whatever the method.
    """
    rng = random.Random(seed)
    table = game(rng)
    params = params_for(rng, table)
    names = [f"human {agent}" for agent in params.counts]
    config = ExactParams.model_validate({**as_config(params), "counts": names or None})
    result = solve(TableWorld(table), config).at_start()
    with mp.workdps(DIGITS):
        start = PreciseReference(table, params).start()
        roots = [mp.root(start.moments[k], k) for k in range(1, params.rho + 1)]
        # The first robot counts fastest; in the table it is the last.
        policy = {reply[::-1]: chance for reply, chance in start.pi_r.items()}
        largest = {
            "norms": relative(result.norms, roots),
            "V_r": relative([result.V_r], [-roots[0]]),
            "V_e": relative(result.V_e, [*start.c.values()]),
            "V_m": relative(result.V_m, [*start.v_m.values()]),
            "U_r": relative([result.U_r], [-start.u]),
            "pi_r": relative(result.pi_r, [policy[reply] for reply in sorted(policy)]),
        }
        largest["X_h"] = relative(list(result.X_h.values()), list(start.x.values()))
    sharpness = params.beta_r * params.rho
    allowed = dict.fromkeys(largest, MOST * max(1.0, sharpness / 10))
    return largest, allowed | {"V_m": MOST, "pi_r": MOST * max(1.0, sharpness)}
