"""Faults of a simulated cluster while actors collect and a learner counts; prints a table.

Run ``python tests/reliability/cluster_kills.py [--runs 25]`` where empo-ray is installed. Runs
take turns among five kinds of faults; a test has some in one run. Every run must reach its training
steps, with its accounts exact: what was accepted was delivered once and in order, or waits. Lost is
the time between the last experience that arrived of an actor and its end.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import cloudpickle
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "plugins/empo_ray/tests"))

import async_learner as learning
from simulated_cluster import NODE, ray_params, simulated_cluster

cloudpickle.register_pickle_by_value(learning)  # Actors cannot import it.

ACTORS = 3
STEPS = 90
STEP_S = 0.05


class Watch:
    """A learner on a cluster, which knows when experience of each actor came last.

    Attributes:
        lost_s: Of every actor that was ended by a fault, the time that was lost with it.
    """

    def __init__(self, learner: Any) -> None:
        self.learner = learner
        self.lost_s: list[float] = []
        self._begun = 0
        self._arrived: dict[int, float] = {}
        self.counters: list[float] = []

    def step(self) -> None:
        """One training step."""
        for experience in self.learner.learn():
            self._arrived[experience.actor] = time.monotonic()
        self.counters.append(self.learner.collector.counters()["env_steps"])
        time.sleep(STEP_S)

    def begin(self) -> None:
        """Begin a part of the run, whose training steps are counted from here, with all actors."""
        self.learn_until(lambda: len(self.workers()) >= ACTORS)
        self._begun = self.learner.step

    def learn_to(self, step: int) -> None:
        """Learn until a training step of this part, which must come."""
        deadline = time.monotonic() + 120
        while self.learner.step < self._begun + step:
            assert time.monotonic() < deadline, "the learner does not get on"
            self.step()

    def learn_until(self, condition: Callable[[], bool]) -> None:
        """Learn until something is so, which must come."""
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it does not come"
            self.step()

    def recover(self) -> None:
        """Learn until every actor that was killed has been replaced."""
        counters = self.learner.collector.counters
        self.learn_until(lambda: counters()["restarts"] >= len(self.lost_s))

    def workers(self) -> list[Any]:
        """Number, process and node of all actors that act."""
        collector = self.learner.collector
        return [
            SimpleNamespace(
                number=run.actor,
                pid=run.pid,
                node=str(collector._executor._workers[collector._slots[run.actor]._worker]._who),
            )
            for run in collector._ready
            if collector._slots[run.actor]._worker is not None
        ]

    def ended(self, numbers: list[int]) -> None:
        """Note that actors end now."""
        now = time.monotonic()
        self.lost_s += [now - self._arrived[n] for n in numbers if n in self._arrived]

    def kill(self, chance: random.Random) -> None:
        """Kill one actor."""
        if found := self.workers():
            victim = chance.choice(found)
            os.kill(victim.pid, signal.SIGKILL)
            self.ended([victim.number])


Fault: TypeAlias = Callable[[Watch, Any, random.Random], None]


def kill(watch: Watch, cluster: Any, chance: random.Random) -> None:
    """Kill an actor, three times."""
    for part in (1, 2, 3):
        watch.learn_to(part * STEPS // 4 + chance.randrange(10))
        watch.kill(chance)
    watch.recover()


def kill_node(watch: Watch, cluster: Any, chance: random.Random) -> None:
    """Kill a node with all that is on it; another comes later."""
    watch.learn_to(STEPS // 3 + chance.randrange(10))
    node = chance.choice([n for n in cluster.list_all_nodes() if n is not cluster.head_node])
    watch.ended([s.number for s in watch.workers() if node.node_id[:8] in s.node])
    cluster.remove_node(node, allow_graceful=False)
    watch.learn_to(2 * STEPS // 3)
    cluster.add_node(**NODE)
    watch.recover()


def add_node(watch: Watch, cluster: Any, chance: random.Random) -> None:
    """Add a node, which has room for another actor."""
    watch.learn_to(STEPS // 3 + chance.randrange(10))
    before = len(watch.workers())
    node = cluster.add_node(**NODE)
    watch.learn_until(lambda: len(watch.workers()) > before)
    watch.ended([s.number for s in watch.workers() if node.node_id[:8] in s.node])
    cluster.remove_node(node, allow_graceful=False)


def stop_actor(watch: Watch, cluster: Any, chance: random.Random) -> None:
    """Stop an actor for ten seconds, which is not long enough to give it up."""
    watch.learn_to(STEPS // 3 + chance.randrange(10))
    counters = watch.learner.collector.counters
    before = counters()["restarts"]
    pid = chance.choice(watch.workers()).pid
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        watch.step()
    os.kill(pid, signal.SIGCONT)
    assert counters()["restarts"] == before


def publish_and_kill(watch: Watch, cluster: Any, chance: random.Random) -> None:
    """Kill actors while policies of a megabyte are on their way."""
    for part in (1, 2, 3):
        watch.learn_to(part * STEPS // 4)
        for _ in range(10):
            watch.learner.publish()
        time.sleep(chance.uniform(0, 0.2))
        watch.kill(chance)
    watch.recover()


FAULTS: tuple[Fault, ...] = (kill, kill_node, add_node, stop_actor, publish_and_kill)


def run(faults: Sequence[Fault], chance: random.Random, cluster: Any) -> tuple[str, ...]:
    """One run with these faults; the cells of its row."""
    from empo_async_actors.collector import AsyncCollector
    from empo_async_actors.plugin import AsyncParams
    from empo_core.config import ExecutorRef

    actors = ACTORS + (add_node in faults)
    params = ray_params(cluster, place_timeout_s=5.0)
    executor = ExecutorRef.model_validate({"name": "ray", "params": params})
    collector = AsyncCollector(
        AsyncParams(
            actors=actors, executor=executor, min_env_steps=1, max_restarts=20,
            max_env_steps_per_training_step=None, queue_size=10_000,
        )
    )  # fmt: skip
    begun = time.monotonic()
    try:
        collector.start(learning.counting(payload=100_000, pause_s=0.02))
        watch = Watch(learning.Learner(collector))
        for fault in faults:
            watch.begin()
            fault(watch, cluster, chance)
            watch.learn_to(STEPS)
        watch.begin()
        watch.learn_to(20)
    finally:
        collector.stop()
    learner = watch.learner
    assert not learner.wrong, learner.wrong
    assert not (unequal := learner.imbalance()), unequal
    assert watch.counters == sorted(watch.counters), "a counter went back"
    counters = collector.counters()
    return (
        ", ".join(fault.__name__.replace("_", " ") for fault in faults),
        str(learner.step), f"{counters['env_steps']:,.0f}",
        f"{counters['restarts']:.0f}", f"{max(watch.lost_s, default=0.0):.2f} s",
        f"{time.monotonic() - begun:.0f} s",
    )  # fmt: skip


def main() -> None:
    """Print the table; an assertion that fails ends the programme."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--runs", type=int, default=25)
    options = parser.parse_args()
    table = Table("run", "fault", "training steps", "env steps", "restarts", "most lost", "time")
    with simulated_cluster() as cluster:
        for number in range(options.runs):
            fault = FAULTS[number % len(FAULTS)]
            row = run([fault], random.Random(number), cluster)
            table.add_row(str(number), *row)
            print(number, *row, sep=" | ", flush=True)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
