"""The plain reference of the fair objective: published numbers, and sums over all trajectories."""

from __future__ import annotations

import random

import pytest
from fair_games import fair_table, games, reference_numbers
from fair_reference import (
    Diagnostics,
    Fair,
    FairReference,
    enumerated_capability,
    enumerated_moments,
)
from random_games import Shape, Table, random_table

EXACT = 1e-13
NUMBERS = reference_numbers()


def close(value: float, digits: str | float) -> bool:
    """Equal up to rounding; L of about 0 is the logarithm of a sum of about 1."""
    return value == pytest.approx(float(digits), rel=EXACT, abs=EXACT)


def agents(name: str) -> dict[str, int]:
    """The numbers of a game's agents."""
    return {agent["name"]: i for i, agent in enumerate(games()[name]["agents"])}


@pytest.mark.parametrize("row", NUMBERS["values"], ids=lambda row: f"{row['world']}-{row['set']}")
def test_the_reference_has_the_published_values(row: dict[str, object]) -> None:
    name, numbers = str(row["world"]), row
    solved = FairReference(fair_table(name), Fair(**NUMBERS["sets"][row["set"]]))
    start, bits = solved.start(), solved.bits(solved.start())
    assert close(start.long_term_power, numbers["L"])
    assert close(solved.aggregate_power(start), numbers["P"])
    assert all(map(close, start.moments[1:], numbers["M"]))
    assert all(map(close, start.pi_r.values(), numbers["pi_r"]))
    for human, digits in numbers["I"].items():
        assert close(bits[agents(name)[human]], digits)
        goals = solved.goals_of(agents(name)[human])
        assert all(map(close, (start.c[g] for g in goals), numbers["C"][human]))


@pytest.mark.parametrize("name", NUMBERS["diagnostics"])
def test_the_reference_has_the_published_diagnostics(name: str) -> None:
    solved = FairReference(fair_table(name), Fair())
    diagnostics = Diagnostics(solved)
    for human, numbers in NUMBERS["diagnostics"][name].items():
        if human not in agents(name):
            continue
        h = agents(name)[human]
        assert close(solved.bits(diagnostics.alone())[h], numbers["alone"])
        for key, digits in numbers.items():
            adversary, _, penalty = key.partition(":")
            if penalty:
                assert close(diagnostics.guarded_bits(h, adversary, float(penalty)), digits)


def test_the_reference_has_the_published_coalitions() -> None:
    numbers, agent = NUMBERS["diagnostics"]["gate"], agents("gate")
    diagnostics = Diagnostics(FairReference(fair_table("gate"), Fair()))
    goals = diagnostics.common_goals()
    assert len(goals) == len(numbers["common"])
    for names, digits in numbers["C_K"].items():
        members = tuple(agent[name] for name in names.split(","))
        for goal, capability, best in zip(goals, digits["C"], digits["envelope"], strict=True):
            assert close(diagnostics.joint_capability(members, goal), capability)
            assert close(diagnostics.joint_capability(members, goal, is_best=True), best)
    shares = diagnostics.shares()
    assert all(close(shares[agent[name]], digits) for name, digits in numbers["phi"].items())
    assert close(sum(shares.values()), numbers["grand"])


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


def some_params(rng: random.Random) -> Fair:
    """Any parameters that go together."""
    counting = rng.choice(["presence", "presence", "arrival"])
    return Fair(
        beta_h=rng.choice([0.0, 2.0, 5.0, float("inf")]),
        gamma_h=rng.choice([0.9, 0.99, 1.0]),
        nu=rng.choice([0.0, 0.2]),
        robot_model=rng.choice(["pessimistic", "optimistic", "even"]),
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
        delta=rng.choice([0.0, 0.125]),
    )


@pytest.mark.parametrize("seed", range(50))
def test_the_reference_equals_sums_over_all_trajectories(seed: int) -> None:
    rng = random.Random(seed)
    solved = FairReference(small_game(rng), some_params(rng))
    start = solved.start()
    assert start.moments == pytest.approx(enumerated_moments(solved), rel=1e-12)
    if solved.params.counting == "presence":
        for g in range(len(solved.table.goals)):
            assert start.c[g] == pytest.approx(enumerated_capability(solved, g), rel=1e-12)
