"""Conformance kit of executors: calls end exactly once, failures are told, nothing is left."""

from __future__ import annotations

import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from empo_core.errors import LostError, WorkerError
from empo_core.protocols import Executor, Needs
from empo_testing.echo_worker import EchoWorker, unbuildable

PATIENCE_S = 60.0
"""Seconds until something must have arrived, of workers of any kind."""
STOP_S = 5.0
"""Seconds that ``shutdown`` may take."""
_SLACK_S = 2.0
"""For machines with much else to do."""


class ExecutorTests:
    """Subclass this in your plugin's tests and override ``executor``."""

    here = True
    """True where workers are processes of this machine, which the kit may kill."""
    isolated = True
    """True where a worker may die or sleep without harm to this process."""

    @pytest.fixture
    def executor(self) -> Iterator[Executor]:
        """A fresh executor, which is shut down after the test."""
        raise NotImplementedError("override the fixture 'executor'")

    @pytest.fixture
    def start(self, executor: Executor) -> Callable[[], int]:
        """Starts an ``EchoWorker``."""
        return lambda: executor.start(EchoWorker, Needs())

    def test_it_fits_the_protocol(self, executor: Executor) -> None:
        assert isinstance(executor, Executor)

    def test_calls_are_answered_by_their_worker_in_their_order(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        workers = [start(), start()]
        assert len(set(workers)) == 2
        answers = [executor.call(w, "echo", (w, n)) for n in range(20) for w in workers]
        assert [result_of(a) for a in answers] == [(w, n) for n in range(20) for w in workers]
        assert [result_of(executor.call(w, "last")) for w in workers] == [(w, 19) for w in workers]

    def test_values_of_every_size_arrive_unchanged(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        worker = start()
        for size in (0, 1, 70_000, 3_000_000):
            value = bytes(range(256)) * (size // 256) + b"end"
            assert result_of(executor.call(worker, "echo", value)) == value

    def test_reports_come_in_order_and_before_the_result(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        received: list[Any] = []
        call = executor.call(start(), "parts", 5, on_report=received.append)
        call.add_done_callback(lambda call: received.append(call.result()))
        assert result_of(call) == "done"
        await_that(lambda: len(received) == 6)
        assert received == [*((part, b"") for part in range(5)), "done"]

    def test_a_worker_learns_that_another_call_waits(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        worker, received = start(), queue.SimpleQueue[object]()
        call = executor.call(worker, "until_called", on_report=received.put)
        assert received.get(timeout=PATIENCE_S) == "waiting"
        other = executor.call(worker, "echo", 1)
        assert (result_of(call), result_of(other)) == ("called", 1)

    def test_an_exception_is_told_and_the_worker_goes_on(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        worker = start()
        with pytest.raises(WorkerError) as caught:
            result_of(executor.call(worker, "fail"))
        assert not isinstance(caught.value, LostError)
        assert "ValueError: the planted fault" in str(caught.value)
        assert "in fail" in str(caught.value), "the traceback is missing"
        with pytest.raises(WorkerError):
            result_of(executor.call(worker, "unsendable"))
        assert result_of(executor.call(worker, "echo", 1)) == 1

    def test_a_worker_that_cannot_be_built_is_reported_by_every_call(
        self, executor: Executor
    ) -> None:
        worker = executor.start(unbuildable, Needs())
        for _ in range(2):
            with pytest.raises(WorkerError) as caught:
                result_of(executor.call(worker, "pid"))
            assert "there is no such worker" in str(caught.value)
            assert "in unbuildable" in str(caught.value), "the traceback is missing"

    def test_calls_of_a_worker_that_dies_are_lost(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        if not self.isolated:
            pytest.skip("its workers run in this process")
        worker, other, received = start(), start(), list[object]()
        calls = [
            executor.call(worker, "die", on_report=received.append),
            executor.call(worker, "pid"),
        ]
        for call in calls:
            with pytest.raises(LostError):
                result_of(call)
        assert received in ([], ["last words"])
        with pytest.raises(LostError):
            result_of(executor.call(worker, "pid"))
        assert result_of(executor.call(other, "echo", 1)) == 1, "the other was not touched"

    def test_a_killed_worker_is_lost_for_the_reason_that_was_given(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        worker, received = start(), queue.SimpleQueue[object]()
        call = executor.call(worker, "until_called", on_report=received.put)
        received.get(timeout=PATIENCE_S)
        executor.kill(worker, "had to end for this test")
        for lost in (call, executor.call(worker, "pid")):
            with pytest.raises(LostError) as caught:
                result_of(lost)
            assert "had to end for this test" in str(caught.value)

    def test_a_worker_that_is_killed_from_outside_is_lost(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        if not self.here:
            pytest.skip("its workers run elsewhere")
        worker = start()
        os.kill(result_of(executor.call(worker, "pid")), signal.SIGKILL)
        with pytest.raises(LostError):
            result_of(executor.call(worker, "pid"))

    def test_shutting_down_is_possible_at_any_time_and_twice(
        self, executor: Executor, start: Callable[[], int]
    ) -> None:
        worker = start()
        with limited(STOP_S + _SLACK_S):
            executor.shutdown()
            executor.shutdown()
        with pytest.raises(LostError):
            result_of(executor.call(worker, "pid"))

    @pytest.mark.parametrize("state", ["idle", "working", "reporting", "killed", "stopped"])
    def test_shutting_down_takes_seconds_and_leaves_no_process(
        self, state: str, executor: Executor, start: Callable[[], int]
    ) -> None:
        if state == "stopped" and not self.here:
            pytest.skip("its workers run elsewhere")
        if state == "working" and not self.isolated:
            pytest.skip("its workers run in this process")
        worker, other = start(), start()
        pids = [result_of(executor.call(w, "pid")) for w in (worker, other)]
        received, calls = queue.SimpleQueue[object](), list[Future[Any]]()
        if state in ("working", "reporting"):
            method = "sleep" if state == "working" else "until_called"
            calls = [executor.call(worker, method, on_report=received.put)]
            received.get(timeout=PATIENCE_S)
        elif state == "killed":
            executor.kill(worker, "for this test")
        elif state == "stopped":
            os.kill(pids[0], signal.SIGSTOP)
        with limited(STOP_S + _SLACK_S):
            executor.shutdown(STOP_S)
        assert all(call.done() for call in calls)
        if self.here:
            await_that(lambda: not any(is_running(pid) for pid in pids))


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Fails where the block takes longer than this."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun <= seconds, "it took too long"


def result_of(call: Future[Any]) -> Any:
    """The result of a call, which must come."""
    return call.result(PATIENCE_S)


def await_that(condition: Callable[[], bool]) -> None:
    """Wait for something, which must come."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """True where a process is there and not merely waiting to be taken away."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
