"""Worlds of all kinds have the same values in parts as in one piece, to the last bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import psutil
import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef, merged
from empo_core.protocols import WorldModel
from empo_exact.game import Values
from empo_exact.graph import build_graph
from empo_exact.parts.forecast import halo_share
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

WORLDS: dict[str, dict[str, Any]] = {
    "multigrid/key_and_door": {},
    "multigrid/corridor_bush": {"max_steps": 3},
    "multigrid/asymmetric_start": {"max_steps": 5},
    "bushworld/thicket": {"max_steps": 4},
    "table/coma_pill": {"max_steps": 20},
    "blocks": {"boxes": 2, "max_steps": 8},
}


def world(name: str, params: dict[str, Any]) -> WorldModel:
    return build(WorldModelRef.model_validate({"name": name, "params": params}))


def params(**compute: Any) -> ExactParams:
    return ExactParams.model_validate({"preset": "paper", "keep": "all", "compute": compute})


@pytest.mark.parametrize("name", WORLDS)
def test_values_do_not_depend_on_the_number_of_parts(name: str) -> None:
    chosen = world(name, WORLDS[name])
    plain = solve(chosen, params())
    for parts in (1, 2, 5, 8):
        found = solve(chosen, params(parts=parts))
        number = plain.find_rows(found.graph.states)
        for time_ in plain.times:
            one, other = found.store.at(time_), plain.store.at(time_)
            for field in Values._fields:
                ours, theirs = getattr(one, field), getattr(other, field)
                assert np.array_equal(ours, theirs[number[: len(ours)]], equal_nan=True)


def test_slow_words_leave_few_values_to_exchange() -> None:
    chosen = world("multigrid/asymmetric_freeing", {"max_steps": 12})
    graph = build_graph(chosen, 12)
    assert 0 < halo_share(graph, 2) < halo_share(graph, 8) <= 0.3


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "solve_large_worlds.md"
COLUMNS: list[list[dict[str, Any]]] = [
    [{}],
    [{"compute": {"parts": 2}}, {"compute": {"graph": "spill"}}],
    [{"compute": {"processes": 2}}],
    [{"reduce": [name]} for name in ("symmetry", "cone", "lump")],
]
OPTIONS: dict[str, dict[str, Any]] = {
    "rollouts": {"rollouts": 1},
    "inspector": {"inspector": True},
    "diagnostics": {"diagnostics": ["alone"]},
    "count_unrolled": {"count_unrolled": True},
    "checkpoint_s": {"compute": {"checkpoint_s": 1.0}},
    "defunct.rate above 0": {"defunct": {"rate": 0.1}},
}


def goes(*choices: dict[str, Any]) -> bool:
    """Whether these choices go together."""
    data: dict[str, Any] = {}
    for choice in choices:
        data = merged(data, choice)
    try:
        asked = ExactParams.model_validate(data)
    except ValueError:
        return False
    return asked.idle_checkpoints(asked.compute.processes) is None


def test_what_the_page_says_goes_together_does_and_nothing_else() -> None:
    lines = PAGE.read_text().split("| | one piece in RAM |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    keeps = {row[0].strip("`").removeprefix("keep: "): row[1:] for row in rows if "keep:" in row[0]}
    for column, contexts in enumerate(COLUMNS):
        fitting = {keep for keep, cells in keeps.items() if cells[column] == "yes"}
        said: list[tuple[dict[str, Any], set[str]]] = [({}, fitting)]
        for names, *cells in (row for row in rows if "keep:" not in row[0]):
            listed = {keep for keep in keeps if f"`{keep}`" in cells[column]}
            expected = fitting if cells[column] == "yes" else listed
            said += [(OPTIONS[name], expected) for name in names.replace("`", "").split(", ")]
        for option, expected in said:
            for context in contexts:
                found = {keep for keep in keeps if goes(context, option, {"keep": keep})}
                assert found == expected, (context, option)


CONFIG = """\
world_model: {name: blocks, params: {boxes: 3, max_steps: 12}}
algorithm:
  name: exact
  params:
    preset: paper
    keep: none
    compute: {graph: %s, parts: 6, checkpoint_s: 0, workers: 1, processes: %d}
"""
EMPO = (sys.executable, "-m", "empo_core")


def finished(runs: Path) -> dict[str, Any]:
    (summary,) = runs.glob("*/results/summary.json")
    found: dict[str, Any] = json.loads(summary.read_text())
    return found


def run(config: Path, runs: Path, *command: str) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if key != "RANK"}
    subprocess.run(
        [*command, "run", str(config), "--quiet", f"runs={runs}"],
        env=environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return finished(runs)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of one process, with everything in RAM."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "config.yaml").write_text(CONFIG % ("memory", 1))
    return run(folder / "config.yaml", folder / "runs", *EMPO)


@contextmanager
def interrupted(folder: Path, processes: int, moment: int) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has got somewhere: it explores, writes a graph, sweeps or commits."""
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG % ("spill", processes))
    command = [*EMPO, "run", folder / "config.yaml", "--quiet", f"runs={folder / 'runs'}"]
    with subprocess.Popen(command) as process:
        while not list(folder.glob(f"runs/*/values/parts/{MOMENTS[moment]}")):
            assert process.poll() is None
            time.sleep(0.002)
        time.sleep(Random(moment).uniform(0, 0.1))
        yield process


MOMENTS = (
    "problem", "problem", "graph", "halo", "state",
    "values-00001", "committed", "values-00004", "values-00007", "values-00010",
)  # fmt: skip
"""Files that are there when a process is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(len(MOMENTS)))
def test_a_run_that_is_killed_at_any_moment_is_resumed_with_the_same_result(
    tmp_path: Path, moment: int, plain: dict[str, Any]
) -> None:
    with interrupted(tmp_path / "killed", 1, moment) as process:
        process.send_signal(signal.SIGKILL)
    runs = tmp_path / "killed" / "runs"
    (directory,) = runs.iterdir()
    subprocess.run([*EMPO, "resume", directory, "--quiet"], check=True)
    assert finished(runs)["root"] == plain["root"]
    assert not (directory / "values" / "parts").exists()


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(len(MOMENTS)))
def test_a_part_that_is_killed_at_any_moment_changes_nothing(
    tmp_path: Path, moment: int, plain: dict[str, Any]
) -> None:
    with interrupted(tmp_path / "killed", 2, moment) as process:
        (server,) = (child for child in psutil.Process(process.pid).children() if child.children())
        server.children()[moment % 2].kill()
        assert process.wait() == 0
    runs = tmp_path / "killed" / "runs"
    assert finished(runs)["root"] == plain["root"]
    assert not list(runs.glob("*/values/parts"))
    (log,) = runs.glob("*/log.txt")
    assert "all go on from the last values" in log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["memory", "spill"])
def test_processes_of_torchrun_solve_together(
    tmp_path: Path, graph: str, plain: dict[str, Any]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG % (graph, 1))
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    shared = run(config, tmp_path / "shared", sys.executable, *torchrun, "-m", "empo_core")
    assert shared["root"] == plain["root"]
    assert shared["graph"] == plain["graph"]
