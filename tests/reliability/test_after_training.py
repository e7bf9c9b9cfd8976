"""What comes after training never fails it: results are there, and a warning says what is not."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from small_runs import CONFIGS, WORLD

from empo_core.config import RunConfig, merged
from empo_core.experiment import Experiment
from empo_core.protocols import Tracker

RESULTS = {
    "exact": ["summary.json"],
    "phase2": ["summary.json", "values.json"],
    "rollout": ["summary.json", "model.safetensors", "curve.csv", "training.csv"],
    "latent": ["summary.json", "curve.csv", "training.csv"],
}
EXACT = {"world_model": WORLD, "algorithm": {"name": "exact", "params": {}}}


def config(folder: Path, name: str, **params: Any) -> RunConfig:
    found = {**CONFIGS, "exact": EXACT}[name]
    algorithm = {"name": name, "params": merged(found["algorithm"]["params"], params)}
    return RunConfig.model_validate(
        {**found, "algorithm": algorithm, "trackers": ["jsonl"], "runs": str(folder)}
    )


def status(run: Experiment) -> str:
    return str(json.loads((run.directory / "status.json").read_text())["status"])


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelname == "WARNING"]


@pytest.mark.parametrize(
    "name",
    [name if name == "exact" else pytest.param(name, marks=pytest.mark.slow) for name in RESULTS],
)
def test_a_picture_that_cannot_be_drawn_costs_a_warning(
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    pictures: None,
) -> None:
    def warn(*arguments: Any, **options: Any) -> None:
        warnings.warn("a glyph is missing", UserWarning, stacklevel=1)  # An error in these tests.

    # The curve of latent is one of evaluations.
    evaluated = {"reporting": {"evaluation_episodes": 1, "videos": 1}} if name == "latent" else {}
    chosen = config(tmp_path, name, **evaluated)
    monkeypatch.setattr(Figure, "savefig", warn)
    monkeypatch.setattr(Image.Image, "save", warn)
    run = Experiment.start(chosen)
    assert status(run) == "finished"
    found = [path.name for path in (run.directory / "results").iterdir()]
    assert set(RESULTS[name]) <= set(found)
    assert not [each for each in found if each.endswith((".png", ".svg", ".pdf", ".gif"))]
    assert [each for each in warned(caplog) if "a glyph is missing" in each]


class Closing(gymnasium.Env[Any, Any]):
    """Cannot be closed once it has been used."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    error: BaseException = RuntimeError("the window is gone")
    closed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.zeros(2, np.float32), 1.0, False, self.time == 10, {}

    def close(self) -> None:
        type(self).closed += 1
        raise self.error


def closing() -> gymnasium.Env[Any, Any]:
    return gymnasium.wrappers.TimeLimit(Closing(), 10)


@pytest.mark.parametrize("error", [RuntimeError("the window is gone"), SystemExit(0)], ids=repr)
@pytest.mark.parametrize("name", ["rollout", pytest.param("latent", marks=pytest.mark.slow)])
def test_an_environment_that_cannot_be_closed_costs_a_warning(
    tmp_path: Path,
    name: str,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Closing, "error", error)
    monkeypatch.setattr(Closing, "closed", 0)
    found = config(tmp_path, name, reporting={"evaluation_episodes": 1}).model_dump(mode="json")
    found["algorithm"]["params"].pop("environment", None)
    found["algorithm"]["params"].pop("tasks", None)
    run = Experiment.start(RunConfig.model_validate(found), env=closing)
    assert status(run) == "finished"
    assert set(RESULTS[name]) <= {path.name for path in (run.directory / "results").iterdir()}
    failures = [each for each in warned(caplog) if type(error).__name__ in each]
    assert failures
    assert all("clos" in each for each in failures)
    assert Closing.closed >= len(failures)


class Last(Tracker):
    """Fails at everything once the work is done."""

    def progress(self, task: str, done: float, total: float) -> None:
        if task == "saving results":
            raise OSError("no room left")

    def finish(self, status: str) -> None:
        raise OSError("no room left")


@pytest.mark.parametrize(
    "name",
    # What a tracker fails at is the same for every algorithm.
    [name if name == "exact" else pytest.param(name, marks=pytest.mark.slow) for name in RESULTS],
)
def test_a_tracker_that_fails_at_the_end_costs_a_warning(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Experiment.start(config(tmp_path, name), watchers=[Last()])
    assert status(run) == "finished"
    assert set(RESULTS[name]) <= {path.name for path in (run.directory / "results").iterdir()}
    assert [each for each in warned(caplog) if "no room left" in each]


def test_what_fails_at_the_end_of_a_failed_run_does_not_hide_why(tmp_path: Path) -> None:
    class Fails(Closing):
        def step(self, action: Any) -> Any:
            raise ValueError("the engine broke")

    found = config(tmp_path, "rollout").model_dump(mode="json")
    del found["algorithm"]["params"]["environment"]
    with pytest.raises(Exception, match="engine"):
        Experiment.start(RunConfig.model_validate(found), env=Fails, watchers=[Last()])
    (directory,) = tmp_path.iterdir()
    assert "the engine broke" in json.loads((directory / "status.json").read_text())["error"]
    with pytest.raises(Exception, match="engine"):
        Experiment.resume(directory, env=Fails, watchers=[Last()])


class Blocks(Tracker):
    """Puts a folder where the page of a run would be."""

    def start(self, directory: Path, config: Mapping[str, Any]) -> None:
        (directory / "inspector.html").mkdir()


@pytest.mark.parametrize("name", ["exact", pytest.param("phase2", marks=pytest.mark.slow)])
def test_a_page_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = Experiment.start(config(tmp_path, name, inspector=True), watchers=[Blocks()])
    assert status(run) == "finished"
    assert set(RESULTS[name]) <= {path.name for path in (run.directory / "results").iterdir()}
    assert [each for each in warned(caplog) if "inspector.html" in each]
