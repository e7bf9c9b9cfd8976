"""Collecting through the executor ``ray`` beside ``local``.

Run ``python tests/benchmarks/bench_ray.py`` where empo-ray is installed; it starts a
cluster of this machine. One round of environment steps burns about 10 ms of CPU time and sends
128 kB, and the learner sleeps between training steps. Both collectors are open all the time and
take turns; the actors of the one that waits pause. Then actors send 1 MB at a time without any
work, so that what a message costs is seen: time on the clock, and CPU time of the learner.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.config import ExecutorRef
from empo_core.types import Experience

ROUNDS = 7
ROUND_S = 3.0
STEPS = 16
"""Environment steps per round."""
LOOPS = 500_000
"""About 10 ms of work in Python."""
WORKING, FLOOD = 2**17, 2**20
"""Bytes per round of actors that work, and of those that only send."""
EXECUTORS: dict[str, Any] = {
    "local": "local",
    # More processors than there are, as every actor wants one.
    "ray": {"name": "ray", "params": {"needs": {"cpus": 0.25}, "object_store_mb": 500}},
}


class BusyActor:
    """An actor whose world is slow, or takes no time at all."""

    def __init__(self, loops: int, size: int) -> None:
        self.loops, self.size, self.version = loops, size, 0

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Nothing but the number matters."""
        self.version = version

    def act(self, training_step: int) -> Experience:
        """Work for a while."""
        total = 0
        for number in range(self.loops):
            total += number
        data = np.full(self.size // 8, total)
        return Experience({"data": data}, STEPS, version=self.version)

    def state_dict(self) -> dict[str, Any]:
        """There is none."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """There is none."""


@contextmanager
def collector_of(executor: str, actors: int, loops: int, size: int) -> Iterator[AsyncCollector]:
    """A collector that runs, with a queue of about 64 rounds."""
    collector = AsyncCollector(
        AsyncParams(
            actors=actors, executor=ExecutorRef.model_validate(EXECUTORS[executor]),
            min_env_steps=STEPS, max_env_steps_per_training_step=None, queue_size=64 * STEPS,
        )
    )  # fmt: skip
    try:
        collector.start(lambda index: BusyActor(loops, size))
        collector.publish({"weight": torch.zeros(100_000)}, 0)
        yield collector
    finally:
        collector.stop()


def rate_of(collector: AsyncCollector, seconds: float, pause_s: float) -> tuple[float, float]:
    """Environment steps per second and per CPU second of actors, after those that had waited."""
    processes = [psutil.Process(pid) for pid in collector.pids()]
    step, made, begin, cpu = 0, 0.0, 0.0, 0.0
    while not begin or time.perf_counter() - begin < seconds:
        step += 1
        time.sleep(pause_s)
        arrived = sum(one.env_steps for one in collector.collect(step))
        if begin:
            made += arrived
        elif step > 30:
            begin, cpu = time.perf_counter(), sum(map(cpu_of, processes))
    return made / (time.perf_counter() - begin), made / (sum(map(cpu_of, processes)) - cpu)


def cpu_of(process: psutil.Process) -> float:
    """Processor seconds that a process has used."""
    return float(sum(process.cpu_times()[:2]))


def throughput() -> dict[tuple[str, int], list[tuple[float, float]]]:
    """What ``rate_of`` says of both executors, in turns, with one and two actors."""
    rates: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for actors in (1, 2):
        with (
            collector_of("local", actors, LOOPS, WORKING) as local,
            collector_of("ray", actors, LOOPS, WORKING) as ray,
        ):
            for turn in range(ROUNDS):
                pairs = [("local", local), ("ray", ray)]
                for name, collector in pairs[:: 1 if turn % 2 else -1]:
                    rate = rate_of(collector, ROUND_S, 0.01)
                    rates.setdefault((name, actors), []).append(rate)
    return rates


def message_cost(executor: str) -> tuple[float, float]:
    """Seconds per message of 1 MB: on the clock, and of the learner's CPU."""
    with collector_of(executor, 2, 0, FLOOD) as collector:
        seconds = []
        for _ in range(ROUNDS):
            used = [time.process_time(), time.perf_counter()]
            first = collector.counters()["accepted_frames"]
            rate_of(collector, ROUND_S, 0.0)
            messages = collector.counters()["accepted_frames"] - first
            now = [time.process_time(), time.perf_counter()]
            seconds.append([(b - a) / messages for a, b in zip(used, now, strict=True)])
        learner, clock = (statistics.median(part) for part in zip(*seconds, strict=True))
    return clock, learner


def main() -> None:
    """Print the tables."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    console = Console(width=100)
    rates = throughput()
    title = f"Environment steps on {psutil.cpu_count()} cores, medians of {ROUNDS} turns"
    table = Table("actors", "per", "local", "ray", "ray / local", title=title)
    for actors in (1, 2):
        for which, unit in enumerate(("second", "CPU second of actors")):
            local, ray = ([turn[which] for turn in rates[name, actors]] for name in EXECUTORS)
            ratio = statistics.median(r / one for r, one in zip(ray, local, strict=True))
            medians = [f"{statistics.median(one):,.0f}" for one in (local, ray)]
            table.add_row(str(actors), unit, *medians, f"{ratio:.2f}")
    console.print(table)
    costs = {executor: message_cost(executor) for executor in EXECUTORS}
    table = Table("executor", "clock", "learner", title="Milliseconds per megabyte")
    for executor, cost in costs.items():
        table.add_row(executor, *(f"{1e3 * seconds:.2f}" for seconds in cost))
    console.print(table)


if __name__ == "__main__":
    main()
