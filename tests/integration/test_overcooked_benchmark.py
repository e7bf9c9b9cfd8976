"""The Overcooked benchmark runs, resumes, and scores robots by the soups that are served."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"
sys.path.insert(0, str(FOLDER))

import overcooked_cooks as cooks  # noqa: E402
import overcooked_soups as benchmark  # noqa: E402

SMALL = {
    "steps: 400": "steps: 30",
    "episodes: 200": "episodes: 10",
    "bootstrap: 10000": "bootstrap: 100",
    "onions: 1, cook_time: 3": "onions: 1, cook_time: 1",
    "EMPO beta_r 100, EMPO beta_r 300, ": "",
    "horizon: 40": "horizon: 8",
    "ave: {steps: 5, rollouts: 20}": "ave: {steps: 2, rollouts: 3}",
    "total_steps: 5500": "total_steps: 6",
    "warm_up: {v_h_e: 2000, q_r: 1000, ramp: 500}": "warm_up: {v_h_e: 2, q_r: 2, ramp: 2}",
    "batch_size: 96": "batch_size: 8",
    "total_steps: 500000": "total_steps: 800",
    "total_steps: 3000000": "total_steps: 800",
    "num_envs: 64": "num_envs: 4",
    "minibatch_size: 3200": "minibatch_size: 400",
    "total_steps: 4000000": "total_steps: 800",
}
ALWAYS = ("still", "random", "PPO self-play")
NAMES = ["aside", "AvE", "EMPO beta_r 1000"]
Run = Callable[[Path, Path], str]


def small_settings(folder: Path) -> Path:
    """A file of settings of little training."""
    text = (FOLDER / "overcooked.yaml").read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "small.yaml").write_text(text)
    return folder / "small.yaml"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path, settings: Path) -> str:
        given = [str(out), "--settings", str(settings), "--kitchen", "small room"]
        monkeypatch.setattr(sys, "argv", ["overcooked_soups.py", *given])
        monkeypatch.setattr(benchmark, "ALWAYS", ALWAYS)
        benchmark.main()
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_the_benchmark_goes_on_where_it_was_and_repeats_itself(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, out = small_settings(tmp_path), tmp_path / "out"
    assert "read from" not in run(out, settings)
    kept = sorted(out.glob("*.json"))
    assert len(kept) == 2 * (len(ALWAYS) + len(NAMES))
    before = [path.read_text() for path in kept]
    table = (out / "table.csv").read_text()
    runs = sorted(out.glob("*/*/results/model.safetensors"))
    assert len(runs) == 1
    for path in kept:
        if "aside" in path.name or "ppo_self" in path.name:
            path.unlink()
    contest = benchmark.Contest(benchmark.settings_of(settings), "small room", out)
    contest.scores()
    assert capsys.readouterr().out.count("read from") == len(kept) - 4
    assert sorted(out.glob("*/*/results/model.safetensors")) == runs
    # All but the seconds of what is solved.
    assert [path.read_text().partition(', "cpu')[0] for path in kept] == [
        each.partition(', "cpu')[0] for each in before
    ]
    assert (out / "table.png").stat().st_size > 10_000
    found = {(row["human"], row["robot"]): row for row in csv.DictReader(table.splitlines()[:-1])}
    assert float(found["planner", "still"]["soups"]) == 0
    assert float(found["planner", "EMPO beta_r 1000"]["ahead_of_still_low"]) > 0
    assert [found["planner", name]["runs"] for name in ("AvE", "PPO self-play")] == ["0", "1"]
    assert found["planner", "PPO self-play"]["env_steps"] == "800"


@pytest.mark.slow
def test_robots_are_trained_for_power_with_several_seeds(tmp_path: Path) -> None:
    """A robot by PPO is paid what the robot with the same seed learned."""
    settings = benchmark.settings_of(small_settings(tmp_path))
    several = {"small room": {"EMPO learned": 2, "EMPO by PPO": 2}}
    settings = settings.model_copy(update={"runs": several})
    contest = benchmark.Contest(settings, "small room", tmp_path)
    learned = contest.score("EMPO learned", "planner")
    paid = contest.score("EMPO by PPO", "planner")
    assert learned.soups.shape == paid.soups.shape == (2, settings.episodes)
    assert len([*tmp_path.glob("*/*/results/model.safetensors")]) == 4
    assert paid.cpu_seconds > learned.cpu_seconds
    assert paid.env_steps == 800


def test_intervals_are_over_runs_of_training_where_there_are_several() -> None:
    soups = np.array([[4, 6, 5, 5], [7, 7, 6, 8], [9, 9, 8, 10]])
    other = benchmark.Score(np.array([[1, 2, 1, 2]]), 0.0, 0)
    runs, run = benchmark.Score(soups, 0.0, 0), benchmark.Score(soups[:1], 0.0, 0)
    half = 4.303 * 2 / 3**0.5
    assert vars(runs.estimate()) == pytest.approx(
        {"value": 7, "low": 7 - half, "high": 7 + half}, abs=1e-3
    )
    assert runs.ahead_of(other, 100, 0).value == pytest.approx(5.5)
    assert run.estimate() == benchmark.mean(soups[0])
    assert run.ahead_of(other, 100, 0).value == pytest.approx(3.5)


def test_soups_are_those_that_the_human_serves_beside_a_robot_that_makes_way() -> None:
    """Alone in a small room, without noise, a human serves one soup after the other."""
    world = cooks.kitchen({"onions": 1, "cook_time": 3, "counter_items": 0}, 8)
    chance = np.random.default_rng(0).random((200, 2, 2))
    aside, still, human = cooks.fixed("north"), cooks.fixed(), cooks.planner(world, 0.0)
    assert cooks.soups(world, still, human, chance).tolist() == [0, 0]
    found = cooks.soups(world, aside, human, chance)
    assert found[0] == found[1] >= 9
    assert (cooks.soups(world, aside, human, chance[:100]) * 2 - found <= 1).all()


def test_an_exact_robot_is_blind_to_counters_and_acts_at_random_in_what_it_does_not_know() -> None:
    world = cooks.kitchen({}, 8)
    row = world.initial_state()
    policy = torch.tensor([[0.5, 0.5, 0, 0, 0, 0]])
    robot = cooks.exact_robot(world, cooks.RowTable.of(row.numpy()[None]), policy)
    states = row.repeat(3, 1)
    states[1, world.kitchen.first_counter] = 1
    states[2, 1] = 2
    assert robot(states, 0).tolist()[:2] == [[0.5, 0.5, 0, 0, 0, 0]] * 2
    assert robot(states, 0)[2].tolist() == pytest.approx([1 / 6] * 6)
