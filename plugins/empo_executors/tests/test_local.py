"""Worker processes of this machine that die, hang, damage their messages or lose their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from empo_core.errors import StorageError, WorkerError
from empo_core.protocols import Needs, Payload, Send, WorkerFactory, WorkerState
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import await_ready, reply_of

PATIENCE_S = 30.0


Start = Callable[..., LocalExecutor]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(
        make: WorkerFactory = EchoWorker,
        workers: int = 1,
        restarts: int = 2,
        **params: Any,
    ) -> LocalExecutor:
        executor = LocalExecutor(LocalParams.model_validate(params))
        started.append(executor)
        executor.start(make, workers, Needs(), tmp_path, restarts)
        return executor

    yield start
    for executor in started:
        executor.stop()
    assert not list(tmp_path.iterdir())


def ready_again(executor: LocalExecutor) -> WorkerState:
    """The state of the only worker once it was replaced and is ready."""
    state = await_ready(executor, incarnation=1)
    assert state.incarnation == 1
    return state


def test_a_worker_killed_in_a_call_is_replaced_within_a_second(start: Start) -> None:
    executor = start()
    executor.submit(0, b"sleep")
    executor.submit(0, b"who")
    assert reply_of(executor).kind == "part"
    os.kill(executor.workers()[0].pid or 0, signal.SIGKILL)
    begun = time.monotonic()
    found = [reply_of(executor) for _ in range(2)]
    assert [(reply.kind, reply.number) for reply in found] == [("lost", 0), ("lost", 1)]
    assert "killed by signal 9; signal 9 often means that memory ran out" in found[0].traceback
    ready_again(executor)
    assert time.monotonic() - begun < 5  # Within 1 s on an idle machine.


@pytest.mark.parametrize("busy", [True, False])
def test_a_stopped_worker_is_unavailable_then_killed_and_replaced(start: Start, busy: bool) -> None:
    executor = start(heartbeat_s=1.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    if busy:
        executor.submit(0, b"sleep")
        assert reply_of(executor).kind == "part"
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    seen = set()
    while (state := executor.workers()[0]).incarnation == 0:
        seen.add(state.state)
        executor.next(0.02)
        assert time.monotonic() - begun < PATIENCE_S
    assert "unavailable" in seen
    assert "showed no sign of life for 1 s (heartbeat_s" in state.last_failure
    ready_again(executor)
    (account, _) = executor.account()
    assert account.lost == account.submitted == busy


def test_a_stopped_worker_is_replaced_long_before_a_long_heartbeat_is_over(start: Start) -> None:
    executor = start(heartbeat_s=3600.0)
    os.kill(executor.workers()[0].pid or 0, signal.SIGSTOP)
    begun = time.monotonic()
    while (state := executor.workers()[0]).incarnation == 0:
        executor.next(0.02)
        assert time.monotonic() - begun < PATIENCE_S
    assert "suspended" in state.last_failure
    ready_again(executor)


def test_a_worker_stopped_for_a_moment_only_loses_nothing(start: Start) -> None:
    executor = start(heartbeat_s=10.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    executor.submit(0, b"who")
    assert executor.next(0.3) is None
    os.kill(pid, signal.SIGCONT)
    assert reply_of(executor).payload == b"0 0"
    assert executor.workers()[0].incarnation == 0


def test_a_dead_worker_whose_child_holds_the_pipe_is_noticed(start: Start) -> None:
    class Parent(EchoWorker):
        def call(self, request: bytes, send: Send) -> Payload:
            if os.fork() == 0:
                os.setsid()
                time.sleep(20)
                os._exit(0)
            return [b"forked"]

    executor = start(Parent)
    executor.submit(0, b"fork")
    assert reply_of(executor).payload == b"forked"
    os.kill(executor.workers()[0].pid or 0, signal.SIGKILL)
    ready_again(executor)


def test_a_worker_that_hangs_while_it_is_built_does_not_hold_up_the_others(start: Start) -> None:
    class Slow(EchoWorker):
        def __init__(self, number: int, incarnation: int) -> None:
            super().__init__(number, incarnation)
            time.sleep(1e6 if number else 0)

    begun = time.monotonic()
    executor = start(Slow, workers=2)
    assert time.monotonic() - begun < PATIENCE_S
    assert [state.state for state in executor.workers()] == ["ready", "starting"]
    executor.submit(0, b"who")
    assert reply_of(executor).payload == b"0 0"


def test_a_worker_that_takes_too_long_to_be_built_is_replaced(start: Start) -> None:
    class Slow(EchoWorker):
        def __init__(self, number: int, incarnation: int) -> None:
            super().__init__(number, incarnation)
            time.sleep(0 if incarnation else 1e6)

    executor = start(Slow, start_timeout_s=2)  # The second is in time on a busy machine, too.
    assert executor.workers()[0].incarnation == 1
    assert "was not ready for 2 s (start_timeout_s)" in executor.workers()[0].last_failure


def test_a_broadcast_spoiled_on_the_disk_is_never_loaded(start: Start, tmp_path: Path) -> None:
    executor = start(restarts=0)
    executor.broadcast(b"blob", 1)
    executor.submit(0, b"blob")
    assert reply_of(executor).payload == b"1 blob"
    os.kill(executor.workers()[0].pid or 0, signal.SIGSTOP)
    executor.broadcast(b"blob", 2)
    (path,) = tmp_path.glob("*/broadcast-2.blob")
    path.write_bytes(path.read_bytes()[:-1])
    os.kill(executor.workers()[0].pid or 0, signal.SIGCONT)
    assert executor.next(PATIENCE_S) is None
    assert "broadcast 2 is damaged" in executor.workers()[0].last_failure


def test_two_broadcasts_are_kept_and_versions_only_grow(start: Start, tmp_path: Path) -> None:
    executor = start()
    for version in range(1, 30):
        executor.broadcast(bytes(1000), version)
    assert len(list(tmp_path.glob("*/broadcast-*"))) == 2
    with pytest.raises(WorkerError, match="not newer"):
        executor.broadcast(b"", 29)


def test_what_this_machine_does_not_have_is_refused(tmp_path: Path) -> None:
    executor, lock = LocalExecutor(LocalParams()), threading.Lock()
    with pytest.raises(WorkerError, match="one node and no labels"):
        executor.start(EchoWorker, 1, Needs(labels={"zone": "a"}), tmp_path, 0)
    with pytest.raises(WorkerError, match="factory cannot be sent"):
        executor.start(lambda n, i: lock, 1, Needs(), tmp_path, 0)  # type: ignore[arg-type, return-value]


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"the files that workers need cannot be made"):
        LocalExecutor(LocalParams()).start(EchoWorker, 1, Needs(), tmp_path / "file", 0)


def test_it_runs_once_at_a_time(start: Start, tmp_path: Path) -> None:
    executor = start()
    with pytest.raises(WorkerError, match="runs already"):
        executor.start(EchoWorker, 1, Needs(), tmp_path, 0)


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_end_when_their_parent_is_killed_stopped_ones_too(
    method: str, tmp_path: Path
) -> None:
    path = tmp_path / "script.py"
    path.write_text(
        textwrap.dedent(f"""
        import os, pathlib, sys, time
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from empo_core.protocols import Needs
        from empo_testing.echo_worker import EchoWorker
        from empo_executors.local import LocalExecutor
        from empo_executors.plugin import LocalParams

        if __name__ == "__main__":
            executor = LocalExecutor(LocalParams(start_method={method!r}))
            executor.start(EchoWorker, 2, Needs(), pathlib.Path({str(tmp_path)!r}), 0)
            executor.submit(0, b"sleep")
            executor.next(30)
            print(*(state.pid for state in executor.workers()), flush=True)
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
