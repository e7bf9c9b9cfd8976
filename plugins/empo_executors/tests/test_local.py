"""Worker processes of this machine that die, hang or lose their parent."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

from empo_core.errors import LostError, SolveError, WorkerError
from empo_core.protocols import Needs
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_executors.worker_main import pack_call, run_worker
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import await_that, result_of

PATIENCE_S = 30.0

Start = Callable[..., tuple[LocalExecutor, int]]


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Worker processes cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts an executor with one worker."""
    started = []

    def start(make: Callable[[], object] = EchoWorker, **params: Any) -> tuple[LocalExecutor, int]:
        executor = LocalExecutor(LocalParams.model_validate(params))
        started.append(executor)
        return executor, executor.start(make, Needs())

    yield start
    for executor in started:
        executor.shutdown()


def test_the_loss_says_how_the_process_ended(start: Start) -> None:
    executor, worker = start()
    reports = queue.SimpleQueue[object]()
    pid = result_of(executor.call(worker, "pid"))
    calls = [
        executor.call(worker, "sleep", on_report=reports.put),
        executor.call(worker, "pid"),
    ]
    assert reports.get(timeout=PATIENCE_S) == "good night"
    os.kill(pid, signal.SIGKILL)
    for call in calls:
        with pytest.raises(LostError, match="signal 9"):
            result_of(call)
    executor, worker = start()
    with pytest.raises(LostError, match="code 9"):
        result_of(executor.call(worker, "die", on_report=reports.put))


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_stopped_worker_is_lost_after_its_heartbeat(start: Start, is_busy: bool) -> None:
    executor, worker = start(heartbeat_s=0.5)
    pid = result_of(executor.call(worker, "pid"))
    call = executor.call(worker, "sleep", on_report=print) if is_busy else None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LostError, match=r"0.5 s \(heartbeat_s\)"):
        result_of(call or executor.call(worker, "pid"))


def test_a_worker_stopped_for_a_moment_only_loses_nothing(start: Start) -> None:
    executor, worker = start(heartbeat_s=10.0)
    pid = result_of(executor.call(worker, "pid"))
    os.kill(pid, signal.SIGSTOP)
    call = executor.call(worker, "pid")
    time.sleep(0.3)
    assert not call.done()
    os.kill(pid, signal.SIGCONT)
    assert result_of(call) == pid


def test_calls_that_fill_the_pipe_of_a_stopped_worker_do_not_block(start: Start) -> None:
    executor, worker = start()
    pid = result_of(executor.call(worker, "pid"))
    os.kill(pid, signal.SIGSTOP)
    calls = [executor.call(worker, "echo", bytes(3_000_000)) for _ in range(5)]
    os.kill(pid, signal.SIGCONT)
    assert [len(result_of(call)) for call in calls] == [3_000_000] * 5


class Parent:
    """Has a child that holds the pipe."""

    def fork(self) -> int:
        if os.fork() == 0:
            os.setsid()
            time.sleep(20)
            os._exit(0)
        return os.getpid()


def test_a_dead_worker_whose_child_holds_the_pipe_is_noticed(start: Start) -> None:
    executor, worker = start(Parent)
    os.kill(result_of(executor.call(worker, "fork")), signal.SIGKILL)
    with pytest.raises(LostError, match="signal 9"):
        result_of(executor.call(worker, "fork"))


class Slow:
    """Is never built."""

    def __init__(self) -> None:
        time.sleep(1e6)


def test_a_worker_that_takes_too_long_to_be_built_is_lost(start: Start) -> None:
    executor, worker = start(Slow, start_timeout_s=0.3)
    with pytest.raises(LostError, match=r"0.3 s \(start_timeout_s\)"):
        result_of(executor.call(worker, "pid"))


class Solver:
    """Closes with a trace, and raises what callers know."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def solve(self) -> None:
        raise SolveError("no solution")

    def close(self) -> None:
        self.path.touch()


@pytest.mark.parametrize("make", [EchoWorker, lambda: 1 / 0])
def test_a_worker_whose_caller_is_gone_when_it_is_built_ends_without_an_error(
    make: Callable[[], object],
) -> None:
    caller, worker = multiprocessing.Pipe()
    caller.send_bytes(cloudpickle.dumps(make))
    caller.send_bytes(pack_call("echo", 1))
    caller.close()
    run_worker(worker, None)


def test_errors_of_ours_come_as_they_are_and_workers_are_closed(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "closed"
    executor, worker = start(lambda: Solver(path))
    with pytest.raises(SolveError, match=r"^no solution$"):
        result_of(executor.call(worker, "solve"))
    executor.shutdown()
    await_that(path.exists)


def test_what_cannot_be_done_is_refused(start: Start) -> None:
    executor, lock = LocalExecutor(LocalParams()), threading.Lock()
    with pytest.raises(WorkerError, match="labels"):
        executor.start(EchoWorker, Needs(labels={"zone": "a"}))
    with pytest.raises(WorkerError, match="factory"):
        executor.start(lambda: lock, Needs())
    executor.shutdown()
    with pytest.raises(WorkerError, match="shut down"):
        executor.start(EchoWorker, Needs())
    executor, worker = start()
    with pytest.raises(WorkerError, match="'echo'"):
        executor.call(worker, "echo", lock)
    assert result_of(executor.call(worker, "echo", 1)) == 1


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_end_when_their_parent_is_killed_stopped_ones_too(
    method: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(f"""
        import sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from empo_core.protocols import Needs
        from empo_testing.echo_worker import EchoWorker
        from empo_executors.local import LocalExecutor
        from empo_executors.plugin import LocalParams

        if __name__ == "__main__":
            executor = LocalExecutor(LocalParams(start_method={method!r}))
            workers = [executor.start(EchoWorker, Needs()) for _ in range(2)]
            print(*(executor.call(worker, "pid").result() for worker in workers), flush=True)
            executor.call(workers[0], "sleep", on_report=print)
            time.sleep(600)
        """)
    )
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        workers[1].suspend()
        deadline = time.monotonic() + PATIENCE_S
        while workers[1].status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=10)  # Within 5 s on an idle machine.
    assert [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE] == []


LONG_TMPDIR = """
import sys
from empo_core.errors import WorkerError
from empo_core.protocols import Needs
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_executors.worker_main import pack_call, run_worker
from empo_testing.echo_worker import EchoWorker
executor = LocalExecutor(LocalParams())
try:
    executor.start(EchoWorker, Needs())
except WorkerError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server is used there")
def test_a_folder_for_temporary_files_with_too_long_a_path_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    environment = os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-c", LONG_TMPDIR]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert f"TMPDIR ({folder})" in done.stderr
    assert "Traceback" not in done.stderr
