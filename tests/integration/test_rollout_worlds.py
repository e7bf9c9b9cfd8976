"""Robots learn from U_r in grid worlds, humans learn to reach goals, and others use the results."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from empo_core.components import build
from empo_core.config import AlgorithmRef, HumanPriorRef, RunConfig, WorldModelRef
from empo_core.errors import ConfigError, StorageError
from empo_core.experiment import Experiment, RunInterrupted
from empo_core.protocols import RunContext, Tracker, WorldModel
from empo_core.random_streams import Stream, seed_of, stream
from empo_core.tracker_group import TrackerGroup
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_learning.evaluation import evaluate_run
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_rollout.world_policies import LearnedRobots
from empo_testing.environment import Player
from empo_theory.parameters import CompleteTheory
from empo_world_environments.params import PowerReward
from empo_world_environments.reward import power_reward
from empo_world_environments.vector import WorldVectorEnv
from empo_worlds.queries import is_terminal

EXAMPLE = Path(__file__).parents[2] / "examples" / "compare_ppo_with_exact.py"
TABLES: dict[str, Any] = {
    "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 10.0}}},
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 40,
    "warm_up": {"v_h_e": 8, "x_h": 4, "u_r": 4, "q_r": 8, "v_r": 4, "ramp": 8},
    "optimiser": {"lr": 0.5},
    "replay": {"batch_size": 16},
    "collector": {"name": "sync", "params": {"min_env_steps": 50}},
    "num_envs": 8,
    "exploration": {"frontier_prob": 0.3},
}


def world_of(name: str, **params: Any) -> WorldModel:
    world: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return world


def executed(runs: Path, world: str, steps: int | None, algorithm: Any) -> Experiment:
    """A run that leaves nothing elsewhere."""
    config = {
        "world_model": {"name": world, "params": {} if steps is None else {"max_steps": steps}},
        "algorithm": algorithm,
        "runs": str(runs),
        "trackers": [],
    }
    return Experiment.start(RunConfig.model_validate(config))


def rollout(total_steps: int, environment: dict[str, Any], **params: Any) -> dict[str, Any]:
    given = {
        "total_steps": total_steps,
        "environment": {"name": "world", "params": environment},
        "num_envs": 128,
        "vectorisation": {"async_factor": 1},
        "experience": {"bptt_horizon": 8},
        "update": {"minibatch_size": 512, "update_epochs": 4},
        "optimiser": {"lr": 2e-3, "lr_schedule": "linear"},
    }
    return {"name": "rollout", "params": given | params}


def context(world: WorldModel, directory: Path) -> RunContext:
    return RunContext(
        world=world, seed=0, directory=directory, tracker=TrackerGroup([]), resume=True
    )


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    """The trivial world, solved."""
    exact = {"name": "exact", "params": {"theory": {"beta_h": 5.0, "gamma_r": 0.9}, "rollouts": 0}}
    return executed(tmp_path_factory.mktemp("runs"), "multigrid/trivial", 5, exact)


def test_a_solved_run_says_u_r_of_every_state(solved: Experiment) -> None:
    world = world_of("multigrid/trivial", max_steps=5)
    power = Exact(ExactParams()).intrinsic_reward(context(world, solved.directory))
    result = solved.result
    for left in (5, 3, 1):
        states = result.reachable_states(left)
        found = power(states, torch.full((len(states),), left))
        expected = [result.at(row.tolist(), 5 - left).U_r for row in states]
        assert found.tolist() == pytest.approx(expected, rel=1e-12)
    rows = torch.cat([result.reachable_states(1), result.reachable_states(4)])
    mixed = power(rows, torch.tensor([1] * (len(rows) - 1) + [4]))
    assert float(mixed[-1]) == pytest.approx(result.at(rows[-1].tolist(), 1).U_r)


def test_a_learned_run_says_u_r_as_it_learned_it(tmp_path: Path) -> None:
    run = executed(tmp_path, "multigrid/trivial", 3, {"name": "phase2", "params": TABLES})
    world = world_of("multigrid/trivial", max_steps=3)
    algorithm = Phase2(Phase2Params.model_validate(TABLES))
    power = algorithm.intrinsic_reward(context(world, run.directory))
    start = world.initial_state()[None]
    found = power(start.repeat(2, 1), torch.tensor([3, 3]))
    assert found.tolist() == pytest.approx([run.summary()["root"]["U_r"]] * 2)
    assert power(start[:0], torch.zeros(0, dtype=torch.int64)).shape == (0,)
    reward = PowerReward(kind="power", run=run.directory, scale=2.0)
    paid = power_reward(reward, world, tmp_path / "power")(start, torch.tensor([3]))
    assert paid.tolist() == pytest.approx([2 * float(found[0])])


def test_a_run_that_learned_nothing_cannot_pay(tmp_path: Path) -> None:
    algorithm = Phase2(Phase2Params.model_validate(TABLES))
    with pytest.raises(StorageError, match="no checkpoint"):
        algorithm.intrinsic_reward(context(world_of("multigrid/trivial", max_steps=3), tmp_path))


def test_another_world_than_that_of_the_run_is_refused(solved: Experiment, tmp_path: Path) -> None:
    reward = PowerReward(kind="power", run=solved.directory)
    with pytest.raises(ConfigError, match=r"horizon.* 5, not 6"):
        power_reward(reward, world_of("multigrid/trivial", max_steps=6), tmp_path)
    with pytest.raises(ConfigError, match=r"name .*'Trivial'"):
        power_reward(reward, world_of("multigrid/two_room"), tmp_path)


@pytest.mark.parametrize("learners", ["robots", "humans"])
@pytest.mark.parametrize(
    "name",
    ["multigrid/two_robots", "multigrid/quiet_zone", "bushworld/two_robots", "table/menu_size"],
)
def test_copies_are_in_states_that_follow_each_other(name: str, learners: Any) -> None:
    world = world_of(name)
    horizon = world.spec.horizon
    vector = WorldVectorEnv(
        world,
        copies=6,
        learners=learners,
        reward=(lambda states, steps_left: -1.0 * steps_left) if learners == "robots" else None,
    )
    vector.start(1)
    player = Player(vector)
    copies = vector.blocks[0]
    for _ in range(12):
        arrival = player.recv()
        rows, left = copies.rows.clone(), copies.left.clone()
        seen = arrival.observation.reshape(6, -1, arrival.observation.shape[1])
        features = world.spec.featurizer(rows).flat()
        assert np.array_equal(seen[:, 0, : features.shape[1]], features.numpy())
        player.answer(arrival)
        found = world.transitions(rows)
        pairs = found.num_pairs // len(rows)
        for copy, (before, after) in enumerate(zip(rows, copies.rows, strict=True)):
            if copies.starts[copy, 0]:
                assert torch.equal(after, world.initial_state())
                assert copies.left[copy] == (horizon or 1)
                continue
            first, last = found.offsets[copy * pairs], found.offsets[(copy + 1) * pairs]
            assert (found.states[first:last] == after).all(1).any(), before
            assert horizon is None or copies.left[copy] == left[copy] - 1
        assert not is_terminal(world, copies.rows).any()


def test_a_picture_comes_first() -> None:
    world = world_of("multigrid/trivial")
    vector = WorldVectorEnv(world, copies=2, reward=lambda states, steps_left: -1.0 * steps_left)
    vector.start(0)
    grid = vector.spec.observations.grid
    assert grid == (40, 4, 6)
    picture = vector.recv().observation[0, : 40 * 4 * 6].reshape(grid)
    expected = world.spec.featurizer(world.initial_state()[None]).grid[0]
    assert np.array_equal(picture, expected.numpy())


@pytest.fixture(scope="module")
def judge() -> Any:
    """The class that evaluates robot policies in the example."""
    return runpy.run_path(str(EXAMPLE))["Judge"]


def test_the_example_judges_the_solver_as_the_solver_does(judge: Any) -> None:
    from empo_exact.policies import SolvedRobots

    world = world_of("multigrid/trivial", max_steps=5)
    solution = solve(world, ExactParams(theory=CompleteTheory(beta_r=3.0, gamma_r=0.9, zeta=2.0)))
    value, _ = judge(world, solution)(SolvedRobots(solution).policy)
    start = solution.at(0)
    # V_r counts the U_r of the first state as well, and discounts what follows once more.
    assert value == pytest.approx((start.V_r - start.U_r) / 0.9, rel=1e-8)


@pytest.mark.slow
def test_ppo_nears_the_best_there_is(judge: Any, tmp_path: Path) -> None:
    exact = {"theory": {"beta_h": 5.0, "gamma_r": 0.95, "beta_r": 5.0}, "rollouts": 0}
    learner = rollout(
        25_000,
        {
            "reward": {"kind": "power", "algorithm": {"name": "exact", "params": exact}},
            "human_prior": {"name": "exact", "params": {"theory": {"beta_h": 5.0}}},
            "goal_resample_prob": 1.0,
        },
        gamma=0.95,
    )
    run = executed(tmp_path, "multigrid/trivial", 6, learner)
    world = world_of("multigrid/trivial", max_steps=6)
    judged = judge(world, solve(world, ExactParams.model_validate(exact)))
    best, _ = judged(None)
    even = torch.full((1, 4), 0.25, dtype=torch.float64)
    random, _ = judged(lambda states, steps_left: even.expand(len(states), -1))
    value, _ = judged(LearnedRobots(world, run.result.policy).policy)
    assert random < value <= best
    assert (value - random) / (best - random) > 0.8
    # And it can be played.
    evaluation = evaluate_run(run.directory, episodes=20, gifs=0).evaluation
    assert len(evaluation.goals) == 6


class InterruptAt(Tracker):
    """Stops a run after so many logs, as Ctrl-C does."""

    def __init__(self, logs: int) -> None:
        self.left = logs

    def start(self, directory: Path, config: Any) -> None: ...
    def progress(self, task: str, done: float, total: float) -> None: ...
    def finish(self, status: str) -> None: ...

    def log(self, step: int, metrics: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def test_a_resumed_run_in_a_world_goes_on_exactly(tmp_path: Path) -> None:
    learner = rollout(
        800,
        {
            "reward": {"kind": "power", "algorithm": {"name": "exact", "params": {"rollouts": 0}}},
            "human_prior": "path-heuristic",
            "goal_resample_prob": 0.3,
        },
        num_envs=20,
        vectorisation={"async_factor": 1, "desync": True},
        update={"minibatch_size": 80},
    )
    config = {
        "world_model": {"name": "multigrid/trivial", "params": {"max_steps": 5}},
        "algorithm": learner,
        "runs": str(tmp_path),
        "trackers": [],
    }
    whole = Experiment.start(RunConfig.model_validate(config)).result
    with pytest.raises(RunInterrupted) as caught:
        Experiment.start(RunConfig.model_validate(config), watchers=[InterruptAt(2)])
    resumed = Experiment.resume(caught.value.directory).result
    assert resumed.reasons == whole.reasons
    for name, tensor in whole.policy.state_dict().items():
        assert torch.equal(resumed.policy.state_dict()[name], tensor), name


@pytest.mark.slow
def test_humans_learn_to_reach_goals_and_are_a_prior_for_others(tmp_path: Path) -> None:
    learner = rollout(30_000, {"learners": "humans", "reward": {"kind": "goal"}})
    run = executed(tmp_path, "multigrid/two_room", 6, learner)
    world = world_of("multigrid/two_room", max_steps=6)
    reference = {"name": "goal-ppo", "params": {"file": str(run.directory), "exploration": 0.1}}
    prior = build(HumanPriorRef.model_validate(reference), world)
    start = world.initial_state()[None]
    # The human stands at (1,1) and looks east: it walks straight on to (2,1), its second goal.
    forward = list(world.spec.agents[0].actions).index("forward")
    goal = [goal.name for goal in world.spec.goals].index("(2,1)")
    assert float(prior.policy(start, torch.full((len(start),), 6))[0, goal, forward]) > 0.7
    exact = AlgorithmRef.model_validate(
        {"name": "exact", "params": {"human_prior": reference, "rollouts": 0}}
    )
    result = executed(tmp_path, "multigrid/two_room", 6, exact).result
    assert result.at(0).pi_h[goal, forward] == pytest.approx(
        float(prior.policy(start, torch.full((len(start),), 6))[0, goal, forward]), abs=1e-5
    )
    # Humans are asked for their returns: 1 for a goal that is reached.
    last = run.result.evaluations[-1].returns
    seed = seed_of(stream(0, Stream.EVALUATION, run.result.iterations))
    (found,) = evaluate_run(run.directory, episodes=100, seed=seed).evaluation.groups
    assert found.episodes == last.episodes
    assert found.mean_return == pytest.approx(last.mean_return)
    assert set(found.ends) == {"goal", "horizon"}
