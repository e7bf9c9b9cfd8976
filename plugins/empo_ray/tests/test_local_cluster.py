"""A cluster of this machine alone, as the executor starts it; for the quick suite."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from empo_core.errors import WorkerError
from empo_core.protocols import Needs
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import (
    assert_balanced,
    await_ready,
    is_running,
    reply_of,
)

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def executor() -> Iterator[RayExecutor]:
    needs = {"cpus": 0.5}
    executor = RayExecutor(RayParams.model_validate({"needs": needs, "object_store_mb": 100}))
    yield executor
    executor.stop()


def test_work_goes_on_after_a_kill_and_nothing_is_left_in_the_end(
    executor: RayExecutor, tmp_path: Path
) -> None:
    executor.start(EchoWorker, 2, Needs(), tmp_path, 2)
    processes = psutil.Process().children(recursive=True)
    head = [process for process in processes if process.name() in ("gcs_server", "raylet")]
    assert head
    addresses = {c.laddr.ip for process in head for c in process.net_connections() if c.laddr}
    assert {address.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    pid = executor.workers()[0].pid
    assert pid is not None
    executor.broadcast(b"policy", 1)
    executor.submit(0, b"sleep")
    assert reply_of(executor).payload == b"good night"
    os.kill(pid, signal.SIGKILL)
    reply = reply_of(executor)
    assert (reply.kind, reply.number) == ("lost", 0)
    await_ready(executor, incarnation=1)
    executor.submit(0, b"blob")
    executor.submit(1, b"blob")
    assert [bytes(reply_of(executor).payload) for _ in range(2)] == [b"1 policy"] * 2
    assert_balanced(executor)
    executor.stop()
    assert not [process for process in head if is_running(process.pid)]
    assert not list(tmp_path.iterdir())


def test_more_workers_than_processors_are_refused(executor: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"5000 workers of 0\.5"):
        executor.start(EchoWorker, 5000, Needs(), tmp_path, 0)


def test_a_config_is_checked_and_plugins_are_listed_without_ray() -> None:
    script = (
        "import sys; from empo_core.config import ExecutorRef, installed; installed();"
        "ExecutorRef.model_validate({'name': 'ray', 'params': {}}); print('ray' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
