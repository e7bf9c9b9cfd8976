"""The exact solver on multigrid worlds, against numbers of the public implementation.

The per-state tables lie in ``tests/golden``; the root values and graph sizes below were computed
with an independent double-precision solver of the same formulas.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from empo_core.config import WorldModelRef
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve
from empo_multigrid.plugin import MultigridParams
from empo_multigrid.world import MultigridWorld, load_world
from empo_theory.parameters import CompleteTheory

sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/empo_multigrid/tests"))

from public_states import from_reference

GOLDEN = Path(__file__).parents[1] / "golden"
TABLES = sorted(path.stem for path in GOLDEN.glob("micro_*.json"))
SETS: dict[str, dict[str, float]] = {
    "D": {"beta_h": 10.0, "beta_r": 10.0},
    "C": {
        "beta_h": 10.0,
        "gamma_h": 0.95,
        "gamma_r": 0.99,
        "beta_r": 100.0,
        "zeta": 2.0,
        "eta": 1.1,
    },
    "P": {"beta_h": 5.0, "gamma_h": 0.99, "gamma_r": 0.99, "beta_r": 5.0, "zeta": 2.0, "eta": 1.1},
}
NEUTRAL = {"gamma_h": 1.0, "gamma_r": 1.0, "zeta": 1.0, "xi": 1.0, "eta": 1.0}
CONVENTIONS: dict[str, Any] = {"x_agg": "weighted", "u_agg": "mean", "accrual": "continuous"}
SEVENTH = [1 / 7] * 7

# World, T, parameter set, V_r, pi_r, X_h, U_r at the start.
ROOTS: list[tuple[str, int, str, float, list[float], float, float]] = [
    ("trivial", 3, "D", -16.8408996,
     [0.162979] * 3 + [0.511064], 0.181711, -5.50323),
    ("trivial", 3, "C", -19.3871981,
     [1.97747e-5] * 3 + [0.999941], 0.175148, -6.79603),
    ("trivial", 3, "P", -21.0042862,
     [0.234175] * 3 + [0.297476], 0.166899, -7.16639),
    ("trivial", 5, "D", -18.7894432,
     [0.158331, 0.0115835, 0.0115835, 0.818502], 0.324371, -3.08289),
    ("trivial", 5, "C", -20.7010058,
     [3.06079e-7, 5.05275e-19, 5.05275e-19, 1.0], 0.291596, -3.87919),
    ("trivial", 5, "P", -29.0776394,
     [0.180702, 0.121042, 0.121042, 0.577213], 0.195974, -6.00595),
    ("trivial", 10, "D", -27.5510578,
     [0.256817, 0.129419, 0.129419, 0.484344], 0.446276, -2.24077),
    ("simple_circle", 5, "D", -14.9848006,
     [0.247881, 0.285208, 0.285208, 0.181704], 0.581005, -1.72116),
    ("simple_circle", 5, "C", -17.8463773,
     [0.0399966, 0.477534, 0.477534, 0.00493529], 0.450921, -2.40154),
    ("simple_circle", 5, "P", -18.5010234,
     [0.261521, 0.254224, 0.254224, 0.230032], 0.413810, -2.63948),
    ("deactivate_destroy", 4, "D", -32.0000000001,
     SEVENTH, 0.125, -8.0),
    ("deactivate_destroy", 4, "C", -38.6152287,
     SEVENTH, 0.125, -9.84916),
    ("deactivate_destroy", 4, "P", -38.6152287,
     SEVENTH, 0.125, -9.84916),
]  # fmt: skip

# World, T, states, terminal states and distinct state-to-state edges, unrolled in time.
SIZES: list[tuple[str, int, tuple[int, int, int]]] = [
    ("trivial", 2, (45, 32, 138)),
    ("trivial", 3, (92, 47, 453)),
    ("trivial", 5, (243, 87, 1572)),
    ("trivial", 10, (1115, 223, 9117)),
    ("tiny_test", 3, (31, 17, 52)),
    ("simple_circle", 3, (165, 99, 760)),
    ("simple_circle", 5, (692, 326, 4224)),
    ("small_trolley", 3, (220, 112, 3141)),
    ("deactivate_destroy", 3, (70, 40, 333)),
    ("deactivate_destroy", 4, (174, 104, 826)),
    ("deactivate_pause_or_destroy", 4, (345, 199, 1552)),
    ("asymmetric_freeing_simple", 3, (300, 176, 3942)),
    ("two_room", 3, (86, 45, 428)),
    ("two_room", 5, (280, 117, 1759)),
]


def shipped(name: str, max_steps: int) -> MultigridWorld:
    """A shipped world with the public implementation's order of simultaneous moves."""
    params = {"max_steps": max_steps, "simultaneity": "reference"}
    reference = WorldModelRef.model_validate({"name": f"multigrid/{name}", "params": params})
    assert isinstance(reference.params, MultigridParams)
    return load_world(reference.params)


def solved(name: str, max_steps: int, parameters: str) -> ExactResult:
    params = ExactParams(
        theory=CompleteTheory(**{**NEUTRAL, **SETS[parameters], **CONVENTIONS}), count_unrolled=True
    )
    return solve(shipped(name, max_steps), params)


@pytest.mark.parametrize(("name", "steps", "parameters", "v_r", "pi_r", "x_h", "u_r"), ROOTS)
def test_values_at_the_start_equal_the_published_ones(
    name: str,
    steps: int,
    parameters: str,
    v_r: float,
    pi_r: list[float],
    x_h: float,
    u_r: float,
) -> None:
    result = solved(name, steps, parameters)
    root = result.at(result.graph.states[0])
    assert root.V_r == pytest.approx(v_r, rel=1e-5)
    assert list(root.pi_r) == pytest.approx(pi_r, rel=1e-5, abs=0)
    assert [float(root.X_h[h]) for h in result.spec.humans] == pytest.approx([x_h], rel=1e-5)
    assert root.U_r == pytest.approx(u_r, rel=1e-5)


def test_inner_values_of_trivial_equal_the_published_ones() -> None:
    result = solved("trivial", 5, "D")
    root = result.at(result.graph.states[0])
    assert list(root.Q_r) == pytest.approx([-17.7892, -23.1062, -23.1062, -15.0942], rel=1e-5)
    assert list(root.V_e) == pytest.approx([0.795971, 0.150256, 0, 1, 0, 0], rel=1e-5)
    assert list(root.V_m) == [0.0] * 6  # A robot at its worst can always block.


def test_inner_values_of_simple_circle_equal_the_published_ones() -> None:
    result = solved("simple_circle", 5, "D")
    root = result.at(result.graph.states[0])
    v_m = [0, 0.450323, 0.999698, 0, 0, 0, 0.993645]
    assert list(root.V_m) == pytest.approx(v_m, rel=1e-5, abs=0)
    v_e = [0, 0.968774, 0.999698, 0, 1, 0.0987081, 0.999855]
    assert list(root.V_e) == pytest.approx(v_e, rel=1e-5, abs=0)


@pytest.mark.parametrize(("name", "steps", "sizes"), SIZES)
def test_the_unrolled_graph_has_the_published_size(
    name: str, steps: int, sizes: tuple[int, int, int]
) -> None:
    assert tuple(solved(name, steps, "D").unrolled) == sizes


def test_the_best_robot_of_trivial_begins_by_pushing_the_rock_twice() -> None:
    result = solved("trivial", 10, "C")
    world, state = shipped("trivial", 10), result.graph.states[0]
    for time in range(2):
        policy = np.asarray(result.at(state, time=time).pi_r)
        assert result.spec.agents[0].actions[int(policy.argmax())] == "forward"
        # The human stands still meanwhile (agent 1, action 0).
        joint = np.array([[int(policy.argmax()), 0]])
        found = world.transitions(_row(state)[None], _row(joint))
        assert found.states.shape[0] == 1
        state = found.states[0].numpy()


def _row(values: Any) -> Any:
    import torch

    return torch.as_tensor(np.asarray(values))


@pytest.fixture(scope="module", params=TABLES)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A golden table, its world and our solution of it."""
    data = json.loads((GOLDEN / f"{request.param}.json").read_text())
    file = tmp_path_factory.mktemp("golden") / data["world"]
    file.write_text(data["yaml"])
    world = load_world(
        MultigridParams(file=file, max_steps=data["max_steps"], simultaneity="reference")
    )
    given = dict(data["params"])
    terminal_value = given.pop("terminal_Vr")
    params = ExactParams(
        theory=CompleteTheory(**given, **CONVENTIONS, terminal_value=terminal_value),
        keep="all",
        count_unrolled=True,
    )
    return data, world, solve(world, params)


def test_golden_graphs_have_the_right_size(table: Any) -> None:
    data, _, result = table
    expected = (data["n_states"], data["n_terminal"], data["n_state_edges"])
    assert tuple(result.unrolled) == expected
    reachable = [len(result.reachable(t)) for t in range(data["max_steps"] + 1)]
    assert reachable == data["states_per_step"]


def test_golden_values_and_policies_of_the_robot_are_reproduced(table: Any) -> None:
    data, world, result = table
    order = _our_order(data, result)
    for expected in data["states"]:
        found = _at(result, world, expected)
        assert found.V_r == pytest.approx(expected["V_r"], rel=1e-9, abs=0)
        assert bool(found.terminal) == expected["terminal"]
        if expected["terminal"]:
            continue
        assert found.U_r == pytest.approx(expected["U_r"], rel=1e-9, abs=0)
        close(np.asarray(found.Q_r)[order], expected["Q_r"])
        close(np.asarray(found.pi_r)[order], expected["pi_r"])


def test_golden_values_and_policies_of_the_humans_are_reproduced(table: Any) -> None:
    data, world, result = table
    weights = [goal["weight"] for goal in data["goals"]]
    for human in data["human_agent_indices"]:
        goals = list(result.spec.goals_of(human))
        assert [result.spec.goals[g].weight for g in goals] == pytest.approx(weights, rel=1e-12)
        for expected in data["states"]:
            if expected["terminal"]:
                continue
            found, key = _at(result, world, expected), str(human)
            assert float(found.X_h[human]) == pytest.approx(expected["X_h"][key], rel=1e-9, abs=0)
            close(np.asarray(found.V_m)[goals], expected["V_h_m_phase1"][key])
            close(np.asarray(found.V_e)[goals], expected["V_h_e"][key])
            if "pi_h_phase1" not in expected:  # The larger tables leave the policies out.
                continue
            close(np.asarray(found.pi_h)[goals], expected["pi_h_phase1"][key])
            shares = np.array(weights) / sum(weights)
            close(shares @ np.asarray(found.pi_h)[goals], expected["pi_h_marginal"][key])


def close(actual: np.ndarray, expected: Any) -> None:
    """Equal to nine digits, however small; zeros exactly."""
    np.testing.assert_allclose(actual, np.asarray(expected), rtol=1e-9, atol=0)


def _at(result: ExactResult, world: MultigridWorld, expected: dict[str, Any]) -> Any:
    row, steps = from_reference(world, expected["state"]), expected["state"][0]
    return result.at(row, time=steps)


def _our_order(data: dict[str, Any], result: ExactResult) -> list[int]:
    """Our joint index (first robot fastest) of each of the table's joint robot actions."""
    sizes = [result.spec.num_actions[robot] for robot in result.spec.robots]
    order = []
    for profile in data["robot_action_profiles"]:
        index, stride = 0, 1
        for action, size in zip(profile, sizes, strict=True):
            index, stride = index + action * stride, stride * size
        order.append(index)
    return order
