"""A cluster of this machine alone, as the executor starts it; for the quick suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import psutil
import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from empo_core.errors import LostError, WorkerError
from empo_core.protocols import Needs
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import is_running, result_of

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def executor() -> Iterator[RayExecutor]:
    needs = {"cpus": 0.5}
    executor = RayExecutor(RayParams.model_validate({"needs": needs, "object_store_mb": 100}))
    yield executor
    executor.shutdown()


def test_work_goes_on_after_a_kill_and_nothing_is_left_in_the_end(executor: RayExecutor) -> None:
    before = signal.getsignal(signal.SIGTERM)
    workers = [executor.start(EchoWorker, Needs()) for _ in range(2)]
    pids = [result_of(executor.call(worker, "pid")) for worker in workers]
    assert signal.getsignal(signal.SIGTERM) is before, "Ray takes signals"
    processes = psutil.Process().children(recursive=True)
    head = [process for process in processes if process.name() in ("gcs_server", "raylet")]
    assert head
    addresses = {c.laddr.ip for process in head for c in process.net_connections() if c.laddr}
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    call = executor.call(workers[0], "sleep", on_report=print)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(LostError):
        result_of(call)
    assert result_of(executor.call(workers[1], "echo", b"policy")) == b"policy"
    executor.shutdown()
    assert not [process for process in head if is_running(process.pid)]


def test_more_workers_than_processors_are_refused(executor: RayExecutor) -> None:
    for _ in range(2 * (os.cpu_count() or 1)):
        executor.start(EchoWorker, Needs())
    with pytest.raises(WorkerError, match=r"0.5 CPUs"):
        executor.start(EchoWorker, Needs())


def test_a_config_is_checked_and_plugins_are_listed_without_ray() -> None:
    script = (
        "import sys; from empo_core.config import ExecutorRef, installed; installed();"
        "ExecutorRef.model_validate({'name': 'ray', 'params': {}}); print('ray' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
