"""However a world is solved, kept and asked about, the fair objective gives the same numbers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fair_worlds import fair_params, fair_world

from empo_core.errors import ConfigError, SolveError
from empo_core.protocols import RunContext
from empo_core.tracker_group import TrackerGroup
from empo_exact.algorithm import Exact
from empo_exact.plugin import ExactParams, PriorParams
from empo_exact.prior import ExactPrior
from empo_exact.result import ExactResult, load
from empo_exact.solve import solve
from empo_theory.bits import aggregate_power
from empo_theory.equations import robot_reward

WAYS: dict[str, dict[str, Any]] = {
    "two threads": {"compute": {"workers": 2}},
    "three parts": {"compute": {"workers": 1, "parts": 3}, "keep": "none"},
    "parts merged": {"compute": {"workers": 1, "parts": 2}, "keep": "all"},
    "lumped": {"reduce": ["lump"], "keep": "all"},
    "lumped, start only": {"reduce": ["lump"], "keep": "none"},
}


def numbers(result: ExactResult) -> list[np.ndarray]:
    start = result.at_start()
    return [start.norms, start.pi_r, start.V_e, start.V_m, np.array(list(start.X_h.values()))]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("world", "set_name"),
    [("press", "G"), ("gate", "C"), ("pair", "D"), ("lottery", "D"), ("lottery", "G")],
)
def test_threads_parts_and_reductions_change_nothing(way: str, world: str, set_name: str) -> None:
    plain = solve(fair_world(world), fair_params(set_name))
    other = solve(fair_world(world), fair_params(set_name, **WAYS[way]))
    for one, two in zip(numbers(plain), numbers(other), strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-13)


@pytest.mark.parametrize("keep", ["all", "disk"])
@pytest.mark.parametrize(
    ("world", "set_name"), [("backstop", "F"), ("lottery", "F"), ("press", "G"), ("door", "A")]
)
def test_results_are_loaded_and_resumed_as_they_were(
    tmp_path: Path, keep: str, world: str, set_name: str
) -> None:
    params = fair_params(set_name, keep=keep)
    solved = solve(fair_world(world), params, directory=tmp_path / "values")
    solved.save(tmp_path / "results")
    loaded = load(tmp_path / "results", fair_world(world))
    resumed = solve(fair_world(world), params, directory=tmp_path / "values", resume=True)
    for other in (loaded, resumed):
        for one, two in zip(numbers(solved), numbers(other), strict=True):
            np.testing.assert_array_equal(one, two)
    if solved.failed is not None:
        assert loaded.failed is not None
        np.testing.assert_array_equal(loaded.failed.at(0).V_e, solved.failed.at(0).V_e)


def test_files_of_the_usual_objective_are_as_before(tmp_path: Path) -> None:
    arrival = fair_params("A", keep="all")
    paper = ExactParams.model_validate(
        {"preset": "paper", "compute": arrival.compute, "keep": "all"}
    )
    assert arrival.theory == paper.theory
    files = []
    for name, params in (("arrival", arrival), ("paper", paper)):
        solve(fair_world("gate"), params).save(tmp_path / name)
        tables = sorted((tmp_path / name / "tables").glob("*.npy"))
        files.append({path.name: path.read_bytes() for path in tables})
    assert files[0] == files[1]
    assert not [name for name in files[0] if "norms" in name or "failed" in name]


@pytest.mark.parametrize("robot_model", ["pessimistic", "even"])
def test_phase_1_as_a_prior_counts_presence_too(robot_model: str) -> None:
    theory = {"counting": "presence", "robot_model": robot_model, "beta_h": 4.0, "gamma_h": 0.8}
    world = fair_world("gate")
    solved = solve(world, ExactParams.model_validate({"theory": theory, "keep": "all"}))
    prior = ExactPrior(PriorParams.model_validate({"theory": theory}), world)
    rows = solved.reachable_states(2)
    policy = prior.policy(rows, torch.full((len(rows),), 2))
    expected = solved.policies_of(rows, 2, lambda policies: policies.pi_h)
    np.testing.assert_allclose(policy.numpy(), expected, rtol=1e-12)
    given = solve(
        world,
        ExactParams.model_validate(
            {
                "theory": {**theory, "beta_h": 10.0, "robot_model": "pessimistic"},
                "human_prior": {"name": "exact", "params": {"theory": theory}},
            }
        ),
    )
    assert given.at(0).V_e == pytest.approx(solved.at(0).V_e, rel=1e-12)


def test_robots_that_fail_at_once_act_once_and_never_again() -> None:
    result = solve(fair_world("pair"), fair_params("B", defunct={"rate": 1.0}, keep="all"))
    generator = torch.Generator().manual_seed(0)
    (robot,) = result.spec.robots
    first, later = set(), set()
    for _ in range(40):
        actions = [joint for _, joint in result.rollout(generator) if joint is not None]
        first.add(actions[0][robot])
        later |= {joint[robot] for joint in actions[1:]}
    assert len(first) > 1
    assert later == {0}
    visits = sum(float(mass.sum()) for _, _, mass in result.occupancy())
    assert visits == pytest.approx(1.0)  # Of robots that work, in the first step alone.


def test_a_named_null_action_is_what_failed_robots_do() -> None:
    changes = {"defunct": {"rate": 0.5, "null_action": "help_ben"}}
    helped = solve(fair_world("pair"), fair_params("B", **changes))
    idle = solve(fair_world("pair"), fair_params("B", defunct={"rate": 0.5}))
    assert helped.failed is not None
    assert helped.failed.spec.agents[2].actions == ("help_ben",)
    ann, ben = (helped.at(0).X_h[human] / idle.at(0).X_h[human] for human in (0, 1))
    assert ben > 1 > ann


def test_power_that_does_not_count_is_shown_and_not_maximised() -> None:
    both = solve(fair_world("pair"), fair_params("B")).at(0)
    for name in ("ann", "ben"):
        result = solve(fair_world("pair"), fair_params("B", counts=[name]))
        start = result.at(0)
        (mine,) = (h for h in result.spec.humans if result.spec.agents[h].name == name)
        eta = result.params.theory.eta
        assert -start.U_r == pytest.approx(start.X_h[mine] ** -eta, rel=1e-12)
        assert len(start.X_h) == 2
        assert start.pi_r != pytest.approx(both.pi_r, abs=1e-3)


@pytest.mark.parametrize("set_name", ["B", "E", "F"])
def test_what_is_a_sum_of_rewards_for_the_usual_objective_only_is_refused(
    tmp_path: Path, set_name: str
) -> None:
    params = fair_params(set_name)
    context = RunContext(
        world=fair_world("pair"), seed=0, directory=tmp_path, tracker=TrackerGroup([]), resume=False
    )
    with pytest.raises(ConfigError, match=r"counting|rho|defunct"):
        Exact(params).intrinsic_reward(context)
    if set_name == "F":
        with pytest.raises(SolveError, match="defunct"):
            solve(fair_world("pair"), params).chain()


@pytest.mark.parametrize("xi", [0.5, 1.0, 2.0])
def test_power_that_moves_from_a_stronger_to_a_weaker_human_raises_that_of_all(xi: float) -> None:
    def power_of(*bits: float) -> float:
        x = 2.0 ** torch.tensor(bits, dtype=torch.float64)
        return aggregate_power(float(robot_reward(x, xi, 1.3, "sum")), 1.3)

    for low, high, moved in itertools.product((0.0, 0.7), (1.5, 3.0), (0.1, 0.3)):
        assert power_of(low + moved, high - moved, 1.0) > power_of(low, high, 1.0)
    # Losing one human's only bit is not made up for by others, if they are few enough.
    for others in range(1, int(2**xi)):
        assert power_of(0.0, *[30.0] * others) <= power_of(1.0, *[1.0] * others)
