"""Sampled targets lead to the values that ``exact`` computes, whatever is explored."""

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

MODES: dict[str, dict[str, Any]] = {
    "expectations": {},
    "sampled humans": {"targets": {"max_pairs": 1}},
    "no model": {"targets": {"model_based": False}},
}
ALWAYS = [{"name": "epsilon-greedy", "params": {"start": 1.0, "end": 1.0}}]

# Goals 1 in 2 a human can take one of, or stay; what it gets depends on what the robot holds open.
LEVERS = """
{name: levers, horizon: 2, initial: start,
 states: [start, left, right, nothing],
 agents: [{name: ann, role: human, actions: [stay, left, right]},
          {name: bot, role: robot, actions: [open_left, open_right, shut]}],
 transitions: [{state: start, actions: [left, open_left], to: left},
               {state: start, actions: [right, open_right], to: right},
               {state: start, actions: [right, shut], to: {left: 0.5, start: 0.5}},
               {state: start, to: start},
               {state: left, to: left}, {state: right, to: nothing},
               {state: nothing, actions: [left, shut], to: left}, {state: nothing, to: nothing}],
 goals: {ann: [{name: left, states: left, weight: 2.0}, {name: right, states: right},
               {name: still, states: [start, nothing]}]}}
"""


def gap(
    world: str | dict[str, Any], params: dict[str, Any], seed: int, directory: Path
) -> dict[str, float]:
    reporting = {"compare": "exact", "evaluation_interval": 0, "checkpoint_interval": 0}
    setting = Phase2Params.model_validate(
        {"values": {"q_r": "lookup", "v_h_e": "lookup"}, "reporting": reporting} | params
    )
    context = fresh(build(WorldModelRef.model_validate(world)), directory)
    context.seed = seed
    seed_everything(seed)
    found = Phase2(setting).run(context).gap
    return {name.removeprefix("Compare/"): value for name, value in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    MODES,
)
def test_a_small_world_is_learned_though_everybody_explores(mode: str, tmp_path: Path) -> None:
    """Robots and humans act at random to the end, and goals are pursued all episode."""
    (tmp_path / "levers.yaml").write_text(LEVERS)
    world = {"name": "table", "params": {"file": str(tmp_path / "levers.yaml")}}
    params = MODES[mode] | {
        "total_steps": 1200,
        "warm_up": {"v_h_e": 50, "q_r": 50, "ramp": 100},
        "exploration": {"robot": ALWAYS, "human": ALWAYS, "goal_resample_prob": 0.0},
        "replay": {"batch_size": 64},
    }
    found = gap(world, params, 0, tmp_path)
    # 10,000 transitions, from which at most 6 situations learn 9 numbers each; a chance that is
    # estimated from 300 of them is off by 0.03 once or twice.
    sampled = mode != "expectations"
    assert found["V_h_e_max_abs"] < (0.08 if sampled else 1e-6)
    assert found["V_r_root_rel"] < (0.05 if sampled else 1e-6)
    assert found["pi_r_max_tv"] < (0.12 if sampled else 1e-6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("world", ["trivial", "two_room", "free_the_human"])
@pytest.mark.parametrize("mode", MODES)
def test_defaults_converge_to_exact_values(
    mode: str, world: str, seed: int, tmp_path: Path
) -> None:
    """40,000 transitions on defaults: some 20 for each of 2,000 situations, more at the start.

    In free_the_human situations are so many that most are seen a few times or never, and without
    a model 40,000 are too few: the error at the start is 0.47, and 0.14 after four times as many.
    """
    is_large = world == "free_the_human"
    longer = {"total_steps": 20_000} if is_large and mode == "no model" else {}
    found = gap(f"multigrid/{world}", MODES[mode] | longer, seed, tmp_path)
    at_start, policy = {
        "expectations": (0.01, 0.01),
        "sampled humans": (0.1 if is_large else 0.03, 0.05),
        "no model": (0.2 if is_large else 0.08, 0.2 if is_large else 0.1),
    }[mode]
    assert found["V_r_root_rel"] < at_start
    assert found["pi_r_root_tv"] < policy
    if mode == "sampled humans" and not is_large:  # Without a model what is rare is never seen.
        assert found["V_r_mean_rel"] < 0.1
        assert found["pi_r_mean_tv"] < 0.1
