"""Conformance kit of algorithms: compute the same each time, report, survive a restart."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from rich.console import Console

from empo_core.errors import EmpoError
from empo_core.protocols import Algorithm, Result, RunContext, RunStatus, Tracker, WorldModel
from empo_core.trees import JsonData
from empo_core.types import Histogram
from empo_testing.exploration import as_mappings, is_json, reachable_states
from empo_testing.worlds import TinyWorld

SEED = 5


class RecordingTracker(Tracker):
    """Remembers what an algorithm reports."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float | Histogram]]] = []
        self.progressed: dict[str, list[tuple[float, float]]] = {}

    def start(self, directory: Path, config: Mapping[str, JsonData]) -> None:
        """Not the algorithm's business."""
        raise AssertionError("whoever runs the algorithm starts the tracker")

    def log(self, step: int, metrics: Mapping[str, float | Histogram]) -> None:
        """Remember the numbers."""
        self.logged.append((step, dict(metrics)))

    def progress(self, task: str, done: float, total: float) -> None:
        """Remember how far the task is."""
        self.progressed.setdefault(task, []).append((done, total))

    def finish(self, status: RunStatus) -> None:
        """Not the algorithm's business."""
        raise AssertionError("whoever runs the algorithm finishes the tracker")


class AlgorithmTests:
    """Subclass this in your plugin's tests and override ``algorithm``.

    Choose params with which it takes a second or so on ``world``. ``volatile`` are the keys
    of its summary that may differ between runs.
    """

    @pytest.fixture
    def algorithm(self) -> Algorithm:
        """The algorithm under test."""
        raise NotImplementedError("override the fixture 'algorithm'")

    @pytest.fixture
    def world(self) -> WorldModel | None:
        """The world it runs on; None for an algorithm that uses none."""
        return TinyWorld()

    @pytest.fixture
    def volatile(self) -> set[str]:
        """Keys of the summary that depend on the machine."""
        return {"seconds", "peak_memory_bytes"}

    @pytest.fixture
    def context(self, world: WorldModel | None, tmp_path: Path) -> RunContext:
        """Context of a fresh run."""
        return fresh(world, tmp_path / "run")

    def test_it_fits_the_protocol(self, algorithm: Algorithm) -> None:
        assert isinstance(algorithm, Algorithm)

    def test_a_run_gives_a_result(self, algorithm: Algorithm, context: RunContext) -> None:
        assert isinstance(run(algorithm, context), Result)

    def test_the_summary_is_strict_json(self, algorithm: Algorithm, context: RunContext) -> None:
        summary = run(algorithm, context).summary()
        assert isinstance(summary, dict)
        assert summary
        assert is_json(summary), f"not JSON, or not finite: {summary}"
        assert json.loads(json.dumps(summary, allow_nan=False)) == listed(summary)

    def test_the_seed_decides_the_result(
        self, algorithm: Algorithm, world: WorldModel | None, tmp_path: Path, volatile: set[str]
    ) -> None:
        first, second = (
            run(algorithm, fresh(world, tmp_path / name)).summary() for name in ("one", "two")
        )
        assert without(first, volatile) == without(second, volatile)

    def test_a_result_says_the_same_each_time(
        self, algorithm: Algorithm, context: RunContext
    ) -> None:
        result = run(algorithm, context)
        summary = result.summary()
        render(result, 80)
        result.save(context.directory)
        assert result.summary() == summary

    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_the_report_can_be_shown(
        self, algorithm: Algorithm, context: RunContext, width: int
    ) -> None:
        text = render(run(algorithm, context), width)
        assert text.strip()
        assert " object at 0x" not in text

    def test_results_are_saved_in_the_directory_only(
        self,
        algorithm: Algorithm,
        context: RunContext,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "results").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        result = run(algorithm, context)
        during = files(tmp_path)
        assert not [path for path in during if context.directory not in path.parents]
        result.save(tmp_path / "results")
        saved = files(tmp_path) - during
        assert saved, "nothing was saved"
        assert all(tmp_path / "results" in path.parents for path in saved)

    def test_nothing_is_pickled(self, algorithm: Algorithm, context: RunContext) -> None:
        run(algorithm, context).save(context.directory)
        for path in files(context.directory):
            assert not is_pickle(path), f"{path.name} holds a pickle; use safetensors or npy"

    def test_results_can_be_saved_again(self, algorithm: Algorithm, context: RunContext) -> None:
        result = run(algorithm, context)
        result.save(context.directory)
        before = files(context.directory)
        result.save(context.directory)
        assert files(context.directory) == before

    def test_a_run_can_be_resumed_wherever_it_stopped(
        self, algorithm: Algorithm, world: WorldModel | None, tmp_path: Path, volatile: set[str]
    ) -> None:
        directory = tmp_path / "run"
        expected = without(run(algorithm, fresh(world, tmp_path / "plain")).summary(), volatile)
        # Interrupted before it wrote anything, then again after it wrote everything.
        for _ in range(2):
            context = fresh(world, directory)
            context.resume = True
            assert without(run(algorithm, context).summary(), volatile) == expected

    def test_what_it_reports_makes_sense(self, algorithm: Algorithm, context: RunContext) -> None:
        tracker = context.tracker
        assert isinstance(tracker, RecordingTracker)
        run(algorithm, context)
        for task, reports in tracker.progressed.items():
            assert all(0 <= done <= total < math.inf for done, total in reports), task
            assert all(done <= later for (done, _), (later, _) in pairwise(reports)), (
                f"the progress of {task!r} goes back: {reports}"
            )
            assert reports[-1][0] == reports[-1][1], f"{task!r} never finishes: {reports[-1]}"
        for step, metrics in tracker.logged:
            assert isinstance(step, int)
            for name, value in metrics.items():
                assert isinstance(name, str)
                assert isinstance(value, int | float | Histogram), f"{name} is {value!r}"

    def test_standard_output_is_left_to_the_result(
        self, algorithm: Algorithm, context: RunContext, capfd: pytest.CaptureFixture[str]
    ) -> None:
        result = run(algorithm, context)
        result.summary()
        result.save(context.directory)
        algorithm.check(context.world)
        assert capfd.readouterr().out == "", "report through the tracker, or log"

    def test_the_world_stays_as_it_is(self, algorithm: Algorithm, context: RunContext) -> None:
        world = context.world
        if world is None:
            pytest.skip("the algorithm uses no world")
        states = reachable_states(world)
        before = as_mappings(world.transitions(states))
        run(algorithm, context)
        assert as_mappings(world.transitions(states)) == before

    def test_check_says_what_a_run_would_need(
        self,
        algorithm: Algorithm,
        world: WorldModel | None,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        needs = algorithm.check(world)
        assert isinstance(needs, Mapping)
        assert needs
        for report in (needs, algorithm.alternatives(world)):
            assert is_json(report), f"not JSON, or not finite: {report}"
        assert not files(tmp_path), "checking must not write files"

    def test_a_run_without_a_world_works_or_says_why_not(
        self, algorithm: Algorithm, tmp_path: Path
    ) -> None:
        refusal = "works without a world"
        try:
            run(algorithm, fresh(None, tmp_path / "run"))
            algorithm.check(None)
        except EmpoError as error:
            refusal = str(error)
        assert "world" in refusal


def fresh(world: WorldModel | None, directory: Path) -> RunContext:
    """A context for a run in a directory of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    return RunContext(
        world=world, seed=SEED, directory=directory, tracker=RecordingTracker(), resume=False
    )


def run(algorithm: Algorithm, context: RunContext) -> Result:
    """Run with the global generators seeded, as ``empo run`` does."""
    torch.manual_seed(context.seed)
    return algorithm.run(context)


def render(result: Result, width: int) -> str:
    """The report as plain text."""
    stream = io.StringIO()
    Console(file=stream, width=width).print(result.report())
    return stream.getvalue()


def without(summary: Mapping[str, JsonData], volatile: set[str]) -> dict[str, JsonData]:
    """A summary without the keys that may differ between runs."""
    return {key: value for key, value in summary.items() if key not in volatile}


def files(directory: Path) -> set[Path]:
    """Every file below a directory."""
    return {path for path in directory.rglob("*") if path.is_file()}


def listed(data: JsonData) -> JsonData:
    """JSON data as it comes back: tuples are lists."""
    if isinstance(data, Mapping):
        return {key: listed(value) for key, value in data.items()}
    return [listed(value) for value in data] if isinstance(data, list | tuple) else data


def is_pickle(path: Path) -> bool:
    """True if a file is a pickle, holds one as ``torch.save`` writes it, or an object array."""
    content = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(is_pickle_start(archive.read(name)) for name in archive.namelist())
    return is_pickle_start(content)


def is_pickle_start(content: bytes) -> bool:
    """True if bytes begin as a pickle (protocol 2 or later) or as a pickled numpy array."""
    pickled_array = content.startswith(b"\x93NUMPY") and b"'descr': '|O'" in content[:256]
    return pickled_array or (content[:1] == b"\x80" and content[1:2] in b"\x02\x03\x04\x05")
