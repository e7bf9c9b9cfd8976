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
    "steps: 400": "steps: 60",
    "episodes: 200": "episodes: 12",
    "bootstrap: 10000": "bootstrap: 100",
    "horizon: 40": "horizon: 8",
    "EMPO beta_r 100, EMPO beta_r 300, ": "",
    "total_steps: 3000000": "total_steps: 6400",
    "total_steps: 4000000": "total_steps: 6400",
    "total_steps: 5000": "total_steps: 30",
    "{v_h_e: 1000, q_r: 500, ramp: 500}": "{v_h_e: 10, q_r: 10, ramp: 10}",
}
NAMES = ["aside", "EMPO learned", "EMPO beta_r 1000"]
Run = Callable[[Path, Path], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path, settings: Path) -> str:
        given = [str(out), "--settings", str(settings), "--kitchen", "small room"]
        monkeypatch.setattr(sys, "argv", ["overcooked_soups.py", *given])
        benchmark.main()
        return capsys.readouterr().out

    return run


def test_the_benchmark_goes_on_where_it_was_and_repeats_itself(run: Run, tmp_path: Path) -> None:
    text = (FOLDER / "overcooked.yaml").read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new, 1)
    settings, out = tmp_path / "small.yaml", tmp_path / "out"
    settings.write_text(text)
    assert "read from" not in run(out, settings)
    kept = sorted(out.glob("*.json"))
    assert len(kept) == 2 * (len(benchmark.ALWAYS) + len(NAMES))
    before = [path.read_text() for path in kept]
    table = (out / "table.csv").read_text()
    runs = sorted(out.glob("*/*/results/policy.safetensors"))
    assert len(runs) == 3
    for path in kept[:6]:
        path.unlink()
    assert run(out, settings).count("read from") == len(kept) - 6
    assert sorted(out.glob("*/*/results/policy.safetensors")) == runs
    # All but the seconds of what is solved.
    assert [path.read_text().partition(", ")[0] for path in kept] == [
        each.partition(", ")[0] for each in before
    ]
    assert (out / "table.png").stat().st_size > 10_000
    found = {(row["human"], row["robot"]): row for row in csv.DictReader(table.splitlines()[:-1])}
    assert float(found["planner", "still"]["soups"]) == 0
    assert float(found["planner", "EMPO beta_r 1000"]["ahead_of_still_low"]) > 1
    assert found["planner", "PPO soups"]["env_steps"] == "6400"


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
