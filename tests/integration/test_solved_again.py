"""Commands about a run of ``exact`` that kept no values."""

import gc
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app
from empo_exact import solve
from empo_exact.graph import StateGraph, world_graph

CONFIG = """
world_model: {name: multigrid/free_the_human, params: {max_steps: 4}}
algorithm: {name: exact, params: {keep: KEEP, rollouts: 0}}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, directories = tmp_path_factory.mktemp("runs"), {}
    for keep in ("all", "none"):
        config = folder / f"{keep}.yaml"
        config.write_text(CONFIG.replace("KEEP", keep) + f"runs: {folder / keep}\n")
        done = CliRunner().invoke(app, ["run", str(config), "--quiet"])
        assert done.exit_code == 0, done.output
        (directories[keep],) = (folder / keep).iterdir()
    return directories


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "RUN", "--json"],
        ["inspect", "RUN"],
        ["evaluate", "RUN", "--episodes", "3", "--gifs", "0"],
        ["certify", "RUN", "--eps", "0.1", "--json"],
        ["compare", "ALL", "RUN"],
    ],
    ids=lambda words: words[0],
)
def test_it_is_solved_again_and_one_line_says_so(
    runs: dict[str, Path], words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    places = {"RUN": str(runs["none"]), "ALL": str(runs["all"])}
    done = CliRunner().invoke(app, [places.get(word, word) for word in words])
    assert done.exit_code == 0, done.output
    assert caplog.text.count("solved again") == 1
    assert "not compared" not in done.stdout


def test_its_explanation_is_that_of_a_run_that_kept_everything(runs: dict[str, Path]) -> None:
    texts = [CliRunner().invoke(app, ["explain", str(runs[k]), "--json"]).stdout for k in runs]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(("max_steps", "times"), [(4, 1), (3, 2)])
def test_runs_that_are_compared_are_explored_once_if_their_world_is_one(
    runs: dict[str, Path],
    max_steps: int,
    times: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["algorithm.params.theory.beta_r=20", f"world_model.params.max_steps={max_steps}"]
    words = [str(runs["none"] / "config.yaml"), *words, f"runs={tmp_path}"]
    done = CliRunner().invoke(app, ["run", *words, "--quiet"])
    assert done.exit_code == 0, done.output
    explored = []

    def explore(*args: Any, **kwargs: Any) -> StateGraph:
        explored.append(args)
        return world_graph(*args, **kwargs)

    gc.collect()  # Graphs of other tests.
    monkeypatch.setattr(solve, "world_graph", explore)
    (other,) = tmp_path.iterdir()
    done = CliRunner().invoke(app, ["compare", str(runs["none"]), str(other)])
    assert done.exit_code == 0, done.output
    assert len(explored) == times
