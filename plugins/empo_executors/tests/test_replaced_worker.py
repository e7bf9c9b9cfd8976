"""Workers that are replaced when they end, within a budget."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from empo_core.errors import LostError
from empo_executors.local import LocalExecutor
from empo_executors.plugin import LocalParams
from empo_executors.replaced_worker import ReplacedWorker
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import await_that, result_of


@pytest.fixture
def executor() -> Iterator[LocalExecutor]:
    executor = LocalExecutor(LocalParams())
    yield executor
    executor.shutdown()


def test_a_process_that_dies_is_replaced(executor: LocalExecutor) -> None:
    worker = ReplacedWorker(executor, EchoWorker, max_restarts=1)
    assert worker.is_running()
    pid = result_of(worker.call("pid"))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(LostError):
        result_of(worker.call("pid"))
    await_that(lambda: worker.is_running() and worker.incarnation == 1)
    assert result_of(worker.call("pid")) != pid
    assert "signal 9" in worker.last_failure


def test_one_that_always_fails_is_given_up(executor: LocalExecutor) -> None:
    worker = ReplacedWorker(executor, EchoWorker, max_restarts=2)
    for failure in range(3):
        await_that(worker.is_running)
        worker.replace(f"failure {failure}")
    assert worker.given_up
    assert worker.last_failure == "failure 2"
    assert not worker.is_running()
    with pytest.raises(LostError, match="failure 2"):
        result_of(worker.call("pid"))


def test_old_failures_are_forgiven_once_something_was_delivered(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    worker = ReplacedWorker(executor, EchoWorker, max_restarts=1)
    for minutes in range(4):
        monkeypatch.setattr(time, "monotonic", lambda minutes=minutes: now + 70 * minutes)
        assert worker.is_running()
        worker.has_delivered = minutes < 3
        worker.replace("for this test")
        assert worker.given_up == (minutes == 3)
