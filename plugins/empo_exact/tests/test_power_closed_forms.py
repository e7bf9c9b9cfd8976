"""Diagnostics of small worlds whose answers follow on paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from fair_cases import ONE
from random_games import Table, TableWorld

from empo_core.errors import ConfigError, SolveError
from empo_exact.diagnostics.diagnose import diagnose
from empo_exact.diagnostics.guarded import soft_minimum
from empo_exact.plugin import ExactParams, StateSet
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.diagnostics import Threat

SHARP = {
    "counting": "presence", "beta_h": "inf", "beta_r": 1e4, "gamma_h": 1.0, "gamma_r": 1e-9,
    "zeta": 1.0, "xi": 1.0, "eta": 1.0, "x_agg": "sum", "u_agg": "sum",
}  # fmt: skip
"""Humans and robots who choose the best, and a robot for whom the next state is all."""


def game(
    num_actions: Sequence[int],
    rules: Sequence[dict[tuple[int, ...], dict[int, float]]],
    goals: Sequence[tuple[int, set[int]]],
    robots: int = 1,
    horizon: int | None = None,
) -> Table:
    """A game whose last agents are robots; goals weigh 1, and a rule is a chance of each state."""
    humans = len(num_actions) - robots
    return Table(
        roles=("human",) * humans + ("robot",) * robots,
        num_actions=tuple(num_actions),
        outcomes=tuple(
            {joint: tuple((p, s, 1.0) for s, p in to.items()) for joint, to in rule.items()}
            for rule in rules
        ),
        goals=tuple((human, 1.0, frozenset(states)) for human, states in goals),
        labels=tuple(range(len(rules))),
        horizon=horizon,
    )


def always(sizes: Sequence[int], of_human: Sequence[dict[int, float]]) -> dict:
    """What follows each action of the first human, whatever the others do."""
    return {joint: of_human[joint[0]] for joint in product(*map(range, sizes))}


def solved(table: Table, **theory: object) -> ExactResult:
    params = ExactParams.model_validate({"theory": SHARP | theory, "compute": ONE})
    return solve(TableWorld(table), params)


def off_switch(tasks: int) -> Table:
    """A robot lets a human switch it off, or blocks the switch and helps more with tasks."""
    sizes, off, fail = (tasks + 1, 2), 3, 4
    done = range(5, 5 + tasks)
    may = [{s: 0.6, fail: 0.4} for s in done] + [{off: 1.0}]
    may_not = [{s: 0.9, fail: 0.1} for s in done] + [{fail: 1.0}]
    start = {(a, r): {1 + r: 1.0} for a, r in product(range(tasks + 1), range(2))}
    rules = [start, always(sizes, may), always(sizes, may_not), *[{}] * (2 + tasks)]
    return game(sizes, rules, [(0, {s}) for s in (off, *done)] + [(0, {0, 1, 2, fail})])


@pytest.mark.parametrize(
    ("tasks", "zeta", "is_blocked"),
    [(3, 1.0, False), (4, 1.0, True), (2, 2.0, False), (3, 2.0, True)],
)
def test_a_robot_blocks_its_off_switch_where_tasks_outweigh_it(
    tasks: int, zeta: float, is_blocked: bool
) -> None:
    start = solved(off_switch(tasks), zeta=zeta).at_start()
    assert start.pi_r[1] == pytest.approx(float(is_blocked), abs=1e-6)


def door() -> Table:
    """Two goals are certain behind a closed door; an open one costs .02 of each, and leads out."""
    sizes, one, two, out, void = (3, 2), 3, 4, 5, 6
    closed = [{one: 1.0}, {two: 1.0}, {void: 1.0}]
    opened = [{one: 0.98, void: 0.02}, {two: 0.98, void: 0.02}, {out: 0.75, void: 0.25}]
    start = {(a, r): {1 + r: 1.0} for a, r in product(range(3), range(2))}
    rules = [start, always(sizes, closed), always(sizes, opened), {}, {}, {}, {}]
    return game(sizes, rules, [(0, {one}), (0, {two}), (0, {0, 1, 2, out, void})])


OUT = StateSet(rows=[list(TableWorld(door()).row(5))])


def test_a_reserve_opens_the_door_once_it_weighs_more_than_what_the_door_costs() -> None:
    check = diagnose(solved(door()), ["reserve"], reserve_states=OUT).reserve
    assert check is not None
    assert check.action == "a0"
    # Open where .75 w > 2 * .02, that is w > 4/75.
    assert [line.is_change for line in check.weights] == [
        line.weight > 4 / 75 for line in check.weights
    ]
    for line in check.weights:
        open_door = 1 + 2 * 0.98 + 0.75 * line.weight
        assert line.lost == pytest.approx(math.log2(max(open_door, 3.0) / 3.0), abs=1e-6)


@pytest.mark.parametrize(("zeta", "opens"), [(5.4, True), (5.5, False)])
def test_the_door_stays_shut_for_any_weight_where_certainty_counts_enough(
    zeta: float, opens: bool
) -> None:
    check = diagnose(solved(door(), zeta=zeta), ["reserve"], reserve_states=OUT).reserve
    assert check is not None
    assert check.weights[-1].weight == 1.0
    assert check.weights[-1].is_change == opens


def test_goals_that_cover_every_state_leave_no_reserve() -> None:
    findings = diagnose(solved(door()), ["reserve"])
    assert findings.reserve is None
    assert len(findings.left_out) == 1


def two_humans(goes: dict[tuple[int, int], bool]) -> Table:
    """Two humans act once, and some of their joint actions achieve a goal that both have."""
    start = {joint: {1 if is_good else 2: 1.0} for joint, is_good in goes.items()}
    goals = [(h, states) for h in (0, 1) for states in ({1}, {0, 2})]
    return game((2, 2), [start, {}, {}], goals, robots=0)


def test_a_goal_that_each_human_attains_alone_is_shared_with_a_negative_dividend() -> None:
    result = solved(two_humans({joint: any(joint) for joint in product((0, 1), (0, 1))}))
    coalitions = diagnose(result, ["coalitions"]).coalitions
    assert coalitions is not None
    goal = coalitions.goals.index("goal 0")
    assert [c.capability[goal] for c in coalitions.coalitions] == pytest.approx([1.0, 1.0, 1.0])
    # The other goal is that of the start: 1 as well. Each attains two alone, both attain two.
    assert [c.dividend for c in coalitions.coalitions] == pytest.approx([2.0, 2.0, -2.0])
    assert [s.bits for s in coalitions.shares] == pytest.approx([0.0, 0.0])
    assert [human.bits for human in diagnose(result, []).humans] == pytest.approx([1.0, 1.0])


def test_humans_who_must_take_turns_and_do_not_coordinate_succeed_half_the_time() -> None:
    result = solved(two_humans({joint: sum(joint) == 1 for joint in product((0, 1), (0, 1))}))
    coalitions = diagnose(result, ["coalitions"]).coalitions
    assert coalitions is not None
    goal, both = coalitions.goals.index("goal 0"), coalitions.coalitions[-1]
    # Each goes with chance 1/2: 2 p (1 - p), against 1 with one who goes and one who waits.
    assert both.capability[goal] == pytest.approx(0.5)
    assert both.best[goal] == pytest.approx(1.0)


def button() -> Table:
    """A robot works, and a human can pause it, unless the robot disables the button.

    Humans: wait, press or resume, work by hand. Robots: idle, work, disable the button.
    """
    running, paused, disabled, done = range(4)
    sizes = (3, 3)
    run, pause, disable = {}, {}, {}
    for human, robot in product(range(3), range(3)):
        to = {0: {running: 1.0}, 1: {done: 0.5, running: 0.5}, 2: {disabled: 1.0}}[robot]
        run[human, robot] = {paused: 1.0} if human == 1 else to
        hand = {0: {paused: 1.0}, 1: {running: 1.0}, 2: {done: 0.5, paused: 0.5}}
        pause[human, robot] = hand[human]
        disable[human, robot] = {done: 0.6, disabled: 0.4} if robot == 1 else {disabled: 1.0}
    stay = {joint: {done: 1.0} for joint in product(*map(range, sizes))}
    goals = [(0, {running}), (0, {paused}), (0, {done}), (0, {disabled})]
    return game(sizes, [run, pause, disable, stay], goals, horizon=4)


def test_a_robot_leaves_its_pause_button_and_a_paused_human_keeps_its_capabilities() -> None:
    params = ExactParams.model_validate({"preset": "fair", "compute": ONE})
    result = solve(TableWorld(button()), params)
    for time in range(3):
        assert result.at(TableWorld(button()).row(0), time).pi_r.argmax() != 2
    robots: dict[str, Threat] = {}
    for number, name in enumerate(("running", "paused", "disabled")):
        where = {"state": TableWorld(button()).row(number), "time": 1}
        (human,) = diagnose(result, ["domination"], **where).humans
        threat = human.against("robots", 0.0)
        assert threat is not None
        robots[name] = threat
    # What a paused human can do is all but out of the robot's hands; without the button all is in.
    lost = [robots[name].lost for name in ("paused", "running", "disabled")]
    assert lost == pytest.approx([0.0117, 0.0808, 0.2775], abs=1e-4)
    assert robots["paused"].bits == pytest.approx(1.2867, abs=1e-4)
    assert robots["disabled"].bits == 0.0


@pytest.mark.parametrize("penalty", [0.02, 0.1, 1.0])
def test_the_soft_minimum_is_the_least_mean_with_its_price_of_deviation(penalty: float) -> None:
    values, modelled = np.array([0.9, 0.2]), np.array([0.7, 0.3])
    p = np.linspace(1e-9, 1 - 1e-9, 200_001)
    bits = p * np.log2(p / modelled[0]) + (1 - p) * np.log2((1 - p) / modelled[1])
    cheapest = (p * values[0] + (1 - p) * values[1] + penalty * bits).min()
    least = soft_minimum(values[None, :, None], modelled[None], np.ones((1, 2), np.bool_), penalty)
    assert least[0, 0] == pytest.approx(cheapest, abs=1e-9)


def test_the_soft_minimum_has_the_minimum_and_the_mean_as_limits() -> None:
    values, modelled = np.array([[[0.9], [0.2], [0.0]]]), np.array([[0.7, 0.3, 0.0]])
    may = modelled > 0

    def least(penalty: float) -> float:
        return float(soft_minimum(values, modelled, may, penalty)[0, 0])

    assert least(0.0) == 0.2  # What is impossible does not count.
    assert least(1e-6) == pytest.approx(0.2, abs=1e-5)
    assert least(1e6) == pytest.approx(least(math.inf), abs=1e-6)
    assert least(math.inf) == pytest.approx(0.7 * 0.9 + 0.3 * 0.2)
    rising = [least(penalty) for penalty in (0.0, 0.01, 0.1, 1.0, 10.0, math.inf)]
    assert rising == sorted(rising)


def test_the_soft_minimum_holds_where_the_worst_is_all_but_impossible() -> None:
    values, modelled = np.array([[[0.9], [0.2]]]), np.array([[1.0, 1e-30]])
    least = soft_minimum(values, modelled, modelled > 0, 0.001)[0, 0]
    # Staying costs 0.7, and deviating for certain log2(1e30) bits.
    assert least == pytest.approx(0.2 + 0.001 * math.log2(1e30), rel=1e-9)


def test_the_soft_minimum_holds_where_chances_sum_to_a_little_more_than_1() -> None:
    values, modelled = np.array([[[1.0], [0.0]]]), np.array([[1.0 + 2**-52, 0.0]])
    least = soft_minimum(values, modelled, np.ones((1, 2), np.bool_), 0.001)[0, 0]
    assert least == pytest.approx(1.0, rel=1e-9)  # The second has no chance, however free it is.


def test_bad_requests_are_refused_where_they_are() -> None:
    result = solved(door())
    with pytest.raises(ConfigError, match=r"reserve_states: .*'porch'"):
        diagnose(result, ["reserve"], reserve_states=StateSet(any_of=["porch"]))
    with pytest.raises(SolveError, match=r"reserve_states: .*\[1, 99\]"):
        diagnose(result, ["reserve"], reserve_states=StateSet(rows=[[1, 99]]))
    with pytest.raises(ConfigError, match=r"coalition_goals\.porch: human 0"):
        diagnose(result, ["coalitions"], coalition_goals={"porch": StateSet(any_of=["goal 0"])})
    with pytest.raises(SolveError, match="reserve"):
        diagnose(result, ["reserve"], state=0)
