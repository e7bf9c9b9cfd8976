"""Actors and nodes that fail, grow and differ: each row of the table of failures."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from other_software import other_software
from simulated_cluster import NODE, ray_params

from empo_core.errors import LostError, WorkerError
from empo_core.protocols import Needs
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams
from empo_ray.software import software
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import await_that, is_running, result_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]

Start = Callable[..., tuple[RayExecutor, list[int]]]


@pytest.fixture
def start(cluster: Any) -> Iterator[Start]:
    started = []

    def start(workers: int = 1, **params: Any) -> tuple[RayExecutor, list[int]]:
        params = ray_params(cluster) | params
        executor = RayExecutor(RayParams.model_validate(params))
        started.append(executor)
        return executor, [executor.start(EchoWorker, Needs()) for _ in range(workers)]

    yield start
    for executor in started:
        executor.shutdown()


@contextmanager
def another_node(cluster: Any, **settings: Any) -> Iterator[Any]:
    """A fourth node, which is gone in the end."""
    node = cluster.add_node(**(NODE | settings))
    try:
        yield node
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node, allow_graceful=False)


def test_a_worker_stopped_for_a_moment_loses_nothing(start: Start) -> None:
    executor, (worker,) = start()
    pid, received = result_of(executor.call(worker, "pid")), list[Any]()
    call = executor.call(worker, "parts", 3, 1_000_000, on_report=received.append)
    os.kill(pid, signal.SIGSTOP)
    other = executor.call(worker, "echo", 5)
    time.sleep(2.0)
    assert not other.done()
    os.kill(pid, signal.SIGCONT)
    assert (result_of(call), result_of(other)) == ("done", 5)
    assert [(number, len(data)) for number, data in received] == [(n, 1_000_000) for n in range(3)]


def test_a_worker_stopped_for_long_is_lost(start: Start) -> None:
    executor, (worker,) = start(heartbeat_s=1.0)
    pid = result_of(executor.call(worker, "pid"))
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(LostError, match=r"1 s \(heartbeat_s\)"):
        result_of(executor.call(worker, "pid"))
    await_that(lambda: not is_running(pid))


def test_nodes_that_appear_are_used_and_workers_of_dead_ones_are_lost(
    start: Start, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    executor, workers = start(workers=4)
    calls = [executor.call(worker, "echo", worker) for worker in workers]
    await_that(lambda: sum(call.done() for call in calls) == 3)
    await_that(lambda: "has no place on the cluster yet" in caplog.text)
    (homeless,) = (worker for worker, call in zip(workers, calls, strict=True) if not call.done())
    with another_node(cluster) as node:
        assert result_of(calls[homeless]) == homeless
        cluster.remove_node(node, allow_graceful=False)
        with pytest.raises(LostError):
            result_of(executor.call(homeless, "sleep", on_report=print))
    for worker in workers:
        if worker != homeless:
            assert result_of(executor.call(worker, "last")) == worker


def test_labels_choose_the_node(start: Start, cluster: Any) -> None:
    labels = {"zone": "b"}
    with another_node(cluster, labels=labels) as node:
        executor, (worker,) = start(needs={"labels": labels})
        result_of(executor.call(worker, "pid"))
        executor.kill(worker, "for this test")
        with pytest.raises(LostError, match=node.node_id[:8]):
            result_of(executor.call(worker, "pid"))


def test_other_software_on_a_node_is_refused_before_any_work(
    start: Start, cluster: Any, tmp_path: Path
) -> None:
    versions = {"Python": "3.99.1", "torch": "9.9", "empo-core": "9.8", "empo-executors": "9.7"}
    path, labels = {"PYTHONPATH": other_software(tmp_path, versions)}, {"software": "other"}
    there = another_node(cluster, env_vars=path, labels=labels)
    with there as node:
        executor, (worker,) = start(needs={"labels": labels})
        call = executor.call(worker, "pid")
        with pytest.raises(WorkerError) as caught:
            result_of(call)
    said, ours = str(caught.value), software()
    assert not isinstance(caught.value, LostError)
    assert f"({node.node_id[:8]}))" in said
    for name, version in versions.items():
        assert f"{name} is {ours[name]} here and {version} there" in said


def test_another_version_of_ray_is_refused(start: Start, cluster: Any) -> None:
    from ray._raylet import GcsClient

    store, key, space = GcsClient(address=cluster.address), b"CLUSTER_METADATA", b"cluster"
    before = store.internal_kv_get(key, space)
    assert before is not None
    store.internal_kv_put(key, before.replace(b"2.60.0", b"2.59.9"), True, space)
    try:
        with pytest.raises(WorkerError, match=r"Version mismatch.*2\.59\.9"):
            start()
    finally:
        store.internal_kv_put(key, before, True, space)


def test_without_room_for_any_worker_calls_fail(start: Start) -> None:
    executor, (worker,) = start(needs={"cpus": 64.0}, place_timeout_s=2.0)
    with pytest.raises(WorkerError, match=r"64 CPUs.*\(place_timeout_s"):
        result_of(executor.call(worker, "pid"))


def test_large_values_fill_neither_memory_nor_store(start: Start) -> None:
    executor, workers = start(workers=2)
    lengths: list[int] = []
    for _ in range(10):  # 300 MB, in stores of 200 MiB.
        policy = bytes(30_000_000)
        calls = [executor.call(worker, "echo", policy) for worker in workers]
        assert all(result_of(call) == policy for call in calls)
    call = executor.call(
        workers[0], "parts", 300, 1_000_000, on_report=lambda part: lengths.append(len(part[1]))
    )
    assert result_of(call) == "done"
    assert lengths == [1_000_000] * 300
