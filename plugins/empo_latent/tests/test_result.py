"""Results: what people read, what files say, and what stands beside it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from empo_core.protocols import Result
from empo_latent.evaluation import Episode, Evaluation, score_of
from empo_latent.modelfile import load_model
from empo_latent.networks.model import LatentModel
from empo_latent.params import Actor
from empo_latent.result import LatentResult, evaluation_rows, newest_videos
from empo_latent.types import MultiTaskSpec
from empo_learning.evaluation.videos import Video
from empo_learning.loop import RunRecord, TrainingRow

CUP: dict[str, Any] = {"name": "dmc/ball_in_cup-catch"}
PENDULUM: dict[str, Any] = {"name": "gymnasium/Pendulum-v1"}
HISTORY = (TrainingRow(100, 2.0, None, None), TrainingRow(300, 10.0, -7.5, 20.0))


def evaluation(actor: Actor, *returns: float, tasks: tuple[str, ...] = ("a",), **how: Any) -> Any:
    """An evaluation in which each task has two episodes with a return each."""
    episodes = [
        Episode(i // 2, float(total), float(total), 1.0, 500, False, how.get("success"))
        for i, total in enumerate(returns)
    ]
    frames = [np.zeros((4, 4, 3), np.uint8)] * 2
    videos = tuple(Video(tasks[0], actor, total, frames, 10.0) for total in how.get("filmed", ()))
    return Evaluation(actor=actor, tasks=tasks, episodes=tuple(episodes), videos=videos)


def result(small: Any, *tasks: dict[str, Any], evaluations: Any = None, **groups: Any) -> Any:
    tasks = tasks or (CUP,)
    names = tuple("abc"[: len(tasks)])
    spec = MultiTaskSpec(
        words=3,
        pictures=False,
        shape=(3,),
        actions=1,
        active=((True,),) * len(tasks),
        tasks=names,
        action_repeats=(2,) * len(tasks),
        episode_lengths=(500,) * len(tasks),
    )
    params = small(tasks=list(tasks), num_envs=len(tasks), **groups)
    early = {"planner": evaluation("planner", 1, 3), "policy": evaluation("policy", 0, 0)}
    late = {
        "planner": evaluation("planner", 800, 900, success=1, filmed=[800.0, 900.0]),
        "policy": evaluation("policy", 500, 700, success=0),
    }
    evaluations = [(200, early), (300, late)] if evaluations is None else evaluations
    record = RunRecord(
        directory=Path("run"),
        seed=7,
        steps=300,
        seconds=10.0,
        history=HISTORY,
        scores=[score_of(by_actor) for _, by_actor in evaluations],
    )
    return LatentResult(
        record=record,
        model=LatentModel(params, spec, generator=torch.Generator()),
        params=params,
        spec=spec,
        updates=250,
        action_repeat=2.0,
        evaluations=evaluation_rows(names, evaluations),
        videos=newest_videos(evaluations),
        reporting=params.reporting,
        time_shares={"update": 80.0, "act": 12.5, "act/plan": 10.0},
        part_ms={"update": 32.0, "act": 5.0, "act/plan": 4.0},
    )


def text(result: Any, width: int = 150) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(result.report())
    return console.export_text()


def test_it_is_a_result_and_its_summary_is_strict_json(small: Any) -> None:
    found = result(small, reporting={"solved_at": 850, "solved_evaluations": 1})
    assert isinstance(found, Result)
    summary = json.loads(json.dumps(found.summary(), allow_nan=False))
    assert summary["steps"] == 300
    assert summary["environment_steps"] == 600
    assert (summary["updates"], summary["seconds"], summary["steps_per_second"]) == (
        250,
        10.0,
        30.0,
    )
    assert summary["return_mean"] == -7.5
    trained = [each for each in found.model.parameters() if each.requires_grad]
    assert summary["parameters"] == sum(each.numel() for each in trained)
    planner = summary["evaluation"]["planner"]["a"]
    assert (planner["mean_return"], planner["standard_error"]) == (850.0, 50.0)
    assert summary["evaluation"]["policy"]["a"]["success"] == 0.0
    assert summary["solved"] is True


def test_a_goal_is_reached_or_not_or_there_is_none(small: Any) -> None:
    assert (
        result(small, reporting={"solved_at": 850.1, "solved_evaluations": 1}).summary()["solved"]
        is False
    )
    assert result(small).summary()["solved"] is None
    said = text(result(small, reporting={"solved_at": 850.1, "solved_evaluations": 1}))
    assert "solved (at least 850.1)" in said
    assert "no" in said.split("solved (at least 850.1)")[1].splitlines()[0]
    assert "solved" not in text(result(small))


def test_a_report_has_the_last_evaluation_and_the_effort(small: Any) -> None:
    said = " ".join(text(result(small)).split())
    assert "Evaluation after 600 environment steps" in said
    assert "850 ± 50 │ 800 to 900 │ 500 │ 100%" in said
    assert "600 ± 1e+02 │ 500 to 700 │ 500 │ 0%" in said
    assert "300 steps (600 of environments) in 10.0 s: 30 steps/s, 250 updates of" in said
    assert "│ plan │ 10.0 │" in said


def test_files_hold_everything(small: Any, tmp_path: Path) -> None:
    found = result(small)
    found.save(tmp_path / "results")
    found.draw(tmp_path / "results")
    files = sorted(
        path.relative_to(tmp_path / "results").as_posix() for path in tmp_path.rglob("*.*")
    )
    assert files == [
        "curve.csv", "curve.pdf", "curve.png", "curve.svg", "model.safetensors",
        "training.csv", "videos/a_planner_return_800.0.gif", "videos/a_planner_return_900.0.gif",
    ]  # fmt: skip
    loaded = load_model(tmp_path / "results" / "model.safetensors", registry=small.registry)
    torch.testing.assert_close(loaded.model.state_dict(), found.model.state_dict())
    assert (tmp_path / "results" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_curves_have_a_line_per_evaluation_task_and_actor(small: Any, tmp_path: Path) -> None:
    names = ("a", "b")
    each = {"policy": evaluation("policy", 1, 3, -5, -5, tasks=names)}
    found = result(small, CUP, PENDULUM, evaluations=[(200, each), (300, each)])
    found.save(tmp_path)
    with (tmp_path / "curve.csv").open() as file:
        names, *rows = csv.reader(file)
    assert names == [
        "steps", "environment_steps", "task", "actor", "mean_return", "standard_error",
        "mean_length", "seconds", "seed",
    ]  # fmt: skip
    assert len(rows) == 4
    # Training took 6 s until step 200: between what was noted at steps 100 and 300.
    assert rows[0] == ["200", "400", "a", "policy", "2.0", "1.0", "500.0", "6.0", "7"]
    assert rows[3] == ["300", "600", "b", "policy", "-5.0", "0.0", "500.0", "10.0", "7"]


def test_the_training_is_written_down(small: Any, tmp_path: Path) -> None:
    result(small).save(tmp_path)
    assert (tmp_path / "training.csv").read_text().splitlines() == [
        "steps,seconds,mean_return,mean_length", "100,2.0,,", "300,10.0,-7.5,20.0",
    ]  # fmt: skip


def test_the_picture_has_a_panel_per_task_and_a_line_per_actor(small: Any) -> None:
    names = ("a", "b")
    each = {actor: evaluation(actor, 1, 3, -5, -5, tasks=names) for actor in ("planner", "policy")}
    found = result(small, CUP, PENDULUM, evaluations=[(200, each), (300, each)])
    panels = found.figure().axes
    assert [axes.get_title() for axes in panels] == ["a", "b"]
    labels = [[line.get_text() for line in axes.get_legend().get_texts()] for axes in panels]
    curves = ["planner ± standard error", "policy ± standard error"]
    assert labels == [curves, curves]


def test_a_run_that_did_nothing_says_so(small: Any, tmp_path: Path) -> None:
    nothing = RunRecord(directory=Path("run"), seed=7, steps=0, seconds=0.0)
    found = replace(result(small, evaluations=[]), record=nothing, time_shares={}, part_ms={})
    assert "nothing was done" in text(found)
    summary = found.summary()
    assert (summary["steps"], summary["evaluation"], summary["return_mean"]) == (0, None, None)
    with pytest.raises(ValueError, match="profile_batching_interval"):
        found.profile()
    found.save(tmp_path)
    assert len((tmp_path / "curve.csv").read_text().splitlines()) == 1
    assert not (tmp_path / "videos").exists()


def test_a_profile_has_milliseconds_per_update(small: Any) -> None:
    assert result(small).profile() == {"update": 32.0, "act": 5.0, "act/plan": 4.0}
