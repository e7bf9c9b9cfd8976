"""Learned values of grid worlds, compared with those of the exact solver; and played."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.components import build
from empo_core.config import AggregatorRef, HumanPriorRef, WorldModelRef
from empo_core.errors import StorageError
from empo_core.protocols import ValueNetwork, WorldModel
from empo_core.types import Quantity, ValueQuery
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve as solve_exactly
from empo_phase2.compare import Comparison, solve, solver_for
from empo_phase2.estimates import ValueEstimator
from empo_phase2.params import Phase2Theory
from empo_phase2.policyfile import load_policy
from empo_phase2.quantities import Quantities
from empo_phase2.state_queries import StateEncoder
from empo_theory.parameters import CompleteTheory
from empo_theory.solved_world import SolvedWorld

THEORY = Phase2Theory(gamma_h=0.95, gamma_r=0.97, beta_r=7.0, zeta=2.0, eta=1.1)
PRIOR = {"name": "exact", "params": {"theory": {"beta_h": 10.0, "gamma_h": 0.9}}}


def world_of(name: str, **params: Any) -> WorldModel:
    world: WorldModel = build(WorldModelRef.model_validate({"name": name, "params": params}))
    return world


class RightNetwork(ValueNetwork):
    """Knows V_r or V_h^e of a solved world; 0 where nobody can be."""

    def __init__(self, quantity: Quantity, solution: SolvedWorld, horizon: int) -> None:
        super().__init__()
        self.quantity = quantity
        self._right: dict[tuple[int, ...], Tensor] = {}
        ask = solution.robot_values if quantity == "v_r" else solution.goal_values
        for left in range(1, horizon + 1):
            rows = solution.reachable_states(left)
            values = ask(rows, left).view(len(rows), -1)
            keys = [(left, *row) for row in rows.tolist()]
            self._right |= dict(zip(keys, values, strict=True))
        self._width = len(next(iter(self._right.values())))

    def forward(self, query: ValueQuery) -> Tensor:
        asked = query.spread()
        keys = torch.cat([asked.steps_left[:, None], asked.states.long()], 1).tolist()
        unknown = torch.zeros(self._width, dtype=torch.float64)
        values = torch.stack([self._right.get(tuple(key), unknown) for key in keys]).float()
        return values if asked.goal is None else values.gather(1, asked.goal[:, None])


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("multigrid/trivial", {"max_steps": 5}),
        ("multigrid/small_trolley", {"max_steps": 3}),
        ("bushworld/two_robots", {"max_steps": 2}),
    ],
)
def test_values_that_are_right_have_no_gap_to_the_solver(
    tmp_path: Path, name: str, params: dict[str, Any]
) -> None:
    world = world_of(name, **params)
    steps = params["max_steps"]
    prior = HumanPriorRef.model_validate(PRIOR)
    solution = solve(solver_for("exact", THEORY, prior), world, tmp_path)
    encoder = StateEncoder(world, "rows", build(prior, world))
    comparison = Comparison(solution, world, encoder.stored)
    aggregate = build(AggregatorRef.model_validate("scatter-add"))
    networks: dict[Quantity, Any] = {
        "v_r": RightNetwork("v_r", solution, steps),
        "v_h_e": RightNetwork("v_h_e", solution, steps),
    }
    values = Quantities(networks, world.spec, encoder.goals, THEORY, aggregate)
    learned = ValueEstimator(values, encoder)
    metrics = comparison.record(0, learned)
    assert len(comparison.right) > 40
    # Q_r was found by looking one step ahead with V_r, and the policy from it.
    assert max(metrics.values()) < 1e-5


def test_the_solver_is_told_the_same_theory(tmp_path: Path) -> None:
    world = world_of("multigrid/trivial", max_steps=4)
    prior = HumanPriorRef.model_validate(
        {"name": "exact", "params": {"theory": {"beta_h": 10.0, "gamma_h": 0.95}}}
    )
    solution = solve(solver_for("exact", THEORY, prior), world, tmp_path)
    theory = THEORY.model_dump(exclude={"x_h_floor"})
    right = solve_exactly(world, ExactParams(theory=CompleteTheory(beta_h=10.0, **theory)))
    start = world.initial_state()[None]
    assert float(solution.robot_values(start, 4)[0]) == pytest.approx(right.at(0).V_r, rel=1e-12)


def evaluated(tmp_path: Path, config: str, *options: str) -> dict[str, Any]:
    """JSON summary that ``empo evaluate`` prints about a run of a config."""
    (tmp_path / "run.yaml").write_text(f"{config}runs: runs\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "run.yaml"), "--quiet"])
    assert done.exit_code == 0, done.stderr
    directory = done.stdout.splitlines()[-1]
    played = CliRunner().invoke(app, ["evaluate", directory, "--json", *options])
    assert played.exit_code == 0, played.stderr
    summary: dict[str, Any] = json.loads(played.stdout)
    for name in summary["files"]:
        assert (Path(directory) / name).stat().st_size > 100
    return summary


@pytest.mark.slow
def test_a_solved_run_attains_goals_as_often_as_it_says(tmp_path: Path) -> None:
    found = evaluated(
        tmp_path,
        "world_model: {name: multigrid/trivial, params: {max_steps: 5}}\n"
        "algorithm: {name: exact, params: {theory: {beta_h: 10.0, beta_r: 10.0}}}\n",
    )
    # V_h^e at the start, from the reference numbers of this world.
    right = {"(2,1)": 0.795971, "(1,1)": 0.150256, "(2,2)": 1.0}
    for goal in found["goals"]:
        share = right.get(goal["name"], 0.0)
        error = (share * (1 - share) / found["episodes"]) ** 0.5
        assert abs(goal["reached"] - share) <= 4 * error
    assert found["mean_length"] == 5
    assert len(found["files"]) == 4


@pytest.mark.slow
def test_two_humans_and_two_robots_are_played_and_filmed(tmp_path: Path) -> None:
    found = evaluated(
        tmp_path,
        "world_model: {name: bushworld/two_robots, params: {max_steps: 3}}\n"
        "algorithm: {name: exact, params: {human_prior: shortest-path}}\n",
        "--episodes", "20", "--gifs", "2",
    )  # fmt: skip
    assert len({goal["human"] for goal in found["goals"]}) == 2
    assert any(goal["reached"] > 0 for goal in found["goals"])


LEARNED = """
world_model: {name: multigrid/trivial, params: {max_steps: 3}}
algorithm:
  name: phase2
  params:
    human_prior: uniform
    values: {q_r: VALUES, v_h_e: VALUES}
    total_steps: 60
    warm_up: {v_h_e: 20, q_r: 20, ramp: 10}
    reporting: {compare: exact, evaluation_interval: 20, log_interval: 10}
"""

ENSEMBLE = """
    ensemble: {worlds: [{name: multigrid/trivial, params: {max_steps: 3}}]}
    replay: {store: STORE}
"""


@pytest.mark.slow
@pytest.mark.parametrize("store", ["rows", "compact"])
def test_what_was_learned_in_an_ensemble_is_played_in_the_runs_own_world(
    tmp_path: Path, store: str
) -> None:
    config = LEARNED.replace("VALUES", "{name: mlp, params: {hidden: 8}}").rstrip()
    found = evaluated(tmp_path, config + ENSEMBLE.replace("STORE", store), "--episodes", "20")
    results = Path(found["run_dir"]) / "results"
    summary = json.loads((results / "summary.json").read_text())
    world = world_of("multigrid/trivial", max_steps=3)
    policy = load_policy(results / "model.safetensors", world)
    chances = policy.policy(world.initial_state()[None], torch.tensor([3]))[0].tolist()
    assert chances == pytest.approx(summary["root"]["robot_policy"], abs=1e-6)
    assert 0 < summary["gap"]["Compare/coverage"] <= 1


@pytest.mark.parametrize(
    "values",
    ["lookup", pytest.param("{name: mlp, params: {hidden: 8}}", marks=pytest.mark.slow)],
)
def test_a_learned_run_can_be_played_and_its_policy_loaded(tmp_path: Path, values: str) -> None:
    found = evaluated(tmp_path, LEARNED.replace("VALUES", values), "--episodes", "50")
    assert found["algorithm"] == "phase2"
    assert found["mean_length"] == 3
    results = Path(found["run_dir"]) / "results"
    summary = json.loads((results / "summary.json").read_text())
    world = world_of("multigrid/trivial", max_steps=3)
    policy = load_policy(results / "model.safetensors", world)
    chances = policy.policy(world.initial_state()[None], torch.tensor([3]))[0].tolist()
    assert chances == pytest.approx(summary["root"]["robot_policy"], abs=1e-6)
    gaps = (results / "gap.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in gaps] == ["step", "20", "40", "60"]
    with pytest.raises(StorageError, match=r"horizon.* 3, not 4"):
        load_policy(results / "model.safetensors", world_of("multigrid/trivial", max_steps=4))
    with pytest.raises(StorageError, match="'Trivial'"):
        load_policy(results / "model.safetensors", world_of("multigrid/two_room", max_steps=3))


@pytest.mark.slow
def test_a_learned_run_that_has_left_nothing_cannot_be_played(tmp_path: Path) -> None:
    found = evaluated(tmp_path, LEARNED.replace("VALUES", "lookup"), "--episodes", "5")
    directory = Path(found["run_dir"])
    policy = directory / "results" / "model.safetensors"
    content = bytearray(policy.read_bytes())
    content[-1] ^= 1
    policy.write_bytes(content)
    played = CliRunner().invoke(app, ["evaluate", str(directory)])
    assert played.exit_code == 3
    assert "model.safetensors: " in played.stderr
    policy.unlink()
    played = CliRunner().invoke(app, ["evaluate", str(directory), "--episodes", "5"])
    assert played.exit_code == 0, "the newest checkpoint is played"
    shutil.rmtree(directory / "checkpoints")
    played = CliRunner().invoke(app, ["evaluate", str(directory)])
    assert played.exit_code == 3
    assert "be loaded" in played.stderr
