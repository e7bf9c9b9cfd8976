"""Small random games, and parameters of the fair objective."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from fair_reference import Fair
from random_games import Shape, Table, random_table

from empo_exact.plugin import Compute, Defunct
from empo_theory.parameters import CompleteTheory

ONE = Compute(workers=1)


def small_game(rng: random.Random) -> Table:
    """A game of at most three steps whose trajectories can be listed."""
    roles = rng.choice([("human", "robot"), ("robot", "human", "human"), ("human", "human")])
    shape = Shape(
        num_states=rng.randint(2, 4),
        roles=roles,
        num_actions=tuple(2 for _ in roles),
        horizon=None if rng.random() < 0.25 else 4 - len(roles),
        timed=rng.random() < 0.4,
        masked=False,
    )
    return random_table(shape, rng.randrange(2**32))


def shared_game(rng: random.Random) -> Table:
    """A game of one to three humans with a robot, and a goal that all humans have."""
    roles = ("human",) * rng.randint(1, 3) + ("robot",)
    shape = Shape(
        num_states=rng.randint(3, 5),
        roles=tuple(rng.sample(roles, len(roles))),
        num_actions=tuple(rng.randint(1, 3) if len(roles) < 4 else 2 for _ in roles),
        horizon=None if rng.random() < 0.25 else rng.randint(1, 3),
        timed=rng.random() < 0.4,
        masked=False,
    )
    table = random_table(shape, rng.randrange(2**32))
    members = frozenset(s for s in range(shape.num_states) if rng.random() < 0.4)
    shared = [
        (human, rng.choice([0.5, 1.0]), members)
        for human, role in enumerate(shape.roles)
        if role == "human"
    ]
    return replace(table, goals=(*table.goals, *shared))


def any_params(rng: random.Random, table: Table) -> Fair:
    """Any parameters that go together in a game."""
    counting = rng.choice(["presence", "presence", "arrival"])
    return Fair(
        beta_h=rng.choice([0.0, 2.0, 5.0, math.inf]),
        gamma_h=rng.choice([0.9, 0.99, 1.0]),
        robot_model=rng.choice(["pessimistic", "optimistic", "even"]),
        nu=rng.choice([0.0, 0.2]),
        beta_r=rng.choice([1.0, 5.0, 20.0]),
        gamma_r=rng.choice([0.8, 0.99]),
        zeta=rng.choice([1.0, 1.5, 2.0]),
        xi=rng.choice([0.5, 1.0, 2.0]),
        eta=rng.choice([1.0, 1.3]),
        x_agg=rng.choice(["sum", "weighted"]),
        u_agg=rng.choice(["sum", "mean"]),
        accrual=rng.choice(["discrete", "continuous"]),
        rho=rng.choice([1, 2, 3]),
        counting=counting,
        early_end=rng.choice(["stop", "absorb"]) if counting == "presence" else "stop",
        delta=rng.choice([0.0, 0.125]) if "robot" in table.roles else 0.0,
    )


def as_config(params: Fair) -> dict[str, object]:
    """The parameters of a run of ``exact``."""
    symbols = {
        key: "inf" if value == math.inf else value
        for key, value in vars(params).items()
        if key in CompleteTheory.model_fields
    }
    return {"theory": symbols, "defunct": Defunct(rate=params.delta), "compute": ONE}
