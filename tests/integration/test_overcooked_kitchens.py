"""Small kitchens are solved exactly, and cooks learn to serve soups by self-play.

What ``phase2`` learns of small kitchens is in ``test_phase2_learning``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empo_benchmarks.overcooked.params import KitchenPlannerParams, OvercookedParams
from empo_benchmarks.overcooked.prior import KitchenPlanner
from empo_benchmarks.overcooked.world import OvercookedWorld, load_world
from empo_core.config import RunConfig
from empo_core.experiment import Experiment
from empo_exact.assumptions import Assumptions
from empo_exact.graph import build_graph
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve
from empo_rollout.result import RolloutResult

SMALL = {"onions": 1, "cook_time": 3, "counter_items": 1, "soups": 1}
CORRIDOR = SMALL | {"layout": ["XXPXX", "O1 2O", "XDXSX"]}
"""The cooks cannot pass each other, and the dishes are on the robot's side."""


def kitchen(max_steps: int, **params: Any) -> OvercookedWorld:
    return load_world(OvercookedParams.model_validate(params | {"max_steps": max_steps}))


def start_policy(world: OvercookedWorld) -> dict[str, float]:
    """Probabilities of the robot's actions at the start, beside humans who plan."""
    theory = {"gamma_h": 0.95, "gamma_r": 0.95, "beta_r": 30.0}
    params = ExactParams.model_validate({"preset": "paper", "theory": theory, "keep": "none"})
    prior = KitchenPlanner(KitchenPlannerParams(), world)
    result = solve(world, params, Assumptions(human_prior=prior))
    policy = np.asarray(result.at(world.initial_state(), 0).pi_r).ravel().tolist()
    return dict(zip(world.spec.agents[0].actions, policy, strict=True))


def test_a_robot_in_front_of_the_only_dishes_makes_way() -> None:
    policy = start_policy(kitchen(6, **SMALL))
    assert policy["east"] > 0.7
    assert policy["stay"] < 0.06


@pytest.mark.slow
def test_the_states_of_a_small_kitchen_can_be_counted() -> None:
    world = kitchen(60, **CORRIDOR)
    graph = build_graph(world, None)
    assert graph.num_states == 33_768
    assert graph.num_transitions == 36 * graph.num_states


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_both_cooks_learn_to_serve_soups_by_self_play(tmp_path: Path) -> None:
    """More than 63 is out of reach without them: 3.3 every 21 steps for soups of one onion."""
    learner = {
        "total_steps": 4_000_000,
        "environment": {"name": "overcooked", "params": {"shaping": 0.3}},
        "num_envs": 64,
        "experience": {"bptt_horizon": 100},
        "losses": [{"loss": {"name": "ppo", "params": {"entropy": {"coef": 0.02}}}}],
        "update": {"update_epochs": 4, "minibatch_size": 3200},
        "optimiser": {"lr": 0.001, "lr_schedule": "linear"},
        "reporting": {"evaluation_episodes": 20, "deterministic": False},
    }
    config = {
        "world_model": "overcooked",
        "algorithm": {"name": "rollout", "params": learner},
        "runs": str(tmp_path),
        "trackers": [],
    }
    result = Experiment.start(RunConfig.model_validate(config)).result
    assert isinstance(result, RolloutResult)
    assert result.evaluations[-1].returns.mean_return > 150
