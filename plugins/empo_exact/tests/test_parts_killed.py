"""A solve in parts that is killed at any instant can go on, and what it left is overwritten."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from empo_core.components import build
from empo_core.config import WorldModelRef
from empo_core.runs.atomic import DISK
from empo_exact.plugin import ExactParams
from empo_exact.result import ExactResult
from empo_exact.solve import solve

WORLD = {"name": "multigrid/trivial", "params": {"max_steps": 4}}
PARAMS: dict[str, Any] = {
    "keep": "disk",
    "compute": {"workers": 1, "graph": "spill", "parts": 2, "checkpoint_s": 0},
}

KILLED = """
import itertools, json, os, signal, sys
from pathlib import Path
from empo_core.config import WorldModelRef
from empo_core.components import build
from empo_exact.plugin import ExactParams
from empo_exact.solve import solve

world = build(WorldModelRef.model_validate(json.loads(sys.argv[1])))
params = ExactParams.model_validate(json.loads(sys.argv[2]))
folder, first, step = Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])

def change(directory, last, resume):
    '''Solve and save in a child process, which is killed after so many changes of the disk.'''
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        changes = itertools.count()
        def count(event, args):
            writes = event == "open" and isinstance(args[2], int) and args[2] & os.O_ACCMODE
            if writes or event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
                if last is not None and next(changes) == last:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        result = solve(world, params, directory=directory / "values", resume=resume)
        (directory / "results").mkdir(exist_ok=True)
        result.save(directory / "results")
        (directory / "V_r").write_text(repr(result.at(0).V_r))
        os._exit(0)
    except BaseException as error:
        print(last, resume, type(error).__name__, error, flush=True)
        os._exit(1)

solve(world, params, directory=folder / "warm")
codes = []
for number in itertools.count(first, step):
    directory = folder / f"after-{number}"
    directory.mkdir(parents=True)
    killed = change(directory, number, False)
    again = change(directory, None, True)
    left = (directory / "values" / "parts").exists()
    codes.append([killed, again, left, (directory / "V_r").read_text() if not again else ""])
    if killed == 0:
        break
print(json.dumps(codes))
"""


@pytest.mark.parametrize(
    ("first", "step"),
    [(3, 297), *(pytest.param(first, 8, marks=pytest.mark.slow) for first in range(8))],
)
def test_a_solve_that_is_killed_after_any_change_of_the_disk_goes_on(
    tmp_path: Path, first: int, step: int
) -> None:
    arguments = [json.dumps(WORLD), json.dumps(PARAMS), str(tmp_path), str(first), str(step)]
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    *rest, last = json.loads(process.stdout.splitlines()[-1])
    value = repr(solved(tmp_path / "plain").at(0).V_r)
    assert len(rest) >= 300 // step
    assert rest == [[9, 0, False, value]] * len(rest), process.stdout
    assert last == [0, 0, False, value]


def solved(directory: Path, resume: bool = False, **theory: Any) -> ExactResult:
    world = build(WorldModelRef.model_validate(WORLD))
    params = ExactParams.model_validate({**PARAMS, "theory": theory})
    return solve(world, params, directory=directory, resume=resume)


def test_files_stay_until_results_are_saved(tmp_path: Path) -> None:
    result = solved(tmp_path)
    assert list((tmp_path / "parts" / "graph").glob("*"))
    (tmp_path / "results").write_text("no folder")
    with pytest.raises(Exception, match="results"):
        result.save(tmp_path / "results")
    assert list((tmp_path / "parts" / "graph").glob("*"))
    result.save(tmp_path / "other")
    assert not (tmp_path / "parts").exists()


def test_a_folder_that_the_disk_refuses_to_remove_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result, rename = solved(tmp_path), DISK.rename

    def refuse(source: Path, target: Path) -> None:
        if source == tmp_path / "parts" / "graph" / "part-00001":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        rename(source, target)

    monkeypatch.setattr(DISK, "rename", refuse)
    result.save(tmp_path / "results")
    left = [path for path in (tmp_path / "parts").rglob("*") if path.is_dir()]
    assert [path.name for path in left] == ["graph", "part-00001"]
    (warning,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert str(tmp_path / "parts") in warning.getMessage()
    assert os.strerror(errno.EACCES) in warning.getMessage()


def test_another_problem_can_be_solved_where_a_solved_one_was_not_saved(tmp_path: Path) -> None:
    solved(tmp_path)
    other = solved(tmp_path, beta_r=3.0)
    assert other.at(0).V_r == solved(tmp_path / "elsewhere", beta_r=3.0).at(0).V_r


@pytest.mark.parametrize("kind", ["graph", "halo", "state", "committed", "values-00002"])
def test_arrays_without_a_manifest_are_overwritten(tmp_path: Path, kind: str) -> None:
    """As older versions left them when they were killed."""
    plain = solved(tmp_path)
    for folder in (tmp_path / "parts").glob(f"{kind}/part-*"):
        (folder / "manifest.json").unlink()
    assert solved(tmp_path, resume=True).at(0).V_r == plain.at(0).V_r


def test_what_an_older_version_had_half_removed_is_not_taken_for_a_whole(tmp_path: Path) -> None:
    plain = solved(tmp_path)
    for folder in (tmp_path / "parts" / "graph").glob("part-*"):
        old = folder.with_name(f".{folder.name}.old")
        shutil.move(folder, old)
        (old / "manifest.json").unlink()
    assert solved(tmp_path, resume=True).at(0).V_r == plain.at(0).V_r
