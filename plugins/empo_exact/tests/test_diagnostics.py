"""Who holds the power: published numbers, the plain reference, properties, refusals."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from fair_cases import ONE, any_params, as_config, shared_game
from fair_games import fair_table, games, reference_numbers
from fair_reference import Diagnostics, FairReference
from random_games import Table, TableWorld

from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.plugin import Diagnostic, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.diagnostics import Adversary, HumanPower

NUMBERS = reference_numbers()["diagnostics"]
ALL: list[Diagnostic] = ["alone", "vulnerability", "domination", "coalitions"]
KEYS: dict[str, Adversary] = {"others": "others", "robot": "robots", "all": "all"}


def solved(table: Table, **params: object) -> ExactResult:
    return solve(TableWorld(table), ExactParams.model_validate({"compute": ONE, **params}))


def is_close(bits: float | None, digits: str | float, rel: float = 1e-11) -> bool:
    """Equal; no bits are the logarithm of 0."""
    return (-math.inf if bits is None else bits) == pytest.approx(float(digits), rel=rel, abs=rel)


@pytest.mark.parametrize("name", NUMBERS)
def test_diagnostics_have_the_published_numbers(name: str) -> None:
    agents = [agent["name"] for agent in games()[name]["agents"]]
    findings = diagnose(solved(fair_table(name), preset="fair"), ALL[:3])
    for human in findings.humans:
        numbers = NUMBERS[name][agents[human.human]]
        assert human.alone is not None
        assert is_close(human.bits, numbers["I"])
        assert is_close(human.alone.bits, numbers["alone"])
        for threat in human.threats:
            key = next(key for key, who in KEYS.items() if who == threat.adversary)
            digits = numbers[f"{key}:{threat.penalty:g}"]
            assert is_close(threat.bits, digits)
            assert threat.lost == pytest.approx(float(numbers["I"]) - float(digits), abs=1e-11)


def test_coalitions_have_the_published_numbers() -> None:
    numbers, agents = NUMBERS["gate"], games()["gate"]["agents"]
    coalitions = diagnose(solved(fair_table("gate"), preset="fair"), ["coalitions"]).coalitions
    assert coalitions is not None
    assert len(coalitions.goals) == len(numbers["common"])
    for coalition in coalitions.coalitions:
        names = [agents[int(member.split()[1])]["name"] for member in coalition.members]
        digits = numbers["C_K"][",".join(names)]
        assert all(map(is_close, coalition.capability, digits["C"]))
        assert all(map(is_close, coalition.best, digits["envelope"]))
    for share, digits in zip(coalitions.shares, numbers["phi"].values(), strict=True):
        assert is_close(share.mass, digits)
        assert is_close(share.bits, math.log2(float(digits)))
    assert is_close(sum(share.mass for share in coalitions.shares), numbers["grand"])


def against(human: HumanPower, adversary: Adversary, penalty: float) -> float | None:
    threat = human.against(adversary, penalty)
    assert threat is not None
    return threat.bits


@pytest.mark.parametrize("seed", range(40))
def test_diagnostics_equal_the_plain_reference(seed: int) -> None:
    rng = random.Random(seed)
    table = shared_game(rng)
    params = any_params(rng, table)
    reference = FairReference(table, params)
    plain, bits = Diagnostics(reference), reference.bits(reference.start())
    findings = diagnose(solved(table, **as_config(params)), ALL)
    alone = plain.alone()
    assert findings.alone is not None
    assert is_close(findings.alone.L, alone.long_term_power)
    assert is_close(findings.alone.P, reference.aggregate_power(alone))
    for human in findings.humans:
        assert is_close(human.bits, bits[human.human])
        assert human.alone is not None
        assert is_close(human.alone.bits, reference.bits(alone)[human.human])
        for key, who in KEYS.items():
            for penalty in (0.0, 0.1) if human.against(who, 0.0) else ():
                value = plain.guarded_bits(human.human, key, penalty)
                assert is_close(against(human, who, penalty), value)
    if len(findings.humans) == 1:
        assert findings.coalitions is None
        return
    assert findings.coalitions is not None
    value = plain.coalition_values()
    assert [c.value for c in findings.coalitions.coalitions] == pytest.approx([*value.values()])
    assert [s.mass for s in findings.coalitions.shares] == pytest.approx([*plain.shares().values()])
    best = [
        [plain.joint_capability(members, goal, is_best=True) for goal in plain.common_goals()]
        for members in value
    ]
    np.testing.assert_allclose([c.best for c in findings.coalitions.coalitions], best, rtol=1e-11)


@pytest.mark.parametrize("seed", range(100, 130))
def test_diagnostics_have_the_properties_of_their_definitions(seed: int) -> None:
    rng = random.Random(seed)
    table = shared_game(rng)
    findings = diagnose(solved(table, **as_config(any_params(rng, table))), ALL[1:])
    for human in findings.humans:
        assert human.bits is not None
        for threat in human.threats:
            assert threat.lost is None or threat.lost >= 0
        for adversary in ("others", "robots"):
            free, costly = human.against(adversary, 0.0), human.against(adversary, 0.1)
            assert free is not None
            assert costly is not None
            assert (free.bits or 0.0) <= (costly.bits or 0.0) + 1e-12
    measured = findings.coalitions
    if measured is None:
        assert len(findings.humans) == 1
        return
    for coalition in measured.coalitions:
        assert (np.array(coalition.best) >= np.array(coalition.capability) - 1e-12).all()
    assert sum(s.mass for s in measured.shares) == pytest.approx(measured.coalitions[-1].value)
    assert sum(c.dividend for c in measured.coalitions) == pytest.approx(
        measured.coalitions[-1].value
    )
