"""Actors, nodes and heads that fail, grow and differ: each row of the table of failures."""

from __future__ import annotations

import os
import re
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

from empo_core.errors import WorkerError
from empo_core.protocols import Needs
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams
from empo_ray.software import software
from empo_testing.echo_worker import EchoWorker
from empo_testing.executor import (
    assert_balanced,
    await_ready,
    is_running,
    reply_of,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]
PATIENCE_S = 30.0


Start = Callable[..., RayExecutor]


@pytest.fixture
def start(cluster: Any, tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(workers: int = 1, **params: Any) -> RayExecutor:
        params = ray_params(cluster, place_timeout_s=5.0) | params
        executor = RayExecutor(RayParams.model_validate(params))
        started.append(executor)
        executor.start(EchoWorker, workers, Needs(), tmp_path, 5)
        return executor

    yield start
    for executor in started:
        executor.stop()


@contextmanager
def another_node(cluster: Any, **settings: Any) -> Iterator[Any]:
    """A fourth node, which is gone in the end."""
    node = cluster.add_node(**(NODE | settings))
    try:
        yield node
    finally:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node, allow_graceful=False)


def until(executor: RayExecutor, condition: Callable[[], bool]) -> None:
    """Watch the workers until something is so; replies are of no interest."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, executor.workers()
        executor.next(0.02)


def test_a_worker_stopped_for_a_moment_is_unavailable_and_loses_nothing(start: Start) -> None:
    executor = start(heartbeat_s=1.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    executor.submit(0, b"parts 3 1000000")
    os.kill(pid, signal.SIGSTOP)
    executor.submit(0, b"who")
    until(executor, lambda: executor.workers()[0].state == "unavailable")
    os.kill(pid, signal.SIGCONT)
    until(executor, lambda: executor.workers()[0].in_flight == 0)
    (account,) = executor.account()
    assert (account.answered, account.lost, account.sent) == (2, 0, account.accepted)


def test_a_worker_stopped_for_long_is_replaced(start: Start) -> None:
    executor = start(heartbeat_s=1.0, unavailable_s=1.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    executor.submit(0, b"who")
    assert reply_of(executor).kind == "answer"
    os.kill(pid, signal.SIGSTOP)
    executor.submit(0, b"who")
    reply = reply_of(executor)
    assert reply.kind == "lost"
    assert "no sign of life for 2 s (heartbeat_s and unavailable_s" in reply.traceback
    await_ready(executor, incarnation=1)
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline


def test_nodes_that_appear_are_used_and_workers_of_dead_ones_wait_for_room(
    start: Start, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    executor = start(workers=4, place_timeout_s=4.0)
    states = [state.state for state in executor.workers()]
    assert sorted(states) == ["dead", "ready", "ready", "ready"], "bundles are spread"
    assert "room for 3 of 4 workers" in caplog.text
    homeless = states.index("dead")
    with pytest.raises(WorkerError, match="has no process at the moment"):
        executor.submit(homeless, b"who")
    with another_node(cluster) as node:
        state = await_ready(executor, homeless)
        assert node.node_id[:8] in state.node
        executor.submit(homeless, b"who")
        assert reply_of(executor).kind == "answer"
        cluster.remove_node(node, allow_graceful=False)
        executor.submit(homeless, b"who")
        executor.submit(homeless, b"who")
        found = [reply_of(executor) for _ in range(2)]
        assert {(reply.worker, reply.kind) for reply in found} <= {
            (homeless, "lost"), (homeless, "answer"),
        }  # fmt: skip
    until(executor, lambda: executor.workers()[homeless].incarnation > 0)
    executor.next(1.5)
    assert executor.workers()[homeless].pid is None, "there is no room"
    for state in executor.workers():
        if state.number != homeless:
            executor.submit(state.number, b"who")
            assert reply_of(executor).kind == "answer"
    with another_node(cluster) as node:
        state = await_ready(executor, homeless, incarnation=1)
        assert node.node_id[:8] in state.node
        assert_balanced(executor)
        executor.stop()


def test_labels_choose_the_node_and_one_that_drains_is_left(start: Start, cluster: Any) -> None:
    from ray._raylet import GcsClient

    labels = {"zone": "b"}
    with another_node(cluster, labels=labels) as node:
        executor = start(needs={"labels": labels})
        assert node.node_id[:8] in executor.workers()[0].node
        with another_node(cluster, labels=labels) as refuge:
            preemption, deadline_ms = 2, int(1000 * (time.time() + 3600))
            head = GcsClient(address=cluster.address)
            accepted, why = head.drain_node(node.node_id, preemption, "for this test", deadline_ms)
            assert accepted, why
            state = await_ready(executor, incarnation=1)
            assert "was on a node that drains" in state.last_failure
            assert refuge.node_id[:8] in state.node
            executor.stop()


def test_other_software_on_a_node_is_refused_before_any_work(
    start: Start, cluster: Any, tmp_path: Path
) -> None:
    versions = {"Python": "3.99.1", "torch": "9.9", "empo-core": "9.8", "empo-executors": "9.7"}
    path, labels = {"PYTHONPATH": other_software(tmp_path, versions)}, {"software": "other"}
    there = another_node(cluster, env_vars=path, labels=labels)
    with there as node, pytest.raises(WorkerError) as caught:
        start(needs={"labels": labels})
    said, ours = str(caught.value), software()
    assert f"({node.node_id[:8]}) with other software: Python is " in said
    for name, version in versions.items():
        assert f"{name} is {ours[name]} here and {version} there" in said


def test_another_version_of_ray_is_refused(start: Start, cluster: Any) -> None:
    from ray._raylet import GcsClient

    store, key, space = GcsClient(address=cluster.address), b"CLUSTER_METADATA", b"cluster"
    before = store.internal_kv_get(key, space)
    assert before is not None
    store.internal_kv_put(key, before.replace(b"2.60.0", b"2.59.9"), True, space)
    try:
        with pytest.raises(WorkerError, match=r"cannot be used: Version mismatch.*2\.59\.9"):
            start()
    finally:
        store.internal_kv_put(key, before, True, space)


def test_without_room_for_any_worker_the_start_fails(start: Start) -> None:
    with pytest.raises(WorkerError, match=r"room for a worker of 64 CPUs.* \(place_timeout_s"):
        start(needs={"cpus": 64.0}, place_timeout_s=2.0)


def test_two_broadcasts_are_kept_also_while_a_worker_is_stopped(start: Start) -> None:
    executor = start(workers=2)
    pid = executor.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for version in range(1, 11):  # 300 MB, in stores of 200 MiB.
        executor.broadcast(bytes(30_000_000), version)
        executor.submit(1, b"who")
        assert reply_of(executor).version == version
    os.kill(pid, signal.SIGCONT)
    executor.submit(0, b"who")
    assert reply_of(executor).version == 10


def test_a_worker_that_is_not_listened_to_fills_neither_memory_nor_store(start: Start) -> None:
    executor = start()
    executor.submit(0, b"parts 300 1000000")  # 300 MB, in a store of 200 MiB.
    kinds = [reply_of(executor).kind for _ in range(301)]
    assert kinds == ["part"] * 300 + ["answer"]


def test_a_full_store_is_named_with_its_size_and_work_goes_on(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    executor = start()
    version = 0
    while "object store" not in caplog.text:
        version += 1
        assert version < 30
        executor.broadcast(bytes(90 * 2**20), version)  # Two do not fit.
        executor.submit(0, b"who")
        assert reply_of(executor).version == version
        executor.next(0.5)
    (line,) = (record for record in caplog.records if "object store" in record.message)
    assert re.search(r"object store of node \w+ \(200 MiB\) is full", line.message)
    assert "`ray start --object-store-memory=BYTES` on that machine sets its size" in line.message


def test_where_the_disk_is_full_too_work_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.0")  # Any disk is as good as full.
    known = {"object_store_mb": 80, "heartbeat_s": 1.0, "unavailable_s": 1.0}
    executor = RayExecutor(RayParams.model_validate(known))
    try:
        executor.start(EchoWorker, 1, Needs(), tmp_path, 5)
        executor.submit(0, b"large 100000000")
        assert reply_of(executor).kind == "lost"
        full = r"object store of node \w+ \(80 MiB\) is full, and so is the disk"
        assert len(re.findall(full, caplog.text)) == 1
        executor.broadcast(bytes(100_000_000), 1)
        assert executor.next(PATIENCE_S) is None
        (state,) = executor.workers()
        assert state.state == "given_up"
        assert re.search(f"{full}.*; object_store_mb of the executor", state.last_failure)
    finally:
        executor.stop()
