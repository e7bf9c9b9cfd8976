"""Actors, nodes and heads that fail, grow and differ: each row of the table of failures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cloudpickle
import psutil
import pytest

pytest.importorskip("empo_ray", reason="empo-ray is not installed")

from simulated_cluster import NODE, simulated_cluster

from empo_core.errors import WorkerError
from empo_core.protocols import Needs, Payload, Send
from empo_core.testing.executor import (
    assert_balanced,
    await_ready,
    is_running,
    reply_of,
)
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """Actors cannot import this module."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Odd:
    """Does what a request says to its own process."""

    def __init__(self, number: int, incarnation: int) -> None:
        self.incarnation = incarnation

    def load(self, blob: memoryview, version: int) -> None:
        import os
        import signal

        if bytes(blob) == b"kill" and self.incarnation == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def call(self, request: bytes, send: Send) -> Payload:
        import os
        import types

        from empo_executors import frames

        word, _, rest = request.partition(b" ")
        if word == b"flip":
            wrong = lambda data, start=0: 12345  # noqa: E731
            frames.zlib = types.SimpleNamespace(crc32=wrong)  # type: ignore[assignment]
        for _ in range(int(rest or 0)):
            send([os.urandom(2**20)])
        return [b"answer"]

    def close(self) -> None:
        """There is nothing to release."""


Start = Callable[..., RayExecutor]


@pytest.fixture
def start(cluster: Any, tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(
        make: Callable[[int, int], object] = Odd, workers: int = 1, **params: Any
    ) -> RayExecutor:
        address = cluster.address
        known = {"address": address, "allow_addresses": [address], "place_timeout_s": 5.0}
        executor = RayExecutor(RayParams.model_validate(known | params))
        started.append(executor)
        executor.start(make, workers, Needs(), tmp_path, 5)  # type: ignore[arg-type]
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


def test_a_worker_killed_while_it_loads_a_broadcast_is_replaced(start: Start) -> None:
    executor = start()
    executor.broadcast(b"kill", 1)
    executor.submit(0, b"hello")
    assert reply_of(executor).kind == "lost"
    await_ready(executor, incarnation=1)
    executor.submit(0, b"hello")
    assert reply_of(executor).payload == b"answer"
    assert_balanced(executor)


def test_an_answer_with_a_wrong_bit_ends_the_worker_and_is_lost(start: Start) -> None:
    executor = start()
    executor.submit(0, b"flip")
    reply = reply_of(executor)
    assert reply.kind == "lost"
    assert "is damaged" in reply.traceback
    await_ready(executor, incarnation=1)


def test_a_worker_stopped_for_a_moment_is_unavailable_and_loses_nothing(start: Start) -> None:
    executor = start(heartbeat_s=1.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    executor.submit(0, b"parts 3")
    os.kill(pid, signal.SIGSTOP)
    executor.submit(0, b"hello")
    until(executor, lambda: executor.workers()[0].state == "unavailable")
    os.kill(pid, signal.SIGCONT)
    until(executor, lambda: executor.workers()[0].in_flight == 0)
    (account,) = executor.account()
    assert (account.answered, account.lost, account.sent) == (2, 0, account.accepted)


def test_a_worker_stopped_for_long_is_replaced(start: Start) -> None:
    executor = start(heartbeat_s=1.0, unavailable_s=1.0)
    pid = executor.workers()[0].pid
    assert pid is not None
    executor.submit(0, b"hello")
    assert reply_of(executor).payload == b"answer"
    os.kill(pid, signal.SIGSTOP)
    executor.submit(0, b"hello")
    reply = reply_of(executor)
    assert reply.kind == "lost"
    assert "no sign of life for 2 s (heartbeat_s and unavailable_s" in reply.traceback
    await_ready(executor, incarnation=1)
    deadline = time.monotonic() + PATIENCE_S
    while is_running(pid):
        assert time.monotonic() < deadline


def test_workers_of_a_dead_node_wait_for_room_and_take_that_of_a_new_one(
    start: Start, cluster: Any
) -> None:
    with another_node(cluster) as node:
        executor = start(workers=4)
        there = [s.number for s in executor.workers() if node.node_id[:8] in s.node]
        assert len(there) == 1, "bundles are spread"
        executor.submit(there[0], b"hello")
        assert reply_of(executor).payload == b"answer"
        cluster.remove_node(node, allow_graceful=False)
        executor.submit(there[0], b"hello")
        executor.submit(there[0], b"hello")
        found = [reply_of(executor) for _ in range(2)]
        assert {(reply.worker, reply.kind) for reply in found} <= {
            (there[0], "lost"), (there[0], "answer"),
        }  # fmt: skip
        until(executor, lambda: executor.workers()[there[0]].incarnation > 0)
        executor.next(3.0)
        assert executor.workers()[there[0]].pid is None, "there is no room"
        for state in executor.workers():
            if state.number != there[0]:
                executor.submit(state.number, b"hello")
                assert reply_of(executor).payload == b"answer"
    with another_node(cluster) as node:
        state = await_ready(executor, there[0], incarnation=1)
        assert node.node_id[:8] in state.node
        assert_balanced(executor)
        executor.stop()


def test_what_has_a_place_starts_and_a_node_that_appears_is_used(
    start: Start, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    executor = start(workers=4, place_timeout_s=4.0)
    states = [state.state for state in executor.workers()]
    assert sorted(states) == ["dead", "ready", "ready", "ready"]
    assert "room for 3 of 4 workers" in caplog.text
    with pytest.raises(WorkerError, match="has no process at the moment"):
        executor.submit(states.index("dead"), b"hello")
    with another_node(cluster) as node:
        state = await_ready(executor, states.index("dead"))
        assert node.node_id[:8] in state.node
        executor.stop()


def test_a_node_that_drains_is_left(start: Start, cluster: Any) -> None:
    from ray._raylet import GcsClient

    with another_node(cluster, num_cpus=2) as node:
        executor = start(workers=4)
        there = [s.number for s in executor.workers() if node.node_id[:8] in s.node]
        assert there
        with another_node(cluster, num_cpus=2) as refuge:
            preemption, deadline_ms = 2, int(1000 * (time.time() + 3600))
            head = GcsClient(address=cluster.address)
            accepted, why = head.drain_node(node.node_id, preemption, "for this test", deadline_ms)
            assert accepted, why
            state = await_ready(executor, there[0], incarnation=1)
            assert "was on a node that drains" in state.last_failure
            assert refuge.node_id[:8] in state.node
            executor.stop()


def test_other_software_on_a_node_is_refused_before_any_work(
    start: Start, cluster: Any, tmp_path: Path
) -> None:
    other = tmp_path / "path/torch-9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    with another_node(cluster, env_vars={"PYTHONPATH": str(other.parent)}) as node:
        with pytest.raises(WorkerError) as caught:
            start(workers=4)
        said = str(caught.value)
        assert f"({node.node_id[:8]}) with other software: torch is " in said
        assert "here and 9.9 there" in said


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


def test_labels_choose_the_node(start: Start, cluster: Any) -> None:
    with another_node(cluster, labels={"zone": "b"}) as node:
        executor = start(needs={"labels": {"zone": "b"}})
        assert node.node_id[:8] in executor.workers()[0].node
        executor.stop()


def test_two_broadcasts_are_kept_also_while_a_worker_is_stopped(start: Start) -> None:
    executor = start(workers=2)
    pid = executor.workers()[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    for version in range(1, 21):  # 600 MB, in stores of 200 MiB.
        executor.broadcast(bytes(30_000_000), version)
        executor.submit(1, b"hello")
        assert reply_of(executor).version == version
    os.kill(pid, signal.SIGCONT)
    executor.submit(0, b"hello")
    assert reply_of(executor).version == 20


def test_a_worker_that_is_not_listened_to_fills_neither_memory_nor_store(start: Start) -> None:
    executor = start()
    executor.submit(0, b"parts 300")  # 300 MB, in a store of 200 MiB.
    kinds = [reply_of(executor).kind for _ in range(301)]
    assert kinds == ["part"] * 300 + ["answer"]


def test_rollouts_are_those_of_one_machine_also_where_actors_are_killed(
    cluster: Any, tmp_path: Path
) -> None:
    pytest.importorskip("empo_rollout", reason="without it nobody collects rollouts")
    import torch

    from empo_core.config import RunConfig
    from empo_core.experiment import run

    def weights(executor: Any, folder: Path) -> list[torch.Tensor]:
        params = {
            "total_steps": 512, "num_envs": 4, "environment": "gymnasium/CartPole-v1",
            "experience": {"bptt_horizon": 16}, "policy": {"hidden": [8]},
            "update": {"minibatch_size": 32}, "compute": {"threads": 1},
            "collection": {"actors": 2, "executor": executor},
            "reporting": {"evaluation_episodes": 0},
        }  # fmt: skip
        algorithm = {"name": "rollout", "params": params}
        config = {"algorithm": algorithm, "trackers": [], "runs": str(folder)}
        return list(run(RunConfig.model_validate(config)).policy.parameters())

    def kill_hosts() -> None:
        """End every actor once, each a moment after it has begun."""
        killed = set[int]()
        while len(killed) < 2 and not over.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    old = time.time() - process.create_time() > 3
                    if process.pid not in killed and process.name() == "ray::Host" and old:
                        process.kill()
                        killed.add(process.pid)

    address = cluster.address
    ray = {"name": "ray", "params": {"address": address, "allow_addresses": [address]}}
    over = threading.Event()
    killer = threading.Thread(target=kill_hosts)
    killer.start()
    try:
        found = weights(ray, tmp_path / "ray")
    finally:
        over.set()
        killer.join()
    for one, other in zip(found, weights("local", tmp_path / "local"), strict=True):
        assert torch.equal(one, other)


def test_worlds_are_explored_on_a_cluster_as_on_one_machine(cluster: Any) -> None:
    pytest.importorskip("empo_tabular", reason="without it there is no world to explore")
    pytest.importorskip("empo_exact", reason="without it nothing explores")
    from empo_core.config import ExecutorRef, WorldModelRef
    from empo_core.experiment import build
    from empo_exact.graph import build_graph

    address = cluster.address
    ray = {"name": "ray", "params": {"address": address, "allow_addresses": [address]}}
    world = build(WorldModelRef.model_validate("table/coma_pill"))
    found = build_graph(world, None, workers=2, executor=ExecutorRef.model_validate(ray))
    alone = build_graph(world, None)
    for name in ("states", "offsets", "successor", "code", "prob"):
        assert (getattr(found, name) == getattr(alone, name)).all(), name


DRIVER = """
import pathlib, sys, time
from empo_core.protocols import Needs
from empo_core.testing.executor import EchoWorker
from empo_ray.executor import RayExecutor
from empo_ray.plugin import RayParams

if __name__ == "__main__":
    address = {address!r}
    executor = RayExecutor(RayParams(address=address, allow_addresses=[address]))
    executor.start(EchoWorker, 2, Needs(), pathlib.Path(sys.argv[1]), 0)
    executor.submit(0, b"sleep")
    executor.next(30)
    print(*(state.pid for state in executor.workers()), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("local", [False, True])
def test_workers_end_when_their_run_is_killed_stopped_ones_too(
    cluster: Any, tmp_path: Path, local: bool
) -> None:
    path = tmp_path / "driver.py"
    path.write_text(DRIVER.format(address="local" if local else cluster.address))
    before = {process.pid for process in psutil.process_iter()}
    with subprocess.Popen(
        [sys.executable, str(path), str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        workers = [int(pid) for pid in driver.stdout.readline().split()]
        assert len(workers) == 2
        os.kill(workers[1], signal.SIGSTOP)
        driver.kill()
    deadline = time.monotonic() + 10  # Within 5 s on an idle machine.
    while alive := [pid for pid in workers if is_running(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)
    if local:
        while left := [p for p in psutil.process_iter(["name"]) if is_of_ray(p, before)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


def is_of_ray(process: psutil.Process, before: set[int]) -> bool:
    """True for a process of Ray that has come since and runs."""
    name = str(process.info["name"])
    named = name.startswith(("ray::", "raylet", "gcs_server"))
    return named and process.pid not in before and is_running(process.pid)


CONFIG = """
world_model: {{name: multigrid/trivial, params: {{max_steps: 5}}}}
seed: 0
algorithm:
  name: phase2
  params:
    human_prior: {{name: exact, params: {{theory: {{beta_h: 10.0}}}}}}
    values: {{q_r: lookup, v_h_e: lookup}}
    total_steps: 1500
    collector:
      name: async
      params:
        executor:
          name: ray
          params: {{address: "{0}", allow_addresses: ["{0}"], unavailable_s: 2.0}}
"""


def test_a_run_that_loses_the_head_leaves_a_checkpoint_and_can_be_resumed(tmp_path: Path) -> None:
    pytest.importorskip("empo_phase2", reason="without learners there are no runs")

    def empo(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "empo_core", *words]
        return subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)

    with simulated_cluster(1) as doomed:
        address = doomed.address
        (tmp_path / "run.yaml").write_text(CONFIG.format(address))
        with empo("run", "run.yaml") as run:
            deadline = time.monotonic() + PATIENCE_S
            while not any(f.stat().st_size for f in tmp_path.glob("runs/*/metrics.jsonl")):
                assert time.monotonic() < deadline
                assert run.poll() is None, run.stderr
                time.sleep(0.1)
            head = doomed.head_node.all_processes
            for name in ("gcs_server", "raylet"):
                head[name][0].process.kill()
            _, said = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 3
        assert f"the cluster at {address} was lost" in said, said[-1500:]
    (directory,) = tmp_path.glob("runs/*")
    with simulated_cluster(1, gcs_server_port=int(address.rpartition(":")[2])):
        with empo("resume", str(directory)) as resumed:
            _, said = resumed.communicate(timeout=2 * PATIENCE_S)
        assert resumed.returncode == 0, said
