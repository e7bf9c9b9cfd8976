"""The executor kit passes a right executor and fails each one broken on purpose."""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from empo_core.errors import LostError, WorkerError
from empo_core.protocols import Executor, Needs
from empo_testing import executor as kit
from empo_testing.executor import ExecutorTests

Runner = Callable[..., set[str]]


class Thread:
    """A worker in a thread of this process, and its calls."""

    def __init__(self, make: Callable[[], object]) -> None:
        self.make, self.reason = make, ""
        self.calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        """Answer calls until told to stop."""
        try:
            worker: Any = self.make()
        except Exception:
            worker = None
            trouble = traceback.format_exc()
        while (call := self.calls.get()) is not None:
            method, arguments, future, on_report = call
            try:
                if worker is None:
                    raise WorkerError(trouble)
                reports = [self.reporter(on_report)] if on_report else []
                result = getattr(worker, method)(*reports, *arguments)
                if hasattr(result, "__next__"):
                    raise WorkerError("generators cannot be sent")
                future.set_result(result)
            except WorkerError as error:
                future.set_exception(error)
            except Exception:
                future.set_exception(WorkerError(traceback.format_exc()))

    def reporter(self, on_report: Callable[[object], None]) -> Callable[[object], bool]:
        """The worker's ``Report``."""

        def report(value: object) -> bool:
            if self.reason:
                raise LostError(self.reason)
            on_report(value)
            return not self.calls.empty()

        return report


class Right:
    """An executor whose workers are threads."""

    def __init__(self) -> None:
        self.workers: list[Thread] = []

    def start(self, make: Callable[[], object], needs: Needs) -> int:
        self.workers.append(Thread(make))
        return len(self.workers) - 1

    def call(
        self,
        worker: int,
        method: str,
        *arguments: object,
        on_report: Callable[[object], None] | None = None,
    ) -> Future[Any]:
        future: Future[Any] = Future()
        thread = self.workers[worker]
        if thread.reason:
            future.set_exception(LostError(thread.reason))
        else:
            thread.calls.put((method, arguments, future, on_report))
        return future

    def kill(self, worker: int, reason: str) -> None:
        self.workers[worker].reason = reason

    def shutdown(self, timeout_s: float = 5.0) -> None:
        for thread in self.workers:
            thread.reason = thread.reason or "was stopped"
            thread.calls.put(None)
            thread.thread.join(0.1)


class CannotKill:
    start, call, shutdown = Right.start, Right.call, Right.shutdown
    __init__ = Right.__init__


class MixesWorkersUp(Right):
    def call(self, worker: int, method: str, *arguments: object, **options: Any) -> Future[Any]:
        return super().call(0, method, *arguments, **options)


class CutsValues(Right):
    def call(self, worker: int, method: str, *arguments: object, **options: Any) -> Future[Any]:
        cut = [a[:65536] if isinstance(a, bytes) else a for a in arguments]
        return super().call(worker, method, *cut, **options)


class DropsReports(Right):
    def call(self, worker: int, method: str, *arguments: object, **options: Any) -> Future[Any]:
        if method == "parts":
            options = {"on_report": lambda value: None}
        return super().call(worker, method, *arguments, **options)


class NeverSaysWaiting(Right):
    def call(self, worker: int, method: str, *arguments: object, **options: Any) -> Future[Any]:
        if method == "echo":
            return Future()
        return super().call(worker, method, *arguments, **options)


class HidesTracebacks(Right):
    def call(self, worker: int, method: str, *arguments: object, **options: Any) -> Future[Any]:
        inner, outer = super().call(worker, method, *arguments, **options), Future[Any]()
        inner.add_done_callback(
            lambda call: (
                outer.set_exception(WorkerError("it failed"))
                if call.exception()
                else outer.set_result(call.result())
            )
        )
        return outer


class ForgetsReasons(Right):
    def kill(self, worker: int, reason: str) -> None:
        super().kill(worker, "it is gone")


class AnswersTheDead(Right):
    def shutdown(self, timeout_s: float = 5.0) -> None:
        pass


class StopsOnce(Right):
    def shutdown(self, timeout_s: float = 5.0) -> None:
        super().shutdown()
        self.shutdown = None  # type: ignore[assignment, method-assign]


class StopsSlowly(Right):
    def shutdown(self, timeout_s: float = 5.0) -> None:
        time.sleep(0.6)
        super().shutdown()


def case_of(kind: type) -> type[ExecutorTests]:
    class TestCase(ExecutorTests):
        here = isolated = False

        @pytest.fixture
        def executor(self) -> Iterator[Executor]:
            made: Executor = kind()
            yield made
            Right.shutdown(made)  # type: ignore[arg-type]

    return TestCase


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is worth waiting for in one process."""
    monkeypatch.setattr(kit, "PATIENCE_S", 0.3)
    monkeypatch.setattr(kit, "STOP_S", 0.5)
    monkeypatch.setattr(kit, "_SLACK_S", 0.0)


def test_a_right_executor_passes(kit_failures: Runner) -> None:
    assert kit_failures(case_of(Right)) == set()


@pytest.mark.parametrize(
    ("broken", "caught_by"),
    [
        (CannotKill, "test_it_fits_the_protocol"),
        (MixesWorkersUp, "test_calls_are_answered_by_their_worker_in_their_order"),
        (CutsValues, "test_values_of_every_size_arrive_unchanged"),
        (DropsReports, "test_reports_come_in_order_and_before_the_result"),
        (NeverSaysWaiting, "test_a_worker_learns_that_another_call_waits"),
        (HidesTracebacks, "test_an_exception_is_told_and_the_worker_goes_on"),
        (HidesTracebacks, "test_a_worker_that_cannot_be_built_is_reported_by_every_call"),
        (ForgetsReasons, "test_a_killed_worker_is_lost_for_the_reason_that_was_given"),
        (AnswersTheDead, "test_shutting_down_is_possible_at_any_time_and_twice"),
        (StopsOnce, "test_shutting_down_is_possible_at_any_time_and_twice"),
        (StopsSlowly, "test_shutting_down_takes_seconds_and_leaves_no_process"),
    ],
)
def test_a_broken_executor_is_caught(broken: type, caught_by: str, kit_failures: Runner) -> None:
    found = kit_failures(case_of(broken), [caught_by])
    assert any(name.startswith(caught_by) for name in found)


def test_the_kit_says_what_to_override(kit_failures: Runner) -> None:
    assert len(kit_failures(ExecutorTests)) > 10
