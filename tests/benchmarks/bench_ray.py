"""Collecting through the executor ``ray`` beside ``local``, and a model of many machines.

Run ``python tests/benchmarks/bench_ray.py [--plot]`` where empo-ray is installed; it starts a
cluster of this machine. One round of environment steps burns about 10 ms of CPU time and sends
128 kB, and the learner sleeps between training steps. Both collectors are open all the time and
take turns; the actors of the one that waits pause. Then actors send 1 MB at a time without any
work, so that what a message costs is seen: time on the clock, and CPU time in the process of the
learner and in that which is connected to the cluster.

The model takes these two costs, of a step and of a message, and asks at how many actors the
learner's process is busy with messages alone. It knows nothing of training, networks or disks.
``--plot`` draws it as ``docs/explanation/scaling_out.png``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
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

ROOT = Path(__file__).parents[2]
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


def modelled(actors: int, step_s: float, message_s: float, size: int) -> float:
    """Environment steps per second of so many actors: the actors' pace, or the learner's.

    Args:
        actors: How many.
        step_s: Seconds of a step in an actor.
        message_s: Seconds that the learner's side needs per megabyte.
        size: Bytes per step.
    """
    return min(actors / step_s, FLOOD / (message_s * size))


def plot(file: Path, step_s: float, message_s: float, measured: dict[int, float]) -> None:
    """Draw the model for steps that cost what they do here, 10 and 100 times as much."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    actors = np.unique(np.geomspace(1, 1000, 60).astype(int))
    for factor in (1, 10, 100):
        rates = [modelled(n, factor * step_s, message_s, WORKING // STEPS) for n in actors]
        axes.plot(actors, rates, label=f"model: {1e3 * factor * step_s:.2g} ms a step")
    axes.plot(list(measured), list(measured.values()), "ko", label="measured, one machine")
    axes.set(xscale="log", yscale="log", xlabel="actors", ylabel="environment steps per second")
    axes.set_title("A model, not a measurement: where messages keep the learner busy", fontsize=10)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)


def main() -> None:
    """Print the tables, and draw the picture where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--plot", action="store_true", help="draw the page's picture")
    options = parser.parse_args()
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
    step_s = 1 / statistics.median(per_cpu for _, per_cpu in rates["ray", 1])
    message_s = costs["ray"][0]
    title = "Model: environment steps per second (and where the learner's side binds)"
    table = Table("a step takes", "10 actors", "100", "1,000", "binds at", title=title)
    size = WORKING // STEPS
    for factor in (1, 10, 100):
        cells = [f"{modelled(n, factor * step_s, message_s, size):,.0f}" for n in (10, 100, 1000)]
        limit = factor * step_s * FLOOD / (message_s * size)
        table.add_row(f"{1e3 * factor * step_s:.2f} ms", *cells, f"{limit:,.0f} actors")
    console.print(table)
    if options.plot:
        measured = {n: statistics.median(rate for rate, _ in rates["ray", n]) for n in (1, 2)}
        plot(ROOT / "docs/explanation/scaling_out.png", step_s, message_s, measured)


if __name__ == "__main__":
    main()
