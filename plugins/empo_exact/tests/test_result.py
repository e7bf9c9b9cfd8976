"""Uses of a solved world: queries, the closed loop, rollouts, files."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from comparison import sizes, unrolled
from random_games import Shape, TableWorld, random_table
from torch import Tensor

from empo_core.errors import SolveError, StorageError, WorldError
from empo_core.protocols import Tracker
from empo_exact.assumptions import Assumptions
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult, load
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_theory.reference import Reference, State, Values
from empo_worlds.arrays import load_arrays

SHAPE = Shape(9, ("robot", "human", "human", "robot"), (2, 3, 2, 2), 4, timed=False, masked=True)
PARAMS = ExactParams(
    theory=CompleteTheory(beta_h=5.0, beta_r=3.0, gamma_r=0.9, zeta=2.0, eta=1.1),
    compute=Compute(workers=1),
)


def with_theory(**changes: float) -> ExactParams:
    return PARAMS.model_copy(update={"theory": PARAMS.theory.model_copy(update=changes)})


def world_for(seed: int, **changes: Any) -> TableWorld:
    shape = Shape(**{**vars(SHAPE), **changes})
    return TableWorld(random_table(shape, seed))


@pytest.fixture(scope="module")
def world() -> TableWorld:
    return world_for(2)


@pytest.fixture(scope="module")
def result(world: TableWorld) -> ExactResult:
    return solve(world, PARAMS)


def every_number(result: ExactResult) -> list[np.ndarray]:
    """All values and policies, state by state."""
    found = []
    for time in result.times:
        for number in result.reachable(time):
            values = result.at(int(number), time)
            found += [values.V_m, values.V_e, values.Q_r, values.pi_r, values.pi_h]
            found.append(np.array([values.V_r, *values.X_h.values()]))
    return found


def assert_same(first: ExactResult, other: ExactResult) -> None:
    for mine, theirs in zip(every_number(first), every_number(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


# Queries.


def test_states_are_found_by_row_tuple_or_number(result: ExactResult) -> None:
    for number, row in enumerate(result.graph.states):
        assert result.index(tuple(row.tolist())) == number
        assert result.index(torch.from_numpy(row)) == number
        assert result.index(number) == number


def test_a_state_that_cannot_be_reached_is_refused_by_row(result: ExactResult) -> None:
    with pytest.raises(WorldError, match=r"cannot reach.*\[7, 7\]"):
        result.at((7, 7))


def test_states_are_numbered_as_they_are_discovered(world: TableWorld, result: ExactResult) -> None:
    assert tuple(result.graph.states[0].tolist()) == tuple(world.initial_state().tolist())
    for time in range(4):
        before = [result.reachable(t).max() for t in range(time + 1)]
        assert result.graph.within(time) >= max(before) + 1


def test_reachable_states_are_those_that_a_walk_can_be_in(
    world: TableWorld, result: ExactResult
) -> None:
    moments = unrolled(world)
    for time in range(5):
        expected = {state for t, state in moments if t == time}
        rows = result.graph.states[result.reachable(time)]
        assert {tuple(row) for row in rows.tolist()} == expected


def test_robot_policies_of_all_states_at_once_equal_those_of_each(result: ExactResult) -> None:
    policies = result.robot_policy(1)
    for number in result.reachable(1):
        if not result.at(int(number), 1).terminal:
            np.testing.assert_array_equal(policies[number], result.at(int(number), 1).pi_r)


def test_the_summary_is_json_with_everything_about_the_start(result: ExactResult) -> None:
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    root, values = summary["root"], result.at(0)
    assert summary["algorithm"] == "exact"
    assert root["V_r"] == values.V_r
    assert root["U_r"] == values.U_r
    assert root["robot_policy"] == values.pi_r.tolist()
    assert {int(h): x for h, x in root["X_h"].items()} == values.X_h
    goals = result.spec.goals
    assert [(g["human"], g["goal"], g["weight"]) for g in root["goals"]] == [
        (goal.human, goal.name, goal.weight) for goal in goals
    ]
    assert [g["V_e"] for g in root["goals"]] == values.V_e.tolist()
    counts = [summary["graph"][f"unrolled_{k}"] for k in ("states", "terminal", "edges")]
    assert tuple(counts) == sizes(world_for(2))


# What is kept.


def test_whatever_is_kept_the_start_has_the_same_values(
    world: TableWorld, result: ExactResult, tmp_path: Path
) -> None:
    disk = solve(world, PARAMS.model_copy(update={"keep": "disk"}), directory=tmp_path)
    start = solve(world, PARAMS.model_copy(update={"keep": "none"}))
    assert_same(disk, result)
    assert start.at(0).V_r == result.at(0).V_r
    np.testing.assert_array_equal(start.at(0).pi_r, result.at(0).pi_r)
    np.testing.assert_array_equal(start.at(0).pi_h, result.at(0).pi_h)


def test_values_that_were_not_kept_are_refused(world: TableWorld) -> None:
    start = solve(world, PARAMS.model_copy(update={"keep": "none"}))
    with pytest.raises(SolveError, match=r"not kept.*keep: all"):
        start.at(int(start.reachable(2)[0]), 2)


def test_an_interrupted_run_goes_on_from_its_files(
    world: TableWorld, result: ExactResult, tmp_path: Path
) -> None:
    params = PARAMS.model_copy(update={"keep": "disk"})
    solve(world, params, directory=tmp_path)
    # The run got as far as time 2 when it was interrupted in the middle of writing time 1.
    shutil.rmtree(tmp_path / "t00000")
    next((tmp_path / "t00001").glob("*.npy")).unlink()
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "t00002").iterdir()}
    assert_same(solve(world, params, directory=tmp_path, resume=True), result)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


@pytest.mark.parametrize("between", [False, True], ids=["after the line", "before the line"])
def test_the_log_has_one_line_per_saved_level_wherever_a_run_is_stopped(
    world: TableWorld, result: ExactResult, tmp_path: Path, between: bool
) -> None:
    class Lines(Tracker):
        """Keeps lines as files do, and is stopped at one of them."""

        def __init__(self) -> None:
            self.lines: list[tuple[int, float]] = []
            self.first: float | None = None
            self.stops = True

        def log(self, step: int, metrics: Mapping[str, Any]) -> None:
            if not (self.stops and between and step == 2):
                self.lines.append((step, metrics["exact/v_r"]))
            if self.stops and step == 2:
                raise KeyboardInterrupt

        def truncate(self, step: int) -> None:
            self.lines = [line for line in self.lines if line[0] <= step]

        def progress(self, task: str, done: float, total: float) -> None:
            if task == "backward induction" and self.first is None:
                self.first = done

    params, tracker = PARAMS.model_copy(update={"keep": "disk"}), Lines()
    with pytest.raises(KeyboardInterrupt):
        solve(world, params, directory=tmp_path, tracker=tracker)
    tracker.stops, tracker.first = False, None
    assert_same(solve(world, params, directory=tmp_path, tracker=tracker, resume=True), result)
    horizon = world.spec.horizon
    assert tracker.lines == [
        (horizon - time, load_arrays(tmp_path / f"t{time:05d}")[0]["v_r"][0])
        for time in range(horizon - 1, -1, -1)
    ]
    assert tracker.first == 2  # The time that is left is estimated from there.


# Files.


@pytest.mark.parametrize("seed", range(3))
def test_a_saved_result_comes_back_bit_for_bit(seed: int, tmp_path: Path) -> None:
    world = world_for(seed, timed=True, horizon=[3, 5, None][seed])
    result = solve(world, PARAMS)
    result.save(tmp_path)
    assert_same(load(tmp_path, world), result)


def test_a_saved_result_remembers_what_the_humans_were_assumed_to_do(
    world: TableWorld, tmp_path: Path
) -> None:
    goals = len(world.spec.goals)

    def beta(states: Tensor) -> Tensor:
        return (states[:, 1:].double() + 300).repeat(1, goals) / 100

    result = solve(world, PARAMS, Assumptions(beta_h=beta))
    assert result.at(0).V_r != solve(world, PARAMS).at(0).V_r
    result.save(tmp_path)
    assert_same(load(tmp_path, world), result)


def test_nothing_is_pickled(result: ExactResult, tmp_path: Path) -> None:
    result.save(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert not path.read_bytes().startswith(b"\x80")
        assert path.suffix not in {".pkl", ".pickle", ".pt"}


def test_a_damaged_file_is_refused(world: TableWorld, result: ExactResult, tmp_path: Path) -> None:
    result.save(tmp_path)
    largest = max((p for p in tmp_path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0xFF
    largest.write_bytes(bytes(content))
    with pytest.raises(StorageError):
        load(tmp_path, world)


def test_the_tables_of_another_world_are_refused(result: ExactResult, tmp_path: Path) -> None:
    result.save(tmp_path)
    with pytest.raises(StorageError, match="belong"):
        load(tmp_path, world_for(7))


# The closed loop.


def closed_loop(world: TableWorld, state: State, values: Values) -> dict[State, float]:
    """Probability of each next state, by the reference's values."""
    spec, following = world.spec, Counter[State]()
    outcomes = world.transitions(torch.tensor([state], dtype=spec.state_dtype))
    offsets = outcomes.offsets.tolist()
    for joint, digits in enumerate(itertools.product(*map(range, reversed(spec.num_actions)))):
        if offsets[joint] == offsets[joint + 1]:
            continue
        actions, weight = digits[::-1], 1.0
        for human in spec.humans:
            goals = spec.goals_of(human)
            total = sum(spec.goals[g].weight for g in goals)
            mixed = sum(spec.goals[g].weight * values.pi_h[g][actions[human]] for g in goals)
            weight *= mixed / total
        weight *= values.pi_r[sum(spec.strides[r] * actions[r] for r in spec.robots)]
        for item in range(offsets[joint], offsets[joint + 1]):
            if p := weight * float(outcomes.prob[item]):
                following[tuple(outcomes.states[item].tolist())] += p
    return following


def test_the_closed_loop_chain_is_that_of_the_reference(
    world: TableWorld, result: ExactResult
) -> None:
    reference, chain = Reference(world, PARAMS.theory), result.chain()
    moments = [(int(t), tuple(row.tolist())) for t, row in zip(chain.time, chain.rows, strict=True)]
    assert moments[chain.initial] == (0, tuple(world.initial_state().tolist()))
    for node, (time, state) in enumerate(moments):
        values = reference.at(state, 4 - time)
        steps = slice(chain.offsets[node], chain.offsets[node + 1])
        found = {
            moments[target]: p
            for target, p in zip(chain.target[steps], chain.prob[steps], strict=True)
        }
        expected = closed_loop(world, state, values) if values.pi_r else {}
        assert found == pytest.approx({(time + 1, s): p for s, p in expected.items()}, rel=1e-11)
        if values.pi_r:
            assert chain.U_r[node] == pytest.approx(values.u_r, rel=1e-12)


@pytest.mark.parametrize("horizon", [5, None])
def test_the_robots_value_is_the_expected_discounted_total_of_its_reward(
    horizon: int | None,
) -> None:
    world = world_for(4, horizon=horizon)
    result = solve(world, with_theory(terminal_value=-2.0))
    chain = result.chain()
    reward = np.where(chain.final, -2.0, chain.U_r)
    total = chain.expected_total(reward, gamma=0.9)
    assert total[chain.initial] == pytest.approx(result.at(0).V_r, rel=1e-12)


@pytest.mark.parametrize("horizon", [5, None])
def test_occupancy_is_the_expected_number_of_visits_in_the_chain(horizon: int | None) -> None:
    result = solve(world_for(4, horizon=horizon), with_theory(terminal_value=-2.0))
    chain = result.chain()
    visits = np.eye(1, chain.num_nodes)[0]
    expected: dict[tuple[int, tuple[int, ...]], float] = {}
    for node in np.flatnonzero(~chain.final):  # Every step leads to a later node.
        steps = slice(chain.offsets[node], chain.offsets[node + 1])
        np.add.at(visits, chain.target[steps], visits[node] * chain.prob[steps])
        left = 1 if horizon is None else horizon - int(chain.time[node])
        key = left, tuple(chain.rows[node].tolist())
        expected[key] = expected.get(key, 0.0) + visits[node]
    found = {
        (left, tuple(state)): visit
        for left, states, there in result.occupancy()
        for state, visit in zip(states.tolist(), there.tolist(), strict=True)
    }
    assert found == pytest.approx(expected, abs=1e-12)
    assert sum(1 for _ in result.occupancy()) == (1 if horizon is None else horizon)


def test_events_may_be_given_as_nodes_or_as_functions_of_states(
    world: TableWorld, result: ExactResult
) -> None:
    chain = result.chain()
    last = result.graph.states[-1]

    def is_last(states: Tensor) -> Tensor:
        return (states == torch.from_numpy(last)).all(-1)

    by_node = chain.event_probability((chain.rows == last).all(-1))
    np.testing.assert_array_equal(chain.event_probability(is_last), by_node)
    assert 0 < by_node[chain.initial] < 1
    # The chance of ever being there is the expected number of first visits.
    first = chain.expected_total(np.zeros(chain.num_nodes))
    assert not first.any()


def test_an_event_of_the_wrong_length_is_refused(result: ExactResult) -> None:
    with pytest.raises(ValueError, match="per node"):
        result.chain().event_probability(np.zeros(3, np.bool_))


# Rollouts.


def test_rollouts_visit_states_as_often_as_the_chain_says(
    world: TableWorld, result: ExactResult
) -> None:
    generator, number, chain = torch.Generator().manual_seed(0), 1500, result.chain()
    ends: Counter[int] = Counter()
    for _ in range(number):
        episode = result.rollout(generator)
        assert episode[0][0] == 0
        assert episode[-1][1] is None
        ends[episode[-1][0]] += 1
    for state in range(result.graph.num_states):
        event = chain.final & (chain.state == state)
        p = float(chain.event_probability(event)[chain.initial])
        assert abs(ends[state] / number - p) <= 4.5 * math.sqrt(p * (1 - p) / number) + 1e-9


def test_rollouts_take_possible_steps_and_repeat_for_a_seed(
    world: TableWorld, result: ExactResult
) -> None:
    first = result.rollout(torch.Generator().manual_seed(5))
    assert first == result.rollout(torch.Generator().manual_seed(5))
    for (state, actions), (following, _) in pairwise(first):
        row = torch.from_numpy(result.graph.states[state])[None]
        found = world.transitions(row, torch.tensor([actions]))
        assert following in [result.index(tuple(r)) for r in found.states.tolist()]


def test_a_human_that_pursues_a_goal_reaches_it_as_often_as_its_value_says() -> None:
    """With gamma_h = 1, V_h^e is the chance of reaching the goal when pursuing it."""
    world = world_for(12)
    result = solve(world, with_theory(gamma_h=1.0))
    values, flags = result.at(0), world.achieved(torch.from_numpy(result.graph.states)).numpy()
    goal = max(range(len(world.spec.goals)), key=lambda g: -abs(values.V_e[g] - 0.5))
    assert 0.05 < values.V_e[goal] < 0.95
    generator, number, reached = torch.Generator().manual_seed(1), 1500, 0
    for _ in range(number):
        episode = result.rollout(generator, {world.spec.goals[goal].human: goal})
        reached += any(flags[state, goal] for state, _ in episode[1:])
    p = float(values.V_e[goal])
    assert abs(reached / number - p) < 4.5 * math.sqrt(p * (1 - p) / number)


def test_a_goal_of_somebody_else_is_refused(result: ExactResult) -> None:
    human = result.spec.humans[0]
    foreign = next(i for i, goal in enumerate(result.spec.goals) if goal.human != human)
    with pytest.raises(SolveError, match="goal"):
        result.rollout(torch.Generator(), {human: foreign})
