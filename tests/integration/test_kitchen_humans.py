"""Humans of kitchens who learned by self-play: a prior, and what robots learn beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from empo_benchmarks.overcooked.kitchens import env_spec
from empo_benchmarks.overcooked.params import KitchenPlannerParams, OvercookedParams
from empo_benchmarks.overcooked.prior import KitchenPlanner
from empo_benchmarks.overcooked.world import OvercookedWorld, load_world
from empo_core.config import RunConfig
from empo_core.errors import ConfigError, StorageError
from empo_core.experiment import Experiment
from empo_core.protocols import HumanPrior, WorldModel
from empo_core.runs.directory import RESULTS
from empo_learned_humans.params import SelfPlayParams
from empo_learned_humans.self_play import SelfPlay
from empo_learning.saved_model import MODEL
from empo_rollout.params import PolicyParams
from empo_rollout.policy import build_policy
from empo_rollout.policyfile import load_policy, save_policy
from empo_rollout.world_policies import chances
from empo_testing.human_prior import HumanPriorTests
from empo_testing.worlds import TinyWorld

SMALL: dict[str, Any] = {
    "layout": ["XXPXX", "O1 2O", "XDXSX"], "onions": 1, "cook_time": 1, "counter_items": 1,
    "soups": 1,
}  # fmt: skip
SERVED = "soup 1 served"
HUMAN = 1


def world_of(**params: Any) -> OvercookedWorld:
    return load_world(OvercookedParams.model_validate({**SMALL, "max_steps": 4, **params}))


def params_of(file: Path, **params: Any) -> dict[str, Any]:
    return {"file": str(file), "goals": [SERVED], "others": "kitchen-planner", **params}


def prior_of(world: WorldModel, file: Path, **params: Any) -> SelfPlay:
    return SelfPlay(SelfPlayParams.model_validate(params_of(file, **params)), world)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A policy of both cooks with opinions."""
    spec = env_spec(world_of(), is_alone=False, copies=1, blocks=1)
    params = PolicyParams.model_validate({"network": {"name": "mlp", "params": {"hidden": [8]}}})
    policy = build_policy(params, spec, generator=torch.Generator().manual_seed(1))
    for network in policy.members:
        torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(2))
    save_policy(tmp_path / MODEL, policy, params, spec)
    return tmp_path / MODEL


class TestSelfPlay(HumanPriorTests):
    @pytest.fixture
    def world(self) -> WorldModel:
        return world_of()

    @pytest.fixture
    def states(self, world: OvercookedWorld) -> Tensor:
        return world.transitions(world.initial_state()[None]).states.unique(dim=0)

    @pytest.fixture
    def prior(self, world: WorldModel, file: Path) -> HumanPrior:
        return prior_of(world, file, exploration=0.1)


def test_it_acts_as_learned_for_its_goals_and_as_another_prior_for_all_others(file: Path) -> None:
    world = world_of()
    goal = [each.name for each in world.spec.goals].index(SERVED)
    states = world.transitions(world.initial_state()[None]).states
    states[-1, -1] = 1
    found = prior_of(world, file).policy(states, torch.full((len(states),), 3))
    planned = (
        KitchenPlanner(KitchenPlannerParams(), world)
        .policy(states, torch.full((len(states),), 3))
        .float()
    )
    learned = chances(
        load_policy(file).policy,
        world.views(states)[:, HUMAN],
        torch.ones(len(states), 6, dtype=torch.bool),
        HUMAN,
    ).float()
    assert (found[:-1, goal] == learned[:-1]).all()
    assert (found[-1, goal] == planned[-1, goal]).all(), "a soup is served"
    always = prior_of(world, file, achieved="learned")
    staying = always.policy(states, torch.full((len(states),), 3))
    assert (staying[:, goal] == learned).all(), "where soups are served, too"
    others = [number for number in range(len(world.spec.goals)) if number != goal]
    assert (found[:, others] == planned[:, others]).all()
    mixed = prior_of(world, file, exploration=0.4).policy(states, torch.full((len(states),), 3))
    torch.testing.assert_close(mixed[:-1, goal], 0.4 / 6 + 0.6 * learned[:-1])


def test_it_needs_views_its_goals_and_a_policy_that_fits(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="views"):
        prior_of(TinyWorld(), file)
    with pytest.raises(ConfigError, match=r"human_prior\.params\.goals:"):
        prior_of(world_of(), file, goals=["eat"])
    with pytest.raises(StorageError, match=r"robot, human, .*40 numbers"):
        prior_of(world_of(cook_time=2), file)
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(raw)
    with pytest.raises(StorageError, match="sha256"):
        prior_of(world_of(), damaged)


def run_of(tmp_path: Path, name: str, params: dict[str, Any], max_steps: int | None) -> Path:
    """The directory of a run in the small kitchen."""
    config = {
        "world_model": {"name": "overcooked", "params": {**SMALL, "max_steps": max_steps}},
        "algorithm": {"name": name, "params": params},
        "runs": str(tmp_path),
        "trackers": [],
    }
    return Experiment.start(RunConfig.model_validate(config)).directory


@pytest.mark.slow
def test_robots_learn_for_the_power_of_humans_from_self_play(tmp_path: Path) -> None:
    """Self-play for soups, U_r by ``phase2`` beside that human, PPO that is paid U_r."""
    ppo = {
        "total_steps": 256, "num_envs": 8, "experience": {"bptt_horizon": 8},
        "update": {"minibatch_size": 64},
        "policy": {"network": {"name": "mlp", "params": {"hidden": [8]}}},
        "reporting": {"evaluation_episodes": 0},
    }  # fmt: skip
    both = run_of(tmp_path, "rollout", {**ppo, "environment": "overcooked"}, 20)
    human = {"name": "self-play", "params": params_of(both)}
    learned = run_of(
        tmp_path,
        "phase2",
        {
            "human_prior": human, "values": {"q_r": "mlp", "v_h_e": "mlp"}, "total_steps": 6,
            "num_envs": 8, "warm_up": {"v_h_e": 2, "q_r": 2, "ramp": 2},
            "replay": {"batch_size": 8}, "exploration": {"steps_per_episode": 20},
        },
        None,
    )  # fmt: skip
    environment = {
        "reward": {"kind": "power", "run": str(learned)}, "human_prior": human,
        "goal_resample_prob": 0.01, "steps_per_episode": 20,
    }  # fmt: skip
    paid = {**ppo, "environment": {"name": "world", "params": environment}}
    robot = load_policy(run_of(tmp_path, "rollout", paid, None) / RESULTS / MODEL)
    assert robot.env_spec.agents == ("robot",)
    assert robot.env_spec.observations.words == world_of().spec.featurizer.shape.flat
