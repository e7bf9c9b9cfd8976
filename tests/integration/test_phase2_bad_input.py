"""Configs that ``phase2`` cannot learn are refused in one message before training starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app

CONFIG = """\
world_model: {name: multigrid/trivial, params: {max_steps: 3}}
algorithm:
  name: phase2
  params:
    human_prior: {name: exact, params: {theory: {beta_h: 10.0}}}
    values: {q_r: lookup, v_h_e: lookup}
    total_steps: 60
    warm_up: {v_h_e: 10, q_r: 10, ramp: 10}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("algorithm.params.optimiser.lr={q_r: 1.0}", "it lacks v_h_e"),
        ("algorithm.params.optimiser.lr=-1", "greater than 0"),
        ("algorithm.params.compute.device=abacus", "'abacus' is no device"),
        ("algorithm.params.replay.capacity=20", "replay.capacity (20) must be at least"),
        ("algorithm.params.replay.storage=pinned", "CUDA"),
        ("algorithm.params.values.q_r=null", "q_r and v_r cannot both be null"),
        ("algorithm.params.values.v_h_e=null", "v_h_e"),
        ("algorithm.params.targets.max_pairs=0", "greater than or equal to 1"),
        ("algorithm.params.warm_up.gamma_h_start=0.5", "gamma_h_steps (200)"),
        ("algorithm.params.warm_up.gamma_r_start=0.5", "gamma_r_steps (200)"),
        ("algorithm.params.warm_up.gamma_r_start=0", "greater than 0"),
        ("algorithm.params.reporting.compare=nothing", "nothing"),
        ("algorithm.params.exploration.robot=[greedy]", "No explorer named 'greedy'"),
        ("world_model=multigrid/minimal_agent", "no robot"),
    ],
)
def test_a_config_that_cannot_be_learned_is_refused_at_once(
    change: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(CONFIG)
    done = CliRunner().invoke(app, ["run", "run.yaml", "--quiet", "runs=runs", change])
    assert done.exit_code in (2, 3), done.stdout
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "should not happen" not in done.stderr
