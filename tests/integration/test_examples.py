"""Every example runs, and editors get help with the configs among them."""

from __future__ import annotations

import json
import runpy
import sys
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_core.config.yaml import read_yaml

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
CONFIGS = sorted(EXAMPLES.glob("*.yaml"))
SLOW = {
    "choose_objective.py",
    "compare_beta_r.py",  # Below, with a look at its plot.
    "latent_control.yaml",
    "latent_two_tasks.yaml",
    "learn_trivial.yaml",
    "learn_two_rooms.yaml",
    "ppo_cartpole.yaml",
    "ppo_multigrid.yaml",
}
"""Configs that others resemble, and scripts; `nox -s docs` runs them, too."""
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MARK = "# yaml-language-server: $schema="

# What each script must have said at the end of the day, and the arguments it gets.
EXPECTED: dict[str, tuple[list[str], str]] = {
    "choose_objective.py": (["plot.png"], "Wrote plot.png"),
    "compare_beta_r.py": (["plot.png"], "Wrote plot.png"),
    "compare_ppo_with_exact.py": (["2048", "RUNS"], "PPO, 2,048 steps"),
    "minigrid_maps.py": (["maps.png"], "Wrote maps.png"),
    "python_world.py": ([], "X_h = "),
    "solve_in_python.py": (["runs=RUNS"], "sooner or later"),
}

# Learning takes a minute or more; that it ends is enough here. What is learned is tested in
# test_phase2_learning.py, test_rollout_learning.py and test_latent_learning.py.
SHORTER: dict[str, list[str]] = (
    {
        name: [
            "algorithm.params.total_steps=60",
            "algorithm.params.warm_up.v_h_e=20",
            "algorithm.params.warm_up.q_r=20",
            "algorithm.params.warm_up.ramp=20",
        ]
        for name in ("learn_trivial.yaml", "learn_two_rooms.yaml")
    }
    | {
        name: [
            "algorithm.params.total_steps=3000",
            "algorithm.params.reporting.evaluation_episodes=5",
        ]
        for name in ("ppo_cartpole.yaml", "ppo_multigrid.yaml")
    }
    | {
        "latent_pendulum.yaml": [
            "algorithm.params.total_steps=130",
            "algorithm.params.tasks="
            "[{name: gymnasium, params: {id: Pendulum-v1, max_episode_steps: 20}}]",
            "algorithm.params.collection.seed_steps=110",
            "algorithm.params.collection.seed_updates=2",
            "algorithm.params.learning.updates_per_step=0.1",
            "algorithm.params.reporting.evaluation_episodes=1",
        ],
    }
    | {
        name: [
            "algorithm.params.total_steps=60",
            "algorithm.params.collection.seed_steps=40",
            "algorithm.params.collection.seed_updates=2",
            "algorithm.params.compute.compile=false",
            "algorithm.params.reporting.evaluation_episodes=1",
            "algorithm.params.reporting.videos=0",
        ]
        for name in ("latent_control.yaml", "latent_two_tasks.yaml")
    }
)


def name_of(path: Path) -> str:
    return path.name


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((EXAMPLES / "empo.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_there_are_examples() -> None:
    assert EXAMPLES / "free_the_human.yaml" in CONFIGS
    assert {script.name for script in SCRIPTS} == set(EXPECTED)
    page = (EXAMPLES / "README.md").read_text()
    plugins = sorted((EXAMPLES / "plugins").glob("*/pyproject.toml"))
    for name in [*CONFIGS, *SCRIPTS, *(path.parent for path in plugins)]:
        assert f"{name.relative_to(EXAMPLES)}](" in page


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
        for path in CONFIGS
    ],
)
def test_a_config_runs(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = [f"runs={tmp_path / 'runs'}", *SHORTER.get(config.name, [])]
    done = CliRunner().invoke(app, ["run", str(config), "--json", *changes])
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    if report["algorithm"] == "rollout":
        assert report["evaluation"]["episodes"] == 5
    elif report["algorithm"] == "latent":
        planned = {"planner"} if config.name == "latent_control.yaml" else set()
        assert set(report["evaluation"]) == {"policy"} | planned
    else:
        assert sum(report["root"]["robot_policy"]) == pytest.approx(1.0)
    (directory,) = (tmp_path / "runs").iterdir()
    assert Path(report["run_dir"]) == directory
    pictures = {path.suffix for path in (directory / "results").iterdir()}
    # What was learned is filmed by `empo evaluate`.
    assert ({".png"} if config.name in SHORTER else {".png", ".gif"}) <= pictures


@pytest.mark.parametrize("config", CONFIGS, ids=name_of)
def test_a_config_names_the_schema_that_it_fits(config: Path) -> None:
    first = config.read_text().splitlines()[0]
    assert first.startswith(MARK)
    named = config.parent / first.removeprefix(MARK)
    assert named.resolve() == EXAMPLES / "empo.schema.json"
    validator().validate(read_yaml(config).data)


def test_the_schema_notices_a_misspelt_key() -> None:
    data = read_yaml(EXAMPLES / "free_the_human.yaml").data
    data["algorithm"]["params"]["beta_rr"] = 1.0
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(data)


def test_the_schema_is_that_of_the_installed_plugins() -> None:
    current = runpy.run_path(str(ROOT / "docs/build_reference.py"))["schema"]()
    written = (EXAMPLES / "empo.schema.json").read_text()
    assert written == current, "run: python docs/build_reference.py"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
        for path in SCRIPTS
    ],
)
def test_a_script_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, expected = EXPECTED[script.name]
    given = [argument.replace("RUNS", str(tmp_path / "runs")) for argument in arguments]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", [str(script), *given])
    runpy.run_path(str(script), run_name="__main__")
    assert expected in capsys.readouterr().out


def test_the_comparison_of_beta_r_writes_its_plot(tmp_path: Path) -> None:
    from PIL import Image

    parts = runpy.run_path(str(EXAMPLES / "compare_beta_r.py"))
    found = parts["results"]()
    parts["plot"](found, tmp_path / "plot.png")
    with Image.open(tmp_path / "plot.png") as picture:
        assert picture.width == 9 * 240
        assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 10
    drawing = (tmp_path / "plot.svg").read_text()  # Each path comes with its text as a comment.
    assert all(name in drawing for name in (r"\beta_r", "corridor west", "forward"))
    shares = [result.at(0).pi_r.max() for result in found.values()]
    assert shares == sorted(shares)  # The larger beta_r, the more decided the robot.
