"""Compiling and loading kernels are stages of a run."""

from __future__ import annotations

import importlib
import logging
from pathlib import Path
from types import ModuleType

import pytest

from empo_core.protocols import Tracker
from empo_core.stages import COMPILING, LOADING, declared, kernel_stage
from empo_core.tracker_group import TrackerGroup
from empo_worlds import compilation

KERNELS = """
from empo_worlds.compilation import compiled, nested

@compiled
def double(x): return 2 * x

@compiled
def triple(x): return 3 * x

@nested
def successor(x): return x + 1

@compiled
def double_and_add(x): return successor(2 * x)
"""


class Watcher(Tracker):
    """Keeps what it is told about each task."""

    def __init__(self) -> None:
        self.shares: list[tuple[str, float]] = []

    def progress(self, task: str, done: float, total: float) -> None:
        self.shares.append((task, done / total))


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Kernels that no process has compiled so far."""
    (tmp_path / "two_kernels.py").write_text(KERNELS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(importlib.sys.modules, "two_kernels", raising=False)
    return importlib.import_module("two_kernels")


def test_kernels_that_are_compiled_or_loaded_are_one_stage_until_there_is_other_progress(
    kernels: ModuleType, tmp_path: Path
) -> None:
    for expected in (
        [
            *[(LOADING, 0), (LOADING, 1)],
            *[(COMPILING, 0), (COMPILING, 1 / len(declared)), (COMPILING, 1)],
        ],
        [(LOADING, 0), (LOADING, 1)],
    ):
        watcher = Watcher()
        group = TrackerGroup([watcher])
        group.start(tmp_path, {})
        assert kernels.double(2) + kernels.triple(2) == 10
        assert not group.has_begun
        group.progress("work", 1, 2)
        group.finish("finished")
        assert watcher.shares == [*expected, ("work", 0.5)]
        importlib.reload(kernels)  # From now on they are on disk.


def test_each_function_that_is_compiled_moves_the_stage_on(
    kernels: ModuleType, tmp_path: Path
) -> None:
    watcher = Watcher()
    group = TrackerGroup([watcher])
    group.start(tmp_path, {})
    assert kernels.double_and_add(2) == 5
    group.finish("finished")
    shares = [share for task, share in watcher.shares if task == COMPILING]
    assert shares[:2] == [0, 1 / len(declared)]


def test_kernels_that_are_there_are_no_stage(kernels: ModuleType) -> None:
    kernels.double(2)
    watcher = Watcher()
    with kernel_stage(watcher.progress):
        kernels.double(3)
    assert watcher.shares == []


def test_a_stage_of_kernels_within_a_run_is_shown_once_and_ends(
    kernels: ModuleType, tmp_path: Path
) -> None:
    outer, inner = Watcher(), Watcher()
    group = TrackerGroup([outer])
    group.start(tmp_path, {})
    with kernel_stage(inner.progress):
        kernels.double(2)
    assert outer.shares[-1] == (COMPILING, 1)
    assert inner.shares == []
    group.finish("finished")


def test_a_kernel_that_was_interrupted_is_not_shown_as_compiled(
    kernels: ModuleType, tmp_path: Path
) -> None:
    watcher = Watcher()
    group = TrackerGroup([watcher])
    group.start(tmp_path, {})
    kernels.double(2)
    group.finish("interrupted")
    kernels.triple(2)
    assert watcher.shares[-1] == (COMPILING, 0)


def test_who_waits_for_kernels_is_told_once_of_the_command_that_compiles_them_ahead(
    kernels: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compilation._tell_of_warmup.cache_clear()
    group = TrackerGroup([Watcher()])
    group.start(tmp_path, {})
    with caplog.at_level(logging.INFO):
        kernels.double(2)
        kernels.triple(2)
    group.finish("finished")
    assert caplog.text.count("empo warmup") == 1
