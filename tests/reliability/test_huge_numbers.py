"""Numbers that no memory could hold are refused by arithmetic, with their place and size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PENDULUM, TRIVIAL = str(EXAMPLES / "latent_pendulum.yaml"), str(EXAMPLES / "learn_trivial.yaml")
ROOMS, CARTPOLE = str(EXAMPLES / "learn_two_rooms.yaml"), str(EXAMPLES / "ppo_cartpole.yaml")
FREE, GRID = str(EXAMPLES / "free_the_human.yaml"), str(EXAMPLES / "ppo_multigrid.yaml")
MLP = ["algorithm.params.values={q_r: mlp, v_h_e: mlp}"]
CONV = ["algorithm.params.values={q_r: grid-conv, v_h_e: grid-conv}"]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="address space is limited")


def wrong(tmp_path: Path, *cases: tuple[str, list[str], str]) -> list[Any]:
    """What went wrong with some keys of some configs, within little memory."""
    (tmp_path / "asked.json").write_text(json.dumps(cases))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("huge_numbers.py")), tmp_path / "asked.json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_sizes_of_networks_rollouts_and_episodes_are_refused_without_being_allocated(
    tmp_path: Path,
) -> None:
    asked: list[tuple[str, list[str], str]] = [
        (PENDULUM, [], "algorithm.params.latents.size"),
        (ROOMS, MLP, "algorithm.params.values.q_r.params.hidden"),
        (CARTPOLE, [], "algorithm.params.experience.bptt_horizon"),
        (CARTPOLE, [], "algorithm.params.environment.params.frame_stack"),
    ]
    assert wrong(tmp_path, *asked) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("config", "overrides"),
    [
        (PENDULUM, []),
        (PENDULUM, ["algorithm.params.policy_loss=svg"]),
        (TRIVIAL, []),
        (ROOMS, MLP),
        (ROOMS, CONV),
        (CARTPOLE, []),
        (GRID, []),
        (FREE, ["algorithm.params.inspector=false"]),
    ],
)
def test_every_number_of_every_component_may_be_huge(
    tmp_path: Path, config: str, overrides: list[str]
) -> None:
    assert wrong(tmp_path, (config, overrides, "")) == []


def message(command: str, *arguments: str) -> str:
    done = CliRunner().invoke(app, [command, *arguments])
    assert done.exit_code == 2, done.output
    return done.output


@pytest.mark.parametrize("steps", [10**9, 10**10, 10**12])
@pytest.mark.parametrize("command", ["check", "run"])
def test_more_steps_than_memory_holds_are_refused_with_file_key_and_bytes(
    tmp_path: Path, command: str, steps: int
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"world_model: {{name: multigrid/trivial, params: {{max_steps: {steps}}}}}\n"
        f"algorithm: exact\nruns: {tmp_path / 'runs'}\ntrackers: []\n"
    )
    said = message(command, str(config))
    assert said.startswith(f"{config}:1:49: world_model.params.max_steps: ")
    assert f"{64 * steps:,} bytes" in said


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [
        (PENDULUM, "algorithm.params.bins.number", 10**8),
        (PENDULUM, "algorithm.params.encoder.width", 10**9),
        (ROOMS, "algorithm.params.values.q_r.params.hidden", 10**6),
        (CARTPOLE, "algorithm.params.experience.batch_size", 10**11),
    ],
)
def test_what_would_not_fit_is_said_with_its_key_and_its_size(
    config: str, key: str, value: int
) -> None:
    said = message("check", config, f"{key}={value}")
    assert f"command line: {key}: with {value:,} " in said
    assert "GiB of RAM" in said
