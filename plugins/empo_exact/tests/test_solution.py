"""A solved world as a solution to compare with, and as policies to play."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_games import Shape, TableWorld, random_table

from empo_core.errors import SolveError, StorageError, WorldError
from empo_core.protocols import HumanPrior, RobotPolicy, RunContext
from empo_core.tracker_group import TrackerGroup
from empo_core.world_content import world_digest
from empo_exact import induction, solution
from empo_exact.algorithm import Exact
from empo_exact.chain import marginals
from empo_exact.plugin import Compute, ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_theory.parameters import CompleteTheory
from empo_theory.solved_world import SolvedWorld

SHAPE = Shape(9, ("robot", "human", "human", "robot"), (2, 3, 2, 2), 4, timed=False, masked=True)
PARAMS = ExactParams(
    theory=CompleteTheory(beta_h=5.0, beta_r=3.0, gamma_r=0.9, zeta=2.0, eta=1.1),
    compute=Compute(workers=1),
)


@pytest.fixture(scope="module")
def world() -> TableWorld:
    return TableWorld(random_table(SHAPE, 2))


@pytest.fixture(scope="module")
def result(world: TableWorld) -> ExactResult:
    return solve(world, PARAMS)


def test_an_exact_result_is_a_solution(result: ExactResult) -> None:
    assert isinstance(result, SolvedWorld)


@pytest.mark.parametrize("steps_left", [4, 3, 2, 1])
def test_batches_say_what_single_states_say(result: ExactResult, steps_left: int) -> None:
    time = 4 - steps_left
    rows = result.reachable_states(steps_left)
    assert len(rows)
    values = result.robot_values(rows, steps_left)
    policies = result.robot_policies(rows, steps_left)
    goals = result.goal_values(rows, steps_left)
    for i, row in enumerate(rows):
        single = result.at(row, time)
        # The same equations, but sums over other lanes of the processor.
        np.testing.assert_allclose(values[i], single.V_r, rtol=1e-13)
        np.testing.assert_allclose(policies[i], single.pi_r, rtol=1e-12)
        np.testing.assert_allclose(goals[i], single.V_e, rtol=1e-13)


@pytest.mark.parametrize("steps_left", [4, 3, 2, 1])
def test_reachable_states_go_on_and_are_sorted(result: ExactResult, steps_left: int) -> None:
    time = 4 - steps_left
    rows = [tuple(row) for row in result.reachable_states(steps_left).tolist()]
    assert rows == sorted(set(rows))
    alive = {
        tuple(result.graph.states[number].tolist())
        for number in result.reachable(time)
        if not result.at(int(number), time).terminal
    }
    assert set(rows) == alive


@pytest.mark.parametrize("time", range(4))
def test_mean_policies_average_those_over_goals(result: ExactResult, time: int) -> None:
    numbers = np.flatnonzero(result.alive(result.reachable(time), time))
    states = result.reachable(time)[numbers]
    means, policies = result.mean_policies(time, states), result.policies(time, states)
    np.testing.assert_allclose(means.pi_r, policies.pi_r, rtol=1e-12)
    np.testing.assert_allclose(means.u_r, policies.u_r, rtol=1e-12)
    np.testing.assert_allclose(means.humans, marginals(result, policies.pi_h), rtol=1e-12)


def test_remembered_policies_are_those_of_the_states(world: TableWorld) -> None:
    result = solve(world, PARAMS)
    states = result.reachable(1)[result.alive(result.reachable(1), 1)]
    first = result.mean_policies(1, states)
    assert len(states) > 2
    for chosen in (states[1:], states[::2], states[:1]):
        again = result.mean_policies(1, chosen)
        place = np.searchsorted(states, chosen)
        np.testing.assert_array_equal(again.pi_r, first.pi_r[place])
        np.testing.assert_array_equal(again.humans, first.humans[:, place])
        np.testing.assert_array_equal(again.u_r, first.u_r[place])


def test_what_there_is_no_room_to_remember_is_worked_out_again(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solution, "REMEMBERED", 1)
    result = solve(world, PARAMS)
    again = solve(world, PARAMS)
    for time in (1, 2, 1):
        states = result.reachable(time)[result.alive(result.reachable(time), time)]
        means, policies = result.mean_policies(time, states), again.policies(time, states)
        np.testing.assert_allclose(means.pi_r, policies.pi_r, rtol=1e-12)


def test_room_to_remember_counts_numbers_and_not_states(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = solve(world, PARAMS)
    times = {
        time: result.reachable(time)[result.alive(result.reachable(time), time)] for time in (1, 2)
    }
    sizes = [
        sum(part.size for part in result.mean_policies(time, states))
        for time, states in times.items()
    ]
    assert min(sizes) > sum(map(len, times.values()))
    for room, expected in ((sum(sizes), {1, 2}), (sum(sizes) - 1, {2})):
        monkeypatch.setattr(solution, "REMEMBERED", room)
        result = solve(world, PARAMS)
        for time, states in times.items():
            result.mean_policies(time, states)
        assert set(result._means) == expected


def test_policies_that_a_solve_remembers_are_those_that_would_be_worked_out_again(
    world: TableWorld, result: ExactResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembering = solve(world, PARAMS, remembers=True)
    alive = {time: result.reachable(time) for time in range(4)}
    alive = {time: numbers[result.alive(numbers, time)] for time, numbers in alive.items()}
    expected = {time: result.mean_policies(time, numbers) for time, numbers in alive.items()}
    monkeypatch.setattr(solution, "sweep_block", lambda *_: pytest.fail("worked out again"))
    for time, means in expected.items():
        for part, again in zip(means, remembering.mean_policies(time, alive[time]), strict=True):
            np.testing.assert_array_equal(part, again)


def test_worlds_that_only_samples_tell_apart_are_explored_each(tmp_path: Path) -> None:
    """A chance that differs by less than digests of such worlds heed must count all the same."""
    table = random_table(Shape(6, ("robot", "human"), (2, 2), 3, timed=False, masked=False), 1)
    profile, items = next((p, i) for p, i in table.outcomes[0].items() if len(i) > 1)
    (first, to, duration), (second, *rest), *others = items
    nearly = (first - 1e-7, to, duration), (second + 1e-7, *rest), *others
    other = replace(table, outcomes=({**table.outcomes[0], profile: nearly}, *table.outcomes[1:]))
    worlds, results = [TableWorld(table), TableWorld(other)], []
    assert world_digest(worlds[0]) == world_digest(worlds[1])
    (tmp_path / "results").mkdir()
    (tmp_path / "results/summary.json").write_text("{}")
    for world in worlds:
        context = RunContext(
            world=world, seed=0, directory=tmp_path, tracker=TrackerGroup([]), resume=False
        )
        results.append(Exact(PARAMS).reopen(context))
    for world, result in zip(worlds, results, strict=True):
        assert result.at(0).V_r == solve(world, PARAMS).at(0).V_r
    assert results[0].at(0).V_r != results[1].at(0).V_r


def test_a_solve_remembers_nothing_where_there_is_no_room_for_all_times(
    world: TableWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembering = solve(world, PARAMS, remembers=True)._means
    size = sum(part.size for _, means in remembering.values() for part in means)
    for room, times in ((size, 4), (size - 1, 0)):
        monkeypatch.setattr(induction, "REMEMBERED", room)
        assert len(solve(world, PARAMS, remembers=True)._means) == times


def test_any_order_of_states_is_fine(result: ExactResult) -> None:
    rows = result.reachable_states(1)
    backward = result.robot_policies(rows.flip(0), 1).flip(0)
    assert torch.equal(result.robot_policies(rows, 1), backward)
    assert result.robot_policies(rows[:0], 1).shape == (0, 4)


def test_what_is_not_known_is_refused(result: ExactResult) -> None:
    start = torch.from_numpy(result.graph.states[:1])
    with pytest.raises(WorldError, match="steps_left is 5"):
        result.robot_values(start, 5)
    with pytest.raises(SolveError, match=r"state \[7, 7\] with 2 steps"):
        result.goal_values(torch.full_like(start, 7), 2)
    far = result.reachable_states(1)[-1:]
    if far.tolist() != start.tolist():
        with pytest.raises(SolveError, match="never"):
            result.robot_policies(far, 4)


def test_a_world_without_horizon_has_one_time() -> None:
    table = random_table(Shape(6, ("robot", "human"), (2, 2), None, timed=False, masked=False), 1)
    result = solve(TableWorld(table), PARAMS)
    rows = result.reachable_states(1)
    values = result.robot_values(rows, 1)
    assert values.tolist() == [result.at(row).V_r for row in rows]
    with pytest.raises(WorldError, match="no horizon"):
        result.reachable_states(2)


# Playing.


def context_of(world: TableWorld, directory: Path) -> RunContext:
    return RunContext(
        world=world, seed=0, directory=directory, tracker=TrackerGroup([]), resume=False
    )


def solved_run(world: TableWorld, directory: Path, params: ExactParams) -> RunContext:
    context = context_of(world, directory)
    Exact(params).run(context).save(directory / "results")
    return context


@pytest.mark.parametrize("keep", ["all", "disk"])
def test_a_finished_run_can_be_played(
    world: TableWorld, result: ExactResult, tmp_path: Path, keep: str
) -> None:
    params = PARAMS.model_copy(update={"keep": keep})
    algorithm = Exact(params)
    robots, humans = algorithm.restore(solved_run(world, tmp_path, params))
    assert isinstance(robots, RobotPolicy)
    assert isinstance(humans, HumanPrior)
    rows = {left: result.reachable_states(left) for left in (4, 2, 1)}
    mixed = torch.cat([rows[1], rows[4], rows[2]])
    left = torch.cat([torch.full((len(rows[n]),), n) for n in (1, 4, 2)])
    expected = torch.cat([result.robot_policies(rows[n], n) for n in (1, 4, 2)])
    assert torch.equal(robots.policy(mixed, left), expected)
    for number, states in rows.items():
        for row, policy in zip(
            states, humans.policy(states, torch.full((len(states),), number)), strict=True
        ):
            np.testing.assert_allclose(policy, result.at(row, 4 - number).pi_h, rtol=1e-12)


def test_a_run_without_results_cannot_be_played(world: TableWorld, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"results.*empo resume"):
        Exact(PARAMS).restore(context_of(world, tmp_path))


def test_a_damaged_run_cannot_be_played(world: TableWorld, tmp_path: Path) -> None:
    context = solved_run(world, tmp_path, PARAMS)
    file = tmp_path / "results" / "tables" / "time_0_v_r.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        Exact(PARAMS).restore(context)
