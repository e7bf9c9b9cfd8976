"""Humans who learned to reach their goals, as a human prior."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from empo_core.errors import StorageError
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.protocols.environments import TimeStep
from empo_core.world_content import identity
from empo_learned_humans.goal_ppo import GoalPpo, LearnedHumans
from empo_learned_humans.params import GoalPpoParams
from empo_rollout.params import PolicyParams
from empo_rollout.policy import Networks, PolicyStep, build_policy
from empo_rollout.policyfile import save_policy
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld
from empo_world_environments.vector import WorldVectorEnv

MLP = {"name": "mlp", "params": {"hidden": [8]}}
GRU = {"name": "lstm", "params": {"cell": "gru", "units": 4, "trunk": MLP}}


def untrained(vector: WorldVectorEnv, **options: Any) -> Networks:
    """A policy with opinions, for the copies of a vector."""
    policy = build_policy(
        PolicyParams.model_validate({"network": MLP, **options}),
        vector.spec,
        generator=torch.Generator().manual_seed(1),
    )
    for network in policy.members:
        torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(2))
    return policy


def reward(states: torch.Tensor, steps_left: torch.Tensor) -> torch.Tensor:
    return -1.0 * steps_left


@torch.no_grad()
def acted(policy: Networks, arrival: TimeStep, agents: int) -> PolicyStep:
    """Step of a policy on an arrival from the copies."""
    rows = len(arrival.observation)
    assert arrival.mask is not None
    return policy.step(
        torch.from_numpy(arrival.observation),
        policy.initial_memory(rows),
        torch.from_numpy(arrival.starts),
        torch.arange(rows) % agents,
        torch.from_numpy(arrival.mask),
    )


class TestLearnedHumans(HumanPriorTests):
    @pytest.fixture(params=["shared", "separate"])
    def prior(self, world: WorldModel, request: pytest.FixtureRequest) -> HumanPrior:
        vector = WorldVectorEnv(world, copies=1, learners="humans")
        return LearnedHumans(world, untrained(vector, agents=request.param), 0.1)


def test_the_prior_does_what_the_policy_did_in_the_copies() -> None:
    world = TinyWorld()
    vector = WorldVectorEnv(world, copies=3, learners="humans")
    policy = untrained(vector)
    vector.start(0)
    arrival = vector.recv()
    step = acted(policy, arrival, 2)
    prior = LearnedHumans(world, policy).policy(world.initial_state()[None], torch.tensor([3]))[0]
    for row in range(6):
        human, wanted = row % 2, int(arrival.observation[row, 5:].argmax())
        goal = wanted if human == 0 else 2
        for option in range(3):
            expected = step.distribution.log_prob(torch.full((6, 1), option))[row].exp()
            assert float(prior[goal, option]) == pytest.approx(float(expected), abs=1e-6)


def test_exploration_mixes_in_even_chances() -> None:
    world = TinyWorld()
    policy = untrained(WorldVectorEnv(world, copies=1, learners="humans"))
    states = torch.tensor([[0, 0], [1, 0]], dtype=torch.int16)
    plain, mixed, even = (
        LearnedHumans(world, policy, exploration).policy(states, torch.full((len(states),), 2))
        for exploration in (0.0, 0.25, 1.0)
    )
    torch.testing.assert_close(mixed, 0.75 * plain + 0.25 * even)
    assert even[0, 2].tolist() == pytest.approx([1 / 3] * 3)
    assert even[1, 2].tolist() == [0.5, 0.5, 0.0]


def save_humans(path: Path, **options: Any) -> Path:
    """Write untrained humans of the door into a file."""
    vector = WorldVectorEnv(TinyWorld(), copies=1, learners="humans")
    policy, params = (
        untrained(vector, **options),
        PolicyParams.model_validate({"network": MLP, **options}),
    )
    save_policy(path, policy, params, vector.spec, world=identity(TinyWorld()))
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Humans of the door, on disk."""
    return save_humans(tmp_path / "prior")


class TestGoalPpo(HumanPriorTests):
    @pytest.fixture
    def prior(self, world: WorldModel, saved: Path) -> HumanPrior:
        return GoalPpo(GoalPpoParams(file=saved), world)


def test_humans_on_disk_act_as_those_that_were_saved(saved: Path) -> None:
    world = TinyWorld()
    policy = untrained(WorldVectorEnv(world, copies=1, learners="humans"))
    states = torch.tensor([[0, 0], [1, 0]], dtype=torch.int16)
    kept = GoalPpo(GoalPpoParams(file=saved, exploration=0.5), world).policy(
        states, torch.full((len(states),), 2)
    )
    assert torch.equal(
        kept, LearnedHumans(world, policy, 0.5).policy(states, torch.full((len(states),), 2))
    )


def test_the_directory_of_a_run_stands_for_the_humans_in_it(saved: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "results").mkdir(parents=True)
    (run / "config.yaml").touch()
    vector = WorldVectorEnv(TinyWorld(), copies=1, reward=reward)
    robots = run / "results" / "model.safetensors"
    save_policy(
        robots,
        untrained(vector),
        PolicyParams.model_validate({"network": MLP}),
        vector.spec,
    )
    with pytest.raises(StorageError, match=r"humans.*learners: humans"):
        GoalPpo(GoalPpoParams(file=run), TinyWorld())
    saved.rename(run / "results" / "model.safetensors")
    GoalPpo(GoalPpoParams(file=run), TinyWorld())


def test_humans_of_another_world_are_refused(saved: Path) -> None:
    with pytest.raises(StorageError, match=r"world .*'door'"):
        GoalPpo(GoalPpoParams(file=saved), TinyWorld(4))
    named = TinyWorld()
    named.spec = replace(named.spec, goals=named.spec.goals[::-1])
    with pytest.raises(StorageError, match=r"goals .*\[0, 'open', 1.0"):
        GoalPpo(GoalPpoParams(file=saved), named)


def test_damage_is_found(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes().replace(b"shouter", b"whisper"))
    with pytest.raises(StorageError, match="sha256"):
        GoalPpo(GoalPpoParams(file=saved), TinyWorld())


def test_saved_humans_must_not_remember(tmp_path: Path) -> None:
    saved = save_humans(tmp_path / "prior", network=GRU, critic="shared")
    with pytest.raises(StorageError, match="memory"):
        GoalPpo(GoalPpoParams(file=saved), TinyWorld())
