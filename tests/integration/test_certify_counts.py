"""Certificates of runs in which the power of some humans counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fair_worlds import GOLDEN
from typer.testing import CliRunner

from empo_core.cli.app import app


def empo(*words: object) -> str:
    """What a command prints."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("counts", [["ann"], ["cat", "ben"]])
def test_intervals_close_in_on_the_value_of_those_who_count(
    tmp_path: Path, counts: list[str]
) -> None:
    games = yaml.safe_load((GOLDEN / "fair_worlds.yaml").read_text())
    (gate,) = (game for game in games if game["name"] == "gate")
    (tmp_path / "gate.json").write_text(json.dumps(gate))
    config = {
        "world_model": {"name": "table", "params": {"file": "gate.json"}},
        "algorithm": {"name": "exact", "params": {"preset": "paper", "counts": counts}},
        "runs": str(tmp_path / "runs"),
    }
    (tmp_path / "run.json").write_text(json.dumps(config))
    empo("run", tmp_path / "run.json")
    (run,) = (tmp_path / "runs").iterdir()
    root = json.loads((run / "results/summary.json").read_text())["root"]
    data: dict[str, Any] = json.loads(empo("certify", run, "--eps", "0", "--json"))
    for key, value in (("v_r", root["V_r"]), ("u_r", root["U_r"])):
        low, high = data["start"][key]
        assert low <= value <= high
        assert high - low <= 1e-9 * abs(value)
    assert sorted(data["theory"]["counts"]) == sorted(counts)
    assert "confirmed" in empo("certify", run, "--verify")
