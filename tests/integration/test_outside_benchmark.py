"""The benchmark of outside environments runs, resumes, and judges both libraries alike."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv

pytest.importorskip("minigrid")
pytest.importorskip("mpe2")
pytest.importorskip("stable_baselines3")

FOLDER = Path(__file__).parents[2] / "examples" / "benchmarks"
sys.path.insert(0, str(FOLDER))

import outside as benchmark  # noqa: E402
import outside_games as games  # noqa: E402

EMPTY = {"name": "gymnasium", "params": {"id": "MiniGrid-Empty-5x5-v0", "keys": ["image"]}}
SPREAD = {"name": "pettingzoo", "params": {"id": "mpe/simple_spread_v3"}}
Run = Callable[[Path], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path) -> str:
        tasks = ["--task", "Empty-Random-6x6", "--task", "simple_spread"]
        monkeypatch.setattr(sys, "argv", ["outside.py", str(out), "--quick", *tasks])
        benchmark.main()
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_both_libraries_learn_are_judged_and_kept(run: Run, tmp_path: Path) -> None:
    run(tmp_path)
    out = tmp_path / "quick"
    rows = list(csv.DictReader((out / "table.csv").read_text().splitlines()[:-1]))
    assert [(row["task"], row["who"], row["steps"]) for row in rows] == [
        ("Empty-Random-6x6", "EMPO", "2048"),
        ("Empty-Random-6x6", "Stable-Baselines3", "2048"),
        ("simple_spread", "EMPO", "2400"),
        ("simple_spread", "Stable-Baselines3", "2400"),
    ]
    assert all(-200 < float(row["judged"]) < 0 for row in rows[2:])
    assert (out / "curves.png").stat().st_size > 10_000
    kept = {path: path.read_text() for path in sorted(out.glob("*.json"))}
    assert len(kept) == 4
    first, *others = kept
    first.unlink()  # What our run has left is found again, and judged anew.
    run(tmp_path)
    assert first.read_text() == kept[first]
    assert all(path.read_text() == kept[path] for path in others)


def test_the_judge_pays_what_the_environment_pays() -> None:
    """Forward, forward, right, forward, forward: the goal, after five of a hundred steps."""
    plan = iter([2, 2, 1, 2, 2])
    (earned,) = games.returns([games.game(EMPTY)], lambda rows: np.array([next(plan)]), 0)
    assert earned.tolist() == pytest.approx([1 - 0.9 * 5 / 100])


def test_an_agent_sees_the_picture_channel_first() -> None:
    env: Any = gymnasium.make("MiniGrid-Empty-5x5-v0")
    seen, _ = env.reset(seed=3)
    assert games.game(EMPTY).begin(3).tolist() == [
        seen["image"].transpose(2, 0, 1).ravel().tolist()
    ]


def test_an_episode_that_was_cut_off_says_so_to_the_other_library() -> None:
    copies = games.Copies([games.game(SPREAD) for _ in range(2)], seed=0)
    seen = copies.reset()
    for _ in range(25):
        assert seen.shape == (6, 18)
        copies.step_async(np.zeros(6, np.int64))
        seen, _, over, infos = copies.step_wait()
    assert over.all()
    assert all(info["TimeLimit.truncated"] for info in infos)
    assert not np.array_equal(infos[0]["terminal_observation"], seen[0])
    assert (copies.taken, len(copies.newest)) == (2 * 3 * 25, 6)


class Mortal(ParallelEnv[str, np.ndarray, int]):
    """Two agents who see and are paid ones; the first dies in the first step, the other later."""

    metadata = {"name": "mortal"}  # noqa: RUF012
    possible_agents = ["first", "second"]  # noqa: RUF012

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return dict.fromkeys(self.agents, np.ones(2)), {}

    def step(self, actions: dict[str, int]) -> Any:
        acted, gone = [*actions], self.agents.pop(0)
        seen = dict.fromkeys(acted, np.ones(2))
        dead = {name: name == gone for name in acted}
        return seen, dict.fromkeys(acted, 1.0), dead, dict.fromkeys(acted, False), {}


def test_who_has_died_acts_and_is_paid_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(games, "make_pettingzoo", lambda *_: Mortal())
    game = games.game(SPREAD)
    assert game.begin().tolist() == [[1, 1], [1, 1]]
    _, paid = game.step(np.zeros(2, np.int64))
    assert (paid.tolist(), game.alive.tolist(), game.terminated) == ([1, 1], [False, True], False)
    _, paid = game.step(np.zeros(2, np.int64))
    assert (paid.tolist(), game.terminated, game.truncated) == ([0, 1], True, False)
