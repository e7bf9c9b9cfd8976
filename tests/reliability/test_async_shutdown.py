"""However a run with actors ends, nothing of it is left: no process, no file, no descriptor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.errors import CollectError
from empo_core.types import Experience

SCRIPT = Path(__file__).with_name("async_learner.py")
PATIENCE_S = 60
"""Timeout in seconds, after which a process counts as hung; an idle machine needs far less."""
SIGNALS = {
    "Ctrl-C": [signal.SIGINT],
    "Ctrl-C twice": [signal.SIGINT, signal.SIGINT],
    "SIGTERM": [signal.SIGTERM],
    "SIGKILL": [signal.SIGKILL],
}
CODES = {
    "normal": 0, "forgets to stop": 0, "learner raises": 1, "actor raises": 1,
    "Ctrl-C": -2, "Ctrl-C twice": -2, "SIGTERM": -15, "SIGKILL": -9,
}  # fmt: skip
QUICK = {("Ctrl-C twice", "forkserver", "full")}
MATRIX = [
    pytest.param(
        ending, method, channels,
        marks=[] if (ending, method, channels) in QUICK else pytest.mark.slow,
    )
    for ending in CODES
    for method in ("forkserver", "spawn")
    for channels in ("empty", "full")
]  # fmt: skip


def heed_ctrl_c() -> None:
    """Undo what a shell does to processes in the background: let them ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def segments() -> set[Path]:
    """The segments of shared memory of everybody on this machine."""
    return set(Path("/dev/shm").glob("*"))


@pytest.fixture
def shared_memory() -> Iterator[None]:
    """Checks that no segment of shared memory is left; those of other programs go in time."""
    before = segments()
    yield
    end = time.monotonic() + PATIENCE_S
    while any(os.access(path, os.W_OK) for path in segments() - before):
        assert time.monotonic() < end, segments() - before
        time.sleep(0.05)


@pytest.mark.parametrize(("ending", "method", "channels"), MATRIX)
def test_no_process_outlives_the_run(
    ending: str, method: str, channels: str, tmp_path: Path, shared_memory: None
) -> None:
    command = [sys.executable, str(SCRIPT), ending, method, channels]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True, preexec_fn=heed_ctrl_c,
    ) as learner:  # fmt: skip
        assert learner.stdout is not None
        actors = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(actors) == 2
        assert learner.stdout.readline() == "now\n"
        family = psutil.Process(learner.pid).children(recursive=True)
        for number in SIGNALS.get(ending, []):
            # As a terminal or ``timeout`` does it: to the whole group, actors included.
            if number == signal.SIGKILL:
                learner.kill()
            else:
                os.killpg(learner.pid, number)
        try:
            _, errors = learner.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            learner.kill()
            raise
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
    assert learner.returncode == CODES[ending], errors
    if ending == "actor raises":
        assert "RuntimeError: the planted fault" in errors
    if ending not in {"SIGTERM", "SIGKILL"}:
        assert not list(tmp_path.rglob("*")), errors


@pytest.mark.slow
def test_stopped_actors_end_with_a_learner_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "SIGKILL", "forkserver", "full"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as learner:
        assert learner.stdout is not None
        actors = [psutil.Process(int(pid)) for pid in learner.stdout.readline().split()]
        assert len(actors) == 2
        for actor in actors:
            actor.suspend()
        learner.kill()
    _, alive = psutil.wait_procs(actors, timeout=PATIENCE_S)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def resources() -> dict[str, int]:
    """Counts of system resources that a start-stop cycle must not leak."""
    process = psutil.Process()
    return {
        "descriptors": process.num_fds(),
        "processes": len(process.children(recursive=True)),
    }


def cycle(method: str) -> None:
    """Start, collect and stop once."""

    def make(index: int) -> object:
        from types import SimpleNamespace

        return SimpleNamespace(act=lambda training_step: Experience({}, 1))

    params = {
        "actors": 2,
        "min_env_steps": 5,
        "executor": {"name": "local", "params": {"start_method": method}},
    }
    collector = AsyncCollector(AsyncParams.model_validate(params))
    collector.start(make)  # type: ignore[arg-type]
    assert len(collector.collect(0)) >= 5
    collector.stop()
    collector.stop()


@pytest.mark.parametrize(
    ("cycles", "method"),
    [
        (5, "forkserver"),
        pytest.param(200, "forkserver", marks=pytest.mark.slow),
        pytest.param(5, "spawn", marks=pytest.mark.slow),
    ],
)
def test_starting_and_stopping_uses_nothing_up(
    cycles: int, method: str, shared_memory: None
) -> None:
    cycle(method)  # Starts what stays: the fork server and the resource tracker.
    before, threads = resources(), set(threading.enumerate())
    for _ in range(cycles):
        cycle(method)
    assert resources() == before
    # Not their number: threads of earlier tests may end meanwhile.
    assert not set(threading.enumerate()) - threads


def test_stopping_ends_even_actors_that_are_stopped_or_sleep() -> None:
    def make(index: int) -> object:
        import os
        import signal
        import time
        from types import SimpleNamespace

        calls = iter(range(2))

        def act(training_step: int) -> Experience:
            if next(calls) == 0:
                return Experience({}, 1)
            if index:
                time.sleep(1e9)
            os.kill(os.getpid(), signal.SIGSTOP)
            raise AssertionError

        return SimpleNamespace(act=act)

    collector = AsyncCollector(AsyncParams(actors=2, min_env_steps=2))
    collector.start(make)  # type: ignore[arg-type]
    collector.collect(0)
    processes = [psutil.Process(pid) for pid in collector.pids()]
    while processes[0].status() != psutil.STATUS_STOPPED:
        collector.collect(1)
    collector.stop()
    assert not any(process.is_running() for process in processes)
    with pytest.raises(CollectError, match="not run"):
        collector.collect(2)
