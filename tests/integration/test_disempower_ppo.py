"""Humans and assistants who learn by PPO on Disempower-Grid: the example trains, plays, resumes."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "benchmarks"))

import disempower_ppo  # noqa: E402

SMALLER = {
    "seeds: [0, 1, 2, 3, 4]": "seeds: [0, 1]",
    "[ave, mc_emp, joint]": "[mc_emp]",
    "steps: 50 ": "steps: 4 ",
    "episodes: 2000": "episodes: 300",
    "updates: 50 ": "updates: 1 ",
    "copies: 100": "copies: 4",
    "bptt_horizon: 50": "bptt_horizon: 4",
    "minibatch_size: 2500": "minibatch_size: 16",
    "minibatch_size: 1250": "minibatch_size: 16",
}


def settings(folder: Path) -> Path:
    text = disempower_ppo.SETTINGS.read_text()
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "smaller.yaml").write_text(text)
    return folder / "smaller.yaml"


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["disempower_ppo.py", *options])
    disempower_ppo.main()


def table_of(out: Path) -> dict[str, dict[str, str]]:
    """The lines of the table by robot, without what depends on the machine."""
    *lines, footer = (out / "table.csv").read_text().splitlines()
    assert footer.startswith("# settings smaller.yaml ")
    rows = {row["robot"]: row for row in csv.DictReader(lines)}
    for row in rows.values():
        del row["cpu_seconds"]
    return rows


def test_everybody_learns_and_plays_once_and_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    options = (str(out), "--layouts", "move_any_freeze", "--settings", str(settings(tmp_path)))
    run(monkeypatch, *options)
    rows = table_of(out)
    (out / "move_any_freeze_1.json").unlink()
    trained = sorted((out / "runs").glob("*/*/config.yaml"))
    run(monkeypatch, *options)
    assert table_of(out) == rows, "the other seed is played again"
    assert sorted((out / "runs").glob("*/*/config.yaml")) == trained, "and nobody learns again"
    assert list(rows) == ["idle", "random", "PPO mc_emp", "exact mc_emp"]
    assert float(rows["idle"]["empowerment_user"]) == 0
    assert float(rows["exact mc_emp"]["of_best"]) == pytest.approx(1)
    scores = json.loads((out / "move_any_freeze_0.json").read_text())["scores"]
    for name in ("idle", "random", "PPO mc_emp"):
        assert scores[name]["objectives"]["mc_emp"] < scores["exact mc_emp"]["empowerment"][0]
    assert scores["random"]["objectives"]["mc_emp"] == pytest.approx(
        scores["random"]["empowerment"][0], abs=1e-6
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--layouts", "move_some"], "--layouts move_some"), (["--seeds", "9"], "--seeds 9")],
    ids=str,
)
def test_what_the_settings_have_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], reason: str
) -> None:
    with pytest.raises(SystemExit, match=reason):
        run(monkeypatch, str(tmp_path), *options)
