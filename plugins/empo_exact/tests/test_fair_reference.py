"""The plain reference of the fair objective: published numbers, and sums over all trajectories."""

from __future__ import annotations

import random

import pytest
from fair_cases import any_params, small_game
from fair_games import fair_table, games, reference_numbers
from fair_reference import (
    Diagnostics,
    Fair,
    FairReference,
    enumerated_capability,
    enumerated_moments,
)

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


@pytest.mark.parametrize("seed", range(50))
def test_the_reference_equals_sums_over_all_trajectories(seed: int) -> None:
    rng = random.Random(seed)
    table = small_game(rng)
    solved = FairReference(table, any_params(rng, table))
    start = solved.start()
    assert start.moments == pytest.approx(enumerated_moments(solved), rel=1e-12)
    if solved.params.counting == "presence":
        for g in range(len(solved.table.goals)):
            assert start.c[g] == pytest.approx(enumerated_capability(solved, g), rel=1e-12)
