"""The obstacle gridworld benchmark runs, resumes, and computes its statistics as promised."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "benchmarks"
for folder in (FOLDER, ROOT / "plugins" / "empo_blocks" / "tests"):
    sys.path.insert(0, str(folder))

import esr  # noqa: E402
from esr_ave import FLOOR, best_actions, rewards  # noqa: E402
from esr_robots import ranks_of  # noqa: E402
from esr_scores import mean, paired_difference, share  # noqa: E402

from empo_blocks.plugin import BlocksParams  # noqa: E402
from empo_blocks.world import load_world  # noqa: E402

SMALL = {
    "size: 5": "size: 3",
    "steps: 50": "steps: 8",
    "[2, 3, 4]": "[2]",
    "[10.0, 30.0, 100.0]": "[30.0]",
    "random-effective, AvE smart, AvE plain": "AvE smart",
    "episodes: 1000": "episodes: 20",
    "bootstrap: 10000": "bootstrap: 200",
    "sweeps: 200": "sweeps: 60",
}
RARE = 0.11
"""Share that is less than one in ten, and noise."""


Run = Callable[[Path, Path], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(out: Path, settings: Path) -> str:
        monkeypatch.setattr(sys, "argv", ["esr.py", str(out), "--settings", str(settings)])
        esr.main()
        return capsys.readouterr().out

    return run


def test_the_benchmark_goes_on_where_it_was_and_repeats_itself(run: Run, tmp_path: Path) -> None:
    text = (FOLDER / "esr_blocks.yaml").read_text()
    for old, new in SMALL.items():
        assert old in text
        text = text.replace(old, new)
    settings = tmp_path / "small.yaml"
    settings.write_text(text)
    out = tmp_path / "out"
    assert "read from" not in run(out, settings)
    kept = sorted(out.glob("*.json"))
    assert len(kept) == 6
    before = [path.read_text() for path in kept]
    table = (out / "table.csv").read_text()
    for path in kept[:4]:
        path.unlink()
    assert run(out, settings).count("read from") == 2
    for path, old in zip(kept, before, strict=True):
        # All but the seconds.
        assert path.read_text().partition('"scores"')[2] == old.partition('"scores"')[2]
    assert (out / "table.png").stat().st_size > 10_000
    rows = {row["robot"]: row for row in csv.DictReader(table.splitlines()[:-1])}
    assert len(rows) == 6
    assert table.splitlines()[-1].startswith("# 80 episodes each")
    primary = rows["EMPO matched, beta_r 30"]
    assert float(rows["still"]["success"]) == 0
    assert float(primary["success"]) > float(rows["random125"]["success"]) + 0.2
    assert float(primary["crushed"]) < RARE
    assert float(primary["behind_primary"]) == 0
    settings.write_text(f"{text}# Other settings.\n")
    assert "read from" not in run(out, settings)


def test_intervals_are_the_known_ones() -> None:
    found = share(np.arange(4000) < 3968)
    assert (found.value, round(found.low, 3), round(found.high, 3)) == (0.992, 0.989, 0.994)
    assert share(np.zeros(400)).low == 0
    assert share(np.ones(400)).high == 1
    # With 99 degrees of freedom the quantile is 1.9842.
    values = np.arange(100.0)
    half = mean(values).high - values.mean()
    assert half == pytest.approx(1.9842 * values.std(ddof=1) / 10, rel=1e-3)


def test_paired_differences_leave_out_what_episodes_have_in_common() -> None:
    rng = np.random.default_rng(0)
    common = 100 * rng.random(500)
    ours = common + 1 + 0.1 * rng.random(500)
    found = paired_difference(ours, common, 1000, 0)
    assert 1.0 < found.low < found.value < found.high < 1.1
    assert found.high - found.low < 0.01
    assert paired_difference(common, common, 100, 0).high == 0


def test_room_to_move_is_the_variance_of_places() -> None:
    world = load_world(BlocksParams(size=3, boxes=2))
    ranks = ranks_of(world)
    rows = ranks.unrank(np.arange(ranks.count))
    reward = dict(zip(map(tuple, rows.tolist()), rewards(world, rows, "smart", 5), strict=True))
    locked, crushed = (0, 1, 3), (4, 4, 8)
    assert reward[locked] == reward[crushed] == pytest.approx(np.log(FLOOR))
    assert reward[0, 2, 3] > reward[locked]
    # One random step from the middle with boxes left and right: up and down with 1/5 each.
    once = rewards(world, rows, "smart", 1)[ranks.rank(np.array([[4, 3, 5]]))[0]]
    assert once == pytest.approx(np.log((0.4 + 0) / 2 + FLOOR))
    # In one heap, that the middle's row equals its column does not count as room to move.
    heap = rewards(world, rows, "plain", 1)
    assert heap[ranks.rank(np.array([[2, 1, 5]]))[0]] == pytest.approx(np.log(1 + FLOOR))


def test_room_to_move_frees_the_human_and_does_not_crush_it() -> None:
    world = load_world(BlocksParams(size=3, boxes=2))
    best = best_actions(world, "smart", steps=5, discount=0.9, sweeps=60)
    start = ranks_of(world).rank(world.initial_state()[None].numpy())
    names = world.spec.agents[1].actions
    assert names[int(best[start][0])] in {"box 1 right", "box 1 down", "box 2 down", "box 2 right"}
