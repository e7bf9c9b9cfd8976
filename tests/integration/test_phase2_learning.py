"""Learned values match those that ``exact`` computes, within the promised bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.experiment import seed_everything
from empo_phase2.algorithm import Phase2
from empo_phase2.params import Phase2Params
from empo_testing.algorithm import fresh

WORLDS = {
    "trivial": 5,
    "small_trolley": 3,  # This and the next have two humans.
    "asymmetric_freeing_simple": 3,
}
TABLES: dict[str, Any] = {
    "values": {"q_r": "lookup", "v_h_e": "lookup"},
    "total_steps": 1000,
    "warm_up": {"v_h_e": 100, "q_r": 100, "ramp": 100},
    "optimiser": {"lr": 1.0, "target_interval": 5},
    "collector": {"name": "sync", "params": {"min_env_steps": 3000}},
}
NETWORKS: dict[str, Any] = {
    "values": {"q_r": "mlp", "v_h_e": "mlp"},
    "total_steps": 4000,
    "warm_up": {"v_h_e": 500, "q_r": 500, "ramp": 500},
    "optimiser": {"lr": 3e-3, "lr_schedule": "linear", "lr_constant_fraction": 0.4}
    | {"target_interval": 50},
    "replay": {"phase_out_warm_up": False},
}


def gap(
    world: str, learner: dict[str, Any], seed: int, directory: Path, horizon: int | None = None
) -> dict[str, float]:
    """The last comparison of a run with the exact solution."""
    human_prior = {"name": "exact", "params": {"theory": {"beta_h": 10.0}}}
    params = {"max_steps": horizon or WORLDS[world]}
    reference = {"name": f"multigrid/{world}", "params": params}
    return gap_of(reference, learner | {"human_prior": human_prior}, seed, directory)


def gap_of(
    world: str | dict[str, Any], learner: dict[str, Any], seed: int, directory: Path
) -> dict[str, float]:
    """The same for any world and human prior."""
    reporting = {"compare": "exact", "evaluation_interval": 0}
    setting = Phase2Params.model_validate(learner | {"reporting": reporting})
    context = fresh(build(WorldModelRef.model_validate(world)), directory)
    context.seed = seed
    seed_everything(seed)
    return Phase2(setting).run(context).gap


def check(gap: dict[str, float], at_start: float, on_average: float) -> None:
    assert gap["Compare/V_r_root_rel"] < at_start
    assert gap["Compare/V_r_mean_rel"] < on_average
    assert gap["Compare/pi_r_root_tv"] < 0.02


def test_tables_learn_what_exact_computes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check(gap("trivial", TABLES, 0, tmp_path), at_start=0.01, on_average=0.03)
    assert "off its targets" not in caplog.text


@pytest.mark.slow
def test_a_run_that_learned_too_little_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    slow = TABLES | {"total_steps": 400, "optimiser": {"lr": 0.001, "target_interval": 5}}
    assert gap("trivial", slow, 0, tmp_path)["Compare/V_r_root_rel"] > 0.5
    assert "q_r is still off its targets by" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("world", WORLDS)
def test_tables_learn_it_in_every_world_from_every_seed(
    world: str, seed: int, tmp_path: Path
) -> None:
    check(gap(world, TABLES, seed, tmp_path), at_start=0.01, on_average=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("world", WORLDS)
def test_networks_learn_it_in_every_world_from_every_seed(
    world: str, seed: int, tmp_path: Path
) -> None:
    check(gap(world, NETWORKS, seed, tmp_path), at_start=0.05, on_average=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", ["trivial", "two_room", "free_the_human", "key_and_door"])
@pytest.mark.parametrize("network", ["lookup", "mlp"])
def test_a_value_network_needs_no_tuning(
    network: str, world: str, seed: int, tmp_path: Path
) -> None:
    """A config of a world, the algorithm and one value network ends within 1 % at the start."""
    learner = {"values": {"q_r": network, "v_h_e": network}}
    found = gap_of(f"multigrid/{world}", learner, seed, tmp_path)
    assert found["Compare/V_r_root_rel"] < 0.01


@pytest.mark.slow
def test_v_r_can_be_learned_instead_of_q_r(tmp_path: Path) -> None:
    values = {"q_r": None, "v_r": "lookup", "v_h_e": "lookup"}
    warm_up = {"v_h_e": 100, "v_r": 100, "ramp": 100}
    learner = TABLES | {"values": values, "warm_up": warm_up}
    check(gap("trivial", learner, 1, tmp_path), at_start=0.01, on_average=0.03)


@pytest.mark.slow
def test_everything_can_be_learned_at_once(tmp_path: Path) -> None:
    values = dict.fromkeys(("q_r", "v_h_e", "x_h", "u_r", "v_r"), "lookup")
    warm_up = dict.fromkeys(("q_r", "v_h_e", "x_h", "u_r", "v_r", "ramp"), 80)
    learner = TABLES | {"values": values, "warm_up": warm_up}
    check(gap("trivial", learner, 2, tmp_path), at_start=0.01, on_average=0.03)


@pytest.mark.slow
def test_sampled_humans_lead_to_the_same_values(tmp_path: Path) -> None:
    learner = TABLES | {
        "total_steps": 9000,
        "warm_up": {"v_h_e": 2500, "q_r": 500, "ramp": 500},
        "optimiser": {"lr": 0.3, "target_interval": 5},
        "targets": {"max_pairs": 1},
    }
    check(gap("trivial", learner, 0, tmp_path, horizon=3), at_start=0.02, on_average=0.05)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("learner", "tolerance"), [(TABLES, 1e-4), (NETWORKS, 0.01)])
def test_the_values_of_a_small_kitchen_are_learned(
    learner: dict[str, Any], tolerance: float, tmp_path: Path
) -> None:
    """The cooks cannot pass each other, and the dishes are on the robot's side."""
    params = {"layout": ["XXPXX", "O1 2O", "XDXSX"], "onions": 1, "cook_time": 3}
    params |= {"counter_items": 1, "soups": 1, "max_steps": 6}
    planner = learner | {"human_prior": "kitchen-planner"}
    found = gap_of({"name": "overcooked", "params": params}, planner, 0, tmp_path)
    assert found["Compare/coverage"] == 1
    assert found["Compare/V_h_e_mean_abs"] < tolerance
    check(found, at_start=tolerance, on_average=tolerance)
