"""Conformance kit of executors: replies exactly once, failures survived, nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from empo_core.errors import WorkerError
from empo_core.protocols import Executor, Needs, Reply, WorkerFactory, WorkerState
from empo_testing.echo_worker import EchoWorker, unbuildable

Start = Callable[..., Executor]
"""Starts an executor, with workers of a kind and their number."""
PATIENCE_S = 60.0
"""Seconds until something must have arrived, of workers of any kind."""
STOP_S = 5.0
"""Seconds that ``stop`` may take."""
MAX_RESTARTS = 2
_SLACK_S = 2.0
"""For machines with much else to do."""


class ExecutorTests:
    """Subclass this in your plugin's tests and override ``executor``."""

    here = True
    """True where workers are processes of this machine, which the kit may kill."""
    isolated = True
    """True where a worker may die or sleep without harm to this process."""
    checked = False
    """True where messages carry a CRC32 that workers compute with ``zlib.crc32``."""
    buffered = False
    """True where a worker that dies may take along what it has sent just before."""

    @pytest.fixture
    def executor(self) -> Executor:
        """A fresh executor that has not started; of two calls in flight per worker."""
        raise NotImplementedError("override the fixture 'executor'")

    @pytest.fixture
    def start(self, request: pytest.FixtureRequest, executor: Executor, tmp_path: Path) -> Start:
        """Starts the executor, and stops it after the test."""

        def start(make: WorkerFactory = EchoWorker, workers: int = 2) -> Executor:
            request.addfinalizer(executor.stop)
            executor.start(make, workers, Needs(), tmp_path, MAX_RESTARTS)
            return executor

        return start

    def test_it_fits_the_protocol(self, executor: Executor) -> None:
        assert isinstance(executor, Executor)

    def test_all_workers_are_ready_after_the_start(self, start: Start) -> None:
        executor = start(workers=3)
        # On a busy machine the last may be ready a moment later than the others.
        states = [await_ready(executor, worker) for worker in range(3)]
        assert [state.number for state in states] == [0, 1, 2]
        assert {state.incarnation for state in states} == {0}

    def test_every_call_is_answered_once_and_in_order(self, start: Start) -> None:
        executor = start()
        numbers: dict[int, list[int]] = {0: [], 1: []}
        submitted = {0: 0, 1: 0}
        while min(map(len, numbers.values())) < 20:
            for state in executor.workers():
                if state.in_flight < 2 and submitted[state.number] < 20:
                    number = executor.submit(state.number, b"echo %d" % submitted[state.number])
                    assert number == submitted[state.number]
                    submitted[state.number] += 1
            reply = reply_of(executor)
            assert reply.kind == "answer"
            assert reply.payload == b"echo%d" % reply.number
            numbers[reply.worker].append(reply.number)
        assert numbers == {0: list(range(20)), 1: list(range(20))}
        assert executor.next(0.05) is None
        assert_balanced(executor)

    def test_calls_beyond_two_in_flight_are_refused(self, start: Start) -> None:
        executor = start()
        executor.submit(0, b"sleep")
        executor.submit(0, b"who")
        with pytest.raises(WorkerError):
            executor.submit(0, b"who")
        assert executor.submit(1, b"who") == 0, "another worker has room"
        with pytest.raises(WorkerError):
            executor.submit(7, b"who")

    def test_payloads_of_every_size_arrive_unchanged(self, start: Start) -> None:
        executor = start(workers=1)
        for size in (0, 1, 70_000, 3_000_000):
            executor.submit(0, b"large %d" % size)
            reply = reply_of(executor)
            assert len(reply.payload) == size + 3
            assert reply.payload[-3:] == b"end"
            memoryview(reply.payload)[0:1] = b"x"  # Writable.
        executor.submit(0, b"nothing")
        assert reply_of(executor).payload == b""

    def test_parts_come_before_their_answer(self, start: Start) -> None:
        executor = start(workers=1)
        executor.submit(0, b"parts 5")
        replies = [reply_of(executor) for _ in range(6)]
        assert [reply.kind for reply in replies] == ["part"] * 5 + ["answer"]
        assert [bytes(reply.payload) for reply in replies] == [
            *(b"part %d" % part for part in range(5)), b"done",
        ]  # fmt: skip
        assert {reply.number for reply in replies} == {0}

    def test_a_worker_learns_that_another_request_waits(self, start: Start) -> None:
        executor = start(workers=1)
        executor.submit(0, b"until-asked")
        assert reply_of(executor).payload == b"waiting"
        executor.submit(0, b"who")
        while (reply := reply_of(executor)).kind == "part":
            pass
        assert (reply.number, bytes(reply.payload)) == (0, b"asked")
        assert (reply := reply_of(executor)).number == 1
        assert reply.payload == b"0 0"

    def test_a_call_follows_what_was_broadcast_before_it(self, start: Start) -> None:
        executor = start()
        for version in (1, 2, 3, 7):
            executor.broadcast(b"blob of %d" % version, version)
            for worker in (0, 1):
                executor.submit(worker, b"blob")
            for _ in range(2):
                reply = reply_of(executor)
                assert reply.payload == b"%d blob of %d" % (version, version)
                assert reply.version == version
        assert [state.version for state in executor.workers()] == [7, 7]

    def test_a_replacement_gets_the_newest_broadcast(self, start: Start) -> None:
        executor = start(workers=1)
        executor.broadcast(b"old", 1)
        executor.broadcast(b"new", 2)
        executor.replace(0, "for this test")
        state = await_ready(executor, incarnation=1)
        executor.submit(0, b"blob")
        assert reply_of(executor).payload == b"2 new"
        assert "for this test" in state.last_failure

    def test_an_exception_is_told_and_the_worker_goes_on(self, start: Start) -> None:
        executor = start(workers=1)
        executor.submit(0, b"raise")
        reply = reply_of(executor)
        assert reply.kind == "raised"
        assert "ValueError: the planted fault" in reply.traceback
        assert "in call" in reply.traceback, "the traceback is missing"
        executor.submit(0, b"who")
        assert reply_of(executor).payload == b"0 0"

    def test_a_worker_that_cannot_be_built_is_reported(self, start: Start) -> None:
        with pytest.raises(WorkerError) as caught:
            start(unbuildable)
        assert "has no such thing" in str(caught.value)
        assert "in unbuildable" in str(caught.value), "the traceback is missing"

    def test_calls_of_a_worker_that_dies_are_lost_once_each(self, start: Start) -> None:
        if not self.isolated:
            pytest.skip("its workers run in this process")
        executor = start()
        executor.submit(0, b"die")
        executor.submit(0, b"who")
        found = [reply_of(executor)]
        if found[0].kind == "part" or not self.buffered:
            part = found.pop()
            assert part.kind == "part"
            assert part.payload == b"last words"
        found += [reply_of(executor) for _ in range(2 - len(found))]
        assert [(r.kind, r.number) for r in found] == [("lost", 0), ("lost", 1)]
        state = await_ready(executor, incarnation=1)
        assert state.last_failure
        executor.submit(0, b"who")
        reply = reply_of(executor)
        assert (bytes(reply.payload), reply.number, reply.incarnation) == (b"0 1", 0, 1)
        executor.submit(1, b"who")
        assert reply_of(executor).payload == b"1 0", "the other worker was not touched"
        assert_balanced(executor)

    def test_a_worker_that_dies_of_a_broadcast_is_replaced(self, start: Start) -> None:
        if not self.isolated:
            pytest.skip("its workers run in this process")
        executor = start(workers=1)
        executor.broadcast(b"die", 1)
        executor.submit(0, b"blob")
        assert reply_of(executor).kind == "lost"
        await_ready(executor, incarnation=1)
        executor.submit(0, b"blob")
        assert reply_of(executor).payload == b"1 die"
        assert_balanced(executor)

    def test_a_damaged_answer_ends_the_worker_and_is_lost(self, start: Start) -> None:
        if not self.checked:
            pytest.skip("its messages have no CRC32")
        executor = start(workers=1)
        executor.submit(0, b"damage")
        reply = reply_of(executor)
        assert reply.kind == "lost"
        assert "is damaged" in reply.traceback
        await_ready(executor, incarnation=1)

    def test_an_idle_worker_that_is_killed_is_replaced(self, start: Start) -> None:
        if not self.here:
            pytest.skip("its workers run elsewhere")
        executor = start(workers=1)
        pid = executor.workers()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await_ready(executor, incarnation=1)
        executor.submit(0, b"who")
        assert reply_of(executor).payload == b"0 1"

    def test_a_worker_that_always_fails_is_given_up(self, start: Start) -> None:
        executor = start(workers=1)
        for incarnation in range(MAX_RESTARTS + 1):
            executor.replace(0, f"failure {incarnation}")
            if incarnation < MAX_RESTARTS:
                await_ready(executor, incarnation=incarnation + 1)
        assert executor.next(PATIENCE_S) is None, "nothing can come, so nothing is waited for"
        (state,) = executor.workers()
        assert state.state == "given_up"
        assert f"failure {MAX_RESTARTS}" in state.last_failure
        with pytest.raises(WorkerError):
            executor.submit(0, b"who")

    def test_stopping_is_possible_at_any_time_and_twice(
        self, executor: Executor, start: Start
    ) -> None:
        executor.stop()
        with limited(STOP_S + _SLACK_S):
            start(workers=1).stop()
            executor.stop()

    @pytest.mark.parametrize("state", ["idle", "working", "waiting", "failed", "stopped"])
    def test_stopping_takes_seconds_and_leaves_no_process(self, state: str, start: Start) -> None:
        if state == "stopped" and not self.here:
            pytest.skip("its workers run elsewhere")
        if state == "working" and not self.isolated:
            pytest.skip("its workers run in this process")
        executor = start()
        pids = [found.pid for found in executor.workers()]
        if state == "working":
            executor.submit(0, b"sleep")
            reply_of(executor)
        elif state == "waiting":
            executor.submit(0, b"parts 100000")
            executor.submit(0, b"who")
        elif state == "failed":
            executor.replace(0, "for this test")
        elif state == "stopped":
            os.kill(pids[0] or 0, signal.SIGSTOP)
        with limited(STOP_S + _SLACK_S):
            executor.stop(STOP_S)
        while (reply := executor.next(0.0)) is not None:
            assert reply.kind in ("part", "answer", "lost")
        assert_balanced(executor)
        if self.here:
            assert not [pid for pid in pids if pid is not None and is_running(pid)]

    def test_files_are_gone_after_stopping(self, start: Start, tmp_path: Path) -> None:
        executor = start()
        executor.broadcast(b"blob", 1)
        executor.stop()
        assert not list(tmp_path.rglob("*"))


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Fails where the block takes longer than this."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun <= seconds, "it took too long"


def reply_of(executor: Executor) -> Reply:
    """The next reply, which must come."""
    reply = executor.next(PATIENCE_S)
    assert reply is not None, "no reply came"
    return reply


def await_ready(executor: Executor, worker: int = 0, *, incarnation: int = 0) -> WorkerState:
    """The state of a worker once it is ready in this incarnation or a later one."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        state = executor.workers()[worker]
        if state.incarnation >= incarnation and state.state == "ready":
            return state
        assert time.monotonic() < deadline, "the worker did not become ready"
        reply = executor.next(0.01)
        assert reply is None or reply.kind == "lost"


def assert_balanced(executor: Executor) -> None:
    """Every call of every incarnation ended in one way or is in flight."""
    states = {state.number: state for state in executor.workers()}
    for account in executor.account():
        state = states[account.worker]
        flying = state.in_flight if account.incarnation == state.incarnation else 0
        assert account.submitted == account.answered + account.lost + flying, account


def is_running(pid: int) -> bool:
    """True where a process is there and not merely waiting to be taken away."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
