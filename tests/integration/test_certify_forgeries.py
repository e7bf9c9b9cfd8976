"""Forged certificates whose arrays, values and digests agree with one another are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forged_certificates import WORLD, Forger, made
from torch import Tensor

from empo_bounds.assumptions import Assumptions
from empo_bounds.verification import verify_run
from empo_core.protocols import Tracker
from empo_worlds.enumeration import EnumeratedWorld


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was certified by expanding everything."""
    return made(tmp_path_factory.mktemp("everything"), WORLD, 0.0, Assumptions(0.1))


@pytest.fixture(scope="module")
def start_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which nothing but the start was expanded."""
    return made(tmp_path_factory.mktemp("start"), WORLD, 1.0, Assumptions(0.1))


@pytest.fixture(scope="module")
def unassumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which nothing but the start was expanded, without an assumption."""
    return made(tmp_path_factory.mktemp("unassumed"), WORLD, 1.0, Assumptions())


@pytest.fixture
def forger(everything: Path, tmp_path: Path) -> Forger:
    return Forger(everything, tmp_path)


def states_of(forger: Forger) -> np.ndarray:
    """The state of each pair."""
    found: np.ndarray = forger.arrays["landing_state"][forger.arrays["pair_landing"]]
    return found


def moment_of_another_state(forger: Forger) -> None:
    """Pairs of one state have the transitions of another, which is as often expanded."""
    moment, state = forger.arrays["pair_moment"], states_of(forger)
    own = {int(s): int(m) for s, m in zip(state, moment, strict=True) if m >= 0}
    for time in range(1, 4):
        pairs = forger.recorded.pairs(time)
        for pair in pairs:
            if moment[pair] >= 0 and state[pair] == 2:
                moment[pair] = own[1]


def moment_of_another_time(forger: Forger) -> None:
    """Pairs of a state at a later time have the policies of the start."""
    moment, state = forger.arrays["pair_moment"], states_of(forger)
    later = np.flatnonzero((state == state[0]) & (moment >= 0) & (moment != moment[0]))
    assert len(later)
    moment[later] = moment[0]


def other_policy(forger: Forger) -> None:
    """A policy is a little better than the run's."""
    policy = forger.arrays["human_policy_0"]
    row, goal = np.argwhere((policy > 0.01).all(2))[0]
    policy[row, goal] += [1e-10, -1e-10]


def less_expanded(forger: Forger) -> None:
    """Nothing but the start is expanded, and no end is seen in what is not."""
    forger.arrays["pair_moment"][1:] = -1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (moment_of_another_state, "has the transitions of another state"),
        (moment_of_another_time, "a policy at time 1 is not that of this run"),
        (other_policy, "a policy at time"),
    ],
)
def test_other_transitions_or_policies_than_the_runs_are_refused(
    forger: Forger, change: Callable[[Forger], None], message: str
) -> None:
    change(forger)
    forger.revalue()
    assert message in forger.refused()


def test_a_claim_that_no_episode_ends_early_is_refused_where_one_does(
    forger: Forger,
) -> None:
    forger.body["claims"]["never_ends_early"] = True
    forger.revalue()
    assert "end early" in forger.refused()


def test_a_claim_of_more_power_than_there_is_is_refused(start_only: Path, tmp_path: Path) -> None:
    forger = Forger(start_only, tmp_path)
    forger.body["claims"]["min_power"] = 1.99
    forger.revalue()
    forger.body["claims"]["proved_pairs"] = 0
    assert "least 1.99" in forger.refused()


@pytest.mark.parametrize("source", ["proved", "run"])
def test_more_power_than_is_proved_or_than_the_run_has_is_refused(
    unassumed: Path, tmp_path: Path, source: str
) -> None:
    forger = Forger(unassumed, tmp_path)
    claims = forger.body["claims"]
    assert claims["power_source"] == "proved"
    if source == "run":
        claims |= {"power_source": "run", "power_states": None}
    claims["min_power"] = 1.1
    forger.revalue()
    assert f"1.1 ({source})" in forger.refused()


def test_a_proof_about_more_states_than_there_are_is_refused(
    unassumed: Path, tmp_path: Path
) -> None:
    forger = Forger(unassumed, tmp_path)
    assert forger.body["claims"]["power_states"] == 4
    forger.body["claims"]["power_states"] = 5
    assert "reached is 5" in forger.refused()


def test_a_certificate_that_has_not_looked_further_is_one_about_less(
    forger: Forger,
) -> None:
    first = forger.arrays["first_pair"]
    forger.arrays |= {
        "first_pair": first[:3],
        "pair_landing": forger.arrays["pair_landing"][: first[2]],
        "pair_moment": forger.arrays["pair_moment"][: first[2]],
    }
    less_expanded(forger)
    forger.revalue()
    forger.seal()
    assert verify_run(forger.run, Tracker()).pairs == 1


def changed(*path: str | int, to: Callable[[Any], Any]) -> Callable[[Forger], None]:
    """A change of one entry of the JSON file."""

    def change(forger: Forger) -> None:
        *before, last = path
        place = forger.body
        for each in before:
            place = place[each]
        place[last] = to(place[last])

    return change


def swapped_goals(forger: Forger) -> None:
    """The goals of a human have each other's names."""
    first, second = forger.body["start"]["humans"][0]["goals"]
    first["name"], second["name"] = second["name"], first["name"]


def swapped_humans(forger: Forger) -> None:
    """Humans have each other's names."""
    first, second = forger.body["start"]["humans"]
    first["name"], second["name"] = second["name"], first["name"]


def tighter(forger: Forger) -> None:
    """Every upper bound of -V_r is lower by a share of 1e-9."""
    forger.arrays["loss_high"] *= 1 - 1e-9
    start, last = forger.body["start"], forger.body["rounds"][-1]
    start["v_r"][0] *= 1 - 1e-9
    last["v_r"] = start["v_r"]


def tighter_at_the_start(forger: Forger) -> None:
    """V_r at the start has a bound that is a little better than what follows."""
    forger.drop_values()
    start, last = forger.body["start"], forger.body["rounds"][-1]
    start["v_r"][0] *= 1 - 1e-10
    last["v_r"] = start["v_r"]


def bounded_by_nothing(forger: Forger) -> None:
    """V_r has a bound from below before anything is expanded, without an assumption."""
    forger.body["claims"] |= dict.fromkeys(("min_power", "proved_pairs", "nearly_proved_pairs"))
    forger.body["vacuous_v_r"][0] = -1e295


LAST = ("rounds", -1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (swapped_goals, "the goals of ann"),
        (swapped_humans, "the name of a human"),
        (changed("start", "humans", 0, "goals", to=lambda v: v[:1]), "the goals of ann"),
        (changed("start", "humans", to=lambda v: v[:1]), "the number of humans"),
        (changed("start", "humans", to=lambda v: 3 * v), "the number of humans"),
        (changed("about", "world", to=lambda v: "Other"), "the world"),
        (changed("about", "algorithm", to=lambda v: "phase2"), "the algorithm"),
        (changed("theory", "gamma_r", to=lambda v: 1.0), "digest of the theory"),
        (changed("vacuous_v_r", 0, to=lambda v: v * 0.9), "vacuous V_r"),
        (changed("vacuous_v_r", 1, to=lambda v: v * 1.1), "vacuous V_r"),
        (changed(*LAST, "pairs", to=lambda v: v + 1), "the number of pairs"),
        (changed(*LAST, "transitions", to=lambda v: v + 1), "the number of transitions"),
        (changed(*LAST, "outside", to=lambda v: v + 0.1), "the occupancy outside"),
        (changed(*LAST, "v_r", to=lambda v: [-1.0, -0.5]), "V_r of the last round"),
        (changed(*LAST, "widest_v_e", to=lambda v: v / 2), "the widest V_h^e"),
        (changed(*LAST, "median_v_e", to=lambda v: v / 2), "the median width"),
        (changed("rounds", to=lambda v: []), "rounds: List should have at least 1 item"),
        (changed("claims", "min_power", to=lambda v: -1.0), "min_power"),
        (changed("claims", "min_power", to=lambda v: None), "vacuous V_r"),
        (changed("claims", "proved_pairs", to=lambda v: v + 1), "proved power"),
        (changed("claims", "nearly_proved_pairs", to=lambda v: v + 1), "proved power"),
        (changed("claims", "proved_pairs", to=lambda v: None), "in how many pairs"),
        (changed("claims", "nearly_proved_pairs", to=lambda v: None), "in how many pairs"),
        (changed("claims", "open_pairs", to=lambda v: v + 1), "the number of open pairs"),
        (changed("claims", "power_source", to=lambda v: None), "where its least power comes from"),
        (changed("claims", "power_source", to=lambda v: "proved"), "where its least power comes"),
        (
            changed("claims", "power_source", to=lambda v: "run"),
            "its least power is 0.1 (run), and",
        ),
        (changed("claims", "has_bounded_chances", to=lambda v: not v), "whether chances"),
        (changed("start", "u_r", to=lambda v: [v[0] * 0.5, v[1]]), "U_r at the start"),
        (bounded_by_nothing, "vacuous V_r at the start is -1e+295 by it, and -inf follows"),
        (tighter, "loss_high of pair"),
        (tighter_at_the_start, "V_r at the start"),
    ],
)
def test_what_the_file_says_beside_its_bounds_is_worked_out_again(
    forger: Forger, change: Callable[[Forger], None], message: str
) -> None:
    change(forger)
    assert message in forger.refused()


def test_without_the_bounds_of_single_pairs_those_at_the_start_are_compared(
    forger: Forger,
) -> None:
    forger.drop_values()
    forger.seal()
    found = verify_run(forger.run, Tracker())
    assert not found.has_values
    assert found.numbers == 2 * (2 + 2 + 4 + 1)  # V_r, U_r, humans, goals, and vacuous V_r.


@pytest.mark.parametrize("name", ["proved_pairs", "nearly_proved_pairs"])
def test_more_proofs_than_there_can_be_are_refused_without_bounds_of_pairs(
    forger: Forger, name: str
) -> None:
    forger.drop_values()
    forger.body["claims"][name] += 1
    assert "proved in" in forger.refused()


TIMED = """
{name: timed, horizon: 4, initial: a, states: [a, b],
 agents: [{name: ann, role: human, actions: [be]}, {name: bot, role: robot, actions: [idle]}],
 transitions: [{state: a, to: {a: 0.9, b: 0.1}, duration: 1}, {state: b, to: b, duration: 3}],
 goals: {ann: [{name: any, states: [a, b]}]}}
"""


def test_a_claim_that_every_step_lasts_1_is_refused_where_one_does_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "made").mkdir()
    run = made(tmp_path / "made", TIMED, 0.05, Assumptions(0.5))
    forger = Forger(run, tmp_path)
    forger.body["claims"]["is_timed"] = False
    forger.revalue()
    assert "time than 1" in forger.refused()


def without(name: str) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: arrays.__delitem__(name)


def as_kind(name: str, kind: type) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: arrays.update({name: arrays[name].astype(kind)})


def with_entry(name: str, entry: int, value: float) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda arrays: arrays[name].flat.__setitem__(entry, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("loss_high"), "loss_high is missing"),
        (without("moments"), "moments is missing"),
        (without("landing_duration"), "landing_duration is missing"),
        (lambda arrays: arrays.update(more=np.zeros(3)), "more is none of them"),
        (as_kind("landing_state", np.float32), "landing_state is of float32"),
        (as_kind("first_pair", np.int32), "first_pair is of int32"),
        (as_kind("robot_policy", np.float32), "robot_policy is of float32"),
        (as_kind("states", np.float64), "states is of float64"),
        (lambda arrays: arrays.update(states=arrays["states"][:0]), "points to nothing in states"),
        (lambda arrays: arrays.update(first_pair=np.zeros(0, np.int64)), "one at the start"),
        (with_entry("first_pair", 1, 2), "one at the start"),
        (with_entry("pair_landing", 0, -5), "points to nothing"),
        (with_entry("pair_moment", 0, 10**6), "points to nothing"),
        (with_entry("pair_moment", -1, 0), "was expanded, where all episodes end"),
        (with_entry("landing_duration", -1, 2.0), "takes another time than 1"),
        (with_entry("landing_duration", -1, -1.0), "takes no positive time"),
        (with_entry("landing_duration", -1, np.nan), "takes no positive time"),
        (with_entry("pair_landing", -1, 3), "missing at time"),
        (with_entry("loss_low", 0, np.nan), "loss_low of pair 0"),
        (with_entry("x_h_high", -1, 1e295), "x_h_high of pair"),
        (with_entry("states", -1, 99), "there is no state number 99"),
        (with_entry("states", 0, -1), "there is no state number -1"),
    ],
)
def test_arrays_that_contradict_one_another_are_refused_in_words(
    forger: Forger, change: Callable[[dict[str, np.ndarray]], None], message: str
) -> None:
    change(forger.arrays)
    assert message in forger.refused()


def test_rows_by_which_a_world_indexes_out_of_range_are_refused_in_words(
    forger: Forger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def numbers(world: EnumeratedWorld, states: Tensor) -> Tensor:
        return states[:, 0].to(torch.int64)

    monkeypatch.setattr(EnumeratedWorld, "_numbers", numbers)
    forger.arrays["states"][-1] = 99
    assert "its states" in forger.refused()


def test_a_certificate_without_expanded_pairs_is_confirmed(
    start_only: Path, tmp_path: Path
) -> None:
    forger = Forger(start_only, tmp_path)
    forger.arrays |= {
        "first_pair": np.array([0, 1]),
        "pair_landing": forger.arrays["pair_landing"][:1],
        "pair_moment": np.full(1, -1, np.int32),
    }
    forger.revalue()
    forger.drop_values()
    forger.seal()
    assert verify_run(forger.run, Tracker()).pairs == 0
