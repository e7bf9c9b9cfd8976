"""Who holds the power: published numbers, the plain reference, properties, refusals."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from fair_cases import ONE, any_params, as_config, shared_game
from fair_games import fair_table, games, reference_numbers
from fair_reference import Diagnostics, Fair, FairReference, unaware_power
from pydantic import ValidationError
from random_games import Shape, Table, TableWorld, random_table

from empo_core.errors import SolveError
from empo_exact.diagnostics import sweep
from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.game import Game
from empo_exact.plugin import Diagnostic, ExactParams, StateSet
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.diagnostics import Adversary, HumanPower, PowerFindings

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


RISING = (0.0, 0.01, 0.1, 1.0, 1e6)
"""Penalties of deviation."""


@pytest.mark.parametrize(
    "seed",
    [
        *range(100, 125),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(300, 575)),
    ],
)
def test_diagnostics_have_the_properties_of_their_definitions(seed: int) -> None:
    rng = random.Random(seed)
    table = shared_game(rng)
    result = solved(table, **as_config(any_params(rng, table)))
    findings = diagnose(result, ALL[1:], penalties=RISING)
    for human in findings.humans:
        assert human.bits is not None
        for adversary in {threat.adversary for threat in human.threats}:
            left = [against(human, adversary, penalty) for penalty in RISING]
            rising = [-math.inf if bits is None else bits for bits in left]
            assert all(later >= earlier - 1e-12 for earlier, later in pairwise(rising))
            assert rising[-1] == pytest.approx(human.bits, abs=1e-5)
        assert all(threat.lost is None or threat.lost >= 0 for threat in human.threats)
    measured = findings.coalitions
    if measured is None:
        assert len(findings.humans) == 1
        return
    alone = result.at_start().V_e
    goals = [int(name.split()[1]) for name in measured.goals]
    assert [*measured.coalitions[0].capability] == pytest.approx(alone[goals], rel=1e-12)
    for coalition in measured.coalitions:
        assert (np.array(coalition.best) >= np.array(coalition.capability) - 1e-12).all()
    assert sum(s.mass for s in measured.shares) == pytest.approx(measured.coalitions[-1].value)
    assert sum(c.dividend for c in measured.coalitions) == pytest.approx(
        measured.coalitions[-1].value
    )


@pytest.mark.parametrize("seed", range(200, 220))
def test_the_reserve_check_equals_the_plain_reference(seed: int) -> None:
    rng = random.Random(seed)
    table = shared_game(rng)
    params = replace(any_params(rng, table), nu=0.0)
    if params.x_agg == "sum":  # The further goal weighs something against goals that weigh 1.
        table = replace(table, goals=tuple((h, 1.0, states) for h, _, states in table.goals))
    states = frozenset(rng.sample(range(len(table.outcomes)), 2))
    result = solved(table, **as_config(params))
    rows = [TableWorld(table).row(s) for s in states]
    within = [list(row) for row in rows if result.find_rows(np.array([row]))[0] >= 0]
    if not within:
        return
    check = diagnose(result, ["reserve"], reserve_states=StateSet(rows=within)).reserve
    assert check is not None
    unaware = FairReference(table, params)
    for line in check.weights:
        further = []
        for h in unaware.humans:
            weights = [table.goals[g][1] for g in unaware.goals_of(h)]
            further.append((h, line.weight * sum(weights) / len(weights), states))
        goals = (*table.goals, *further)
        knowing = FairReference(replace(table, goals=goals), replace(params, x_agg="weighted"))
        power = knowing.aggregate_power(knowing.start())
        lost = (power - unaware_power(knowing, unaware)) / params.xi
        assert line.lost == pytest.approx(lost, rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("counting", ["arrival", "presence"])
def test_the_kernel_gets_arrays_of_one_layout_so_that_it_is_compiled_once(
    counting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, kernel = list[np.ndarray](), sweep.add_outcomes

    def add_outcomes(game: Game, *arrays: np.ndarray) -> None:
        taken.extend(arrays)
        kernel(game, *arrays)

    monkeypatch.setattr(sweep, "add_outcomes", add_outcomes)
    table = random_table(
        Shape(6, ("robot", "human", "human"), (2, 2, 3), 3, timed=False, masked=False), 1
    )
    diagnose(solved(table, theory={"counting": counting, "zeta": 1.5}), ALL)
    assert taken
    assert all(array.flags.c_contiguous for array in taken)


def test_five_humans_have_too_many_coalitions() -> None:
    shape = Shape(3, ("human",) * 5 + ("robot",), (2,) * 6, 1, timed=False, masked=False)
    result = solved(random_table(shape, 1), theory={"counting": "presence"})
    with pytest.raises(SolveError, match=r"5 humans.*up to 4"):
        diagnose(result, ["coalitions"])


def test_values_of_all_times_are_needed() -> None:
    result = solved(fair_table("backstop"), preset="fair", keep="none")
    with pytest.raises(SolveError, match=r"algorithm\.params\.keep"):
        diagnose(result)


def test_more_ram_than_there_is_is_refused() -> None:
    result = solved(fair_table("gate"), preset="fair")
    limited = result.params.compute.model_copy(update={"ram_limit_gb": 1e-6})
    result.params = result.params.model_copy(update={"compute": limited})
    with pytest.raises(SolveError, match="RAM"):
        diagnose(result)


def test_a_null_action_that_is_not_everywhere_leaves_out_what_needs_it() -> None:
    table = fair_table("lottery")  # The robot can gamble at the start only.
    result = solved(table, preset="fair", defunct={"null_action": "a1"})
    with pytest.raises(SolveError, match="'a1'"):
        diagnose(result, ["alone", "domination"])
    findings = diagnose(result, ["alone", "domination"], is_strict=False)
    assert findings.humans[0].alone is None
    assert findings.humans[0].threats
    assert any("'a1'" in line for line in findings.in_words())


@pytest.mark.parametrize(
    ("params", "key"),
    [
        ({"coalition_goals": {"a": {"any_of": ["a"]}}}, "coalition_goals"),
        ({"reserve_states": {"rows": [[0]]}}, "reserve_states"),
        ({"diagnostics": ["alone"], "keep": "none"}, "diagnostics"),
        ({"diagnostics": ["reserve"], "reserve_states": {}}, "reserve_states"),
        ({"diagnostics": ["pride"]}, "diagnostics"),
    ],
)
def test_parameters_of_diagnostics_that_would_do_nothing_are_refused(
    params: dict[str, object], key: str
) -> None:
    with pytest.raises(ValidationError, match=key):
        ExactParams.model_validate(params)


def test_findings_are_data_and_come_back_from_them() -> None:
    findings = diagnose(solved(fair_table("gate"), preset="fair"), ALL)
    data = json.loads(json.dumps(findings.data()))
    assert PowerFindings.of(data) == findings
    assert data["sentences"] == findings.in_words()


class InAndOut(TableWorld):
    """The game ``pair`` with the names of its goals: both humans have ``in`` and ``out``."""

    def __init__(self) -> None:
        super().__init__(fair_table("pair"))
        names = ("in", "out", "in", "out")
        goals = (replace(goal, name=n) for goal, n in zip(self.spec.goals, names, strict=True))
        self.spec = replace(self.spec, goals=tuple(goals))


def test_coalitions_pursue_goals_of_a_name_for_the_states_that_are_given() -> None:
    world = InAndOut()
    result = solve(world, ExactParams(preset="fair", compute=ONE))
    findings = diagnose(result, ["coalitions"])
    assert findings.coalitions is None  # No set of states is a goal of both.
    assert findings.left_out
    both_out = {"out": StateSet(rows=[list(world.row(3))])}
    coalitions = diagnose(result, ["coalitions"], coalition_goals=both_out).coalitions
    assert coalitions is not None
    assert coalitions.goals == ["out"]
    plain = Diagnostics(FairReference(world.table, Fair()))
    for coalition, members in zip(coalitions.coalitions, [(0,), (1,), (0, 1)], strict=True):
        value = plain.joint_capability(members, {0: 1, 1: 3}, states=frozenset({3}))
        assert coalition.capability == pytest.approx([value], rel=1e-11)


@pytest.mark.parametrize(
    ("states", "rows"), [(StateSet(any_of=["out"]), [1, 2, 3]), (StateSet(all_of=["out"]), [3])]
)
def test_a_set_of_states_is_given_by_goals_that_any_or_all_humans_achieve(
    states: StateSet, rows: list[int]
) -> None:
    world = InAndOut()
    result = solve(world, ExactParams(preset="fair", compute=ONE))
    listed = StateSet(rows=[list(world.row(row)) for row in rows])
    named, by_rows = (
        diagnose(result, ["coalitions"], coalition_goals={"out": chosen}).coalitions
        for chosen in (states, listed)
    )
    assert named == by_rows
