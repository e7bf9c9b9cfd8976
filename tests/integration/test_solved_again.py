"""Commands about a run of ``exact`` that kept no values."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from empo_core.cli.app import app

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
