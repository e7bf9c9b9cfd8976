"""Runs with reductions leave what runs without them leave: tables, pages, pictures, episodes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from typer.testing import CliRunner

from empo_benchmarks.blocks.params import BlocksParams
from empo_benchmarks.blocks.world import load_world
from empo_core.cli.app import app
from empo_core.config import installed
from empo_exact.inspection import inspect
from empo_exact.plugin import ExactParams
from empo_exact.result import load
from empo_exact.solve import solve
from empo_theory.inspection import InspectionScope

SHOWN = (".png", ".gif", ".html", ".svg", ".pdf")
WORLD = ["world_model.name=blocks", "world_model.params.size=3", "world_model.params.max_steps=4"]


def run(folder: Path, *changes: str) -> Path:
    config = folder / "config.yaml"
    config.write_text("algorithm: {name: exact, params: {preset: paper}}\n")
    runs = folder / "runs"
    done = CliRunner().invoke(app, ["run", str(config), *WORLD, *changes, f"runs={runs}"])
    assert done.exit_code == 0, done.output
    return next(runs.iterdir())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A run without reductions and one with two, with the pictures of both."""
    changes: list[list[str]] = [[], ["algorithm.params.reduce=[symmetry, lump]"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("EMPO_BLOCK_PLUGINS")  # The conftest.py of the repository blocks pictures.
        installed.cache_clear()
        yield [run(tmp_path_factory.mktemp(f"run{i}"), *more) for i, more in enumerate(changes)]
    installed.cache_clear()


def same(actual: Any, expected: Any) -> bool:
    """Equal data, numbers to 1e-12."""
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            same(actual[k], expected[k]) for k in actual
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(same, actual, expected))
    if isinstance(expected, float):
        return bool(np.isclose(actual, expected, rtol=1e-12, atol=1e-12))
    return bool(actual == expected)


def test_summaries_agree_about_everything_but_time(runs: list[Path]) -> None:
    plain, reduced = (json.loads(next(folder.rglob("summary.json")).read_text()) for folder in runs)
    plain, reduced = plain.get("result", plain), reduced.get("result", reduced)
    assert same(reduced["root"], plain["root"])
    assert reduced["graph"] == plain["graph"]
    assert [step["name"] for step in reduced["reductions"]] == ["symmetry", "lump"]
    assert plain["reductions"] == []


def test_a_saved_run_answers_for_all_states(runs: list[Path]) -> None:
    world = load_world(BlocksParams(size=3, max_steps=4))
    plain, reduced = (load(next(folder.rglob("tables")).parent, world) for folder in runs)
    assert np.array_equal(plain.graph.states, reduced.graph.states)
    for time in plain.times:
        for mine, theirs in zip(reduced.store.at(time), plain.store.at(time), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)
    assert [step.name for step in reduced.reductions] == ["symmetry", "lump"]


def test_pictures_and_pages_are_there(runs: list[Path]) -> None:
    plain, reduced = (
        {path.name for path in folder.rglob("*") if path.suffix in SHOWN} for folder in runs
    )
    assert "inspector.html" in reduced
    assert any(name.endswith(".png") for name in reduced)
    assert reduced == plain


def test_inspections_and_episodes_are_of_original_states() -> None:
    world = load_world(BlocksParams(size=3, max_steps=4))
    base: dict[str, Any] = {"preset": "paper", "keep": "all"}
    plain = solve(world, ExactParams.model_validate(base))
    params = ExactParams.model_validate({**base, "reduce": ["symmetry", "lump"]})
    reduced = solve(world, params)
    mine, theirs = (inspect(each, params.theory, InspectionScope()) for each in (reduced, plain))
    assert np.array_equal(mine.rows, theirs.rows)
    assert np.array_equal(mine.successor, theirs.successor)
    np.testing.assert_allclose(mine.v_e, theirs.v_e, rtol=1e-12, atol=1e-12)
    episodes = [each.rollout(torch.Generator().manual_seed(3)) for each in (reduced, plain)]
    assert episodes[0] == episodes[1]
    assert reduced.chain().num_nodes == plain.chain().num_nodes


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"reduce": ["mirror"]}, "symmetry"),
        ({"reduce": ["lump", "lump"]}, "lump twice"),
        ({"reduce": ["lump"], "keep": "disk"}, "keep: disk"),
        ({"reduce": ["lump"], "compute": {"processes": 2}}, "one piece"),
        ({"reduce": ["lump"], "compute": {"graph": "spill"}}, "one piece"),
        ({"reduce": ["lump"], "count_unrolled": True}, "keep to"),
        ({"reduce": ["lump"], "human_prior": {"name": "uniform"}}, "leave lump"),
        (
            {"reduce": ["symmetry"], "believed_others": [{"human": 0, "others": [], "prob": 1}]},
            "leave symmetry .*believed_others",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ExactParams.model_validate(params)


def test_a_report_says_what_was_reduced() -> None:
    world = load_world(BlocksParams(size=3, max_steps=4))
    for keep in ("none", "all"):
        params = ExactParams.model_validate({"keep": keep, "reduce": ["symmetry"]})
        found = solve(world, params)
        assert found.reductions[0].sentence.startswith("symmetry ")
        assert found.summary()["reductions"]
