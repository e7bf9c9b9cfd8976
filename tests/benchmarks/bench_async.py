"""Throughput gain of a second actor process where the world is the bottleneck.

Run ``python tests/benchmarks/bench_async.py``. One round of environment steps burns about 10 ms
of CPU time and sends 20 kB; the learner sleeps between training steps, as one whose training
runs on a GPU. One and two actors take turns within one run, and so do one and two bare processes
that burn the same and send nothing: what these gain is all that the machine has to give. Lost is
what was accepted and neither delivered nor waiting in the end.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from rich.table import Table

from empo_async_actors.collector import AsyncCollector
from empo_async_actors.plugin import AsyncParams
from empo_core.types import Experience

ROUNDS = 8
ROUND_S = 2.0
STEPS = 16
"""Environment steps per round."""
LOOPS = 500_000
"""About 10 ms of work in Python."""


def work() -> float:
    """Busy loop that stands for one round of a slow world."""
    total = 0
    for number in range(LOOPS):
        total += number
    return float(total)


class BusyActor:
    """An actor whose world is slow."""

    def __init__(self, index: int) -> None:
        self.version = 0

    def load(self, weights: Mapping[str, torch.Tensor], version: int) -> None:
        """Nothing but the number matters."""
        self.version = version

    def act(self, training_step: int) -> Experience:
        """Work for a while."""
        return Experience({"data": np.full(2500, work())}, STEPS, version=self.version)

    def state_dict(self) -> dict[str, Any]:
        """There is none."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """There is none."""


def collect_for(actors: int, seconds: float) -> tuple[float, float, int]:
    """Environment steps per second and per CPU second of the actors, and frames lost."""
    collector = AsyncCollector(
        AsyncParams(actors=actors, min_env_steps=STEPS, max_env_steps_per_training_step=None)
    )
    try:
        collector.start(BusyActor)
        collector.publish({"weight": torch.zeros(100_000)}, 0)
        frames = len(collector.collect(0))
        processes = [psutil.Process(pid) for pid in collector.pids()]
        cpu = -sum(sum(process.cpu_times()[:2]) for process in processes)
        first, begin = collector.counters()["env_steps"], time.perf_counter()
        step = 0
        while time.perf_counter() - begin < seconds:
            step += 1
            time.sleep(0.01)
            frames += len(collector.collect(step))
            if step % 20 == 0:
                collector.publish({"weight": torch.zeros(100_000)}, step)
        elapsed = time.perf_counter() - begin
        cpu += sum(sum(process.cpu_times()[:2]) for process in processes)
        made = collector.counters()["env_steps"] - first
    finally:
        collector.stop()
    counters = collector.counters()
    lost = counters["accepted_frames"] - frames - counters["queued_env_steps"] / STEPS
    return made / elapsed, made / cpu, int(lost)


def burn(pipe: Connection[Any, Any], seconds: float) -> None:
    """Work for so long without anybody to send to."""
    rounds, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        work()
        rounds += 1
    made = rounds * STEPS
    pipe.send((made / (time.perf_counter() - begin), made / (time.process_time() - cpu)))


def burn_for(processes: int, seconds: float) -> tuple[float, float]:
    """Throughput of so many bare processes, in environment steps per second and per CPU second."""
    context = multiprocessing.get_context("forkserver")
    pipes = [context.Pipe() for _ in range(processes)]
    burning = [context.Process(target=burn, args=(theirs, seconds)) for _, theirs in pipes]
    for process in burning:
        process.start()
    rates = [ours.recv() for ours, _ in pipes]
    for process in burning:
        process.join()
    return sum(rate for rate, _ in rates), statistics.mean(rate for _, rate in rates)


def main() -> None:
    """Print the table."""
    names = ("actors", "bare processes")
    rates: dict[tuple[str, int], list[float]] = {(name, n): [] for name in names for n in (1, 2)}
    per_cpu: dict[tuple[str, int], list[float]] = {key: [] for key in rates}
    lost = 0
    for _ in range(ROUNDS):
        for count in (1, 2):
            *found, gone = collect_for(count, ROUND_S)
            lost += gone
            for name, (rate, efficiency) in zip(
                names, (found, burn_for(count, ROUND_S)), strict=True
            ):
                rates[name, count].append(rate)
                per_cpu[name, count].append(efficiency)
    load = psutil.getloadavg()[0]
    table = Table("", title=f"Environment steps on {psutil.cpu_count()} cores, load {load:.1f}")
    for heading in ("one / s", "two / s", "two / one", "median", "one / CPU s", "two / CPU s"):
        table.add_column(heading, justify="right")
    for name in names:
        best = [max(rates[name, count]) for count in (1, 2)]
        middle = [statistics.median(rates[name, count]) for count in (1, 2)]
        table.add_row(
            name,
            *(f"{rate:,.0f}" for rate in best),
            f"{best[1] / best[0]:.2f}",
            f"{middle[1] / middle[0]:.2f}",
            *(f"{max(per_cpu[name, count]):,.0f}" for count in (1, 2)),
        )
    console = Console(width=100)
    console.print(table)
    console.print(f"Rates are those of the best of {ROUNDS} rounds, and the ratio of them; then")
    console.print(f"the ratio of medians. Accepted experiences that were lost: {lost}.")


if __name__ == "__main__":
    main()
