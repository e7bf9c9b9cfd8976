"""Summary, report and saved files of a run."""

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
from doors import THEORY, DoorWorld, SolvedDoors, knowing
from PIL import Image
from rich.console import Console

from empo_core.protocols import Result
from empo_core.types import AgentSpec
from empo_learning.loop import RunRecord
from empo_learning.saved_model import MODEL
from empo_phase2.behaviour import build_networks
from empo_phase2.compare import Comparison
from empo_phase2.params import Phase2Params
from empo_phase2.policyfile import load_policy
from empo_phase2.result import Phase2Result, as_csv

pytestmark = pytest.mark.usefixtures("components")

LOSSES = [(10, {"v_h_e": 0.5}), (20, {"v_h_e": 0.25, "q_r": 2.0}), (30, {"v_h_e": 0.0, "q_r": 1.0})]


def named_lines(axes: Any) -> list[Any]:
    return [line for line in axes.get_lines() if not line.get_label().startswith("_")]


def result_of(*, compared: bool, **changes: Any) -> Phase2Result:
    world = DoorWorld()
    learned = knowing(world, "q_r", "v_h_e")
    params = Phase2Params.model_validate(
        {
            "human_prior": "test-eager",
            "values": {"q_r": "test-flat", "v_h_e": "test-flat"},
            "aggregator": "test-adding",
            "theory": THEORY,
            "reporting": {"compare": "exact" if compared else None},
        }
    )
    torch.manual_seed(0)
    network = build_networks(params.values, world.spec)["q_r"]
    comparison = Comparison(SolvedDoors(world), world, lambda rows: rows) if compared else None
    if comparison is not None:
        for step in (10, 30):
            comparison.record(step, learned)
    parts: dict[str, Any] = {
        "params": params,
        "spec": world.spec,
        "played": world,
        "record": RunRecord(directory=Path("run"), seed=0, steps=30, seconds=1.25),
        "env_steps": 480,
        "root": learned(world.initial_state()[None], torch.tensor([4])),
        "losses": LOSSES,
        "weights": {f"q_r.{name}": tensor for name, tensor in network.state_dict().items()},
        "inspection": lambda _: pytest.fail("these results are not inspected"),
        "comparison": comparison,
        "assessed": comparison.assess(learned) if comparison is not None else None,
    }
    return Phase2Result(**parts | changes)


def report_of(result: Phase2Result, width: int = 120) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(result.report())
    return stream.getvalue()


def test_the_summary_is_json_and_says_what_is_true_at_the_start() -> None:
    result = result_of(compared=False)
    assert isinstance(result, Result)
    summary = json.loads(json.dumps(result.summary(), allow_nan=False))
    values = SolvedDoors(DoorWorld()).exact.at(tuple(DoorWorld().initial_state().tolist()), 4)
    root = summary["root"]
    assert root["V_r"] == pytest.approx(values.v_r, rel=1e-5)
    assert root["U_r"] == pytest.approx(values.u_r, rel=1e-5)
    assert root["Q_r"] == pytest.approx(list(values.q_r.values()), rel=1e-5)
    assert root["robot_policy"] == pytest.approx(list(values.pi_r.values()), rel=1e-5)
    assert list(root["X_h"]) == ["0", "2"]
    assert list(root["X_h"].values()) == pytest.approx(list(values.x_h.values()), rel=1e-5)
    attained = [goal["V_e"] for goal in root["goals"]]
    assert attained == pytest.approx(list(values.v_e.values()), rel=1e-5)
    assert [goal["goal"] for goal in root["goals"]][:2] == ["shut", "shut"]
    assert (summary["algorithm"], summary["world"]) == ("phase2", "door")
    assert (summary["steps"], summary["env_steps"], summary["seconds"]) == (30, 480, 1.25)
    assert summary["losses"] == {"v_h_e": 0.0, "q_r": 1.0}
    assert summary["gap"] is None


def test_the_profile_has_the_stages_where_they_were_measured() -> None:
    part_ms = {"stage1_collect": 0.25, "stage2_encode": 0.5}
    assert result_of(compared=False, part_ms=part_ms).profile() == part_ms
    with pytest.raises(ValueError, match="profile_batching_interval"):
        result_of(compared=False).profile()


def test_the_last_gap_is_part_of_the_summary() -> None:
    gap = result_of(compared=True).summary()["gap"]
    assert gap["Compare/V_r_root_rel"] < 1e-5
    assert gap["Compare/coverage"] == 0


def test_actions_that_do_not_exist_have_no_value() -> None:
    result = result_of(compared=False)
    world = DoorWorld()
    ajar = torch.tensor([[1, 0]], dtype=torch.int16)
    root = knowing(world, "q_r", "v_h_e")(ajar, torch.tensor([2]))
    changed = replace(result, root=root)
    assert changed.summary()["root"]["Q_r"][1] is None
    assert changed.summary()["root"]["robot_policy"] == [1.0, 0.0]
    assert "unavailable" in report_of(changed)


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("width", [40, 120])
def test_the_report_is_for_people(compared: bool, width: int) -> None:
    text = report_of(result_of(compared=compared), width)
    for expected in ("door: start state", "shouter", "open", "30 training steps"):
        assert expected in text
    assert ("Gap to exact" in text) == compared
    assert " object at 0x" not in text


def test_many_robot_actions_are_shown_by_probability() -> None:
    result = result_of(compared=False)
    agents = list(result.spec.agents)
    agents[1] = AgentSpec(name="robot", role="robot", actions=tuple(f"a{i}" for i in range(30)))
    policy = torch.full((1, 30), 0.01)
    policy[0, 27] = 0.71
    root = replace(result.root, pi_r=policy, q_r=torch.full((1, 30), -1.0))
    changed = replace(result, spec=replace(result.spec, agents=tuple(agents)), root=root)
    text = report_of(changed)
    assert "... and 10 less likely ones" in text
    assert text.index("a27") < text.index("a0 ")


def test_joint_actions_are_named_the_first_robot_fastest() -> None:
    spec = DoorWorld().spec
    second = AgentSpec(name="other", role="robot", actions=("x", "y", "z"))
    names = replace(spec, agents=(*spec.agents, second)).robot_action_names
    assert names == ("wait + x", "open + x", "wait + y", "open + y", "wait + z", "open + z")


def test_a_curve_as_csv_has_a_line_per_step_and_gaps_where_nothing_is_known() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(LOSSES))))
    assert rows == [
        ["step", "v_h_e", "q_r"],
        ["10", "0.5", ""],
        ["20", "0.25", "2.0"],
        ["30", "0.0", "1.0"],
    ]


@pytest.mark.parametrize("compared", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_files_are_saved_and_saved_again(tmp_path: Path, compared: bool) -> None:
    result = result_of(compared=compared)
    names = {"values.json", MODEL, "losses.csv"} | ({"gap.csv"} if compared else set())
    drawn = ["losses", "gap", "values"] if compared else ["losses"]
    names |= {f"{name}.{suffix}" for name in drawn for suffix in ("png", "svg", "pdf")}
    for _ in range(2):
        result.save(tmp_path / "results")
        result.draw(tmp_path / "results")
        assert {path.name for path in (tmp_path / "results").iterdir()} == names
    values = json.loads((tmp_path / "results" / "values.json").read_text())
    assert values == result.summary()["root"]
    for path in (tmp_path / "results").glob("*.png"):
        with Image.open(path) as picture:
            picture.load()
            assert min(picture.size) >= 800
    if compared:
        gaps = list(csv.DictReader(io.StringIO((tmp_path / "results" / "gap.csv").read_text())))
        assert [row["step"] for row in gaps] == ["10", "30"]
        assert float(gaps[0]["Compare/pi_r_root_tv"]) < 1e-5


def test_the_policy_can_be_loaded_again(tmp_path: Path) -> None:
    result = result_of(compared=False)
    result.save(tmp_path)
    world = DoorWorld()
    policy = load_policy(tmp_path / MODEL, world)
    chances = policy.policy(world.initial_state()[None], torch.tensor([4]))
    assert chances.shape == (1, 2)
    assert float(chances.sum()) == pytest.approx(1)


def test_a_run_without_training_has_no_curves(tmp_path: Path) -> None:
    result = result_of(compared=False, losses=[])
    result.save(tmp_path)
    assert result.summary()["losses"] == {}
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {"values.json", MODEL}


def test_pictures_show_what_was_learned() -> None:
    from empo_phase2 import pictures

    result = result_of(compared=True)
    assert result.comparison is not None
    assert result.assessed is not None
    (axes,) = pictures.loss_curves(LOSSES).axes
    curves = {line.get_label(): line.get_xdata().tolist() for line in named_lines(axes)}
    assert curves == {"$V_h^e$ (▼ below 1e-12)": [10, 20, 30], "$Q_r$": [20, 30]}
    plots = pictures.gap(result.comparison).axes
    assert [len(named_lines(axes)) for axes in plots] == [3, 3, 3]
    assert plots[0].get_lines()[0].get_xdata().tolist() == [10, 30]
    assert all(axes.get_legend() is not None for axes in plots)
    (axes,) = pictures.values(result.comparison, result.assessed).axes
    visited, diagonal = named_lines(axes)
    assert diagonal.get_label() == "learned = right"
    assert len(visited.get_xdata()) == len(result.comparison.right)
    assert abs(visited.get_xdata() - visited.get_ydata()).max() < 1e-5


def test_a_curve_says_and_marks_where_it_is_clipped_and_leaves_out_what_is_not_a_number() -> None:
    from empo_phase2 import pictures

    heights = [1.0, 1e-13, float("nan"), 0.0, 0.5]
    (axes,) = pictures.loss_curves([(step, {"q_r": y}) for step, y in enumerate(heights)]).axes
    curve, marks = axes.get_lines()
    assert axes.get_legend().get_texts()[0].get_text() == "$Q_r$ (▼ below 1e-12)"
    assert marks.get_marker() == "v"
    assert marks.get_xdata().tolist() == [1, 3]
    np.testing.assert_array_equal(curve.get_ydata(), [1.0, 1e-12, np.nan, 1e-12, 0.5])
    (axes,) = pictures.loss_curves([(0, {"q_r": 1.0})]).axes
    assert [line.get_label() for line in named_lines(axes)] == ["$Q_r$"]
